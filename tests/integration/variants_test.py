#!/usr/bin/python3
"""Jobs of every kind that the job file can describe, through the whole system: data formats, mixtures, automatic micro-batch, bf16,
GPT-2 shape with dropout, recomputation, starting from a checkpoint."""

import os
import struct

import harness


class Variants(harness.ClusterTest):
    def succeed(self, **over):
        """Runs the job; returns (job, losses)."""
        job = self.cluster.submit(harness.tiny_job(self.data, 20, **over))
        self.cluster.wait_state(job, "SUCCEEDED")
        rows = self.assert_every_step_once(job, 20)
        return self.cluster.job(job), [float(r["loss"]) for r in rows]

    def test_bf16_is_emulated_and_close_to_fp32(self):
        _, fp32 = self.succeed()
        job, bf16 = self.succeed(precision={"recipe": "bf16"})
        self.assertEqual((job["runInfo"]["recipe"], job["runInfo"]["recipeExecution"]), ("bf16", "emulated"))
        self.assertNotEqual(fp32, bf16, "nothing was rounded")
        self.assertLess(max(abs(a - b) / a for a, b in zip(fp32, bf16)), 0.02)

    def test_automatic_micro_batch(self):
        job, _ = self.succeed(batch={"micro_batch_size": "auto", "global_batch_tokens": 512})
        self.assertEqual(job["runInfo"]["microBatchSize"], 8)  # 16 sequences, both ranks have work

    def test_gpt2_shape_with_dropout_repeats_itself(self):
        gpt2 = {"norm": "layernorm", "position": "learned", "activation": "gelu_tanh", "attention_bias": "all", "mlp_bias": True,
                "kv_heads": 4, "dropout": 0.1}
        _, first = self.succeed(model=gpt2)
        _, again = self.succeed(model=gpt2)
        self.assertEqual(first, again)

    def test_recomputation_changes_nothing(self):
        _, kept = self.succeed()
        for level in ("norm_act", "ffn", "attention", "block"):
            with self.subTest(level):
                self.assertEqual(self.succeed(recompute=level)[1], kept)

    def test_llmc_file_reads_as_the_same_tokens(self):
        with open(self.data, "rb") as f:
            tokens = f.read()
        path = os.path.join(self.cluster.dir, "llmc.bin")
        with open(path, "wb") as f:
            f.write(struct.pack("<3i", 20240520, 1, len(tokens) // 2) + bytes(4 * 253) + tokens)
        _, raw = self.succeed()
        _, llmc = self.succeed(data={"train": path, "sequence_length": 32})
        self.assertEqual(raw, llmc)

    def test_weighted_mixture(self):
        other = os.path.join(self.cluster.dir, "other.bin")
        harness.write_tokens(other, 5000, 8)
        mixture = [{"path": self.data, "weight": 3}, {"path": other, "weight": 1}]
        _, mixed = self.succeed(data={"train": mixture, "sequence_length": 32})
        _, plain = self.succeed()
        self.assertNotEqual(mixed, plain)

    def test_from_a_checkpoint(self):
        job, losses = self.succeed()
        folder = self.cluster.final_checkpoint(job["jobId"])["path"]
        spec = harness.tiny_job(self.data, 20, name="continued")
        spec["model"] = {"from": folder}
        again = self.cluster.submit(spec)
        self.cluster.wait_state(again, "SUCCEEDED")
        rows = self.assert_every_step_once(again, 20)
        self.assertLess(float(rows[0]["loss"]), losses[0] - 0.1, "the weights were not taken over")

    def test_dataset_built_by_jobctl(self):
        out = os.path.join(self.cluster.dir, "text")
        self.cluster.jobctl("dataset", "build", "--input", os.path.join(harness.SOURCE, "docs"), "--tokenizer", "bytes",
                            "--validation-fraction", "0.3", "--out", out)
        inspected = self.cluster.jobctl("dataset", "inspect", out + "/train").stdout
        self.assertIn("bytes", inspected)
        job, _ = self.succeed(model={"vocab": 257}, data={"train": out + "/train", "validation": out + "/validation",
                                                          "sequence_length": 32})
        self.assertGreater(self.cluster.final_checkpoint(job["jobId"])["validationLoss"], 0)


if __name__ == "__main__":
    harness.main()
