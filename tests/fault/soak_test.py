#!/usr/bin/python3
"""What the soak makes of two faults, one right behind another, without a cluster."""

import random
import subprocess
import sys
import unittest

import soak
import soak_faults


class Worker:
    def __init__(self):
        self.log = ""

    def output(self):
        return self.log


class Cluster:
    """Two workers; each look at the trainers of one finds those that were started by then."""
    def __init__(self):
        self.workers = {"w0": Worker(), "w1": Worker()}
        self.pids = {"w0": [], "w1": []}

    def start_trainer(self, worker, epoch):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        self.pids[worker] = [process.pid]
        self.workers[worker].log += f"I hearth-worker[1] soak-a e{epoch}: trainer started, process {process.pid}\n"
        return process

    def trainer_pids(self, worker):
        return self.pids[worker]


class EndedEpochTest(unittest.TestCase):
    def setUp(self):
        self.soak = soak.Soak.__new__(soak.Soak)
        self.soak.random, self.soak.cluster = random.Random(1), Cluster()

    def start(self, worker, epoch):
        process = self.soak.cluster.start_trainer(worker, epoch)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_a_trainer_of_a_later_epoch_than_the_job_had_before_the_pair(self):
        jobs = {"soak-a": {"epoch": "2", "workers": ["w1"]}}
        self.start("w1", 2)
        self.start("w1", 3)  # the fault before has led to it
        self.assertEqual(soak_faults.stop_trainer(self.soak, jobs), soak_faults.Hit({"w1"}, {"soak-a": 3}))

    def test_a_killed_worker_ends_the_last_epoch_that_it_started(self):
        self.start("w1", 3)
        self.start("w0", 2)
        self.assertEqual(self.soak.last_epochs({"w0", "w1"}), {"soak-a": 3})
        self.assertEqual(self.soak.last_epochs({"w0"}), {"soak-a": 2})

    def test_no_trainer_is_nothing_to_hit(self):
        self.assertIsNone(soak_faults.kill_trainer(self.soak, {"soak-a": {"epoch": "2", "workers": ["w1"]}}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
