#!/usr/bin/python3
"""What the soak makes of two faults, one right behind another, and when it says that each was noticed; without a cluster."""

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


class WatchTest(unittest.TestCase):
    """Job a runs in epoch 1 from 100 s on, by the clock of all times here."""

    def watch(self, *changes):
        watch = soak.Watch.__new__(soak.Watch)
        watch.seen = {"a": [(100, 1, "running"), *changes], "b": [(100, 4, "running")]}
        return watch

    def test_one_fault_counts_from_its_beginning(self):
        watch = self.watch((104, 1, "recovering"), (105, 2, "starting"), (106, 2, "running"))
        self.assertEqual(watch.slowest([(101, {"a", "b"})]), (3, 5))

    def test_the_second_of_two_counts_from_its_own_beginning(self):
        watch = self.watch((110, 1, "recovering"), (112, 2, "running"))
        self.assertEqual(watch.slowest([(101, {"b"}), (109, {"a"})]), (1, 3))
        self.assertEqual(watch.slowest([(101, {"a"}), (109, {"a"})]), (1, 3), "the first did not disturb it")

    def test_the_slower_of_two_that_both_disturbed_it(self):
        watch = self.watch((103, 1, "recovering"), (104, 2, "starting"), (105, 2, "recovering"), (106, 3, "starting"), (108, 3, "succeeded"))
        self.assertEqual(watch.slowest([(101, {"a"}), (104.5, {"a"})]), (2, 7))

    def test_a_job_that_is_stopped_already_is_not_disturbed(self):
        watch = self.watch((103, 1, "recovering"), (107, 2, "running"))
        self.assertEqual(watch.slowest([(101, set()), (104, {"a"})]), (None, None))

    def test_without_a_disturbance_there_are_no_times(self):
        self.assertEqual(self.watch().slowest([(101, {"a"})]), (None, None))
        self.assertEqual(self.watch().slowest([(101, set())]), (None, None))


if __name__ == "__main__":
    unittest.main(verbosity=2)
