#!/usr/bin/python3
"""A real Prometheus with the shipped configuration evaluates every expression of every dashboard, recording rule and alert while a job
runs on CPU workers and loses a trainer. Panels that need a GPU are checked against a sample of such series that is served beside it."""

import functools
import math
import os
import re
import signal
import sys
import time
import unittest
import urllib.request

import gpu_sample
import harness
import record_gpu_sample
from prometheus_server import PrometheusServer

sys.path.insert(0, os.path.join(harness.SOURCE, "tests", "observability"))
import lint  # noqa: E402
import series  # noqa: E402

# Panels that have data only on a GPU; all others must have data on CPU workers.
NEED_GPU = {
    "cluster": {"GPUs allocated but idle", "Power", "GPU utilisation", "GPU memory", "Allocated but idle", "Temperature", "Throttled"},
    "job": {"MFU", "Power in steps", "Tokens per joule", "Energy", "Cost of a billion tokens", "GPU power", "GPU memory",
            "GPU utilisation and temperature"},
    "gpu": {"Facts", "Allocated", "Utilisation", "Memory bandwidth in use", "Memory", "Processes", "Memory held without a task", "Power",
            "Power, as the driver samples it", "Temperature", "SM clock", "Memory clock", "Throttled", "PCIe traffic", "PCIe link",
            "PCIe replays", "Memory errors", "Rows replaced", "XID errors", "Last XID"},
    "coordinator": set(),
}


def interpolate(expression, **values):
    """As Grafana puts variables into a query."""
    values = {"__rate_interval": "1m", "__interval": "1s", "__range": "1m", "job": "hearth-.+", "instance": ".+", "job_id": ".+",
              "worker_id": ".+", "gpu": ".+", **series.generator().PRICES, **values}
    return re.sub(r"\$(\w+)", lambda m: values[m[1]], expression)


def has_number(result):
    return any(not math.isnan(float(r["value"][1])) for r in result)


class Sample(unittest.TestCase):
    def test_sample_is_of_documented_series_and_has_every_one_that_the_gpu_tells(self):
        documented = series.documented()
        for name, labels, _, growth in gpu_sample.lines():
            kind, names = documented[name]
            self.assertEqual(re.findall(r'(\w+)="', labels or ""), names, name)
            self.assertTrue(growth == 0 or kind == "counter", name)
        gpu = {name for name in documented if name.startswith("hearth_gpu_")}
        self.assertEqual(gpu - {line[0] for line in gpu_sample.lines()}, gpu_sample.not_told())

    def test_a_recording_becomes_a_sample_with_rates(self):
        scrape = ('# HELP x y\nhearth_worker_job_step{{job_id="tiny-1"}} 7\nhearth_gpu_info{{gpu="0",uuid="GPU-1-2",model="H"}} 1\n'
                  'hearth_gpu_energy_joules_total{{gpu="0",uuid="GPU-1-2"}} {}\nprocess_open_fds 9\n')
        coordinator = 'hearth_job_tokens_total{job_id="tiny-1"} 5\nhearth_job_tokens_total{job_id="other"} 6\n'
        recording = ("# scrape worker 100.5\n" + scrape.format(1000) + "# scrape coordinator 100.6\n" + coordinator +
                     "# scrape worker 102.5\n" + scrape.format(2200) + "# scrape coordinator 102.6\n" + coordinator)
        lines, missing = record_gpu_sample.convert(recording.splitlines())
        self.assertEqual(lines, [
            'hearth_gpu_energy_joules_total{gpu="0",uuid="GPU-sample"} 1000 +600' if "energy" in line else line for line in [
                'hearth_worker_job_step{job_id="sample"} 7', 'hearth_gpu_info{gpu="0",uuid="GPU-sample",model="H"} 1', "energy",
                'hearth_job_tokens_total{job_id="sample"} 5']])
        self.assertIn("hearth_gpu_power_watts", missing)
        self.assertNotIn("hearth_gpu_energy_joules_total", missing)

    def test_the_list_of_panels_that_need_a_gpu_is_that_of_the_source(self):
        listed = {(name, title) for name, titles in NEED_GPU.items() for title in titles}
        self.assertEqual(series.generator().gpu_panels(), listed)


