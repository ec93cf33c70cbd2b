#!/usr/bin/python3
"""A real Prometheus with the shipped configuration finds the workers through /sd/workers and answers for loss and tok/s."""

import json
import os
import re
import subprocess

import harness
from prometheus_server import PrometheusServer


class Prometheus(harness.ClusterTest):
    def start_prometheus(self):
        self.prometheus = PrometheusServer(os.path.join(self.cluster.dir, "prometheus"), self.cluster.http)
        self.addCleanup(self.prometheus.close)
        self.prometheus.wait_ready()

    def test_discovers_workers_and_answers(self):
        self.start_prometheus()
        job = self.cluster.submit(harness.tiny_job(self.data, 10**7))
        self.cluster.wait_state(job, "RUNNING")

        harness.wait_until("coordinator and both workers as healthy targets", lambda: len(self.prometheus.healthy_targets()) >= 3)
        loss = harness.wait_until("the loss", lambda: self.prometheus.query(f'hearth_job_loss{{job_id="{job}"}}'))
        self.assertGreater(float(loss[0]["value"][1]), 0)
        rate = harness.wait_until("tok/s", lambda: [
            r for r in self.prometheus.query(f'rate(hearth_job_tokens_total{{job_id="{job}"}}[15s])') if float(r["value"][1]) > 0])
        self.assertGreater(float(rate[0]["value"][1]), 100)
        workers = {r["metric"].get("worker_id") for r in self.prometheus.query('up{job="hearth-worker"} == 1')}
        self.assertEqual(workers, {"w0", "w1"})
        self.cluster.jobctl("cancel", job, "--now")

    def test_metrics_lint_and_service_discovery(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 10))
        self.cluster.wait_state(job, "SUCCEEDED")
        discovered = json.loads(self.cluster.get("/sd/workers"))
        addresses = [t for group in discovered for t in group["targets"]]
        self.assertEqual(len(addresses), 2)
        self.assertIn("ok", self.cluster.get("/healthz"))
        for address in [None, *addresses]:
            text = self.cluster.get("/metrics", address)
            lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((lint.returncode, lint.stderr), (0, ""))
            self.assertIn("hearth_build_info", text)
        states = re.findall(rf'hearth_job_state{{[^}}]*job_id="{job}"[^}}]*}} (\d)', self.cluster.get("/metrics"))
        self.assertEqual(sorted(states)[-1], "1")
        self.assertEqual(states.count("1"), 1)


if __name__ == "__main__":
    harness.main()
