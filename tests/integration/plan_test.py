#!/usr/bin/python3
"""jobctl plan and hearth-trainer plan: the same bytes and the same verdict for the same job and memory."""

import json
import os
import subprocess
import tempfile
import unittest

import harness

GIB = 1 << 30
JOBS = os.path.join(harness.SOURCE, "configs", "jobs")
SMALL = {"name": "small", "model": {"layers": 2, "hidden": 64, "heads": 4, "ffn_hidden": 128, "vocab": 256},
         "data": {"train": "/nowhere", "sequence_length": 32}, "batch": {"global_batch_tokens": 4096},
         "precision": {"recipe": "bf16"}, "train": {"steps": 10}}
FOLDER_CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "intermediate_size": 128, "vocab_size": 320, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                 "max_position_embeddings": 128, "hidden_act": "silu", "tie_word_embeddings": True}


class Plan(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hearth-test-")
        self.addCleanup(subprocess.run, ["rm", "-rf", self.dir])

    def job(self, **over):
        path = os.path.join(self.dir, "job.yaml")
        with open(path, "w") as f:
            json.dump({**SMALL, **over}, f)
        return path

    def run_both(self, path, memory, *assignments):
        """(exit status, what was printed, the error) of both, which must be the same."""
        sets = [word for assignment in assignments for word in ("--set", assignment)]
        both = []
        for argv, flag, prefix in (([harness.program("jobctl"), "plan"], "--memory", "error: "),
                                   ([harness.program("hearth-trainer"), "plan"], "--memory-bytes", "hearth-trainer: ")):
            run = subprocess.run([*argv, path, *sets, *([flag, str(memory)] if memory else [])], capture_output=True, text=True)
            both.append((run.returncode, run.stdout, run.stderr.removeprefix(prefix)))
        self.assertEqual(*both)
        return both[0]

    def test_jobs_of_the_repository(self):
        for name in ("hearth-112m-fp8", "hearth-112m-nvfp4", "hearth-1.5b-bf16", "gpt2-124m-bf16", "gang-112m"):
            for memory in (10 * GIB, 80 * GIB):
                with self.subTest(name=name, memory=memory):
                    code, out, error = self.run_both(os.path.join(JOBS, name + ".yaml"), memory)
                    self.assertIn(code, (0, 1), error)
                    self.assertIn("predicted on the GPU: arena ", out)

    def test_memory_of_cuda_is_counted(self):
        """The arena takes 9.6 GiB: beside it the 0.75 GiB of CUDA and a margin have no room in 10."""
        path = os.path.join(JOBS, "hearth-112m-fp8.yaml")
        code, out, error = self.run_both(path, 10 * GIB)
        self.assertEqual(code, 1)
        self.assertIn("arena 9.6 GiB + 539.8 MiB of CUDA, cuBLASLt, cuDNN and graphs = 10.1 GiB", out)
        self.assertIn("does not fit: the plan takes 9.6 GiB of 9.2 GiB; batch.micro_batch_size: 8 would fit", error)
        self.assertEqual(self.run_both(path, 11 * GIB)[0], 0)
        code, out, _ = self.run_both(path, 11 * GIB, "resources.workers=2", "parallel.shard=off")
        self.assertEqual(code, 1, "nor has NCCL's")
        self.assertIn(" of NCCL = ", out)

    def test_model_folder(self):
        folder = os.path.join(self.dir, "model")
        os.mkdir(folder)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(FOLDER_CONFIG, f)
        path = self.job(model={"from": folder})
        code, out, error = self.run_both(path, 4 * GIB)
        self.assertEqual((code, error), (0, ""))
        self.assertIn("micro_batch_size", out)
        code, _, error = self.run_both(self.job(model={"from": folder + "-absent"}), 4 * GIB)
        self.assertEqual(code, 1)
        self.assertIn("-absent", error)

    def test_advice_is_none_that_was_taken(self):
        for recompute, advice in (("none", "recompute: block would need less"), ("block", "a smaller model or a shorter sequence")):
            with self.subTest(recompute=recompute):
                code, _, error = self.run_both(self.job(recompute=recompute), 64 << 10)
                self.assertEqual(code, 1)
                self.assertIn(advice, error)
                self.assertEqual("recompute: block" in error, recompute == "none", error)


class PlanAtCoordinator(harness.ClusterTest):
    WORKERS = 0

    def test_the_coordinator_says_what_jobctl_says(self):
        for name, gpu, *more in (("hearth-112m-fp8", "all", "--price-hour", 2, "--tokens", "20x"), ("qwen2.5-1.5b-bf16", "5090", "--gpus", 2),
                                 ("hearth-1.5b-bf16", "RTX 3060"), ("hearth-112m-nvfp4", "H200", "--tok-s", 1e9, "--memory", "20GiB")):
            for output in ("table", "json"):
                with self.subTest(name=name, output=output):
                    words = ["plan", os.path.join(JOBS, name + ".yaml"), "--gpu", gpu, "-o", output, *map(str, more)]
                    here = subprocess.run([harness.program("jobctl"), *words], capture_output=True, text=True, env=self.cluster.env)
                    there = self.cluster.jobctl(*words, "--on-coordinator", check=False)
                    self.assertIn(here.returncode, (0, 3), here.stderr)
                    self.assertEqual((there.returncode, there.stdout, there.stderr), (here.returncode, here.stdout, here.stderr))

    def test_what_cannot_be_asked(self):
        path = os.path.join(JOBS, "hearth-112m-fp8.yaml")
        for words, text in ((["--gpu", "RTX 5091"], "RTX 5090"), (["--gpu", "H200", "--price-kwh", "nan"], "--price-kwh"),
                            (["--on-coordinator"], "--on-coordinator needs --gpu"),
                            (["--gpu", "H200", "--on-coordinator", "--calibration", path], "leave --on-coordinator out")):
            with self.subTest(words=words):
                run = self.cluster.jobctl("plan", path, *words, check=False)
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(text, run.stderr)
        open_vocab = {**SMALL, "model": {key: value for key, value in SMALL["model"].items() if key != "vocab"},
                      "resources": {"device": "cuda"}}
        run = self.cluster.jobctl("plan", "-", "--gpu", "H200", "--on-coordinator", check=False, stdin=json.dumps(open_vocab))
        self.assertEqual(run.returncode, 1)
        self.assertIn("no worker with device cuda is online", run.stderr)
        self.assertIn("no job that was planned and measured has ended", self.cluster.jobctl("plan", "--accuracy", "--on-coordinator").stdout)


if __name__ == "__main__":
    harness.main()
