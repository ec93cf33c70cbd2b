#!/usr/bin/python3
"""`hearth-trainer eval` against plain Python in float64 (evaluate_reference.py): acc, acc_norm and the log-likelihoods of 200 synthetic
items of each task; the loss and the bits per byte of datasets. Prints the seed of its items."""

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "integration")]
import evaluate_reference as reference  # noqa: E402  (needs the path)
import harness  # noqa: E402

SEED = 20
ITEMS = 200
LENGTH = 192
# fp32 against float64: sums of some tens of terms whose relative error is about 1e-6 each.
ABSOLUTE = 2e-3


def run(*argv, check=True):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=280)
    if check and done.returncode != 0:
        raise AssertionError(f"{argv} exited {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Evaluate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.dir = cls.folder.name
        texts = os.path.join(cls.dir, "texts.jsonl")
        # Words of the items, so that the model prefers some answers to others.
        reference.write_items(texts, [{"text": i["text"]} for i in reference.make_items("lambada", 300, SEED + 1)])
        cls.data = os.path.join(cls.dir, "data")
        run(harness.program("jobctl"), "dataset", "build", "--input", texts, "--field", "text", "--tokenizer", "bytes", "--out", cls.data)
        # In fewer steps it learns no whole word, and no answer to lambada would be right.
        spec = harness.tiny_job(cls.data, steps=300, workers=1, model={"vocab": 257, "qk_norm": True},
                                data={"train": cls.data, "sequence_length": LENGTH}, optimizer={"lr": 0.01},
                                batch={"micro_batch_size": 2, "global_batch_tokens": 2 * LENGTH}, checkpoint={"every_steps": 0})
        job = os.path.join(cls.dir, "job.yaml")
        with open(job, "w") as f:
            json.dump(spec, f)
        out = os.path.join(cls.dir, "run")
        run(harness.program("hearth-trainer"), "run", job, "--out", out, "--threads", 1)
        cls.model = os.path.join(out, "checkpoints", max(os.listdir(os.path.join(out, "checkpoints"))))

    def eval(self, *args, check=True):
        return run(harness.program("hearth-trainer"), "eval", self.model, "--threads", 1, *args, check=check)

    def answers(self, task, path, *args):
        details = os.path.join(self.dir, task + ".details")
        out = json.loads(self.eval("--task", task, "--items", path, "--details", details, "-o", "json", *args).stdout)
        with open(details) as f:
            return out, [json.loads(line) for line in f]

    def items_file(self, task, items):
        path = os.path.join(self.dir, task + ".jsonl")
        reference.write_items(path, items)
        return path

    def assert_close(self, task, rows, lls):
        """Largest difference of two choices' log-likelihoods over all items."""
        self.assertEqual(len(rows), len(lls))
        for row, ll in zip(rows, lls):
            np.testing.assert_allclose(row["log_likelihoods"], ll, rtol=1e-5, atol=ABSOLUTE, err_msg=f"{task} {row['item']}")

    def test_tasks_equal_the_reference(self):
        print(f"seed {SEED}")
        model = reference.Model(self.model)
        for task in reference.TASKS:
            with self.subTest(task=task):
                items = reference.make_items(task, ITEMS, SEED)
                want, lls = reference.evaluate(model, task, items, LENGTH)
                got, rows = self.answers(task, self.items_file(task, items))
                self.assert_close(task, rows, lls)
                self.assertEqual(got["items"], ITEMS)
                self.assertEqual(got["cut_items"], want["cut_items"])
                self.assertGreater(got["cut_items"], 0)
                for name in ("acc", "acc_norm", "acc_bytes"):
                    self.assertEqual(got[name] and got[name]["value"], want.get(name), name)
                if task == "lambada":
                    self.assertAlmostEqual(got["perplexity"] / want["perplexity"], 1, places=4)
                    self.assertGreater(got["acc"]["value"], 0, "nothing is learnt: the test shows nothing")
                else:
                    self.assertIsNone(got["perplexity"])
                    share = got["acc"]["value"]
                    self.assertAlmostEqual(got["acc"]["stderr"], math.sqrt(share * (1 - share) / (ITEMS - 1)), places=12)

    def test_batch_size_and_limit_change_no_result(self):
        items = reference.make_items("arc", 60, SEED)
        path = self.items_file("arc", items)
        whole, rows = self.answers("arc", path)
        for args in (["--batch", 1], ["--batch", 7], ["--recipe", "fp32", "--batch", 3]):
            with self.subTest(args=args):
                other, other_rows = self.answers("arc", path, *args)
                self.assertEqual(other, whole)
                self.assert_close("arc", other_rows, [row["log_likelihoods"] for row in rows])
        few, few_rows = self.answers("arc", path, "--limit", 10)
        self.assertEqual(few["items"], 10)
        self.assert_close("arc", few_rows, [row["log_likelihoods"] for row in rows[:10]])
        table = self.eval("--task", "arc", "--items", path).stdout
        self.assertIn(f"acc_norm   {whole['acc_norm']['value']:.4f}", table)

    def test_bf16_is_close(self):
        path = self.items_file("piqa", reference.make_items("piqa", 40, SEED))
        wide, narrow = self.answers("piqa", path)[1], self.answers("piqa", path, "--recipe", "bf16")[1]
        for a, b in zip(wide, narrow):
            np.testing.assert_allclose(a["log_likelihoods"], b["log_likelihoods"], rtol=0.03)
        self.assertNotEqual(wide, narrow)

    def test_loss_and_bits_per_byte_of_sources(self):
        other = os.path.join(self.dir, "other")
        texts = os.path.join(self.dir, "other.jsonl")
        reference.write_items(texts, [{"text": "the quick fox " * 40}])
        run(harness.program("jobctl"), "dataset", "build", "--input", texts, "--field", "text", "--tokenizer", "bytes", "--out", other)
        out = json.loads(self.eval("--data", f"{other},{self.data}", "--batches", 2, "-o", "json").stdout)
        self.assertEqual([s["path"] for s in out["sources"]], [other, self.data])
        with open(os.path.join(other, "shard-00000.bin"), "rb") as f:
            tokens = np.frombuffer(f.read(), "<u2").astype(np.int64)
        model = reference.Model(self.model)
        loss, count = 0.0, 0
        for i in range((len(tokens) - 1) // LENGTH):
            window = tokens[i * LENGTH:(i + 1) * LENGTH + 1]
            rows = model.log_probabilities(window[:-1])
            loss -= rows[np.arange(LENGTH), window[1:]].sum()
            count += LENGTH
        first, all_ = out["sources"][0], out["all"]
        self.assertEqual((first["tokens"], first["bytes"]), (count, count), "a byte is a token here")
        self.assertAlmostEqual(first["loss"], loss / count, places=4)
        self.assertAlmostEqual(first["perplexity"] / math.exp(loss / count), 1, places=4)
        self.assertAlmostEqual(first["bits_per_byte"], loss / count / math.log(2), places=4)
        second = out["sources"][1]
        self.assertLess(second["bytes"], second["tokens"], "end tokens are no text")
        self.assertEqual(all_["tokens"], first["tokens"] + second["tokens"])
        self.assertAlmostEqual(all_["loss"] * all_["tokens"], first["loss"] * first["tokens"] + second["loss"] * second["tokens"], places=3)
        table = self.eval("--data", other, "--batches", 2).stdout
        self.assertIn(f"{first['bits_per_byte']:.4f}", table)

    def train(self, name, evaluations, *args):
        """Folder of a run of 12 steps."""
        spec = harness.tiny_job(self.data, steps=12, workers=1, model={"vocab": 257}, data={"train": self.data, "sequence_length": 64},
                                checkpoint={"every_steps": 6}, train={"steps": 12, "seed": 7, "evaluations": evaluations})
        job, out = (os.path.join(self.dir, name + end) for end in (".yaml", ".out"))
        with open(job, "w") as f:
            json.dump(spec, f)
        run(harness.program("hearth-trainer"), "run", job, "--out", out, "--threads", 1, *args)
        return out

    @staticmethod
    def results(out):
        """(step, name) -> numbers."""
        with open(os.path.join(out, "metrics.jsonl")) as f:
            rows = [json.loads(line) for line in f]
        found = [e for row in rows for e in row.get("evaluations", [])]
        return {(int(e["step"]), e["name"]): [v for k, v in sorted(e.items()) if k.startswith(("accuracy", "perplexity"))] for e in found}

    def test_questions_between_steps_change_no_training_and_are_resumed(self):
        piqa = self.items_file("piqa", reference.make_items("piqa", 12, SEED))
        words = self.items_file("lambada", reference.make_items("lambada", 12, SEED))
        asked = [{"task": "piqa", "items": piqa, "every_steps": 4}, {"task": "lambada", "items": words, "name": "words", "every_steps": 5}]
        whole, without = self.train("asked", asked), self.train("without", [])
        results = self.results(whole)
        self.assertEqual(sorted(results), [(4, "piqa"), (5, "words"), (8, "piqa"), (10, "words"), (12, "piqa"), (12, "words")])
        checkpoints = [os.path.join(out, "checkpoints") for out in (whole, without)]
        first, last = sorted(os.listdir(checkpoints[0]))
        weights = [harness.sha256(os.path.join(folder, last, "model.safetensors")) for folder in checkpoints]
        self.assertEqual(*weights)
        resumed = self.train("resumed", asked, "--resume", os.path.join(checkpoints[0], first))
        self.assertEqual(harness.sha256(os.path.join(resumed, "checkpoints", last, "model.safetensors")), weights[0])
        self.assertEqual(self.results(resumed), {key: value for key, value in results.items() if key[0] > 6})

    def test_what_cannot_be_asked_is_refused(self):
        path = self.items_file("bad", [{"goal": "g", "sol1": "a", "sol2": "b", "label": 0}, {"goal": "g", "sol1": "a", "sol2": "b"}])
        long = self.items_file("long", [{"goal": "g", "sol1": "a" * 300, "sol2": "b", "label": 0}])
        for args, needles in (
                (["--task", "piqa", "--items", path], [path + ":2", "label"]),
                (["--task", "piqa", "--items", long], [long + ":1", "longer than the model's context of 192"]),
                (["--task", "piqa", "--items", path + ".none"], [path + ".none"]),
                (["--task", "chess", "--items", path], ["chess", "hellaswag"]),
                (["--task", "piqa", "--items", path, "--recipe", "fp8"], ["recipe \"fp8\"", "fp32"]),
                (["--task", "piqa", "--items", path, "--shots", "2"], ["--shots"]),
                (["--items", path], ["--task"]), ([], ["--data or --task"])):
            with self.subTest(args=args):
                done = self.eval(*args, check=False)
                self.assertNotEqual(done.returncode, 0, done.stdout)
                for needle in needles:
                    self.assertIn(needle, done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
