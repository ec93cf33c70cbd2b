#!/usr/bin/python3
"""`hearth-trainer compare` with real runs on the CPU: every recipe trains on the same data in the same order, each has its row, the
picture is well-formed, a failed run says why, and a stopped one continues to the same numbers."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

import yaml

import harness

STEPS = 40
RECIPES = ["fp32", "bf16", "fp8", "mxfp8", "nvfp4", "nvfp4_eden"]
SVG = "{http://www.w3.org/2000/svg}"


class Compare(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hearth-compare-")
        self.addCleanup(harness.remove_or_keep, self.dir, harness.Outcome.count)
        for name, seed in (("train", 3), ("validation", 5)):
            harness.write_tokens(os.path.join(self.dir, name + ".bin"), seed=seed)
        job = harness.tiny_job("train.bin", STEPS, workers=1, name="tiny-compare", data={"validation": "validation.bin"},
                               batch={"micro_batch_size": 4}, model={"hidden": 128, "ffn_hidden": 128, "kv_heads": 4},
                               train={"eval_batches": 4}, precision={"recipe": "nvfp4", "high_precision_layers": {"first": 0, "last": 1}})
        with open(os.path.join(self.dir, "job.yaml"), "w") as f:
            yaml.safe_dump(job, f)

    def argv(self, recipes, *extra):
        return [harness.program("hearth-trainer"), "compare", "job.yaml", "--recipes", ",".join(recipes), "--out", "out",
                "--threads", "1", "-o", "json", *extra]

    def compare(self, recipes, *extra, faults=""):
        """(exit status, JSON, stderr)"""
        env = {**os.environ, "HEARTH_FAULTS": faults}
        run = subprocess.run(self.argv(recipes, *extra), cwd=self.dir, env=env, capture_output=True, text=True, timeout=harness.patience(240))
        return run.returncode, json.loads(run.stdout) if run.stdout else None, run.stderr

    def read(self, *path):
        with open(os.path.join(self.dir, "out", *path)) as f:
            return f.read()

    def losses(self, recipe):
        rows = [json.loads(line) for line in self.read(recipe, "metrics.jsonl").splitlines()]
        self.assertEqual([int(r["step"]) for r in rows], list(range(1, STEPS + 1)))
        return [r["loss"] for r in rows]

    def test_all_recipes_on_the_same_data_in_the_same_order(self):
        status, found, errors = self.compare(RECIPES)
        self.assertEqual(status, 0, errors)
        self.assertEqual([r["recipe"] for r in found["runs"]], RECIPES)
        first = found["runs"][0]
        curves = {recipe: self.losses(recipe) for recipe in RECIPES}
        for run in found["runs"]:
            self.assertEqual((run["state"], run["steps"], run["tokens"]), ("ok", STEPS, STEPS * 256))
            self.assertEqual(run["execution"], "native" if run["recipe"] == "fp32" else "emulated")
            self.assertGreater(run["memory_bytes"], 0)
            self.assertAlmostEqual(run["held_out_gap_percent"] or 0, 100 * (run["held_out_loss"] / first["held_out_loss"] - 1), 6)
        # Batches differ from step to step by more than rounding changes a batch's loss: in another order the curves would not
        # follow one another.
        base = curves["fp32"]
        jumps = [base[i + 1] - base[i] for i in range(STEPS // 2, STEPS - 1)]
        self.assertGreater(max(map(abs, jumps)), 0.02)
        for recipe in ("bf16", "fp8", "mxfp8"):
            self.assertLess(max(abs(a - b) for a, b in zip(curves[recipe], base)), 0.02, recipe)
        self.assertNotEqual(curves["nvfp4"], curves["nvfp4_eden"])
        self.check_files(found)

    def check_files(self, found):
        self.assertEqual(json.loads(self.read("compare.json")), found)
        rows = self.read("compare.txt").splitlines()[3:]
        self.assertEqual([row.split()[0] for row in rows], RECIPES)
        picture = xml.etree.ElementTree.fromstring(self.read("compare.svg"))
        self.assertEqual(len(picture.findall(f".//{SVG}polyline")), 2 * len(RECIPES) - 1)
        texts = [t.text for t in picture.findall(SVG + "text")]
        for recipe in RECIPES:
            self.assertIn(recipe, texts)
        self.assertFalse(os.path.exists(os.path.join(self.dir, "out", "bf16", "checkpoints")))

    def test_refused_failed_and_redone(self):
        status, found, errors = self.compare(["fp8", "bf16", "nvfp3"], faults="trainer.nan_gradient=error@7")
        self.assertEqual(status, 1)
        fp8, bf16, unknown = found["runs"]
        self.assertEqual((fp8["state"], fp8["skipped_steps"], fp8["redone_steps"]), ("ok", 1, 1))
        self.assertEqual(bf16["state"], "failed")  # nothing to fall back to
        self.assertRegex(bf16["problem"], "numerical at step 6: .*not finite")
        self.assertIsNone(bf16["training_gap_percent"])
        self.assertEqual(unknown["state"], "refused")
        self.assertIn("did you mean nvfp4", unknown["problem"])
        self.assertIn("[nvfp3] refused", errors)

    def test_seeds_and_settings(self):
        recipes = ["bf16", "nvfp4"]
        vary = ["--vary", "precision.bf16_tail=0,0.5"]
        status, _, errors = self.compare(recipes, *vary, "--seeds", "1")
        self.assertEqual(status, 0, errors)
        status, found, errors = self.compare(recipes, *vary, "--seeds", "2")
        self.assertEqual(status, 0, errors)
        self.assertEqual(errors.count("done before"), 3)
        self.assertEqual([row["name"] for row in found["rows"]], ["bf16", "nvfp4 bf16_tail=0", "nvfp4 bf16_tail=0.5"])
        self.assertEqual({row["ok"] for row in found["rows"]}, {2})
        self.assertNotEqual(self.losses("bf16-seed7"), self.losses("bf16-seed8"))
        losses = {(run["recipe"], run.get("setting"), run["seed"]): run["held_out_loss"] for run in found["runs"]}
        for row, setting in zip(found["rows"][1:], ("bf16_tail=0", "bf16_tail=0.5")):
            gaps = [100 * (losses["nvfp4", setting, seed] / losses["bf16", None, seed] - 1) for seed in (7, 8)]
            self.assertAlmostEqual(row["held_out_gap_percent"]["mean"], sum(gaps) / 2, 6)
            self.assertAlmostEqual(row["held_out_gap_percent"]["standard_error"], abs(gaps[0] - gaps[1]) / 2, 6)
        xml.etree.ElementTree.fromstring(self.read("compare.svg"))

    def test_stopped_and_gone_on_with(self):
        with open(os.path.join(self.dir, "errors"), "w") as errors:
            process = subprocess.Popen(self.argv(["bf16", "nvfp4"]), cwd=self.dir, stdout=subprocess.DEVNULL, stderr=errors,
                                       env={**os.environ, "HEARTH_FAULTS": "trainer.after_step=delay:50ms"})
        metrics = os.path.join(self.dir, "out", "bf16", "metrics.jsonl")
        harness.wait_until("a step", lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(harness.patience(30)), 20)
        self.assertEqual([r["state"] for r in json.loads(self.read("compare.json"))["runs"]], ["stopped", "not run"])
        status, found, errors = self.compare(["bf16", "nvfp4"])
        self.assertEqual(status, 0, errors)
        gone_on = self.losses("bf16")
        shutil.rmtree(os.path.join(self.dir, "out"))
        status, whole, errors = self.compare(["bf16", "nvfp4"])
        self.assertEqual(status, 0, errors)
        self.assertEqual(gone_on, self.losses("bf16"))
        for a, b in zip(found["runs"], whole["runs"]):
            self.assertEqual(a["held_out_loss"], b["held_out_loss"])

    def test_the_runs_die_with_it(self):
        process = subprocess.Popen(self.argv(["bf16", "nvfp4"]), cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, "HEARTH_FAULTS": "trainer.after_step=delay:2s"})
        metrics = os.path.join(self.dir, "out", "bf16", "metrics.jsonl")
        harness.wait_until("a step", lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0)
        process.kill()
        process.wait()
        harness.wait_until("the run's end", lambda: not self.runs())

    def runs(self):
        """Processes whose working folder is the test's."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    zombie = f.read().rsplit(")", 1)[1].split()[0] == "Z"
                if os.readlink(f"/proc/{pid}/cwd") == self.dir and not zombie:
                    found.append(pid)
            except OSError:
                continue
        return found


if __name__ == "__main__":
    harness.main()
