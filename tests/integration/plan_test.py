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
        self.assertIn("arena 9.6 GiB + 539.8 MiB of CUDA, cuBLASLt, cuDNN and graphs = 10.2 GiB", out)
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


class PlanOfGpus(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hearth-test-")
        self.addCleanup(subprocess.run, ["rm", "-rf", self.dir])

    def plan(self, *words):
        """(exit status, what was printed, the error); without a coordinator."""
        env = {**os.environ, "HEARTH_HOME": self.dir}
        run = subprocess.run([harness.program("jobctl"), "plan", *map(str, words)], capture_output=True, text=True, env=env)
        return run.returncode, run.stdout, run.stderr

    def test_the_exit_status_is_the_verdict(self):
        path = os.path.join(JOBS, "hearth-1.5b-bf16.yaml")
        verdicts = {}
        for gpu, memory in (("H200", "141GB"), ("RTX 5090", "32GiB"), ("RTX 3060", "2GiB")):
            code, out, error = self.plan(path, "--gpu", gpu, "--memory", memory, "-o", "json")
            plan = json.loads(out)["plans"][0]
            verdicts[plan["verdict"]] = code
            self.assertEqual(sum(part["bytes"] for part in plan["memory"]["parts"]), plan["memory"]["total_bytes"])
            self.assertEqual(bool(plan["changes"]), plan["verdict"] == "YES WITH CHANGES")
            self.assertTrue(plan["reasons"] or plan["verdict"] == "YES", error)
        self.assertEqual(verdicts, {"YES": 0, "YES WITH CHANGES": 0, "NO": 3})

    def test_an_impossible_wish_and_wrong_prices(self):
        path = os.path.join(JOBS, "hearth-112m-bf16.yaml")
        code, out, _ = self.plan(path, "--gpu", "H200", "--tok-s", "1e9")
        self.assertEqual(code, 3)
        self.assertRegex(out, r"impossible: 1 x H200 gives at most \S+ tok/s")
        for price in ("-1", "nan"):
            code, _, error = self.plan(path, "--gpu", "H200", f"--price-hour={price}")
            self.assertNotIn(code, (0, 3))
            self.assertIn("--price-hour", error)

    def test_the_smallest_gpu_is_the_smallest_that_can(self):
        path = os.path.join(JOBS, "hearth-1.5b-bf16.yaml")
        code, out, _ = self.plan(path, "--smallest", "-o", "json")
        self.assertEqual(code, 0)
        smallest, = json.loads(out)["plans"]
        plans = json.loads(self.plan(path, "--gpu", "all", "-o", "json")[1])["plans"]
        can = [plan["memory"]["device_bytes"] for plan in plans if plan["verdict"] != "NO" and not plan["plan_only"]]
        self.assertLess(len(can), len(plans))
        self.assertEqual(smallest["memory"]["device_bytes"], min(can))

    def test_a_gpu_that_is_for_plans_only_helps_nobody_who_asks_about_all(self):
        path = os.path.join(JOBS, "qwen2.5-1.5b-bf16.yaml")
        model = {"preset": "null", "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn_hidden": 28672, "vocab": 32000, "layers": 48}
        words = [word for name, value in model.items() for word in ("--set", f"model.{name}={value}")]
        code, out, _ = self.plan(path, "--gpu", "all", "-o", "json", *words)
        plans = json.loads(out)["plans"]
        self.assertEqual({plan["gpu"] for plan in plans if plan["verdict"] != "NO"}, {"MI300X"}, "the job is to fit nowhere else")
        self.assertEqual(code, 3)
        self.assertEqual(self.plan(path, "--smallest", *words)[0], 3)
        self.assertEqual(self.plan(path, "--gpu", "MI300X", *words)[0], 0)

    def test_questions_that_would_not_be_answered_are_refused(self):
        path = os.path.join(JOBS, "hearth-112m-bf16.yaml")
        for words, name in ((("--gpus", "4"), "--gpus"), (("--calibration", "x.yaml"), "--calibration"), (("--tokens", "1e9"), "--tokens"),
                            (("--smallest", "--gpu", "H200"), "--smallest"), (("--smallest", "--largest"), "--smallest"),
                            (("--gpu", "H200", "--gpus", "0"), "--gpus"), (("--gpu", "H200", "--tokens", "1e300"), "--tokens"),
                            (("--largest", "--gpu", "H200", "--tokens", "nan"), "--tokens"), (("--largest", "--price-kwh", "1"), "--price-kwh"),
                            (("--gpu", "H200", "--sort", "cost"), "--sort")):
            with self.subTest(words=words):
                code, _, error = self.plan(path, *words)
                self.assertNotIn(code, (0, 3))
                self.assertIn(name, error)
                self.assertLess(len(error), 300)

    def test_several_gpus_are_as_many_workers(self):
        path = os.path.join(JOBS, "hearth-112m-bf16.yaml")
        words = (path, "--gpu", "H200", "-o", "json", "--set", "parallel.shard=optimizer")
        code, asked, error = self.plan(*words, "--gpus", 4)
        self.assertEqual(code, 0, error)
        self.assertEqual(json.loads(asked)["plans"][0]["shard"], "optimizer")
        self.assertEqual(asked, self.plan(*words, "--set", "resources.workers=4")[1])
        for more in ((), ("--gpus", 1)):
            code, _, error = self.plan(*words, *more)
            self.assertEqual(code, 1)
            self.assertIn("here resources.workers is 1; --gpus N sets resources.workers", error)
        self.assertEqual(self.plan(*words[:1], "--largest", "--gpu", "H200", "--gpus", 2, *words[-2:])[0], 0)

    def test_the_largest_models_as_json_and_an_unknown_time(self):
        path = os.path.join(JOBS, "hearth-112m-bf16.yaml")
        code, out, error = self.plan(path, "--largest", "-o", "json")
        self.assertEqual(code, 0, error)
        self.assertGreater(len(json.loads(out)), 0)
        code, out, _ = self.plan(path, "--gpu", "H200", "--set", "precision.recipe=fp32", "--tok-s", "5e6")
        self.assertEqual(code, 0)
        self.assertIn("wish: 5000000 tok/s cannot be judged: the time is not known", out)
        self.assertIn("confidence: memory alone", out)

    def test_tables_of_bytes_of_the_largest_models_and_of_accuracy(self):
        code, out, _ = self.plan("--bytes")
        self.assertEqual(code, 0)
        rows = {name: next(line for line in out.splitlines() if line.startswith(name)) for name in (
            "FP16 weights and gradients, Adam in FP32", "IQ3_XXS weights, FP8 gradients, Muon in 4 bits",
            "Q4_0 weights, FP8 gradients, Muon in 8 bits")}
        self.assertEqual([("not yet" in row, row.replace("  not yet", "").split()[-2:]) for row in rows.values()],
                         [(True, ["12.0000", "12.0000"]), (True, ["1.8828", "2.0391"]), (False, ["2.5625", "2.5859"])])
        code, out, _ = self.plan(os.path.join(JOBS, "hearth-112m-bf16.yaml"), "--largest", "--gpu", "RTX 5090")
        self.assertEqual(code, 0)
        for tier in (1, 2, 3):
            self.assertRegex(out, rf"(?m)^memory_tier: {tier} +\d")
        code, out, _ = self.plan("--accuracy")
        self.assertEqual(code, 0)
        self.assertGreaterEqual(out.count("qwen2.5-1.5b"), 5)

    def test_a_calibration_that_timed_copies_of_a_graph_is_refused(self):
        job = os.path.join(JOBS, "hearth-112m-bf16.yaml")
        with open(os.path.join(harness.SOURCE, "configs", "calibration", "h200.yaml")) as f:
            lines = f.readlines()
        for kept, refused in ((lines, False), ([line for line in lines if not line.startswith("copy_by:")], True)):
            path = os.path.join(self.dir, "h200.yaml")
            with open(path, "w") as f:
                f.writelines(kept)
            code, _, error = self.plan(job, "--gpu", "H200", "--calibration", path)
            self.assertEqual(code != 0, refused, error)
        self.assertRegex(error, r"h200.yaml: copy_by: missing\..*calibrate again")


class PlanAtCoordinator(harness.ClusterTest):
    WORKERS = 0

    def test_the_coordinator_says_what_jobctl_says(self):
        for name, gpu, *more in (("hearth-112m-fp8", "all", "--price-hour", 2, "--tokens", "20x"), ("qwen2.5-1.5b-bf16", "5090", "--gpus", 2),
                                 ("hearth-112m-bf16", "H200", "--gpus", 4, "--set", "parallel.shard=optimizer"),
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
