#!/usr/bin/python3
"""A run that stops at step k and continues equals one that never stopped: the same final weights bit for bit, and every step in the
history exactly once with the same loss. Tried for every way in which a user or a fault can stop a run."""

import os
import signal

import harness

STEPS = 120


class ExactResume(harness.ClusterTest):
    reference = None
    FAULTS = "trainer.after_step=delay:5ms"  # so that the checkpoint of step 25 is most often recorded by then
    GATES = {"step": "trainer.step@60"}

    def spec(self, name):
        return harness.tiny_job(self.data, STEPS, name=name, checkpoint={"every_steps": 25})

    def finish(self, job):
        """Waits for success; returns (weights checksum, losses)."""
        self.release()
        self.cluster.wait_state(job, "SUCCEEDED")
        rows = self.assert_every_step_once(job, STEPS)
        checkpoint = self.cluster.final_checkpoint(job)
        self.assertEqual(int(checkpoint["step"]), STEPS)
        return harness.weights_sha256(checkpoint), [r["loss"] for r in rows]

    def compare(self, job):
        """Against a job that nobody disturbed."""
        found = self.finish(job)
        if ExactResume.reference is None:
            ExactResume.reference = self.finish(self.cluster.submit(self.spec("undisturbed")))
        self.assertEqual(found[1], ExactResume.reference[1])
        self.assertEqual(found[0], ExactResume.reference[0])

    def running(self, name, step=35):
        """A job that is in mid-run until it is released."""
        self.hold()
        job = self.cluster.submit(self.spec(name))
        self.cluster.wait_step(job, step)
        return job

    def test_pause_resume(self):
        job = self.running("pause")
        self.cluster.jobctl("pause", job)
        self.release()
        paused = self.cluster.wait_state(job, "PAUSED")
        self.assertLess(int(paused["step"]), STEPS)
        self.assertEqual(paused["checkpoint"]["step"], paused["step"])
        self.assertEqual(self.cluster.trainer_pids("w0") + self.cluster.trainer_pids("w1"), [])
        self.cluster.jobctl("resume", job)
        self.compare(job)

    def test_cancel_resume(self):
        job = self.running("cancel")
        self.cluster.jobctl("cancel", job)
        self.release()
        self.cluster.wait_state(job, "CANCELLED")
        self.cluster.jobctl("resume", job)
        self.compare(job)

    def test_cancel_now_resume_rewinds_to_the_checkpoint(self):
        job = self.running("cancel-now")
        self.cluster.jobctl("cancel", job, "--now")
        self.cluster.wait_state(job, "CANCELLED")
        self.assertEqual(self.cluster.recorded_step(job) % 25, 0)
        self.cluster.jobctl("resume", job)
        self.compare(job)

    def test_extend_after_success(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 50, name="extend", checkpoint={"every_steps": 25}))
        self.cluster.wait_state(job, "SUCCEEDED")
        refused = self.cluster.jobctl("resume", job, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"set train.steps to more: jobctl resume {job} --set train.steps=100", refused.stderr)
        self.cluster.jobctl("resume", job, "--set", f"train.steps={STEPS}")
        self.compare(job)
        self.assertEqual(int(self.cluster.job(job)["epoch"]), 2)

    def test_kill_9_of_a_trainer(self):
        job = self.running("kill-trainer")
        os.kill(self.cluster.trainer_pids("w1")[0], signal.SIGKILL)
        self.compare(job)
        self.assertEqual(int(self.cluster.job(job)["epoch"]), 2)

    def test_kill_9_of_a_worker(self):
        job = self.running("kill-worker")
        orphans = self.cluster.trainer_pids("w1")
        self.cluster.workers["w1"].kill()
        harness.wait_until("the orphaned trainer to end", lambda: not any(os.path.exists(f"/proc/{p}") for p in orphans))
        self.cluster.start_worker("w1")
        self.compare(job)

    def test_restart_of_the_coordinator(self):
        job = self.running("restart-coordinator")
        self.cluster.coordinator.kill(signal.SIGTERM)
        self.assertEqual(self.cluster.coordinator.process.returncode, 0, self.cluster.logs())
        self.cluster.start_coordinator()
        self.compare(job)
        self.assertEqual(int(self.cluster.job(job)["epoch"]), 1)

    def test_kill_9_of_the_coordinator_stops_nothing(self):
        job = self.running("kill-coordinator")
        pids = self.cluster.trainer_pids("w0") + self.cluster.trainer_pids("w1")
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator()
        before = int(self.cluster.job(job)["step"])
        self.release()
        running = self.cluster.wait_step(job, before + 1)
        self.assertIn(running["state"], ("JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"))
        self.compare(job)
        done = self.cluster.job(job)
        self.assertEqual(int(done["epoch"]), 1, "a healthy job was restarted")
        self.assertNotIn("JOB_STATE_RECOVERING", [e["toState"] for e in self.cluster.events(job)])
        self.assertEqual(len(pids), 2)


if __name__ == "__main__":
    harness.main()
