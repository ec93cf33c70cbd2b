#!/usr/bin/python3
"""What the soak makes of two faults, one right behind another, when it says that each was noticed, and what it keeps of slow ones; without a
cluster."""

import dataclasses
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

import soak
import soak_dossier
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
        watch.recorder, watch.notices = soak_dossier.Recorder(None), {}
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

    def test_noticed_is_the_time_of_the_event_not_of_the_commit_after_it(self):
        watch = self.watch((105, 1, "recovering"), (106, 2, "running"))
        watch.notices["a"] = [99, 104.2]
        self.assertEqual([round(at, 3) for at in watch.slowest([(101, {"a"})])], [3.2, 5])
        self.assertEqual(watch.times([(101, {"a"}), (104, {"a"})])[0][2:], (None, None), "it came after the second had begun")
        watch.notices["a"] = [105.01]
        self.assertEqual(watch.slowest([(101, {"a"})]), (4, 5), "an event after the disturbance changes nothing")

    def test_a_silence_is_noticed_though_the_job_goes_on(self):
        watch = self.watch()
        watch.notices["a"] = [105]
        self.assertEqual(watch.slowest([(101, {"a"})]), (4, None))
        watch = self.watch((108, 1, "recovering"), (109, 2, "running"))
        watch.notices["a"] = [105, 108]
        self.assertEqual(watch.slowest([(101, {"a"})]), (4, 8))

    def test_notices_are_events_of_workers_and_users_whatever_the_day(self):
        watch, now = self.watch(), time.time()

        def event(ago, actor, kind="state", days=0):
            at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(now) - ago + days * soak_dossier.DAY)) + f".{int(now % 1 * 1e9):09d}Z"
            return {"time": at, "actor": actor, "type": kind}
        watch.read_notices("a", [event(9, "scheduler"), event(8, "worker:w1", "warning"), event(7, "worker:w2", days=1), event(6, "user:root", "note"),
                                 event(5, "user:root", days=-1), event(4, "coordinator", "recovery"), event(3, "trainer")])
        self.assertEqual([round(time.monotonic() - at) for at in watch.notices["a"]], [8, 7, 5])

    def test_two_faults_are_told_apart_by_whether_a_coordinator_judges(self):
        self.assertEqual(soak_faults.kind_of(["stop_worker w1"]), "stop_worker")
        self.assertEqual(soak_faults.kind_of(["pause w1 w2", "stop_worker w1"]), "one behind another")
        self.assertEqual(soak_faults.kind_of(["hang_step w1", "stop_coordinator"]), "two, coordinator away")
        self.assertEqual({f.name for f in soak_faults.FAULTS if f.away} & {"second_coordinator", "jump_clock", "kill_worker"}, set())

    def test_what_is_slow_gets_a_dossier(self):
        watch = self.watch((103, 1, "recovering"), (109.5, 2, "running"))
        watch.recorder.stepped["a", 1] = 102.5
        self.assertEqual(watch.slow(["kill_trainer"], [(101, {"a", "b"})]), [soak_dossier.Slow("kill_trainer", "a", 101, 2, 8.5, 1, 1.5)])
        self.assertEqual(watch.slow(["kill_trainer"], [(102, {"a", "b"})]), [], "7.5 s")
        late = self.watch((106.5, 1, "recovering"), (107, 2, "running"))
        self.assertEqual([slow.noticed for slow in late.slow(["hang_step"], [(101, {"a"})])], [5.5])


