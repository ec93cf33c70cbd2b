"""Debian's Prometheus with the shipped configuration, for tests."""

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import harness


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class PrometheusServer:
    def __init__(self, folder, coordinator, extra_scrapes=""):
        """The shipped files are copied to `folder`; only the address of the coordinator and the intervals are replaced, and
        `extra_scrapes`, YAML of scrape_configs, added."""
        shutil.copytree(os.path.join(harness.SOURCE, "deploy", "prometheus"), folder)
        path = os.path.join(folder, "prometheus.yml")
        with open(path) as f:
            text = f.read()
        assert "127.0.0.1:7071" in text
        text = text.replace("127.0.0.1:7071", coordinator)
        text = re.sub(r"(scrape_interval|evaluation_interval): *\w+", r"\1: 1s", text)
        text = re.sub(r"refresh_interval: *\w+", "refresh_interval: 1s", text)
        text = re.sub(r"scrape_timeout: *\w+", "scrape_timeout: 1s", text)
        with open(path, "w") as f:
            f.write(text + extra_scrapes)
        alerts = os.path.join(folder, "rules", "hearth-alerts.yml")
        with open(alerts) as f:
            text = f.read()
        assert "//127.0.0.1:7071/" in text
        with open(alerts, "w") as f:
            f.write(text.replace("//127.0.0.1:7071/", f"//{coordinator}/"))
        subprocess.run(["promtool", "check", "config", path], check=True, capture_output=True)
        self.base = f"http://127.0.0.1:{free_port()}"
        self.daemon = harness.Daemon(["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/data",
                                      f"--web.listen-address={self.base.removeprefix('http://')}"], folder + ".log")

    def close(self):
        self.daemon.kill()

    def wait_ready(self):
        def ready():
            if not self.daemon.alive():
                raise AssertionError("prometheus ended:\n" + self.daemon.output())
            try:
                return urllib.request.urlopen(self.base + "/-/ready", timeout=2).status == 200
            except OSError:
                return False

        harness.wait_until("Prometheus", ready)

    def get(self, path, **parameters):
        """The `data` of an API call; an error of Prometheus is an AssertionError with its text."""
        url = f"{self.base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, expression):
        return self.get("query", query=expression)["result"]

    def healthy_targets(self):
        return [t for t in self.get("targets")["activeTargets"] if t["health"] == "up"]
