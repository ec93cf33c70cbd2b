#!/usr/bin/python3
"""train.evaluations and train.samples of a job on two ranks, with a tokenizer in a process of its own: results in events, history, describe,
watch, report, metrics and the page's JSON; the last ones are what `hearth-trainer eval` and `sample` say of the checkpoint; the training is
the same without them."""

import json
import os
import subprocess
import sys

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "numerics"))
import evaluate_reference as reference  # noqa: E402  (needs the path)


class Evaluations(harness.ClusterTest):
    def build(self):
        texts = os.path.join(self.cluster.dir, "texts.jsonl")
        reference.write_items(texts, [{"text": i["text"]} for i in reference.make_items("lambada", 300, 5)])
        out = os.path.join(self.cluster.dir, "words")
        self.cluster.jobctl("dataset", "build", "--input", texts, "--field", "text", "--tokenizer", "sentencepiece:320", "--out", out)
        return out

    def items(self, task, count):
        path = os.path.join(self.cluster.dir, task + ".jsonl")
        reference.write_items(path, reference.make_items(task, count, 6))
        return path

    def job(self, data, evaluations, samples=()):
        return harness.tiny_job(data, steps=12, workers=2, model={"vocab": 320}, data={"train": data, "sequence_length": 128},
                                batch={"micro_batch_size": 2, "global_batch_tokens": 1024}, checkpoint={"every_steps": 0},
                                train={"steps": 12, "evaluations": evaluations, "samples": list(samples)})

    def assert_samples(self, job_id, wanted):
        """The newest texts in each view, and those of each evaluation in the history."""
        newest = self.cluster.job(job_id)["lastReport"]["samples"]
        self.assertEqual([(s["prompt"], s["step"]) for s in newest], [(w["prompt"], "12") for w in wanted])
        page = json.loads(self.cluster.get(f"/api/v1/jobs/{job_id}"))["samples"]
        report = json.loads(self.cluster.jobctl("report", job_id, "-o", "json").stdout)["samples"]
        self.assertEqual(page, report)
        self.assertEqual([(s["prompt"], s["text"], s["step"]) for s in page], [(s["prompt"], s.get("text", ""), 12) for s in newest])
        history = [json.loads(line) for line in self.cluster.jobctl("metrics", job_id, "-o", "json").stdout.splitlines()]
        self.assertEqual([int(r["step"]["step"]) for r in history if r.get("step", {}).get("samples")], [5, 10, 12])
        described, watched = self.cluster.jobctl("describe", job_id).stdout, self.cluster.jobctl("watch", job_id).stdout
        self.assertIn('Sample: after step 12: "the " + "', " ".join(described.split()))
        for step in (5, 10, 12):
            self.assertIn(f'step {step}: "the " + "', watched)
        # What the checkpoint of the last step writes.
        checkpoint = self.cluster.final_checkpoint(job_id)["path"]
        for want, sample in zip(wanted, newest):
            out = subprocess.run([harness.program("hearth-trainer"), "sample", checkpoint, "--prompt", want["prompt"], "--tokens",
                                  str(want["max_tokens"]), "--temperature", str(want["temperature"]), "--top-k", str(want.get("top_k", 0)), "--seed", str(want.get("seed", 0)),
                                  "--threads", "1", "-o", "json"], capture_output=True, text=True, check=True)
            alone = json.loads(out.stdout)
            self.assertEqual((alone["text"], alone["end"], len(alone["tokens"])),
                             (sample.get("text", ""), page[newest.index(sample)]["end"], sample.get("tokens", 0)))

    def test_results_are_seen_everywhere(self):
        data = self.build()
        asked = [{"task": "piqa", "items": self.items("piqa", 20), "every_steps": 5},
                 {"task": "lambada", "name": "last-word", "items": self.items("lambada", 9), "every_steps": 0, "limit": 8}]
        samples = [{"prompt": "the ", "max_tokens": 12, "temperature": 0}, {"prompt": "a", "max_tokens": 9, "temperature": 0.7, "top_k": 40, "seed": 3}]
        job_id = self.cluster.submit(self.job(data, asked, samples))
        self.cluster.wait_state(job_id, "SUCCEEDED")
        self.assert_samples(job_id, samples)
        events = [e for e in self.cluster.events(job_id) if e["type"] == "evaluation"]
        self.assertEqual([int(e["step"]) for e in events], [5, 10, 12, 12])
        self.assertRegex(events[0]["message"], r"^step 5: piqa: acc 0\.\d{4}, acc_norm 0\.\d{4} \(20 items(, \d+ cut)?\)$")
        self.assertRegex(events[3]["message"], r"^step 12: last-word: acc .*, perplexity .* \(8 items(, \d+ cut)?\)$")
        described = self.cluster.jobctl("describe", job_id).stdout
        self.assertIn(events[2]["message"].split(": ", 1)[1] + ", after step 12", described)
        report = json.loads(self.cluster.jobctl("report", job_id, "-o", "json").stdout)
        self.assertEqual([(e["name"], e["task"], e["items"], e["step"]) for e in report["evaluations"]],
                         [("piqa", "piqa", 20, 12), ("last-word", "lambada", 8, 12)])
        page = json.loads(self.cluster.get(f"/api/v1/jobs/{job_id}"))
        self.assertEqual(len(page["evaluations"]), 2)
        series = self.cluster.get("/metrics")
        self.assertRegex(series, rf'hearth_job_evaluation_accuracy_ratio{{job_id="{job_id}",name="last-word"}} ')
        # The same questions to the last checkpoint.
        checkpoint = self.cluster.final_checkpoint(job_id)
        for evaluation, result in zip(asked, report["evaluations"]):
            limit = ["--limit", str(evaluation["limit"])] if "limit" in evaluation else []
            out = subprocess.run([harness.program("hearth-trainer"), "eval", checkpoint["path"], "--task", evaluation["task"], "--items",
                                  evaluation["items"], "--threads", "1", "-o", "json", *limit], capture_output=True, text=True, check=True)
            alone = json.loads(out.stdout)
            self.assertEqual(alone["acc"]["value"], result["acc"], evaluation)
            if alone["perplexity"] is not None:
                self.assertAlmostEqual(alone["perplexity"] / result["perplexity"], 1, places=4)
        # Without evaluations and samples the weights are the same.
        plain = self.cluster.submit(self.job(data, []))
        self.cluster.wait_state(plain, "SUCCEEDED")
        self.assertEqual(harness.weights_sha256(self.cluster.final_checkpoint(plain)), harness.weights_sha256(checkpoint))

    def test_bad_items_end_the_job_with_their_place(self):
        data, path = self.build(), os.path.join(self.cluster.dir, "bad.jsonl")
        reference.write_items(path, [{"goal": "g", "sol1": "a", "sol2": "b"}])
        job_id = self.cluster.submit(self.job(data, [{"task": "piqa", "items": path}]))
        self.cluster.wait_state(job_id, "FAILED")
        self.assertIn(f"train.evaluations[0]: {path}:1.label: ", self.cluster.job(job_id)["reason"])
        run = self.cluster.jobctl("submit", "-f", "-", "--dry-run", "server", check=False,
                                  stdin=json.dumps(self.job(data, [{"task": "piqa", "items": path}, {"task": "piqa", "items": path}])))
        self.assertIn('train.evaluations[0] is called "piqa" too', run.stderr)
        run = self.cluster.jobctl("submit", "-f", "-", "--dry-run", "client", check=False,
                                  stdin=json.dumps(self.job(data, [{"task": "chess", "items": path}])))
        self.assertIn("train.evaluations[0].task", run.stderr)
        self.assertIn("hellaswag", run.stderr)


if __name__ == "__main__":
    harness.main()
