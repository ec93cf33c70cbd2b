#!/usr/bin/python3
"""A model that was pretrained here on text learns the answers of a chat set, and its folder has what chatting needs."""

import json
import os
import re
import subprocess
import sys

import harness

sys.path.insert(0, os.path.join(harness.SOURCE, "tests", "support", "common"))
import temp_folder  # noqa: E402

SEQUENCE = 64


class FineTuning(temp_folder.FolderTest):
    def program(self, name, *args):
        run = subprocess.run([harness.program(name), *map(str, args)], capture_output=True, text=True, timeout=harness.patience(300))
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def train(self, name, steps, spec):
        """The last checkpoint of a run."""
        job = {"name": name, "batch": {"micro_batch_size": 8, "global_batch_tokens": 8 * spec["data"]["sequence_length"]}, "precision": {"recipe": "fp32"},
               "optimizer": {"lr": 3e-3}, "schedule": {"name": "constant", "warmup_steps": 3},
               "train": {"steps": steps, "seed": 1}, "checkpoint": {"every_steps": steps}, **spec}
        if "validation" in spec["data"]:
            job["train"].update(eval_every=steps, eval_batches=2)
        self.program("hearth-trainer", "run", self.write(name + ".json", json.dumps(job)), "--out", self.path(name), "--threads", "2")
        return os.path.join(self.path(name), "checkpoints", f"step-{steps:08}")

    def loss(self, checkpoint, data):
        out = self.program("hearth-trainer", "eval", checkpoint, "--data", data)
        return float(re.search(r"^[0-9.]+", out, re.MULTILINE)[0])  # the first column of the row

    def test_held_out_chat_loss_falls(self):
        text = self.write("text.txt", "".join(f"The sum of {i} and {i % 7} is {i + i % 7}.\n" for i in range(4000)))
        self.program("jobctl", "dataset", "build", "--input", text, "--tokenizer", "bytes", "--out", self.path("text"))
        chat = self.write("chat.jsonl", "".join(json.dumps({"messages": [
            {"role": "user", "content": f"The sum of {i} and {i % 5}?"},
            {"role": "assistant", "content": f"The sum is {i + i % 5}."}]}) + "\n" for i in range(300)))
        self.program("jobctl", "dataset", "build", "--input", chat, "--chat", "--chat-template", "chatml", "--tokenizer", "bytes",
                     "--validation-fraction", "0.15", "--out", self.path("chat"))
        train, held_out = self.path("chat/train"), self.path("chat/validation")
        model = {"layers": 2, "hidden": 64, "heads": 4, "ffn_hidden": 160, "vocab": 257}
        base = self.train("base", 60, {"model": model, "data": {"train": self.path("text"), "sequence_length": SEQUENCE}})
        tuned = self.train("tuned", 60, {"task": "sft", "model": {"from": base},
                                         "data": {"train": train, "validation": held_out, "sequence_length": SEQUENCE + 32}})
        # Text among the conversations keeps what the model knew.
        mixed = self.train("mixed", 60, {"task": "sft", "model": {"from": base}, "data": {
            "train": [{"path": train, "weight": 1}, {"path": self.path("text"), "weight": 3}], "sequence_length": SEQUENCE + 32}})
        before, after = self.loss(base, held_out), self.loss(tuned, held_out)
        self.assertLess(self.loss(mixed, held_out), 0.8 * before)
        self.assertLess(self.loss(mixed, self.path("text")), 1.02 * self.loss(base, self.path("text")))
        self.assertLess(after, 0.5 * before)
        with open(self.path("tuned/metrics.jsonl")) as f:
            rows = [json.loads(line) for line in f]
        held_out_losses = [row["validation_loss"] for row in rows if "validation_loss" in row]
        self.assertAlmostEqual(held_out_losses[-1], after, delta=0.2 * after)
        self.assertLess(rows[-1]["loss"], 0.5 * rows[0]["loss"])
        with open(os.path.join(tuned, "chat_template.jinja")) as f:
            self.assertIn("<|im_start|>", f.read())
        # A line a turn; the end of an answer is the template's, and is not shown.
        talk = subprocess.run([harness.program("hearth-trainer"), "chat", tuned, "--temperature", "0", "--tokens", "40", "--context", "400",
                               "--threads", "2"],
                              input="The sum of 3 and 3?\n/reset\nThe sum of 3 and 3?\nThe sum of 4 and 4?\n/quit\nunread\n",
                              capture_output=True, text=True, timeout=harness.patience(120))
        self.assertEqual(talk.returncode, 0, talk.stderr)
        answers = talk.stdout.splitlines()
        self.assertEqual(len(answers), 3, talk.stdout)
        self.assertEqual(answers[0], answers[1])
        self.assertTrue(answers[0].startswith("The sum is "), talk.stdout)
        self.assertNotIn("<|im_end|>", talk.stdout)
        bad = subprocess.run([harness.program("hearth-trainer"), "chat", base], input="Hi\n", capture_output=True, text=True, timeout=harness.patience(120))
        self.assertEqual(bad.returncode, 1)
        self.assertIn("has no chat template", bad.stderr)
        # A resume of the same job goes on with the same bits: rank_test. The folder of one starts another.
        again = self.train("again", 4, {"task": "sft", "model": {"from": tuned}, "data": {"train": train, "sequence_length": SEQUENCE}})
        self.assertLess(self.loss(again, held_out), 2 * after)  # far below that of the base; how far differs between CPUs


if __name__ == "__main__":
    harness.main()
