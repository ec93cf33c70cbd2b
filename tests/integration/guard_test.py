#!/usr/bin/python3
"""A gradient that becomes NaN and a loss that jumps, in real trainers of two ranks: the steps are done again in BF16, the decisions are
events, metrics and a line of `describe`, a replay after kill -9 repeats them and the weights bit for bit, and the run ends as well as a
clean one."""

import json
import os
import signal

import harness

STEPS = 120


class Guard(harness.ClusterTest):
    GATES = {"step": "trainer.step@60"}
    FAULTS = "trainer.nan_gradient=error@40,trainer.loss_spike=error@80"

    def spec(self, name, **precision):
        return harness.tiny_job(self.data, STEPS, name=name, checkpoint={"every_steps": 25},
                                precision={"recipe": "fp8", "stats_every": 10, **precision},
                                train={"steps": STEPS, "seed": 7, "spike_sigma": 10, "spike_window": 16})

    def decisions(self, job):
        return [(int(e["step"]), e["message"]) for e in self.cluster.events(job) if e["type"] == "precision"]

    def finish(self, job):
        self.cluster.wait_state(job, "SUCCEEDED")
        rows = self.assert_every_step_once(job, STEPS)
        return harness.weights_sha256(self.cluster.final_checkpoint(job)), [r["loss"] for r in rows]

    def check_decisions(self, found):
        self.assertEqual([step for step, _ in found], [40, 80], found)
        self.assertIn("was not finite in fp8; done again in bf16", found[0][1])
        self.assertIn("the loss jumped to", found[1][1])

    def test_spoiled_run(self):
        job = self.cluster.submit(self.spec("spoiled"))
        weights, losses = self.finish(job)
        self.check_decisions(self.decisions(job))
        rows = self.cluster.metrics(job)
        self.assertEqual([int(r["step"]) for r in rows if r["recipe"] == "bf16"], [1, 40, 80])  # 1: no scales yet
        described = self.cluster.jobctl("describe", job).stdout
        self.assertIn("Guard:         2 refused (1 not finite, 1 loss spikes, 0 gradient spikes), 2 done again", described)
        self.assertIn("Tensors dy:", described)
        scrape = self.cluster.get("/metrics")
        label = f'job_id="{job}"'
        self.assertIn(f'hearth_job_skipped_steps_total{{{label},cause="non_finite"}} 1\n', scrape)
        self.assertIn(f'hearth_job_skipped_steps_total{{{label},cause="spike"}} 1\n', scrape)
        self.assertIn(f'hearth_job_skipped_steps_total{{{label},cause="grad_spike"}} 0\n', scrape)
        self.assertIn(f"hearth_job_redone_steps_total{{{label}}} 2\n", scrape)
        self.assertIn(f'hearth_job_tensor_underflow_ratio{{{label},role="dy"}}', scrape)

        # The same job, killed between the two: from the checkpoint of step 25 it decides and computes alike.
        self.hold()
        killed = self.cluster.submit(self.spec("killed"))
        self.cluster.wait_step(killed, 45)
        os.kill(self.cluster.trainer_pids("w1")[0], signal.SIGKILL)
        self.release()
        self.assertEqual(self.finish(killed), (weights, losses))
        self.assertEqual(int(self.cluster.job(killed)["epoch"]), 2)
        found = self.decisions(killed)
        self.check_decisions(found[-2:])

        # And a clean run ends where the spoiled one does.
        del self.cluster.env["HEARTH_FAULTS"]
        for name in ("w0", "w1"):
            self.cluster.workers[name].kill(signal.SIGTERM)
            self.cluster.start_worker(name)
            self.cluster.wait_worker(name)
        clean = self.cluster.submit(self.spec("clean"))
        _, clean_losses = self.finish(clean)
        self.assertEqual(self.decisions(clean), [])
        self.assertEqual(clean_losses[:39], losses[:39])
        mean = lambda values: sum(map(float, values)) / len(values)
        self.assertAlmostEqual(mean(losses[-10:]) / mean(clean_losses[-10:]), 1.0, delta=0.02)

    def test_without_fallback_the_job_fails_and_says_why(self):
        job = self.cluster.submit(self.spec("alone", fallback=["none"]))
        failed = self.cluster.wait_state(job, "FAILED", timeout=60)
        self.assertIn("step 40", failed["reason"])
        self.assertIn("not finite", failed["reason"])
        self.assertIn("there is no other recipe to try", self.decisions(job)[-1][1])

    def test_submit_watch_of_a_run_that_ends_in_nan_is_red(self):
        spec = {**self.spec("red", fallback=["none"]), "checkpoint": {"every_steps": 0}}
        run = self.cluster.jobctl("submit", "-f", "-", "--watch", stdin=json.dumps(spec), check=False)
        job = run.stdout.split()[0].removeprefix("job/")
        self.assertEqual(run.returncode, 100, run.stdout + run.stderr)
        self.assertRegex(run.stdout, r"(?m)^failed +end +FAILED at step 39 of 120: ")
        self.assertRegex(run.stdout, r"(?m)^failed +numbers +step 40 was refused, which ended the job")
        self.assertIn(f"there is no checkpoint: jobctl resume {job} --set optimizer.lr=LOWER starts again at step 1", run.stdout)
        self.assertNotIn("Resume from a checkpoint", run.stdout + self.cluster.job(job)["reason"])
        self.assertEqual(self.cluster.checkpoints(job), [])


if __name__ == "__main__":
    harness.main()
