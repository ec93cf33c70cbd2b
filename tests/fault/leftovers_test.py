#!/usr/bin/python3
"""Folders that faults and deletions leave under the checkpoint root are removed automatically or by `checkpoints prune`."""

import os
import signal
import time

import peers  # noqa: F401  (finds the harness)
import harness


class LeftoversTest(harness.ClusterTest):
    WORKERS = 2

    def root(self, *parts):
        return os.path.join(self.cluster.dir, "checkpoints", *parts)

    def plant(self, job, epoch, name, content="x"):
        """A folder as a killed trainer leaves it."""
        path = self.root(job, f"e{epoch}", name) if name else self.root(job, f"e{epoch}")
        os.makedirs(path)
        if name:
            with open(os.path.join(path, "MANIFEST.json"), "w") as f:
                f.write(content)
        return path

    def reconnect(self, name="w0"):
        """A worker that dials in again is asked what lies under its root."""
        self.cluster.workers[name].kill(signal.SIGTERM)
        self.cluster.start_worker(name)
        self.cluster.wait_worker(name)

    def finished_job(self, **over):
        job = self.cluster.submit(harness.tiny_job(self.data, steps=60, workers=2, **over))
        self.cluster.wait_state(job, "SUCCEEDED")
        return job

    def folders(self, job):
        found = []
        for epoch in sorted(os.listdir(self.root(job))) if os.path.isdir(self.root(job)) else []:
            found += [f"{epoch}/{name}" for name in sorted(os.listdir(self.root(job, epoch)))] or [epoch]
        return found

    def recorded(self, job):
        return sorted(f"e{c['epoch']}/{os.path.basename(c['path'])}" for c in self.cluster.checkpoints(job))

    def test_after_faults_only_what_is_recorded_is_left(self):
        job = self.cluster.submit(harness.tiny_job(self.data, steps=12000, workers=2, checkpoint={"every_steps": 20},
                                                   resources={"workers": 2, "max_restarts": 100}))
        for k in range(6):
            self.cluster.wait_step(job, 40 + 150 * k)
            epoch = int(self.cluster.job(job)["epoch"])
            pids = self.cluster.trainer_pids(f"w{k % 2}")
            if pids:
                os.kill(pids[0], signal.SIGKILL)
                harness.wait_until("the next epoch", lambda: int(self.cluster.job(job)["epoch"]) > epoch)
        self.assertGreater(int(self.cluster.job(job)["epoch"]), 3)
        # What 300 faults left, in the epochs that are over: unnamed checkpoints, temporaries, empty epochs.
        self.plant(job, 1, "step-00000007")
        self.plant(job, 2, "step-00000008.tmp-99999")
        if not os.path.isdir(self.root(job, "e3")):
            self.plant(job, 3, "")
        self.cluster.wait_state(job, "SUCCEEDED", timeout=180)
        harness.wait_until("the leftovers to go", lambda: self.folders(job) == self.recorded(job), 60)

    def test_running_epoch_and_folders_of_others_are_left_alone(self):
        other = self.plant("my-thesis", 1, "step-00000010")
        notes = self.root("my-thesis", "notes.txt")
        with open(notes, "w") as f:
            f.write("mine")
        job = self.cluster.submit(harness.tiny_job(self.data, steps=200000, workers=1, checkpoint={"every_steps": 1000}))
        self.cluster.wait_step(job, 100)
        running = self.plant(job, 1, "step-00000001")
        ahead = self.plant(job, 9, "step-00000001")
        idle = "w1" if self.cluster.job(job)["workers"] == ["w0"] else "w0"
        self.reconnect(idle)
        listed = harness.wait_until("a listing", lambda: [
            f for f in self.cluster.json("checkpoints", "prune", "--dry-run").get("folders", []) if f["path"] == other])
        self.assertIn("another coordinator", listed[0]["reason"])
        self.assertNotIn(running, [f["path"] for f in self.cluster.json("checkpoints", "prune", "--dry-run")["folders"]])
        time.sleep(2)  # a removal that was ordered would have been done
        for path in (other, notes, running, ahead):
            self.assertTrue(os.path.exists(path), path)

    def test_prune(self):
        old = self.plant("gone", 2, "step-00000010")
        long_ago = time.time() - 7200
        for path in (os.path.join(old, "MANIFEST.json"), old):
            os.utime(path, (long_ago, long_ago))
        young = self.plant("young", 1, "step-00000010")
        time.sleep(3.5)  # a listing that is younger than 3 s is not made again
        dry = self.cluster.jobctl("checkpoints", "prune", "--dry-run")
        self.assertIn(old, dry.stdout)
        self.assertIn("1 folder", dry.stderr)
        self.assertTrue(os.path.exists(old))
        refused = self.cluster.jobctl("checkpoints", "prune", check=False)
        self.assertIn("--yes", refused.stderr)
        self.assertTrue(os.path.exists(old))
        self.cluster.jobctl("checkpoints", "prune", "--yes")
        harness.wait_until("the old folder to go", lambda: not os.path.exists(self.root("gone")))
        self.assertTrue(os.path.exists(young), "somebody may be writing it")
        self.cluster.jobctl("checkpoints", "prune", "--yes", "--min-age", "0s", "--job", "young")
        harness.wait_until("the young folder to go", lambda: not os.path.exists(self.root("young")))

    def test_delete_keeps_checkpoints_unless_asked(self):
        kept = self.finished_job()
        said = self.cluster.jobctl("delete", kept, "--yes").stderr
        self.assertIn(self.root(kept), said)
        self.assertTrue(self.folders(kept))
        gone = self.finished_job()
        self.cluster.jobctl("delete", gone, "--yes", "--checkpoints")
        harness.wait_until("its folder to go", lambda: not os.path.exists(self.root(gone)))
        self.assertTrue(self.folders(kept))

    def test_shared_root_is_listed_by_one_worker(self):
        roots = self.cluster.json("checkpoints", "prune", "--dry-run")["roots"]
        self.assertEqual(len(roots), 1, roots)


if __name__ == "__main__":
    harness.main()
