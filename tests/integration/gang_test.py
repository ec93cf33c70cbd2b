#!/usr/bin/python3
"""Faults of a gang of four: a trainer killed, a trainer stopped, a daemon killed. The others are gone within 5 s, the job goes on from
its last checkpoint, with the workers that are left and with all of them again, and its global batch never changes."""

import os
import re
import signal
import time

import harness

ABORT_SECONDS = 5.0
# Detection of a lost daemon takes 3 s, of a stopped trainer 3 to 4; the rest is room for a loaded machine.
RECOVERY_SECONDS = 20.0
RECOVERED = re.compile(r"recovered in ([0-9.]+) s: lost rank (\d+) on (\S+) \((.*)\), resumed from step (\d+) with (\d+) workers?$")


def gone(pid):
    """Ended, whether or not its parent has taken note."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


class GangTest(harness.ClusterTest):
    WORKERS = 4

    def setUp(self):
        self.cluster = c = harness.Cluster(["--reattach-grace-seconds", "1", "--resize-interval-seconds", "1", "--resize-settle-seconds", "0.2"])
        self.addCleanup(c.close)
        self.data = os.path.join(c.dir, "tokens.bin")
        harness.write_tokens(self.data)
        c.start(self.WORKERS)
        self.job = c.submit(harness.tiny_job(
            self.data, 10**6, checkpoint={"every_steps": 100, "keep_last": 2},
            resources={"workers": 4, "min_workers": 2, "max_restarts": 3}))

    def running(self, workers):
        """Waits until the job steps on that many workers and has a checkpoint of this epoch; returns it."""
        def ready():
            job = self.cluster.job(self.job)
            if job["state"] in harness.TERMINAL:
                raise AssertionError(f"{job['reason']}\n{self.cluster.job_log(self.job)}")
            return job if (job["state"] == "JOB_STATE_RUNNING" and len(job["workers"]) == workers and
                           int(job.get("checkpoint", {}).get("epoch", 0)) == int(job["epoch"])) else None

        job = harness.wait_until(f"a checkpoint of a gang of {workers}", ready, 60)
        self.assertEqual((job["runInfo"]["worldSize"], job["runInfo"]["globalBatchTokens"]), (workers, "256"))
        return job

    def recoveries(self):
        return [e["message"] for e in self.cluster.events(self.job) if e["type"] == "recovery"]

    def fault(self, worker, act):
        """Does `act` to the gang; returns (rank lost, worker, reason, workers it went on with)."""
        c = self.cluster
        before = self.running(len(c.job(self.job)["workers"]))
        pids = {pid for name in before["workers"] for pid in c.trainer_pids(name)}
        self.assertEqual(len(pids), len(before["workers"]))
        known = len(self.recoveries())
        began = time.monotonic()
        act(c.trainer_pids(worker)[0])
        harness.wait_until("the end of all ranks", lambda: all(map(gone, pids)), 30)
        aborted = time.monotonic() - began
        message = harness.wait_until("the recovery", lambda: self.recoveries()[known:], 60)[0]
        stepped = time.monotonic() - began
        print(f"{worker}: all ranks gone after {aborted:.1f} s, next step seen after {stepped:.1f} s; {message}", flush=True)
        self.assertLess(aborted, ABORT_SECONDS)
        self.assertLess(stepped, RECOVERY_SECONDS)
        match = RECOVERED.match(message)
        self.assertTrue(match, message)
        seconds, rank, on, reason, step, workers = match.groups()
        self.assertLess(float(seconds), stepped + 2.0, "counts from the last sign of life, a heartbeat earlier at most")
        self.assertGreaterEqual(int(step), int(before["checkpoint"]["step"]))
        self.assertEqual(int(step) % 100, 0)
        after = c.job(self.job)
        self.assertEqual(int(after["epoch"]), int(before["epoch"]) + 1)
        return int(rank), on, reason, int(workers)

    def test_faults(self):
        c = self.cluster
        self.running(4)
        self.assertEqual(c.job(self.job)["workers"], ["w0", "w1", "w2", "w3"])
        lost = self.fault("w2", lambda pid: os.kill(pid, signal.SIGKILL))
        self.assertEqual((lost[0], lost[1], lost[3]), (2, "w2", 4))
        self.assertIn("SIGKILL", lost[2])

        self.running(4)
        lost = self.fault("w1", lambda pid: os.kill(pid, signal.SIGSTOP))
        self.assertEqual((lost[0], lost[1], lost[3]), (1, "w1", 4))
        self.assertRegex(lost[2], r"^stopped: no heartbeat for [0-9.]+s, process state T$")

        self.running(4)
        lost = self.fault("w3", lambda pid: c.workers["w3"].kill())
        self.assertEqual((lost[0], lost[1], lost[3]), (3, "w3", 3))
        self.assertIn("silent", lost[2])
        self.running(3)
        c.start_worker("w3")
        job = self.running(4)
        resized = [e for e in c.events(self.job) if e["reasonCode"] == "resized"]
        self.assertTrue(any("grows from 3 to 4 workers" in e["message"] for e in resized))
        self.assertRegex(c.jobctl("describe", self.job).stdout, r"Recovery: +[0-9.]+ s at .*lost rank 3 on w3 .*with 3 workers")
        self.assertRegex(c.get("/metrics"), r'hearth_job_recovery_seconds\{job_id="[^"]+"\} [0-9.]+')
        self.assertEqual(job["workers"], ["w0", "w1", "w2", "w3"])

        c.jobctl("cancel", self.job, "--now")
        c.wait_state(self.job, "CANCELLED")
        self.assertEqual([c.trainer_pids(name) for name in c.workers], [[], [], [], []])
        self.assert_every_step_once(self.job, int(c.job(self.job)["step"]))


if __name__ == "__main__":
    harness.main()