class DossierTest(unittest.TestCase):
    """Job a lost its trainer on w1 by SIGKILL in epoch 1, on 2026-11-27 at 20:47:53 UTC."""

    BEGAN = 1795812473.0
    SLOW = soak_dossier.Slow("kill_trainer", "a", 100, 0.3, 11.8, 1)
    W1 = """2026-11-27 20:47:30 long ago, as jobctl writes times
2026-11-27T20:47:53.500Z I hearth-worker[1] a e1: trainer ended, status -9
without a stamp
2026-11-27T20:48:04.500Z I hearth-worker[1] a e2: trainer started, process 8
"""
    W2 = """2026-11-28T20:47:52.900Z I hearth-worker[2] a e1: trainer started, process 5
2026-11-28T20:47:53.600Z I hearth-worker[2] a e1: kill, grace 2 s: rank 0 is lost
2026-11-28T20:48:03.700Z I hearth-worker[2] a e1: trainer ended, status -9
"""  # its clock has jumped
    EVENTS = "2026-11-27T20:48:04.429883290Z a scheduler: epoch 2 on w2, w3 from step 600\n"

    def lines(self, **logs):
        return soak_dossier.Lines([row for where, text in logs.items() for row in soak_dossier.stamped(where, text, self.BEGAN, 20)])

    def test_lines_around_the_fault_whatever_the_day(self):
        rows = self.lines(w1=self.W1, w2=self.W2).rows
        self.assertEqual([(round(at, 3), where) for at, where, _ in rows],
                         [(-0.1, "w2"), (0.5, "w1"), (0.5, "w1"), (0.6, "w2"), (10.7, "w2"), (11.5, "w1")])

    def test_the_phase_that_took_the_longest(self):
        spans = soak_dossier.phases(self.SLOW, self.lines(w1=self.W1, w2=self.W2, event=self.EVENTS))
        self.assertEqual([(name, round(seconds, 1)) for name, seconds in spans], [
            ("noticing", 0.3), ("telling the other ranks to end", 0.3), ("waiting for the old ranks to exit", 10.1),
            ("waiting for free workers", 0.7), ("starting the trainers", 0.1), ("the way to the first step", 0.3)])
        self.assertIn("waiting for the old ranks to exit: 10.1 s", soak_dossier.guess(self.SLOW, self.lines(w2=self.W2)))

    def test_a_rank_that_ended_at_once_leaves_the_wait_to_who_places_the_job(self):
        still = dataclasses.replace(self.SLOW, noticed=4.8, stepped=0.4)
        self.assertEqual([(name, round(seconds, 1)) for name, seconds in soak_dossier.phases(still, self.lines())[:2]],
                         [("steps that still came", 0.4), ("noticing", 4.4)])
        says = soak_dossier.guess(self.SLOW, self.lines(w1=self.W1, event=self.EVENTS))
        self.assertTrue(says.startswith("waiting for free workers: 10.9 s"), says)

    def test_processes_of_a_daemon_with_those_below_it(self):
        child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])"
        with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE) as parent:
            try:
                def both_wait():
                    lines = soak_dossier.processes({"w0": parent.pid})
                    return lines if len(lines) == 2 and all(" S (sleeping) " in line for line in lines) else None

                lines = soak.harness.wait_until("it and its child wait", both_wait)
            finally:
                parent.stdin.close()
        self.assertIn(f"w0: {parent.pid} parent {os.getpid()} S (sleeping)", lines[0])
        self.assertIn(f"parent {parent.pid} ", lines[1])
        self.assertEqual(soak_dossier.processes({"w0": parent.pid}), [f"w0: process {parent.pid} has ended"])

    def test_a_dossier_is_written_even_if_nothing_answers(self):
        class Silent:
            coordinator = Worker()
            workers = {}

            def events(self, _job_id):
                raise AssertionError("no coordinator")

        with tempfile.TemporaryDirectory() as base:
            dossiers = soak_dossier.Dossiers(Silent(), os.path.join(base, "new"), "3-")
            recorder = soak_dossier.Recorder(Silent())
            recorder.looks = [(101.5, "worker w1: busy")]
            dossiers.add(self.SLOW, ["kill_trainer w1"], recorder)
            self.assertEqual(os.listdir(dossiers.folder), ["3-1-kill_trainer-a.txt"])
            with open(dossiers.written[0]["path"], encoding="utf-8") as f:
                text = f.read()
        self.assertIn("kill_trainer w1: a, epoch 1 before, noticed after 0.30 s, runs again after 11.80 s", text)
        self.assertIn("   +1.50 look: worker w1: busy", text)

    def test_only_a_job_that_waits_is_looked_at(self):
        recorder = soak_dossier.Recorder(None)  # whose workers nobody can ask for
        recorder.job("a", {"epoch": 1, "state": "running", "step": 5})
        self.assertFalse(recorder.waits())
        recorder.look()
        recorder.steps["a"] = (time.monotonic() - 2, (1, "running", 5))
        self.assertTrue(recorder.waits(), "no step for 2 s")
        recorder.job("a", {"epoch": 1, "state": "running", "step": 6})
        self.assertFalse(recorder.waits())
        self.assertEqual(list(recorder.stepped), [("a", 1)])
        self.assertIn("a: after 2.0 s as (1, 'running', 5) it is (1, 'running', 6)", recorder.looks[0][1])
        recorder.job("a", {"epoch": 1, "state": "recovering", "step": 6})
        self.assertTrue(recorder.waits())


if __name__ == "__main__":
    unittest.main(verbosity=2)
