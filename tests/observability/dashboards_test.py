#!/usr/bin/python3
"""The committed dashboards are what their source gives and keep every rule of lint.py; rules can fail; alerts lead to the runbook."""

import copy
import html
import os
import re
import subprocess
import sys
import unittest

import yaml

import lint
import series


class Dashboards(unittest.TestCase):
    def test_committed_files_are_what_the_source_gives(self):
        run = subprocess.run([sys.executable, "-B", os.path.join(series.DEPLOY, "grafana", "dashboards.py"), "--check"],
                             capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertEqual(sorted(series.dashboards()), ["cluster", "coordinator", "gpu", "job"])

    def test_every_rule_holds(self):
        for name, dashboard in series.dashboards().items():
            with self.subTest(name):
                self.assertEqual(lint.lint(dashboard, series.known()), [])

    def test_titles_and_uids_are_unique(self):
        found = series.dashboards()
        self.assertEqual(len({d["title"] for d in found.values()}), 4)
        self.assertEqual({d["uid"] for d in found.values()}, {"hearth-" + name for name in found})

    def test_job_shows_restarts_as_annotations(self):
        annotations = series.dashboards()["job"]["annotations"]["list"]
        self.assertTrue([a for a in annotations if "hearth_job_restarts_total" in a.get("expr", "") and a["enable"]])

    def test_docs_show_a_picture_of_each_with_its_panels(self):
        text, need_gpu = series.read("docs", "observability.md"), series.generator().gpu_panels()
        for name, dashboard in series.dashboards().items():
            with self.subTest(name):
                self.assertIn(f"](dashboard-{name}.svg)", text)
                picture = html.unescape(series.read("docs", f"dashboard-{name}.svg"))
                titles = {p["title"] for p in lint.panels(dashboard)}
                # Only GPU is drawn of what a GPU said.
                missing = {t for t in titles if f">{t}<" not in picture} - {t for d, t in need_gpu if d == name and name != "gpu"}
                self.assertEqual(missing, set(), "draw it again: tests/bench/dashboard_pictures.py")

    def test_dashboards_use_recording_rules_that_exist(self):
        text = "".join(e for d in series.dashboards().values() for _, e in lint.expressions(d))
        recorded = {r["record"] for r in series.rules() if "record" in r}
        self.assertEqual({name for name in recorded if name not in text}, set())

    def test_every_alert_fires_and_every_record_has_a_value_in_a_test(self):
        with open(os.path.join(series.DEPLOY, "prometheus", "tests", "hearth-alerts_test.yml"), encoding="utf-8") as f:
            tests = yaml.safe_load(f)["tests"]
        cases = [case for test in tests for case in test.get("alert_rule_test", [])]
        fires = {case["alertname"] for case in cases if case["exp_alerts"]}
        self.assertEqual({rule["alert"] for rule in series.rules() if "alert" in rule} - fires, set())
        expected = [case["expr"] for test in tests for case in test.get("promql_expr_test", []) if case["exp_samples"]]
        recorded = {rule["record"] for rule in series.rules() if "record" in rule}
        self.assertEqual({name for name in recorded if not any(name in e for e in expected)}, set())


def spoil(rule, d):
    """Breaks that rule, and as little else as possible, in a copy of a good dashboard."""
    p = next(p for p in d["panels"] if p["type"] == "timeseries")
    t = p["targets"][0]
    job = next(v for v in d["templating"]["list"] if v["name"] == "job")

    def change(thing, key, value):
        thing[key] = value

    {
        "template-datasource": lambda: change(d["templating"]["list"][0], "name", "ds"),
        "template-job-and-instance": lambda: change(job, "allValue", None),
        "template-refresh": lambda: change(job, "refresh", 1),
        "panel-datasource": lambda: change(t, "datasource", {"type": "prometheus", "uid": "abc"}),
        "panel-title-description": lambda: change(p, "description", ""),
        "panel-units": lambda: change(p["fieldConfig"]["defaults"], "unit", "short"),
        "panel-targets": lambda: change(p, "targets", []),
        "panel-legends": lambda: change(t, "legendFormat", "__auto"),
        "panel-titles-unique": lambda: change(p, "title", next(o["title"] for o in d["panels"] if o["type"] != "row" and o is not p)),
        "panel-layout": lambda: change(p["gridPos"], "x", 23),
        "target-rate-interval": lambda: change(t, "expr", 'rate(hearth_worker_lost_total{job=~"$job", instance=~"$instance"}[5m])'),
        "target-matchers": lambda: change(t, "expr", 'hearth_jobs{job=~"$job"}'),
        "target-counters": lambda: change(t, "expr", 'hearth_worker_lost_total{job=~"$job", instance=~"$instance"}'),
        "target-series-exist": lambda: change(t, "expr", 'hearth_no_such{job=~"$job", instance=~"$instance"}'),
        "variables-defined": lambda: change(t, "expr", 'hearth_jobs{job=~"$job", instance=~"$instance", state="$nothing"}'),
        "uneditable": lambda: change(d, "editable", True),
        "identity": lambda: change(d, "uid", "x"),
    }[rule]()


class RulesCanFail(unittest.TestCase):
    def test_each_rule_finds_what_breaks_it(self):
        good = series.dashboards()["cluster"]
        for rule in lint.RULES:
            with self.subTest(rule):
                bad = copy.deepcopy(good)
                spoil(rule, bad)
                self.assertIn(rule, {name for name, _ in lint.lint(bad, series.known())})


class Provisioning(unittest.TestCase):
    def test_datasource_and_provider(self):
        source, = yaml.safe_load(series.read("deploy/grafana/provisioning/datasources/hearth.yml"))["datasources"]
        self.assertEqual((source["type"], source["editable"], source["isDefault"]), ("prometheus", False, True))
        self.assertTrue(source["uid"])
        interval = yaml.safe_load(series.read("deploy/prometheus/prometheus.yml"))["global"]["scrape_interval"]
        self.assertEqual(source["jsonData"]["timeInterval"], interval)
        provider, = yaml.safe_load(series.read("deploy/grafana/provisioning/dashboards/hearth.yml"))["providers"]
        self.assertEqual((provider["type"], provider["allowUiUpdates"]), ("file", False))
        self.assertTrue(provider["options"]["path"].startswith("/"))


def anchors(markdown):
    """Anchors that GitHub makes of the headings."""
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", markdown, re.M)}


class Alerts(unittest.TestCase):
    # conventions of the field; each of these must be there.
    MINIMUM = ("CoordinatorDown", "WorkerDown", "JobFailed", "JobStuck", "JobPendingTooLong", "GangIncomplete", "RestartStorm",
               "CheckpointStale", "CommitSlow", "GpuAllocatedIdle", "GpuMemoryLeaked", "GpuError", "GpuThrottled", "SeriesDropped",
               "LogLinesDropped")

    def setUp(self):
        self.alerts = [rule for rule in series.rules() if "alert" in rule]

    @staticmethod
    def coordinator():
        """Where prometheus.yml finds the coordinator: one address to change in all files."""
        jobs = {j["job_name"]: j for j in yaml.safe_load(series.read("deploy/prometheus/prometheus.yml"))["scrape_configs"]}
        return jobs["hearth-coordinator"]["static_configs"][0]["targets"][0]

    def test_minimum_set(self):
        self.assertEqual({"Hearth" + name for name in self.MINIMUM} - {a["alert"] for a in self.alerts}, set())

    def test_labels_annotations_and_runbook(self):
        runbook = anchors(series.read("docs/runbook.md"))
        for alert in self.alerts:
            with self.subTest(alert["alert"]):
                self.assertRegex(alert["alert"], r"^Hearth([A-Z][a-z]+)+$")
                self.assertIn(alert["labels"]["severity"], ("critical", "warning", "info"))
                self.assertTrue(alert["annotations"]["summary"] and alert["annotations"]["description"])
                base, anchor = alert["annotations"]["runbook_url"].split("#")
                self.assertEqual((base, anchor), (f"http://{self.coordinator()}/runbook", alert["alert"].lower()))
                self.assertIn(anchor, runbook)

    def test_runbook_has_no_entry_without_an_alert(self):
        entries = {h for h in re.findall(r"^## (Hearth\w+)$", series.read("docs/runbook.md"), re.M)}
        self.assertEqual(entries - {a["alert"] for a in self.alerts}, set())

    def test_rules_use_series_that_exist(self):
        known = series.known()
        for rule in series.rules():
            names = lint.SERIES.findall(rule["expr"])
            self.assertEqual([n for n in names if n not in known], [], rule)
            self.assertTrue(names or "up{" in rule["expr"], rule)

    def test_recorded_names_are_level_metric_operations(self):
        for rule in series.rules():
            if "record" in rule:
                self.assertRegex(rule["record"], r"^(cluster|job_id):hearth_[a-z_]+:[a-z0-9_]+$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
