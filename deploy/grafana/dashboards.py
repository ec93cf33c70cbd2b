#!/usr/bin/python3
"""Source of the Grafana dashboards. Standard library only.

  deploy/grafana/dashboards.py           writes deploy/grafana/dashboards/*.json
  deploy/grafana/dashboards.py --check   exit 1 and the names of the files that are not what this source gives

Expressions use only series of docs/metrics.md and of deploy/prometheus/rules/hearth-recording.yml. In them stand for matchers on
variables: @ job and instance (every series), @j also job_id, @w also worker_id, @g also worker_id and gpu, @c job alone (recorded
series of level "cluster" that have no instance)."""

import json
import os
import re
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dashboards")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TARGET = 'job=~"$job", instance=~"$instance"'
MATCHERS = {
    "@j": TARGET + ', job_id=~"$job_id"',
    "@w": TARGET + ', worker_id=~"$worker_id"',
    "@g": TARGET + ', worker_id=~"$worker_id", gpu=~"$gpu"',
    "@c": 'job=~"$job"',
    "@": TARGET,
}
SCHEMA_VERSION = 39


def expand(expression):
    return re.sub(r"@[jwgc]?(?=[,}])", lambda m: MATCHERS[m.group()], expression)


def panel(title, description, unit, *targets, kind="timeseries", steps=(), width=8, height=7, gpu=False, **options):
    """`targets` are (expression, legend); `steps` are (from, colour) above green; `gpu`: has no data without a GPU."""
    return {"title": title, "description": description, "unit": unit, "kind": kind, "steps": steps, "width": width, "height": height,
            "gpu": gpu, "targets": [(expand(e), legend) for e, legend in targets], "options": options}


def stat(title, description, unit, expression, legend="", **more):
    return panel(title, description, unit, (expression, legend), kind="stat", width=more.pop("width", 4), height=4, **more)


def quantile(q, histogram, matchers="{@}"):
    """A quantile of the events in the window."""
    return f"histogram_quantile({q}, sum without (instance) (rate({histogram}_bucket{matchers}[$__rate_interval])))"


def row(title):
    return {"row": title}


