#!/usr/bin/python3
"""Data folders that are not as the coordinator left them: foreign, put back from a copy, without their store, damaged. Nothing is
ever removed, no start ignores the difference silently, and one flag confirms the operator's decision."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import unittest
import urllib.request

import peers
import harness

SPEC = dict(name="tiny", model=dict(layers=2, hidden=32, heads=2, ffn_hidden=64, vocab=256),
            data=dict(train=[dict(path="/data/train")], sequence_length=16), batch=dict(micro_batch_size=2), train=dict(steps=3))
REFUSED = 5


class DataDirTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hearth-test-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        os.environ["HEARTH_HOME"] = os.path.join(self.dir, "home")
        self.data = os.path.join(self.dir, "data")
        self.daemon = None
        self.starts = 0
        self.addCleanup(self.stop)

    def path(self, *parts):
        return os.path.join(self.data, *parts)

    def arguments(self, *extra):
        return [harness.program("hearth-coordinator"), "--data-dir", self.data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                *extra]

    def start(self, *extra):
        """Starts a coordinator and returns its endpoints. Its output is its own: what an earlier start said does not count."""
        if os.path.exists(self.path("endpoints.json")):
            os.unlink(self.path("endpoints.json"))
        self.starts += 1
        self.daemon = harness.Daemon(self.arguments(*extra), os.path.join(self.dir, f"log-{self.starts}"))

        def ready():
            if not self.daemon.alive():
                raise AssertionError("coordinator ended:\n" + self.daemon.output())
            try:
                with open(self.path("endpoints.json")) as f:
                    return json.load(f)
            except (OSError, ValueError):
                return None

        return harness.wait_until("the endpoints", ready)

    def stop(self, sig=signal.SIGKILL):
        if self.daemon is not None and self.daemon.alive():
            self.daemon.kill(sig)

    def refused(self, *extra):
        """Starts one that must refuse, and returns what it says."""
        run = subprocess.run(self.arguments(*extra), capture_output=True, text=True, timeout=harness.patience(60))
        self.assertEqual(run.returncode, REFUSED, run.stdout + run.stderr)
        return run.stderr

    def check(self, *extra):
        """What it prints is text, whatever it found."""
        return subprocess.run([harness.program("hearth-coordinator"), "--check", *extra, "--data-dir", self.data], capture_output=True,
                              encoding="ascii", timeout=harness.patience(60))

    def submit(self, endpoints, job_id):
        from hearth.v1 import job_pb2
        from google.protobuf import json_format
        request = job_pb2.CreateJobRequest(job_id=job_id)
        json_format.ParseDict(SPEC, request.spec)
        peers.jobs(endpoints["listen"]).CreateJob(request, timeout=10)

    def cancel(self, endpoints, job_id):
        from hearth.v1 import job_pb2
        peers.jobs(endpoints["listen"]).CancelJob(job_pb2.CancelJobRequest(job_id=job_id, now=True), timeout=10)

    def job_ids(self, endpoints):
        from hearth.v1 import job_pb2
        response = peers.jobs(endpoints["listen"]).ListJobs(job_pb2.ListJobsRequest(), timeout=10)
        return sorted(job.job_id for job in response.jobs)

    def run_a_step(self, endpoints, job_id, generation=0):
        """A worker that runs one step of the job; returns the generation that it has seen."""
        peer = peers.RoguePeer(endpoints["listen"])
        peer.send(hello=peers.hello("by-hand", generation=generation))
        inspected = harness.wait_until("an inspection", lambda: peer.of_kind("inspect"))[0]
        agent = peers.agent_pb2
        peer.send(inspect_result=agent.InspectPathsResult(request_id=inspected.request_id, paths=[
            agent.PathInfo(path=path, kind="dataset", tokens=1000000, vocab=256) for path in inspected.paths]))
        task = harness.wait_until("a task", lambda: peer.of_kind("start"))[0].task
        self.assertEqual(task.job_id, job_id)
        report = agent.TaskReport(job_id=task.job_id, epoch=task.epoch, rank=task.rank, seq=1)
        report.step.step, report.step.loss = 1, 2.5
        peer.send(report=report)
        harness.wait_until("an acknowledgement", lambda: peer.of_kind("ack"))
        seen = peer.received[-1].generation
        peer.close()
        return seen

    def test_a_foreign_folder_is_refused_and_untouched(self):
        os.makedirs(self.path("jobs", "my-thesis"))
        with open(self.path("jobs", "my-thesis", "chapter1.tex"), "w") as f:
            f.write("words")
        for extra in [(), ("--restore",)]:
            self.assertIn("no data dir of hearth-coordinator", self.refused(*extra))
        self.assertEqual(os.listdir(self.data), ["jobs"])
        self.assertEqual(os.listdir(self.path("jobs", "my-thesis")), ["chapter1.tex"])

    def test_a_foreign_folder_under_jobs_is_kept_aside_and_counted(self):
        endpoints = self.start()
        self.submit(endpoints, "mine")
        self.stop()
        os.makedirs(self.path("jobs", "my-thesis"))
        with open(self.path("jobs", "my-thesis", "chapter1.tex"), "w") as f:
            f.write("words")
        endpoints = self.start()
        self.assertEqual(self.job_ids(endpoints), ["mine"])
        self.assertIn("my-thesis", self.daemon.output())
        stamp, = os.listdir(self.path("quarantine"))
        with open(self.path("quarantine", stamp, "jobs", "my-thesis", "chapter1.tex")) as f:
            self.assertEqual(f.read(), "words")
        with urllib.request.urlopen(f"http://{endpoints['http']}/metrics", timeout=10) as response:
            self.assertIn("hearth_coordinator_store_set_aside 1\n", response.read().decode())

    def test_an_older_store_put_back_needs_restore_and_loses_nothing(self):
        endpoints = self.start()
        self.submit(endpoints, "old")
        self.stop(signal.SIGTERM)
        shutil.copy(self.path("store.db"), os.path.join(self.dir, "copy"))
        for _ in range(3):  # generations that the copy does not know
            endpoints = self.start()
            self.stop(signal.SIGTERM)
        endpoints = self.start()
        self.submit(endpoints, "newer")
        seen = self.run_a_step(endpoints, "old")
        self.assertEqual(seen, 5)
        self.stop(signal.SIGTERM)
        for name in ("store.db-wal", "store.db-shm"):
            if os.path.exists(self.path(name)):
                os.unlink(self.path(name))
        shutil.copy(os.path.join(self.dir, "copy"), self.path("store.db"))
        os.makedirs(self.path("jobs", "newer", "history"))  # as the records lie once there are many
        with open(self.path("jobs", "newer", "history", "00000000000000000001.seg"), "w") as f:
            f.write("records")

        self.assertIn("generation 1, and the folder has seen 5", self.refused())
        self.assertTrue(os.path.exists(self.path("jobs", "newer", "history", "00000000000000000001.seg")))
        endpoints = self.start("--restore")
        self.assertEqual(self.job_ids(endpoints), ["old"])
        self.assertIn("jobs/newer", self.daemon.output())
        self.assertGreater(endpoints["generation"], 5)
        stamp, = os.listdir(self.path("quarantine"))
        self.assertTrue(os.path.exists(self.path("quarantine", stamp, "jobs", "newer", "history", "00000000000000000001.seg")))
        # A worker that has seen the later generation is welcome at once, and after a plain restart too.
        self.assertEqual(self.run_a_step(endpoints, "old", generation=seen), endpoints["generation"])
        self.stop(signal.SIGTERM)
        self.assertEqual(self.start()["generation"], endpoints["generation"] + 1)

    def test_a_whole_folder_put_back_is_settled_by_restore(self):
        """Folder and store agree, so only the workers know better; what they are told names the flag."""
        endpoints = self.start()
        self.submit(endpoints, "old")
        peer = peers.RoguePeer(endpoints["listen"])
        peer.send(hello=peers.hello("by-hand", generation=7))
        code, details = peer.wait_end()
        self.assertEqual(code, peers.grpc.StatusCode.ABORTED)
        self.assertIn("--restore", details)
        peer.close()
        self.stop(signal.SIGTERM)
        endpoints = self.start("--restore")
        self.assertEqual(self.run_a_step(endpoints, "old", generation=7), endpoints["generation"])

    def test_a_task_of_an_unknown_job_is_named(self):
        endpoints = self.start()
        peer = peers.RoguePeer(endpoints["listen"])
        self.addCleanup(peer.close)
        task = peers.agent_pb2.TaskStatus(job_id="of-yesterday", epoch=3, rank=0, running=True, last_seq=9, step=41)
        peer.send(hello=peers.hello("by-hand", tasks=[task]))
        harness.wait_until("its end", lambda: peer.of_kind("kill"))
        self.assertIn("job of-yesterday (epoch 3, step 41), which is not known here", self.daemon.output())

    def test_a_missing_store_is_refused_until_restore(self):
        endpoints = self.start()
        self.submit(endpoints, "old")
        self.stop(signal.SIGTERM)
        os.makedirs(self.path("jobs", "old", "log"))
        for name in ("store.db", "store.db-wal", "store.db-shm"):
            if os.path.exists(self.path(name)):
                os.unlink(self.path(name))
        self.assertIn("store.db is missing", self.refused())
        self.assertIn("DAMAGE", self.check().stdout)
        self.assertTrue(os.path.exists(self.path("jobs", "old", "log")))
        endpoints = self.start("--restore")
        self.assertEqual(self.job_ids(endpoints), [])
        self.assertIn("jobs/old", self.daemon.output())
        self.assertEqual(len(os.listdir(self.path("quarantine"))), 1)

    def test_one_bad_row_is_named_and_the_rest_serves(self):
        endpoints = self.start()
        for job_id in ("good", "spoilt"):
            self.submit(endpoints, job_id)
        self.stop(signal.SIGTERM)
        self.assertEqual(self.check().returncode, 0, self.check().stdout)
        with sqlite3.connect(self.path("store.db")) as db:
            db.execute("UPDATE jobs SET record = zeroblob(length(record)) WHERE job_id = 'spoilt'")
        db.close()
        run = self.check()
        self.assertEqual(run.returncode, REFUSED, run.stdout)
        self.assertIn("job spoilt", run.stdout)
        endpoints = self.start()
        self.assertEqual(self.job_ids(endpoints), ["good"])
        self.assertIn("job spoilt", self.daemon.output())
        self.submit(endpoints, "another")
        self.stop(signal.SIGTERM)
        self.assertEqual(self.check().returncode, 0, self.check().stdout)

    def test_repair_does_what_the_check_promised(self):
        """Histories whose last record is torn or spoilt, a bad row, and a folder of nobody; then damage for a person."""
        endpoints = self.start()
        jobs = ["fine", "rows", "spoilt", "torn"]
        for job_id in jobs:
            self.submit(endpoints, job_id)
        for job_id in jobs:
            self.run_a_step(endpoints, job_id)
            self.cancel(endpoints, job_id)
        self.stop(signal.SIGTERM)
        self.assertEqual(self.check("--repair").returncode, 0)  # moves the records to their files
        segment = "history/00000000000000000001.seg"
        with open(self.path("jobs", "torn", segment), "r+b") as f:
            f.truncate(f.seek(0, os.SEEK_END) - 3)
        with open(self.path("jobs", "spoilt", segment), "r+b") as f:
            f.seek(20)
            f.write(b"\xff\x1b")
        with sqlite3.connect(self.path("store.db")) as db:
            db.execute("UPDATE events SET event = x'ff' WHERE job_id = 'rows'")
        db.close()
        os.makedirs(self.path("jobs", "nobody\x1b[31m"))

        found = self.check()
        self.assertEqual(found.returncode, REFUSED)
        for text in ("job torn: ", "cut off at offset", "job spoilt: ", "damaged at offset", "row of job rows in table events",
                     "nobody\\x1b[31m belongs to no job", "repaired by the next start or --repair", "repaired by --repair: "):
            self.assertIn(text, found.stdout)
        self.assertFalse(os.path.exists(self.path("quarantine")))
        repaired = self.check("--repair")
        self.assertEqual(repaired.returncode, 0, repaired.stdout)
        for text in ("repaired: ", "jobs/torn/history: 1 recorded entries are missing", "damaged bytes were cut out", " 0 damaged"):
            self.assertIn(text, repaired.stdout)
        self.assertEqual(self.check().returncode, 0)
        kept = {name for _, names, files in os.walk(self.path("quarantine")) for name in names + files}
        self.assertLessEqual({"spoilt", "nobody\x1b[31m"}, kept)
        endpoints = self.start()
        self.assertEqual(self.job_ids(endpoints), jobs)
        self.stop(signal.SIGTERM)

        with open(self.path(".hearth-data"), "w") as f:
            f.write("spoilt")
        refused = self.check("--repair")
        self.assertEqual(refused.returncode, REFUSED)
        self.assertIn("start once with --restore", refused.stderr)
        self.start("--restore")

    def test_random_damage_is_never_silent(self):
        endpoints = self.start()
        jobs = [f"job-{n}" for n in range(20)]
        for job_id in jobs:
            self.submit(endpoints, job_id)
        self.stop(signal.SIGTERM)
        whole = os.path.join(self.dir, "whole")
        shutil.copytree(self.data, whole)
        seed = random.randrange(1 << 32)
        print("seed", seed)
        draw = random.Random(seed)
        results = {"refused": 0, "named": 0, "harmless": 0}
        for number in range(10):
            shutil.rmtree(self.data)
            shutil.copytree(whole, self.data)
            with open(self.path("store.db"), "r+b") as f:
                size = f.seek(0, os.SEEK_END)
                at = draw.randrange(size)
                f.seek(at)
                f.write(draw.randbytes(min(size - at, draw.choice([1, 8, 512]))))
            checked = self.check()
            found = checked.returncode != 0
            self.assertEqual("DAMAGE: " in checked.stdout, checked.returncode == REFUSED, f"seed {seed}, {number}: {checked}")
            try:
                endpoints = self.start()
            except AssertionError as error:
                self.assertTrue(found, f"seed {seed}, {number}: {error}")
                self.assertEqual(self.daemon.process.returncode, REFUSED, f"seed {seed}, {number}: {error}")
                self.assertIn("store.db", self.daemon.output(), f"seed {seed}, {number}")
                results["refused"] += 1
                continue
            served = self.job_ids(endpoints)
            said = self.daemon.output()
            self.stop()
            if "damaged" in said:
                self.assertTrue(found, f"seed {seed}, {number}: {said}")
                self.assertLessEqual(set(served), set(jobs), f"seed {seed}, {number}: {said}")
                results["named"] += 1
            else:
                self.assertEqual(served, sorted(jobs), f"seed {seed}, {number}: {said}")
                self.assertFalse(found, f"seed {seed}, {number}: {said}")
                results["harmless"] += 1
        print(results)


if __name__ == "__main__":
    harness.main()
