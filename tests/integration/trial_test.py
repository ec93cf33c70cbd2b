#!/usr/bin/python3
"""precision.trial in real trainers of two ranks: what is found and decided are events, a line of `describe` and the recipe in force; a
trainer killed in the middle of the trial or just after it neither repeats what was finished nor changes the decision nor a bit of the
weights."""

import json
import os
import signal

import harness

STEPS = 60
TRIAL = {"steps": 40, "max_gap": 1}


class Trial(harness.ClusterTest):
    # In BF16's run, in fp8's, and after the decision, before the first checkpoint.
    GATES = {"bf16": "trainer.step@20", "fp8": "trainer.before_allreduce@60", "decided": "trainer.after_allreduce@90"}

    def spec(self, name, trial=TRIAL):
        precision = {"recipe": "fp8", "trial": trial} if trial else {"recipe": "fp8"}
        return harness.tiny_job(self.data, STEPS, name=name, checkpoint={"every_steps": 25}, precision=precision)

    def findings(self, job):
        return [e["message"] for e in self.cluster.events(job) if e["type"] == "precision"]

    def finish(self, job):
        self.cluster.wait_state(job, "SUCCEEDED")
        rows = self.assert_every_step_once(job, STEPS)
        return harness.weights_sha256(self.cluster.final_checkpoint(job)), [r["loss"] for r in rows]

    def wait_finding(self, job, text):
        harness.wait_until(f"{text!r} in the events of {job}", lambda: any(text in m for m in self.findings(job)))

    def kill_trainer(self, gate):
        os.kill(self.cluster.trainer_pids("w1")[0], signal.SIGKILL)
        self.release(gate)

    def test_killed_anywhere(self):
        plain = self.cluster.submit(self.spec("plain", None))
        want = self.finish(plain)

        whole = self.cluster.submit(self.spec("whole"))
        self.assertEqual(self.finish(whole), want)
        found = self.findings(whole)
        self.assertEqual(len(found), 3, found)
        self.assertEqual(found[0], "trial of 40 steps before the first in bf16, fp8")
        self.assertIn("next fp8", found[1])
        self.assertIn("; the job trains in fp8 (gap of at most 100 %)", found[2])
        described = self.cluster.jobctl("describe", whole).stdout
        self.assertIn(f"Trial:         {found[2]}\n", described)
        self.assertIn("Precision:     fp8 (emulated)", described)

        self.hold("bf16")
        early = self.cluster.submit(self.spec("early"))
        self.wait_finding(early, "before the first")
        self.kill_trainer("bf16")
        self.assertEqual(self.finish(early), want)
        self.assertEqual(self.findings(early), found[:1] + found)

        self.hold("fp8")
        middle = self.cluster.submit(self.spec("middle"))
        self.wait_finding(middle, "next fp8")
        self.kill_trainer("fp8")
        self.assertEqual(self.finish(middle), want)
        self.assertEqual(self.findings(middle), found)

        self.hold("decided")
        late = self.cluster.submit(self.spec("late"))
        self.cluster.wait_step(late, 3)
        self.kill_trainer("decided")
        self.assertEqual(self.finish(late), want)
        self.assertEqual(self.findings(late), found)
        for job in (early, middle, late):
            self.assertEqual(int(self.cluster.job(job)["epoch"]), 2)

    def test_paused_in_the_trial(self):
        self.hold("fp8")
        job = self.cluster.submit(self.spec("paused"))
        self.wait_finding(job, "next fp8")
        self.cluster.jobctl("pause", job)
        self.release("fp8")
        self.cluster.wait_state(job, "PAUSED")
        self.cluster.jobctl("resume", job)
        self.finish(job)
        self.assertEqual(len(self.findings(job)), 3)

    def test_bad_fields_are_named(self):
        refused = self.cluster.jobctl("submit", "-f", "-", check=False,
                                      stdin=json.dumps(self.spec("long", {"steps": 61, "max_gap": -1})))
        self.assertNotEqual(refused.returncode, 0)
        for text in ("precision.trial.max_gap: -1 is out of range; must be 0..1", "precision.trial.steps: 61 is more than train.steps 60"):
            self.assertIn(text, refused.stdout + refused.stderr)


if __name__ == "__main__":
    harness.main()