def render_panel(spec, number, x, y):
    custom = {}
    if spec["kind"] == "timeseries":
        custom = {"lineWidth": 1, "fillOpacity": 0, "showPoints": "auto", "spanNulls": False,
                  "scaleDistribution": {"type": spec["options"].get("scale", "linear"), "log": 10}}
        if spec["steps"]:
            custom["thresholdsStyle"] = {"mode": "dashed"}
        if spec["options"].get("stack"):
            custom.update({"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 30})
    defaults = {
        "unit": spec["unit"], "custom": custom,
        "color": {"mode": "thresholds" if spec["kind"] == "stat" else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": [{"color": "green", "value": None}] +
                       [{"color": colour, "value": value} for value, colour in spec["steps"]]},
    }
    for key in ("min", "max", "decimals"):
        if key in spec["options"]:
            defaults[key] = spec["options"][key]
    instant = spec["kind"] in ("stat", "table", "bargauge")
    view = {
        "timeseries": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                       "tooltip": {"mode": "multi", "sort": "desc"}},
        "stat": {"colorMode": "value", "graphMode": "none", "textMode": spec["options"].get("text", "auto"),
                 "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}},
        "bargauge": {"displayMode": "basic", "orientation": "horizontal", "showUnfilled": True,
                     "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}},
        "table": {"showHeader": True, "cellHeight": "sm"},
    }[spec["kind"]]
    result = {
        "id": number, "type": spec["kind"], "title": spec["title"], "description": spec["description"], "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": spec["width"], "h": spec["height"]},
        "fieldConfig": {"defaults": defaults, "overrides": []}, "options": view,
        "targets": [{"refId": chr(ord("A") + k), "datasource": DATASOURCE, "editorMode": "code", "expr": expression,
                     "legendFormat": legend or "__auto", "range": not instant, "instant": instant,
                     "format": "table" if spec["kind"] == "table" else "time_series"}
                    for k, (expression, legend) in enumerate(spec["targets"])],
    }
    if spec["kind"] == "table":
        hidden = {name: True for name in ("Time", "Value", "__name__", "job", "instance")}
        result["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
    return result


def render_panels(specs):
    """Left to right, a new line when the width of 24 is full; a row starts a line of its own."""
    panels, x, y, line = [], 0, 0, 0
    for number, spec in enumerate(specs, 1):
        width = 24 if "row" in spec else spec["width"]
        if x + width > 24:
            x, y, line = 0, y + line, 0
        if "row" in spec:
            panels.append({"id": number, "type": "row", "title": spec["row"], "collapsed": False, "panels": [],
                           "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
            y += 1
            continue
        panels.append(render_panel(spec, number, x, y))
        x, line = x + width, max(line, spec["height"])
    return panels


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "definition": query,
            "query": {"query": query, "refId": "variable-" + name}, "refresh": 2, "sort": 1, "multi": True, "includeAll": True,
            "allValue": ".+", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "hide": 0, "options": [],
            "regex": "", "skipUrlSync": False}


def textbox(name, label, default):
    return {"name": name, "label": label, "type": "textbox", "query": default, "current": {"selected": True, "text": default, "value": default},
            "hide": 0, "options": [{"selected": True, "text": default, "value": default}], "skipUrlSync": False}


# As jobctl takes them; whoever looks puts in what they pay.
PRICES = {"price_per_kwh": "0.10", "price_per_gpu_hour": "0.50"}

VARIABLES = {
    "job": variable("job", "Scrape job", "label_values(hearth_build_info, job)"),
    "instance": variable("instance", "Instance", 'label_values(hearth_build_info{job=~"$job"}, instance)'),
    "job_id": variable("job_id", "Job", 'label_values(hearth_job_info{job=~"$job", instance=~"$instance"}, job_id)'),
    "worker_id": variable("worker_id", "Worker",
                          'label_values(hearth_worker_connected{job=~"$job", instance=~"$instance"}, worker_id)'),
    "gpu": variable("gpu", "GPU", 'label_values(hearth_gpu_info{job=~"$job", instance=~"$instance", worker_id=~"$worker_id"}, gpu)'),
    "price_per_kwh": textbox("price_per_kwh", "Price of a kWh", PRICES["price_per_kwh"]),
    "price_per_gpu_hour": textbox("price_per_gpu_hour", "Price of a GPU's hour", PRICES["price_per_gpu_hour"]),
}


def datasource_variable():
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "multi": False,
            "includeAll": False, "current": {}, "hide": 0, "options": [], "regex": "", "skipUrlSync": False}


def annotation(name, color, expression, title, at_value=False, enable=True):
    """`at_value`: the series' value, in milliseconds since 1970, is the time of the event."""
    return {"name": name, "datasource": DATASOURCE, "enable": enable, "hide": False, "iconColor": color, "expr": expand(expression),
            "titleFormat": title, "textFormat": "{{job_id}}", "tagKeys": "job_id",
            "step": "5s", "useValueForTime": at_value}


def builtin_annotation():
    return {"name": "Annotations & Alerts", "builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True,
            "hide": True, "iconColor": "rgba(0, 211, 255, 1)", "type": "dashboard"}


def dashboard(name, title, description, variables, specs, annotations=()):
    return {
        "id": None, "uid": "hearth-" + name, "title": title, "description": description, "tags": ["hearth"],
        "schemaVersion": SCHEMA_VERSION, "version": 1, "editable": False, "graphTooltip": 1, "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s", "timezone": "browser", "timepicker": {}, "fiscalYearStartMonth": 0, "weekStart": "", "liveNow": False,
        "links": [{"type": "dashboards", "title": "Hearth", "tags": ["hearth"], "asDropdown": False, "icon": "external link",
                   "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": ""}],
        "templating": {"list": [datasource_variable()] + [VARIABLES[v] for v in ("job", "instance", *variables)]},
        "annotations": {"list": [builtin_annotation(), *annotations]},
        "panels": render_panels(specs),
    }


# -- what the panels show ---------------------------------------------------------------------------------------------------------

IDLE_GPUS = "(hearth_gpu_allocated{@w} == 1) and on (instance, gpu) (hearth_gpu_utilization_ratio{@w} < 0.05)"

CLUSTER = [
    stat("Firing alerts", "Alerts of deploy/prometheus that fire now; docs/runbook.md says what to do on each.", "none",
         'count(ALERTS{alertname=~"Hearth.+", alertstate="firing"}) or vector(0)', steps=[(1, "red")]),
    stat("Running jobs", "Jobs whose gang trains now.", "none", 'sum(hearth_jobs{@, state="running"})'),
    stat("Queued jobs", "Jobs that wait for workers.", "none", 'sum(hearth_jobs{@, state="queued"})', steps=[(1, "yellow")]),
    stat("Free workers", "Workers that could take a task now.", "none", 'sum(hearth_workers{@, state="idle"})'),
    stat("Workers in trouble", "Workers that are lost, unreachable or unhealthy. `jobctl workers -o wide` says why.", "none",
         'sum(hearth_workers{@, state=~"lost|unreachable|unhealthy"})', steps=[(1, "red")]),
    stat("GPUs allocated but idle", "GPUs that a job holds while kernels run less than 5 % of the time.", "none",
         f"count({IDLE_GPUS}) or 0 * count(hearth_gpu_allocated{{@w}})", steps=[(1, "orange")], gpu=True),
    row("Jobs"),
    panel("Throughput", "Tokens trained a second, all jobs together, mean of one minute.", "none",
          ("cluster:hearth_tokens:rate1m{@}", "all jobs"), min=0),
    panel("Jobs by state", "Number of jobs in each state.", "none", ("sum by (state) (hearth_jobs{@})", "{{state}}"), stack=True, min=0),
    panel("Throughput by job", "Tokens trained a second by each job, mean of one minute.", "none",
          ("job_id:hearth_job_tokens:rate1m{@}", "{{job_id}}"), min=0),
    panel("Time in the queue", "90 % of the jobs that left the queue in the last hour waited no longer than this. No value if none did.",
          "s", ("cluster:hearth_queue_wait_seconds:p90_1h{@c}", "90 %"), min=0),
    panel("Start until first step", "Time from the placement of a gang to its first step, of the starts in the window.", "s",
          (quantile(0.5, "hearth_ready_to_first_step_seconds"), "50 %"),
          (quantile(0.9, "hearth_ready_to_first_step_seconds"), "90 %"),
          min=0),
    panel("Recoveries and evictions", "Gangs taken off their workers in the window, by reason, and workers declared lost.", "none",
          ("sum by (reason) (increase(hearth_evictions_total{@}[$__rate_interval])) > 0", "evicted: {{reason}}"),
          ("sum(increase(hearth_evictions_total{@}[$__rate_interval]))", "evicted, all"),
          ("sum(increase(hearth_worker_lost_total{@}[$__rate_interval]))", "workers lost"), min=0),
    row("Workers"),
    panel("Workers by state", "Number of workers in each state.", "none", ("sum by (state) (hearth_workers{@})", "{{state}}"), stack=True,
          min=0),
    panel("Trainer utilisation", "Processor time of each running trainer over that of its threads. Low on GPU workers is normal.",
          "percentunit", ("hearth_worker_trainer_utilization_ratio{@w}", "{{worker_id}}"), min=0),
    panel("Host memory of trainers", "Resident memory of each running trainer.", "bytes",
          ("hearth_worker_trainer_resident_bytes{@w}", "{{worker_id}}"), min=0),
    panel("Task exits", "Trainers that ended in the window, by reason; finished, stopped and paused are normal.", "none",
          ("sum by (reason) (increase(hearth_worker_task_exits_total{@w}[$__rate_interval])) > 0", "{{reason}}"),
          ("sum(increase(hearth_worker_task_exits_total{@w}[$__rate_interval]))", "all"), min=0),
    panel("Worker connections", "1 while a worker has a stream to a coordinator.", "none",
          ("hearth_worker_connected{@w}", "{{worker_id}}"), min=0, max=1),
    panel("Reports not yet acknowledged",
          "Buffered by workers; grows while the coordinator is away, and beyond the bound log lines are lost.",
          "bytes", ("hearth_worker_report_buffer_bytes{@w}", "{{worker_id}}"), min=0),
    row("GPUs"),
    panel("Power", "Power of all GPUs together, from their energy counters.", "watt",
          ("sum(cluster:hearth_gpu_power_watts:rate1m{@c})", "all GPUs"), gpu=True, min=0),
    panel("GPU utilisation", "Share of the time in which any kernel ran.", "percentunit",
          ("hearth_gpu_utilization_ratio{@w}", "{{worker_id}} gpu {{gpu}}"), gpu=True, min=0, max=1),
    panel("GPU memory", "Memory in use by all processes over the GPU's memory.", "percentunit",
          ("hearth_gpu_memory_used_bytes{@w} / hearth_gpu_memory_total_bytes{@w}", "{{worker_id}} gpu {{gpu}}"), gpu=True, min=0, max=1,
          steps=[(0.97, "red")]),
    panel("Allocated but idle", "1 for each GPU that a job holds while it runs no kernel to speak of.", "none",
          (IDLE_GPUS + " or 0 * hearth_gpu_allocated{@w}", "{{worker_id}} gpu {{gpu}}"), gpu=True, min=0, max=1, steps=[(1, "orange")]),
    panel("Temperature", "Temperature of each GPU.", "celsius", ("hearth_gpu_temperature_celsius{@w}", "{{worker_id}} gpu {{gpu}}"),
          gpu=True, steps=[(80, "yellow"), (88, "red")]),
    panel("Throttled", "GPUs whose clocks are limited by heat or power supply, by reason.", "none",
          ('sum by (reason) (hearth_gpu_throttled{@w, reason!="gpu_idle"})', "{{reason}}"), gpu=True, min=0),
]

# GPU series of the workers on which the chosen jobs run.
ON_JOB = " and on (instance) hearth_worker_job_step{@j}"

JOB = [
    panel("Facts", "What the job is: model, precision asked for, devices and number of ranks.", "none", ("hearth_job_info{@j}", ""),
          kind="table", width=8, height=4),
    stat("Precision in force", "Recipe of the last step; emulated: rounded as in the format, computed in another.", "none",
         "hearth_job_precision_info{@j}", "{{recipe}} {{execution}}", text="name"),
    stat("State", "State of each chosen job.", "none", 'hearth_job_state{@j} == 1', "{{state}}", text="name"),
    stat("Progress", "Steps done over train.steps.", "percentunit", "job_id:hearth_job_progress:ratio{@j}", "{{job_id}}"),
    stat("Restarts", "Recoveries since the coordinator started.", "none",
         "sum(hearth_job_restarts_total{@j}) or 0 * count(hearth_job_info{@j})", "restarts", steps=[(1, "yellow"), (4, "red")]),
    row("Is it learning?"),
    panel("Loss", "Training loss of the last step and held-out loss of the last evaluation, nats per token.", "none",
          ("hearth_job_loss{@j}", "{{job_id}} training"), ("hearth_job_validation_loss{@j}", "{{job_id}} validation"), width=12, height=9),
    panel("Gradient norm", "Global L2 norm of the last step's gradient before clipping. Spikes precede divergence.", "none",
          ("hearth_job_grad_norm{@j}", "{{job_id}}"), width=6, height=9, min=0),
    panel("Learning rate", "Learning rate of the last step.", "sci", ("hearth_job_learning_rate{@j}", "{{job_id}}"), width=6, height=9,
          min=0),
    row("Is it fast?"),
    panel("Throughput", "Tokens a second, mean of one minute; counts steps that were done again after a restart.", "none",
          ("job_id:hearth_job_tokens:rate1m{@j}", "{{job_id}}"), min=0),
    panel("Step time", "Quantiles of the steps' durations in the window.", "s",
          (quantile(0.5, "hearth_job_step_duration_seconds", "{@j}"),
           "{{job_id}} 50 %"),
          (quantile(0.9, "hearth_job_step_duration_seconds", "{@j}"),
           "{{job_id}} 90 %"),
          (quantile(0.99, "hearth_job_step_duration_seconds", "{@j}"),
           "{{job_id}} 99 %"), ("job_id:hearth_job_step_duration_seconds:mean5m{@j}", "{{job_id}} mean of 5 min"), min=0),
    panel("MFU", "Model FLOPs of the last step over the devices' dense BF16 peak. None where the peak is not known, as on CPUs.",
          "percentunit", ("hearth_job_mfu_ratio{@j}", "{{job_id}}"), gpu=True, min=0),
    panel("Waiting", "Share of the step time in which rank 0 waited for other ranks' gradients, and for training data.", "percentunit",
          ("job_id:hearth_job_communication_exposed:ratio_rate1m{@j}", "{{job_id}} gradients"),
          ("job_id:hearth_job_data_wait:ratio_rate1m{@j}", "{{job_id}} data"), min=0, steps=[(0.1, "yellow"), (0.3, "red")]),
    panel("Communication", "Bytes that rank 0 sends a second for gradients and weights, by the ring algorithm's count.", "Bps",
          ("rate(hearth_job_communication_bytes_total{@j}[$__rate_interval])", "{{job_id}}"), min=0),
    panel("Memory", "Device memory that rank 0 reports in use. Growth after the first steps is a leak.", "bytes",
          ("hearth_worker_job_memory_bytes{@j}", "{{job_id}} {{worker_id}}"), min=0),
    row("Is it safe?"),
    panel("Steps", "Last completed step.", "none", ("hearth_job_step{@j}", "{{job_id}}"), min=0),
    panel("Age of last step and checkpoint",
          "A step that is minutes old means a stuck job; a loss of a worker costs what came after the last checkpoint.", "s", ("time() - hearth_job_last_progress_timestamp_seconds{@j}", "{{job_id}} step"),
          ("time() - (hearth_job_last_checkpoint_timestamp_seconds{@j} > 0)", "{{job_id}} checkpoint"), min=0, steps=[(21600, "red")]),
    panel("Restarts and recovery", "Recoveries by cause, and how long the last one took from the loss of a rank to the next step.", "none",
          ("sum by (job_id, cause) (hearth_job_restarts_total{@j}) > 0 or 0 * count by (job_id) (hearth_job_info{@j})",
           "{{job_id}} {{cause}}"),
          ("hearth_job_recovery_seconds{@j}", "{{job_id}} last recovery, seconds"), min=0),
    panel("Writing checkpoints", "Time that the newest checkpoint took to write, mostly while steps went on, and that the last resume took to its "
          "first step; checkpoints skipped in the window because the one before was still being written.", "s",
          ("hearth_job_checkpoint_duration_seconds{@j}", "{{job_id}}"), ("hearth_job_resume_seconds{@j}", "{{job_id}} resume"),
          ("increase(hearth_job_skipped_checkpoints_total{@j}[$__rate_interval])", "{{job_id}} skipped, count"), min=0, width=12),
    panel("Share of time lost to checkpoints", "Time for which steps stood still because of checkpoints, over all time.", "percentunit",
          ("rate(hearth_job_checkpoint_stall_seconds_total{@j}[$__rate_interval])", "{{job_id}}"), min=0, width=12, steps=[(0.05, "yellow")]),
    row("Are its numbers sound?"),
    panel("Refused steps", "Attempts at a step that the guard refused in the window, by cause, and steps done again in another recipe.",
          "none", ("increase(hearth_job_skipped_steps_total{@j}[$__rate_interval])", "{{job_id}} {{cause}}"),
          ("increase(hearth_job_redone_steps_total{@j}[$__rate_interval])", "{{job_id}} done again"), min=0, width=6),
    panel("Measures", "What repeated trouble led to in the window: remedies, and moves to a fallback recipe.", "none",
          ("increase(hearth_job_precision_measures_total{@j}[$__rate_interval])", "{{job_id}} {{kind}}"), min=0, width=6),
    panel("Recipe of the steps", "1 for the recipe that the last step ran in: its own, or BF16 in a warm-up, a tail or after trouble.", "none",
          ("hearth_job_precision_info{@j}", "{{job_id}} {{recipe}} {{execution}}"), min=0, max=1, width=12),
    panel("Underflow", "Elements that the narrow format makes zero, of the worst operand of each role (with precision.stats_every).",
          "percentunit", ("hearth_job_tensor_underflow_ratio{@j}", "{{job_id}} {{role}}"), min=0),
    panel("Saturation", "Elements at the largest magnitude of the narrow format, of the worst operand of each role.", "percentunit",
          ("hearth_job_tensor_saturation_ratio{@j}", "{{job_id}} {{role}}"), min=0),
    panel("Largest magnitude", "Among all quantised operands of each role: x inputs, dy gradients of outputs, w weights.", "sci",
          ("hearth_job_tensor_amax{@j}", "{{job_id}} {{role}}"), scale="log"),
    panel("Weights quantised",
          "Weight tensors quantised a step (recipes with quantised weights): one per tensor, whatever the micro-batches.",
          "none", ("sum by (job_id) (rate(hearth_weight_quantizations_total{@j}[$__rate_interval])) "
                   "/ (sum by (job_id) (rate(hearth_job_step_duration_seconds_count{@j}[$__rate_interval])) > 0)", "{{job_id}}"), min=0),
    row("What does it cost? (GPU)"),
    panel("Power in steps", "Power of all the job's GPUs while steps run, from their energy counters.", "watt",
          ("job_id:hearth_job_power_watts:rate1m{@j}", "{{job_id}}"), gpu=True, min=0),
    panel("Tokens per joule", "Tokens trained over energy used, mean of 5 minutes.", "none",
          ("job_id:hearth_job_tokens_per_joule:ratio_rate5m{@j}", "{{job_id}}"), gpu=True, min=0),
    panel("Energy", "Energy used in steps since the coordinator started.", "joule", ("hearth_job_energy_joules_total{@j}", "{{job_id}}"),
          gpu=True, min=0),
    panel("Cost of a billion tokens", "At the prices at the top: of the electricity that the GPUs use, and of their hours where they are rented "
          "(which has the electricity in it).", "none",
          ("1e9 / 3.6e6 * $price_per_kwh / job_id:hearth_job_tokens_per_joule:ratio_rate5m{@j}", "{{job_id}} electricity"),
          ("1e9 / 3600 * $price_per_gpu_hour * count by (job_id) (hearth_worker_job_step{@j} and on (instance) hearth_gpu_info{@}) / on (job_id) "
           "(sum by (job_id) (job_id:hearth_job_tokens:rate1m{@j}) > 0)", "{{job_id}} GPU hours"), gpu=True, min=0),
    panel("GPU power", "Power of each GPU that the job uses, and its limit.", "watt",
          ("rate(hearth_gpu_energy_joules_total{@}[$__rate_interval])" + ON_JOB, "{{worker_id}} gpu {{gpu}}"),
          ("hearth_gpu_power_limit_watts{@}" + ON_JOB, "{{worker_id}} limit"), gpu=True, min=0),
    panel("GPU memory", "Memory in use by all processes on each GPU that the job uses.", "bytes",
          ("hearth_gpu_memory_used_bytes{@}" + ON_JOB, "{{worker_id}} gpu {{gpu}}"), gpu=True, min=0),
    panel("GPU utilisation and temperature", "Share of the time in which any kernel ran, and temperature over 100 °C.", "percentunit",
          ("hearth_gpu_utilization_ratio{@}" + ON_JOB, "{{worker_id}} gpu {{gpu}} busy"),
          ("hearth_gpu_temperature_celsius{@} / 100" + ON_JOB, "{{worker_id}} gpu {{gpu}} °C/100"), gpu=True, min=0),
]

RESTARTS = "sum by (job_id, cause) (increase(hearth_job_restarts_total{@j}[$__rate_interval])) > 0"
ENDED = '(hearth_job_state{@j, state=~"succeeded|failed|cancelled"} == 1)'
JOB_ANNOTATIONS = [
    annotation("Restarts", "red", RESTARTS, "restart: {{cause}}"),
    annotation("Starting or recovering", "orange", 'hearth_job_state{@j, state=~"starting|recovering|requeueing"} == 1', "{{state}}"),
    annotation("Ended", "purple", ENDED + " unless " + ENDED.replace("} ==", "} offset 1m =="), "{{state}}"),
    annotation("Checkpoints", "blue", "(hearth_job_last_checkpoint_timestamp_seconds{@j} > 0) * 1000", "checkpoint", at_value=True,
               enable=False),
]

NAME = "{{worker_id}} gpu {{gpu}}"
GPU = [
    panel("Facts", "Model, driver and CUDA version of each GPU.", "none", ("hearth_gpu_info{@g}", ""), kind="table", width=24, height=5,
          gpu=True),
    row("Use"),
    panel("Allocated", "1 while a trainer of ours runs on the GPU.", "none", ("hearth_gpu_allocated{@g}", NAME), gpu=True, min=0, max=1),
    panel("Utilisation", "Share of the time in which any kernel ran; does not show how well it used the GPU: see MFU of the job.", "percentunit",
          ("hearth_gpu_utilization_ratio{@g}", NAME), gpu=True, min=0, max=1),
    panel("Memory bandwidth in use", "Share of the time in which the memory was read or written.", "percentunit",
          ("hearth_gpu_memory_utilization_ratio{@g}", NAME), gpu=True, min=0, max=1),
    panel("Memory", "Memory in use by all processes, and what driver and firmware keep.", "bytes",
          ("hearth_gpu_memory_used_bytes{@g}", NAME + " used"), ("hearth_gpu_memory_reserved_bytes{@g}", NAME + " reserved"),
          ("hearth_gpu_memory_total_bytes{@g}", NAME + " total"), gpu=True, min=0),
    panel("Processes", "Processes that use the GPU, as the driver lists them.", "none", ("hearth_gpu_processes{@g}", NAME),
          gpu=True, min=0),
    panel("Memory held without a task", "Memory in use while no trainer of ours runs there: an ended trainer's, or another program's.",
          "bytes", ("(hearth_gpu_memory_used_bytes{@g} and on (instance, gpu) hearth_gpu_allocated{@g} == 0) "
                    "or 0 * hearth_gpu_memory_used_bytes{@g}", NAME), gpu=True, min=0, steps=[(2 * 2**30, "orange")]),
    row("Power and heat"),
    panel("Power", "From the energy counter: the mean of the window, and the limit in force.", "watt",
          ("rate(hearth_gpu_energy_joules_total{@g}[$__rate_interval])", NAME), ("hearth_gpu_power_limit_watts{@g}", NAME + " limit"),
          gpu=True, min=0),
    panel("Power, as the driver samples it", "Mean over about the last second; shows peaks that the mean of the window hides.", "watt",
          ("hearth_gpu_power_watts{@g}", NAME), gpu=True, min=0),
    panel("Temperature", "Temperature of the GPU and of its memory.", "celsius", ("hearth_gpu_temperature_celsius{@g}", NAME),
          ("hearth_gpu_memory_temperature_celsius{@g}", NAME + " memory"), gpu=True, steps=[(80, "yellow"), (88, "red")]),
    panel("SM clock", "Clock of the multiprocessors and its maximum.", "hertz", ("hearth_gpu_sm_clock_hertz{@g}", NAME),
          ("hearth_gpu_sm_clock_max_hertz{@g}", NAME + " max"), gpu=True, min=0),
    panel("Memory clock", "Clock of the memory and its maximum.", "hertz", ("hearth_gpu_memory_clock_hertz{@g}", NAME),
          ("hearth_gpu_memory_clock_max_hertz{@g}", NAME + " max"), gpu=True, min=0),
    panel("Throttled", "1 while a reason holds the clocks down. sw_power_cap is normal at full load.", "none",
          ('hearth_gpu_throttled{@g, reason!="gpu_idle"}', NAME + " {{reason}}"), gpu=True, min=0, max=1),
    row("PCIe"),
    panel("PCIe traffic", "Bytes a second that the GPU sends and receives over PCIe. Between GPUs on NVLink there is little.", "Bps",
          ("rate(hearth_gpu_pcie_sent_bytes_total{@g}[$__rate_interval])", NAME + " sent"),
          ("rate(hearth_gpu_pcie_received_bytes_total{@g}[$__rate_interval])", NAME + " received"), gpu=True, min=0),
    panel("PCIe link", "Generation and lanes in use. An idle GPU lowers the generation; fewer lanes than it can have is a fault.", "none",
          ("hearth_gpu_pcie_generation{@g}", NAME + " generation"), ("hearth_gpu_pcie_lanes{@g}", NAME + " lanes"),
          ("hearth_gpu_pcie_lanes_max{@g}", NAME + " lanes at most"), gpu=True, min=0),
    panel("PCIe replays", "Packets sent again in the window: a bad cable, riser or slot.", "none",
          ("increase(hearth_gpu_pcie_replays_total{@g}[$__rate_interval])", NAME), gpu=True, min=0, steps=[(1, "yellow")]),
    row("Errors"),
    panel("Memory errors", "ECC errors in the window.", "none",
          ("increase(hearth_gpu_ecc_errors_total{@g}[$__rate_interval])", NAME + " uncorrectable"),
          ("increase(hearth_gpu_ecc_corrected_errors_total{@g}[$__rate_interval])", NAME + " corrected"), gpu=True, min=0,
          steps=[(1, "red")]),
    panel("Rows replaced", "Rows of the memory replaced by spare ones since the GPU was made. Failed: no spare one is left.", "none",
          ("hearth_gpu_remapped_rows{@g}", NAME + " {{kind}}"), ("hearth_gpu_row_remap_pending{@g}", NAME + " pending"),
          ("hearth_gpu_row_remap_failed{@g}", NAME + " failed"), gpu=True, min=0),
    panel("XID errors", "Errors that the driver logged in the window.", "none",
          ("increase(hearth_gpu_xid_errors_total{@g}[$__rate_interval])", NAME), gpu=True, min=0, steps=[(1, "red")], width=4),
    stat("Last XID", "Number of the last XID since the worker started, 0 for none. NVIDIA documents them; docs/runbook.md has the common ones.",
         "none", "hearth_gpu_last_xid{@g}", NAME, steps=[(1, "red")], gpu=True),
]

COORDINATOR = [
    stat("Healthy", "1 while the coordinator serves.", "none", "hearth_coordinator_healthy{@}", "healthy", width=6),
    stat("Generation", "Starts of the coordinator on its data dir.", "none", "hearth_coordinator_generation{@}", "generation", width=6),
    stat("Worker streams", "Open streams of workers.", "none", "hearth_coordinator_agents{@}", "streams", width=6),
    stat("Version", "Build that runs.", "none", 'hearth_build_info{@, program="hearth-coordinator"}', "{{version}} ({{commit}})",
         text="name", width=6),
    row("Event loop and store"),
    panel("Commit time", "Time to make a batch of changes durable. Every acknowledgement waits for it: over a second is an alert.", "s",
          (quantile(0.5, "hearth_coordinator_commit_duration_seconds"),
           "50 %"), ("cluster:hearth_coordinator_commit_duration_seconds:p99_5m{@c}", "99 % of 5 min"), min=0,
          steps=[(1, "red")]),
    panel("Scheduler latency", "Time of the event loop's passes in which the scheduler planned. When a pass takes over 0.1 s, the scheduler plans less often.", "s",
          (quantile(0.5, "hearth_coordinator_schedule_duration_seconds"), "50 %"),
          (quantile(0.99, "hearth_coordinator_schedule_duration_seconds"), "99 %"), min=0, steps=[(0.1, "yellow")]),
    panel("Commands waiting", "Commands that waited for the event loop when it took the last batch.", "none",
          ("hearth_coordinator_queue_commands{@}", "waiting"), min=0),
    panel("Commands", "Commands applied a second, by kind.", "none",
          ("sum by (command) (rate(hearth_coordinator_commands_total{@}[$__rate_interval]))", "{{command}}"), stack=True, min=0),
    panel("Commands in a commit", "Size of the batches that share one commit.", "none",
          ("rate(hearth_coordinator_commit_commands_total{@}[$__rate_interval]) / "
           "(rate(hearth_coordinator_commit_duration_seconds_count{@}[$__rate_interval]) > 0)", "mean"), min=0),
    # Not a rate: recoveries are rare.
    panel("Recovery time", "Time from the loss of a rank to the next step, by cause, of all recoveries since the coordinator started.", "s",
          ("histogram_quantile(0.5, sum by (cause, le) (hearth_recovery_seconds_bucket{@}))", "50 % {{cause}}"),
          ("histogram_quantile(0.9, sum by (cause, le) (hearth_recovery_seconds_bucket{@}))", "90 % {{cause}}"), min=0),
    panel("Dropped", "Series of jobs beyond the bound; log lines and step reports that workers lost, as counted by the coordinator and by the workers.",
          "none", ("increase(hearth_series_dropped_total{@}[$__rate_interval])", "series"),
          ("increase(hearth_log_lines_dropped_total{@}[$__rate_interval])", "log lines"),
          ("increase(hearth_worker_log_dropped_lines_total{@}[$__rate_interval])", "log lines, by {{worker_id}}"),
          ("increase(hearth_worker_step_reports_dropped_total{@}[$__rate_interval])", "step reports, by {{worker_id}}"),
          min=0, steps=[(1, "yellow")]),
    row("gRPC"),
    panel("Calls", "RPCs ended a second, by method.", "none",
          ("sum by (grpc_method) (rate(hearth_grpc_server_handled_total{@}[$__rate_interval]))", "{{grpc_method}}"), min=0),
    panel("Errors", "RPCs a second that did not end with OK, by method and code.", "none",
          ('sum by (grpc_method, grpc_code) (rate(hearth_grpc_server_handled_total{@, grpc_code!="OK"}[$__rate_interval])) '
           "or 0 * sum(hearth_coordinator_healthy{@})", "{{grpc_method}} {{grpc_code}}"), min=0),
    panel("Open streams", "Open calls: streams of workers (Connect) and of clients that watch.", "none",
          ('sum by (grpc_method) (hearth_grpc_server_in_flight{@, grpc_method=~"Connect|Stream.+|Watch.+"})', "{{grpc_method}}"), min=0),
    panel("Latency", "99 % of the calls of a method took no longer than this. Long polls and streams last as long as they are open.", "s",
          ("histogram_quantile(0.99, sum by (grpc_method, le) (rate(hearth_grpc_server_handling_seconds_bucket{@}[$__rate_interval])))",
           "{{grpc_method}}"), min=0),
    row("Process"),
    panel("Processor", "Processor time a second of each program of ours.", "none",
          ("rate(process_cpu_seconds_total{@}[$__rate_interval])", "{{job}} {{instance}}"), min=0),
    panel("Resident memory", "Resident memory of each program of ours.", "bytes",
          ("process_resident_memory_bytes{@}", "{{job}} {{instance}}"), min=0),
    panel("Open files", "Open file descriptors of each program of ours.", "none",
          ("process_open_fds{@}", "{{job}} {{instance}}"), min=0, steps=[(50000, "red")]),
]

DASHBOARDS = {
    "cluster": (dashboard("cluster", "Hearth / Cluster", "Jobs, workers and GPUs of one Hearth cluster.", ["worker_id"], CLUSTER), CLUSTER),
    "job": (dashboard("job", "Hearth / Job", "Training jobs: learning, speed, safety and cost.", ["job_id", *PRICES], JOB, JOB_ANNOTATIONS), JOB),
    "gpu": (dashboard("gpu", "Hearth / GPU", "GPUs of the workers: use, power, heat and errors.", ["worker_id", "gpu"], GPU), GPU),
    "coordinator": (dashboard("coordinator", "Hearth / Coordinator", "The coordinator's event loop, store and calls.", [], COORDINATOR),
                    COORDINATOR),
}


def render():
    """File name -> text."""
    return {name + ".json": json.dumps(document, indent=1, ensure_ascii=False) + "\n" for name, (document, _) in DASHBOARDS.items()}


def gpu_panels():
    """(dashboard, title) of the panels that have no data without a GPU."""
    return {(name, spec["title"]) for name, (_, specs) in DASHBOARDS.items() for spec in specs if spec.get("gpu")}


def main(argv):
    if argv not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = []
    for name, text in render().items():
        path = os.path.join(FOLDER, name)
        current = open(path, encoding="utf-8").read() if os.path.exists(path) else None
        if current == text:
            continue
        stale.append(name)
        if not argv:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
    if argv and stale:
        print("not what deploy/grafana/dashboards.py gives: " + ", ".join(stale), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
