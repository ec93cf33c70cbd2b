#!/usr/bin/python3
"""A rolling upgrade, in both orders, while jobs run: as docs/runbook.md, Upgrade, says. The second version is the same programs with another
commit in them, which is all by which workers tell versions apart. Nothing acknowledged is lost, no gang has ranks of two versions, and a
downgrade that cannot be is refused with the reason."""

import os
import signal
import sqlite3
import subprocess

import peers
import harness
import rig

STEPS = 1200
REFUSED = 5


class UpgradeTest(harness.ClusterTest):
    WORKERS = 5
    FAULTS = "trainer.after_step=delay:5ms"  # jobs last longer than the upgrade

    def setUp(self):
        super().setUp()
        self.second = rig.second_version(os.path.join(self.cluster.dir, "second"))
        self.commit = rig.commit(os.path.join(self.second, "hearth-worker"))
        self.versions = {name: self.version(name) for name in self.cluster.workers}

    def version(self, worker):
        [found] = [w for w in self.cluster.list_workers() if w["workerId"] == worker]
        return found["version"]

    def submit(self, name):
        return self.cluster.submit(harness.tiny_job(self.data, STEPS, workers=2, name=name, checkpoint={"every_steps": 100}))

    def upgrade_coordinator(self):
        jobs = {job: found for job in self.jobs if (found := self.cluster.job(job))["state"] == "JOB_STATE_RUNNING"}
        self.assertTrue(jobs)
        self.cluster.bins["coordinator"] = self.second
        self.cluster.coordinator.kill(signal.SIGTERM)
        self.cluster.start_coordinator()
        self.assertIn(self.commit, self.cluster.jobctl("version").stdout)
        for job, before in jobs.items():
            now = self.cluster.wait_step(job, min(STEPS, int(before["step"]) + 1))
            self.assertEqual(now["epoch"], before["epoch"], "a new coordinator stops nobody")

    def upgrade_worker(self, name):
        """Drained, its job goes on elsewhere from a checkpoint of that moment."""
        c = self.cluster
        c.jobctl("drain", name)
        harness.wait_until(f"{name} to be free", lambda: not any(name in c.job(job).get("workers", []) for job in self.jobs))
        c.workers[name].kill(signal.SIGTERM)
        c.bins[name] = self.second
        c.start_worker(name)
        c.wait_worker(name)
        c.jobctl("uncordon", name)
        self.assertIn(self.commit, self.version(name))
        for job in self.jobs:
            self.assert_one_version(job)

    def assert_one_version(self, job):
        groups = self.cluster.job(job).get("devices", {}).get("groups", [])
        self.assertEqual(len({group["version"] for group in groups}), 1, groups)

    def upgrade_workers(self):
        for name in sorted(self.cluster.workers):
            self.upgrade_worker(name)

    def roll(self, *parts):
        """Two jobs run meanwhile; another is submitted between the parts."""
        c = self.cluster
        self.jobs = [self.submit("first"), self.submit("second")]
        for job in self.jobs:
            c.wait_step(job, 20)
        for part in parts:
            part()
            self.jobs.append(self.submit("between"))
            self.cluster.wait_step(self.jobs[-1], 1)
        reference = self.jobs[-1]  # nothing disturbs it
        outcomes = []
        for job in self.jobs:
            c.wait_state(job, "SUCCEEDED")
            rows = self.assert_every_step_once(job, STEPS)
            outcomes.append(([row["loss"] for row in rows], harness.weights_sha256(c.final_checkpoint(job))))
            self.assert_one_version(job)
        self.assertEqual(c.job(reference)["epoch"], "1")
        self.assertTrue(all(outcome == outcomes[-1] for outcome in outcomes), "each as if nobody had upgraded")
        self.assertTrue(all(self.commit in self.version(name) for name in c.workers))

    def test_coordinator_first(self):
        self.roll(self.upgrade_coordinator, self.upgrade_workers)

    def test_workers_first(self):
        self.roll(self.upgrade_workers, self.upgrade_coordinator)

    def test_a_gang_waits_for_workers_of_one_version(self):
        c = self.cluster
        for name in ("w0", "w1"):
            c.workers[name].kill(signal.SIGTERM)
            c.bins[name] = self.second
            c.start_worker(name)
            c.wait_worker(name)
        job = c.submit(harness.tiny_job(self.data, 5, workers=4, name="four"))
        harness.wait_until("the reason", lambda: "one version of hearth-worker" in c.job(job).get("reason", ""))
        self.assertIn("at most 3 do", c.job(job)["reason"])
        c.workers["w2"].kill(signal.SIGTERM)
        c.bins["w2"] = self.second
        c.start_worker("w2")
        c.wait_worker("w2")
        self.assertEqual(c.job(job)["state"], "JOB_STATE_QUEUED")
        c.workers["w3"].kill(signal.SIGTERM)
        c.bins["w3"] = self.second
        c.start_worker("w3")
        c.wait_state(job, "SUCCEEDED")

    def test_a_later_worker_may_say_more(self):
        """Fields that this version does not know are left alone."""
        hello = peers.hello("from-tomorrow")
        hello.MergeFromString(b"\xfa\x7f\x05later")  # field 2047, bytes
        peer = peers.RoguePeer(self.cluster.address)
        self.addCleanup(peer.close)
        peer.send(hello=hello)
        harness.wait_until("the worker", lambda: any(w["workerId"] == "from-tomorrow" and w["state"] == "WORKER_STATE_IDLE"
                                                     for w in self.cluster.list_workers()))


class DowngradeTest(harness.ClusterTest):
    WORKERS = 1

    def test_a_store_of_a_later_version_is_refused_and_untouched(self):
        c = self.cluster
        c.submit(harness.tiny_job(self.data, 2, workers=1))
        c.coordinator.kill(signal.SIGTERM)
        store = os.path.join(c.dir, "coordinator", "store.db")
        with sqlite3.connect(store) as db:  # as a later version leaves it, whose checksum of the row this test cannot make
            db.execute("UPDATE meta SET value = 1000 WHERE key = 'schema_version'")
            db.execute("PRAGMA user_version = 1000")
        db.close()
        before = harness.sha256(store)
        for extra in ([], ["--check"], ["--check", "--repair"], ["--restore"], ["--backup", os.path.join(c.dir, "copy")]):
            run = subprocess.run([harness.program("hearth-coordinator"), "--data-dir", os.path.dirname(store), "--listen", "127.0.0.1:0",
                                  "--http", "127.0.0.1:0", *extra], capture_output=True, text=True, timeout=harness.patience(60))
            self.assertEqual(run.returncode, REFUSED, f"{extra}: {run.stdout}{run.stderr}")
            self.assertIn("schema version 1000 is newer than this program's", run.stderr)
            self.assertEqual(harness.sha256(store), before, extra)


if __name__ == "__main__":
    harness.main()
