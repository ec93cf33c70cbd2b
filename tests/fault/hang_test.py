#!/usr/bin/python3
"""A step that hangs in one rank: it is found, the logs of both ranks say what each thread did and which rank is to blame, the job goes on
from its checkpoint to the same weights, and the job beside it is not touched."""

import re

import peers  # noqa: F401  (finds the harness)
import harness

STEPS = 600
HANGS_AT = 400


class Hang(harness.ClusterTest):
    WORKERS = 0

    def job(self, group):
        return harness.tiny_job(self.data, STEPS, name=group, checkpoint={"every_steps": 50},
                                resources={"workers": 2, "selector": {"group": group}})

    def test_step_of_one_rank_hangs(self):
        for name in ("healthy0", "healthy1", "spoiled0", "spoiled1"):
            if name == "spoiled1":
                self.cluster.env["HEARTH_FAULTS"] = f"trainer.step=hold:{self.gate('hang')}@{HANGS_AT}"
            self.cluster.start_worker(name, "--label", f"group={name[:-1]}")
            self.cluster.wait_worker(name)

        job, beside = self.cluster.submit(self.job("spoiled")), self.cluster.submit(self.job("healthy"))
        harness.wait_until("the hang to be found", lambda: int(self.cluster.job(job)["epoch"]) == 2)
        self.release("hang")  # the next trainer may come to as many steps
        done, untouched = self.cluster.wait_state(job, "SUCCEEDED"), self.cluster.wait_state(beside, "SUCCEEDED")
        self.assertEqual((int(done["epoch"]), int(untouched["epoch"])), (2, 1))
        self.assertNotIn("JOB_STATE_RECOVERING", [e["toState"] for e in self.cluster.events(beside)])
        self.assertEqual([r["loss"] for r in self.assert_every_step_once(job, STEPS)],
                         [r["loss"] for r in self.assert_every_step_once(beside, STEPS)])
        self.assertEqual(harness.weights_sha256(self.cluster.final_checkpoint(job)),
                         harness.weights_sha256(self.cluster.final_checkpoint(beside)))

        [recovery] = [e["message"] for e in self.cluster.events(job) if e["type"] == "recovery"]
        self.assertIn("spoiled1", recovery)
        log = self.cluster.job_log(job)
        verdict = re.search(rf"rank (\d) hangs: no progress for ([\d.]+) s after step {HANGS_AT - 1} \((.+?); a step takes (\S+) s\)", log)
        self.assertIsNotNone(verdict, log)
        culprit = int(verdict[1])
        print(f"found after {verdict[2]} s; a step takes {verdict[4]} s; at: {verdict[3]}")
        self.assertRegex(log, rf"rank {1 - culprit} was at: .*(all-reduce|group of collectives).* when rank {culprit} hangs: ")
        stacks = [line for line in log.splitlines() if re.search(r"thread \d+ \(.*\): ", line)]
        self.assertTrue(any("hearth::fault::" in line and "Trainer::Launch" in line for line in stacks), stacks)
        self.assertTrue(any("AllReduce" in line or "Collective" in line for line in stacks), stacks)


if __name__ == "__main__":
    harness.main()
