#!/usr/bin/python3
"""The units of deploy/systemd: systemd itself reads them where it is installed; what a worker's stop and restart rest on is there."""

import configparser
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import harness

UNITS = os.path.join(harness.SOURCE, "deploy", "systemd")
WORKER, COORDINATOR = "hearth-worker@.service", "hearth-coordinator.service"
DEFAULT_GRACE = 60  # checkpoint.grace_seconds


def read(name):
    unit = configparser.ConfigParser(strict=False, interpolation=None, delimiters="=", comment_prefixes="#")
    unit.optionxform = str
    unit.read(os.path.join(UNITS, name))
    return unit


class SystemdTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_understands_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(UNITS):
                with open(os.path.join(UNITS, name)) as f:
                    text = f.read().replace("/usr/local/bin/", harness.BIN + "/")  # it looks for the programs
                with open(os.path.join(folder, name.replace("@.", "@0.")), "w") as f:
                    f.write(text)
            run = subprocess.run(["systemd-analyze", "verify", "--man=no", *[os.path.join(folder, n) for n in os.listdir(folder)]],
                                 capture_output=True, text=True, timeout=harness.patience(60), env=dict(os.environ, SYSTEMD_LOG_LEVEL="warning"))
        ours = [line for line in run.stderr.splitlines() if "hearth" in line]
        self.assertEqual(ours, [], run.stderr)

    def test_every_line_is_a_section_a_comment_or_an_assignment(self):
        for name in (WORKER, COORDINATOR):
            with open(os.path.join(UNITS, name)) as f:
                for line in f.read().splitlines():
                    self.assertRegex(line, r"^(#.*|\[(Unit|Service|Install)\]|[A-Z][A-Za-z]+=.*|)$", name)

    def test_a_coordinator_comes_back_however_long_its_disk_is_full(self):
        unit = read(COORDINATOR)
        self.assertEqual(unit["Service"]["Restart"], "on-failure")
        self.assertNotIn("4", unit["Service"]["RestartPreventExitStatus"].split(), "the store failed while running")
        self.assertNotIn("1", unit["Service"]["RestartPreventExitStatus"].split(), "it could not start")
        self.assertEqual(unit["Unit"]["StartLimitIntervalSec"], "0", "systemd gives up after five quick failures")

    def test_a_worker_stops_with_its_trainer_and_comes_back(self):
        service = read(WORKER)["Service"]
        self.assertEqual(service["KillMode"], "mixed", "SIGTERM to the daemon, SIGKILL to what is left of its trainers")
        self.assertGreaterEqual(int(service["TimeoutStopSec"]), DEFAULT_GRACE + 30)
        self.assertEqual(service["Restart"], "on-failure")
        with open(os.path.join(UNITS, WORKER)) as f:
            text = f.read()
        self.assertIn("Environment=HEARTH_WORKER_DEVICE=cuda:%i", text)
        self.assertTrue(text.index("Environment=HEARTH_WORKER_DEVICE") < text.index("EnvironmentFile="), "the file must win")
        for flag in re.findall(r"--[a-z-]+", service["ExecStart"]):
            run = subprocess.run([harness.program("hearth-worker"), "--help"], capture_output=True, text=True, timeout=harness.patience(30))
            self.assertIn(flag, run.stdout)


if __name__ == "__main__":
    harness.main()
