#!/usr/bin/python3
"""The number of ranks and the accumulation change nothing: the same global batch gives the same loss curve (fp32)."""

import harness

STEPS = 50


class Equivalence(harness.ClusterTest):
    def losses(self, workers, micro_batch):
        job = self.cluster.submit(harness.tiny_job(self.data, STEPS, workers=workers,
                                                   batch={"micro_batch_size": micro_batch, "global_batch_tokens": 512}))
        self.cluster.wait_state(job, "SUCCEEDED")
        return [float(r["loss"]) for r in self.assert_every_step_once(job, STEPS)]

    def worst(self, a, b):
        return max(abs(x - y) / abs(x) for x, y in zip(a, b, strict=True))

    def test_ranks_and_accumulation(self):
        one = self.losses(1, 16)  # one micro-batch a step
        self.assertLess(one[-1], 0.95 * one[0], "nothing was learned, so nothing was compared")
        for workers, micro_batch in ((2, 8), (2, 2), (1, 4), (1, 1)):
            with self.subTest(workers=workers, micro_batch=micro_batch):
                worst = self.worst(one, self.losses(workers, micro_batch))
                print(f"{workers} ranks, micro-batch {micro_batch}: largest relative difference of the loss {worst:.2e}")
                self.assertLessEqual(worst, 1e-5)


if __name__ == "__main__":
    harness.main()