class Live(harness.ClusterTest):
    def setUp(self):
        super().setUp()
        sample = gpu_sample.serve()
        self.addCleanup(sample.server_close)
        self.addCleanup(sample.shutdown)
        self.prometheus = PrometheusServer(os.path.join(self.cluster.dir, "prometheus"), self.cluster.http, gpu_sample.scrape_config(sample))
        self.addCleanup(self.prometheus.close)
        self.prometheus.wait_ready()
        # Scraped before there is a job: what happens to it is then an increase.
        harness.wait_until("all four targets", lambda: len(self.prometheus.healthy_targets()) >= 4)
        self.job = self.cluster.submit(harness.tiny_job(
            self.data, 10**7, data={"validation": self.data}, train={"eval_every": 50, "eval_batches": 1},
            precision={"recipe": "fp8", "stats_every": 10}))
        self.cluster.wait_step(self.job, 100)

    def wait_for_data(self, wanted):
        """`wanted`: [(where, expression)]; waits until each has returned a number once."""
        missing = list(wanted)

        def all_seen():
            missing[:] = [(where, e) for where, e in missing if not has_number(self.prometheus.query(e))]
            return not missing

        try:
            harness.wait_until("data", all_seen, timeout=100)
        except AssertionError as error:
            raise AssertionError("no data:\n" + "\n".join(f"{where}: {e}" for where, e in missing)) from error

    def lose_a_trainer(self):
        restarts = f'sum(hearth_job_restarts_total{{job_id="{self.job}"}})'
        # An increase is seen only from a sample of before.
        harness.wait_until("the job's counter", lambda: has_number(self.prometheus.query(restarts)))
        before = int(self.cluster.job(self.job)["step"])
        os.kill(self.cluster.trainer_pids("w1")[0], signal.SIGKILL)
        harness.wait_until("a restart in the metrics", lambda: has_number(self.prometheus.query(restarts + " > 0")))
        self.cluster.wait_step(self.job, before + 50)

    def test_every_expression(self):
        self.lose_a_trainer()
        self.check_rules()
        fill = functools.partial(interpolate, job_id=self.job)
        fill_sample = functools.partial(interpolate, job="hearth-.+|" + gpu_sample.JOB, job_id="sample")
        panels, sampled = [], []
        for name, dashboard in series.dashboards().items():
            for panel in lint.panels(dashboard):
                where = f"{name}: {panel['title']}"
                expressions = [t["expr"] for t in panel["targets"]]
                if panel["title"] in NEED_GPU[name]:
                    sampled += [(where, fill_sample(e)) for e in expressions if not any(name in e for name in gpu_sample.not_told())]
                    continue
                for e in expressions:
                    self.prometheus.query(fill(e))  # parses and evaluates
                # Data of any target is data of the panel.
                panels.append((where, " or ".join(f"label_replace({fill(e)}, 'target', '{k}', '', '')" for k, e in enumerate(expressions))))
            self.check_variables(name, dashboard)
        self.assertGreater(len(panels), 35)
        self.wait_for_data(panels)
        self.wait_for_data(sampled)
        self.check_annotations(series.dashboards()["job"], fill)

    def check_rules(self):
        """Prometheus has evaluated each rule of the shipped files without an error."""
        def evaluated():
            found = [r for group in self.prometheus.get("rules")["groups"] for r in group["rules"]]
            return found if all(r["health"] != "unknown" for r in found) else None

        found = harness.wait_until("evaluated rules", evaluated)
        self.assertEqual([r for r in found if r["health"] != "ok"], [])
        self.assertEqual(sorted(r["name"] for r in found), sorted(r.get("record") or r["alert"] for r in series.rules()))
        for rule in series.rules():
            self.prometheus.query(rule["expr"])
        for rule in found:
            if "runbook_url" in rule.get("annotations", {}):
                page, anchor = rule["annotations"]["runbook_url"].split("#")
                with urllib.request.urlopen(page, timeout=10) as response:
                    self.assertIn(f'<h2 id="{anchor}">{rule["name"]}</h2>', response.read().decode())
        self.wait_for_data([(r["record"], r["record"]) for r in series.rules() if "record" in r])

    def check_variables(self, name, dashboard):
        for variable in lint.query_variables(dashboard):
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            job = gpu_sample.JOB if variable["name"] == "gpu" else "hearth-.+"
            found = {r["metric"].get(label) for r in self.prometheus.query(f"count by ({label}) ({interpolate(selector, job=job)})")}
            self.assertTrue(found - {None}, f"{name}: {variable['name']}")

    def check_annotations(self, dashboard, fill):
        self.cluster.jobctl("cancel", self.job, "--now")
        self.cluster.wait_state(self.job, "CANCELLED")

        def events(expression):
            now = time.time()
            return self.prometheus.get("query_range", query=fill(expression), start=now - 60, end=now, step="1")["result"]

        for annotation in dashboard["annotations"]["list"]:
            if "expr" not in annotation:
                continue
            if annotation["name"] == "Starting or recovering":  # may be over between two scrapes
                events(annotation["expr"])
                continue
            found = harness.wait_until(annotation["name"], lambda a=annotation: events(a["expr"]))
            if annotation["useValueForTime"]:
                self.assertLess(abs(float(found[0]["values"][-1][1]) / 1000 - time.time()), 120)


if __name__ == "__main__":
    harness.main()
