#!/usr/bin/python3
"""A real Prometheus with the shipped configuration finds the workers through /sd/workers and answers for loss and tok/s."""

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request

import harness


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Prometheus(harness.ClusterTest):
    def start_prometheus(self):
        """The shipped files; only the address of the coordinator and the scrape interval are replaced."""
        folder = os.path.join(self.cluster.dir, "prometheus")
        shutil.copytree(os.path.join(harness.SOURCE, "deploy", "prometheus"), folder)
        path = os.path.join(folder, "prometheus.yml")
        with open(path) as f:
            text = f.read()
        self.assertIn("127.0.0.1:7071", text)
        text = text.replace("127.0.0.1:7071", self.cluster.http)
        text = re.sub(r"(scrape_interval|evaluation_interval): *\w+", r"\1: 1s", text)
        text = re.sub(r"refresh_interval: *\w+", "refresh_interval: 1s", text)
        text = re.sub(r"scrape_timeout: *\w+", "scrape_timeout: 1s", text)
        with open(path, "w") as f:
            f.write(text)
        subprocess.run(["promtool", "check", "config", path], check=True, capture_output=True)
        self.base = f"http://127.0.0.1:{free_port()}"
        daemon = harness.Daemon(["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/data",
                                 f"--web.listen-address={self.base.removeprefix('http://')}"],
                                os.path.join(self.cluster.dir, "prometheus.log"))
        self.addCleanup(daemon.kill)

        def ready():
            try:
                return urllib.request.urlopen(self.base + "/-/ready", timeout=2).status == 200
            except OSError:
                return False

        harness.wait_until("Prometheus", ready)

    def query(self, expression):
        url = self.base + "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=5) as response:
            return json.load(response)["data"]["result"]

    def test_discovers_workers_and_answers(self):
        self.start_prometheus()
        job = self.cluster.submit(harness.tiny_job(self.data, 10**7))
        self.cluster.wait_state(job, "RUNNING")

        def healthy_targets():
            with urllib.request.urlopen(self.base + "/api/v1/targets", timeout=5) as response:
                return [t for t in json.load(response)["data"]["activeTargets"] if t["health"] == "up"]

        harness.wait_until("coordinator and both workers as healthy targets", lambda: len(healthy_targets()) >= 3)
        loss = harness.wait_until("the loss", lambda: self.query(f'hearth_job_loss{{job_id="{job}"}}'))
        self.assertGreater(float(loss[0]["value"][1]), 0)
        rate = harness.wait_until("tok/s", lambda: [
            r for r in self.query(f'rate(hearth_job_tokens_total{{job_id="{job}"}}[15s])') if float(r["value"][1]) > 0])
        self.assertGreater(float(rate[0]["value"][1]), 100)
        workers = {r["metric"].get("worker_id") for r in self.query('up{job="hearth-worker"} == 1')}
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
