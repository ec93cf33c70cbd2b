#!/usr/bin/python3
"""20 optimizer steps of four tiny models against PyTorch in float64 (data/ was made by torch_trajectory.py): loss, gradient norm and
learning rate of every step, and the final weights."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
import harness  # noqa: E402

# fp32 against float64 over 20 Adam steps. Loss and norm are sums over thousands of terms with relative error about 1e-6 each.
LOSS_RELATIVE, NORM_RELATIVE, WEIGHT_ABSOLUTE = 2e-5, 1e-4, 5e-6
# A bias of the keys adds the same to all scores of a query, which softmax takes out again (with rotary embeddings: nearly): its gradient is
# rounding alone, which no CPU's kernels have in common with another's, and Adam divides it by its own size. In steps of lr.
KEY_BIAS_STEPS = 1


def read_safetensors(path):
    with open(path, "rb") as f:
        blob = f.read()
    size, = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8:8 + size])
    tensors = {}
    for name, info in header.items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            assert info["dtype"] == "F32", (name, info["dtype"])
            tensors[name] = np.frombuffer(blob[8 + size + begin:8 + size + end], "<f4").reshape(info["shape"])
    return tensors


def key_bias(name, tensor):
    """The part of a tensor that is a bias of attention's keys: a slice, empty for most."""
    if name.endswith("k_proj.bias"):
        return slice(None)
    third = tensor.shape[0] // 3  # queries, keys and values in one
    return slice(third, 2 * third) if name.endswith("attn.c_attn.bias") else slice(0, 0)


class Trajectory(unittest.TestCase):
    def run_shape(self, shape):
        folder = os.path.join(HERE, "data", shape)
        with open(os.path.join(folder, "trajectory.json")) as f:
            want = json.load(f)
        s = want["settings"]
        spec = {
            "name": "trajectory-" + shape,
            "model": {"from": os.path.join(folder, "model")},
            "data": {"train": os.path.join(HERE, "data", "tokens.bin"), "sequence_length": s["sequence_length"], "shuffle": False},
            "batch": {"micro_batch_size": s["micro_batch_size"], "global_batch_tokens": s["global_batch_tokens"]},
            "precision": {"recipe": "fp32"},
            "optimizer": {k: s[k] for k in ("lr", "beta1", "beta2", "eps", "weight_decay", "grad_clip")},
            "schedule": {"name": "constant", "warmup_steps": s["warmup_steps"]},
            "train": {"steps": s["steps"], "seed": 1},
            "checkpoint": {"every_steps": 0},
            "resources": {"workers": 1},
        }
        with tempfile.TemporaryDirectory() as out:
            job = os.path.join(out, "job.yaml")
            with open(job, "w") as f:
                json.dump(spec, f)
            run = subprocess.run([harness.program("hearth-trainer"), "run", job, "--out", out, "--threads", "1"],
                                 capture_output=True, text=True, timeout=120)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            with open(os.path.join(out, "metrics.jsonl")) as f:
                got = [json.loads(line) for line in f]
            found = [d for d, _, files in os.walk(out) if "model.safetensors" in files]
            self.assertEqual(len(found), 1, found)
            weights = read_safetensors(os.path.join(found[0], "model.safetensors"))
        self.assertEqual(len(got), s["steps"])
        worst = {"loss": 0.0, "grad_norm": 0.0}
        for i, row in enumerate(got):
            self.assertAlmostEqual(row["learning_rate"], want["learning_rate"][i], delta=1e-12)
            for key in worst:
                worst[key] = max(worst[key], abs(row[key] - want[key][i]) / abs(want[key][i]))
        final = read_safetensors(os.path.join(folder, "final", "model.safetensors"))
        self.assertEqual(sorted(weights), sorted(final))
        gap = key_gap = 0.0
        for name, tensor in final.items():
            difference = np.abs(weights[name] - tensor)
            keys = key_bias(name, tensor)
            key_gap = max(key_gap, float(difference[keys].max(initial=0)))
            difference[keys] = 0
            gap = max(gap, float(difference.max()))
        print(f"{shape}: loss {worst['loss']:.1e}, gradient norm {worst['grad_norm']:.1e} relative; weights {gap:.1e}, biases of keys "
              f"{key_gap:.1e} absolute")
        self.assertLessEqual(worst["loss"], LOSS_RELATIVE)
        self.assertLessEqual(worst["grad_norm"], NORM_RELATIVE)
        self.assertLessEqual(gap, WEIGHT_ABSOLUTE)
        self.assertLessEqual(key_gap, KEY_BIAS_STEPS * s["lr"])

    def test_llama(self):
        self.run_shape("llama")

    def test_qwen2(self):
        self.run_shape("qwen2")

    def test_qwen3(self):
        self.run_shape("qwen3")

    def test_gpt2(self):
        self.run_shape("gpt2")


if __name__ == "__main__":
    harness.main()
