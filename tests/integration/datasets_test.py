#!/usr/bin/python3
"""Data and models that do not belong together are refused at submit; what dataset inspect and mix print of real folders."""

import json
import os
import shutil
import struct

import harness

CONFIG = {"model_type": "qwen2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "intermediate_size": 64, "vocab_size": 151936, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 128,
          "hidden_act": "silu", "tie_word_embeddings": True}


class Datasets(harness.ClusterTest):
    WORKERS = 1

    def build(self, name, tokenizer, *args):
        """A dataset; some of its documents have control characters."""
        texts = os.path.join(self.cluster.dir, "texts")
        os.makedirs(texts, exist_ok=True)
        for i in range(20):
            with open(os.path.join(texts, f"{i:02}.txt"), "w") as f:
                f.write(f"document {i}\n\x1b[31mthe quick brown fox jumps over the lazy dog {i} times\n" * (1 + i))
        out = os.path.join(self.cluster.dir, name)
        self.cluster.jobctl("dataset", "build", "--input", texts, "--tokenizer", tokenizer, "--out", out, *args)
        return out

    def model(self, name, tokenizer_of=None, vocab=151936):
        """A Qwen folder as far as submit looks at it."""
        folder = os.path.join(self.cluster.dir, name)
        os.makedirs(folder)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump({**CONFIG, "vocab_size": vocab}, f)
        with open(os.path.join(folder, "model.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", 2) + b"{}")
        if tokenizer_of:
            shutil.copy(os.path.join(tokenizer_of, "tokenizer.json"), folder)
        return folder

    def job(self, data, model, **more):
        return json.dumps({"name": "other-tokens", "model": {"from": model}, "data": {"train": data, "sequence_length": 32, **more},
                           "batch": {"micro_batch_size": 2, "global_batch_tokens": 128}, "train": {"steps": 10}})

    def submit_dry(self, where, job):
        return self.cluster.jobctl("submit", "-f", "-", "--dry-run", where, check=False, stdin=job)

    def test_another_tokenizer_is_refused_with_both_named(self):
        data, trained = self.build("bytes", "bytes"), self.build("trained", "bpe:300")
        own = self.model("own", trained, vocab=300)
        for model, named in ((self.model("none"), "no tokenizer and a vocabulary of 151936"),
                             (own, "bpe, tokenizer.json with SHA-256")):
            for where in ("client", "server"):
                with self.subTest(where=where, named=named):
                    run = self.submit_dry(where, self.job(data, model))
                    self.assertNotEqual(run.returncode, 0, run.stdout)
                    for needle in ("data.train[0].path", data, "bytes (257 tokens)", model, named, "data.allow_other_tokenizer: true"):
                        self.assertIn(needle, run.stderr)
                    run = self.submit_dry(where, self.job(data, model, allow_other_tokenizer=True))
                    self.assertEqual(run.returncode, 0, run.stderr)
                    run = self.submit_dry(where, self.job([data, trained], model))
                    self.assertIn("data.train[", run.stderr)
        self.assertEqual(self.submit_dry("server", self.job(trained, own)).returncode, 0)
        self.assertEqual(self.cluster.json("list").get("jobs", []), [], "a refused job was stored")

    def test_fine_tuning_needs_a_mask(self):
        text, chat = self.build("text", "bytes"), os.path.join(self.cluster.dir, "chat")
        lines = "".join(json.dumps({"instruction": f"question {i}", "output": f"answer {i}"}) + "\n" for i in range(20))
        build = ("dataset", "build", "--input", "-", "--format", "jsonl", "--chat", "--tokenizer", "bytes", "--out", chat)
        run = self.cluster.jobctl(*build, check=False, stdin=lines)
        self.assertIn("--chat-template chatml or a file gives one", run.stderr)
        run = self.cluster.jobctl(*build, "--chat-template", "chatml", check=False, stdin=lines + '{"output": ""}\n')
        self.assertIn("standard input:21: no conversation", run.stderr)
        self.cluster.jobctl(*build, "--chat-template", "chatml", stdin=lines)
        out = self.cluster.jobctl("dataset", "inspect", chat, "--decode", 1).stdout
        self.assertIn("<|im_start|>assistant\n  \u27e6answer 0<|im_end|>\u27e7\n", out)
        job = json.loads(self.job([chat, text], ""))
        job["model"] = {"preset": "hearth-nano"}
        for where in ("client", "server"):
            job["task"], job["data"]["train"] = "sft", [chat, text]
            run = self.submit_dry(where, json.dumps(job))
            self.assertEqual(run.returncode, 0, run.stderr)  # text among conversations
            job["data"]["train"] = text
            run = self.submit_dry(where, json.dumps(job))
            self.assertIn(f"data.train[0].path: {text} has no loss mask", run.stderr)
            job["data"]["train"] = chat
            self.assertEqual(self.submit_dry(where, json.dumps(job)).returncode, 0)
            run = self.submit_dry(where, json.dumps({**job, "data": {**job["data"], "packing": "concat"}}))
            self.assertIn("task: sft needs best_fit", run.stderr)
            self.assertEqual(self.submit_dry(where, json.dumps({**job, "task": "pretrain"})).returncode, 0)

    def test_override_without_anything_to_compare_is_idle(self):
        job = json.loads(self.job(self.data, "", allow_other_tokenizer=True))
        job["model"] = {"layers": 2, "hidden": 32, "heads": 4, "ffn_hidden": 64, "vocab": 64}
        run = self.submit_dry("client", json.dumps(job))
        self.assertIn("data.allow_other_tokenizer", run.stderr)
        self.assertIn("several datasets", run.stderr)

    def test_inspect_decodes(self):
        data = self.build("trained", "bpe:300")
        out = self.cluster.jobctl("dataset", "inspect", data, "--decode", 2, "--document", 3).stdout
        self.assertRegex(out, r"^document 3, tokens \d+ to \d+\n  document 3\n  \\u001b\[31mthe quick brown")
        self.assertIn("\ndocument 4, tokens ", out)
        self.assertNotIn("\x1b", out)
        parts = self.cluster.json("dataset", "inspect", data, "--decode", 1, "--from", 1)
        self.assertEqual((parts[0]["document"], parts[0]["begins"]), (0, False))
        self.assertIn("\x1b[31mthe quick", parts[0]["text"])
        self.assertIn("has 20 documents", self.cluster.jobctl("dataset", "inspect", data, "--decode", 1, "--document", 20,
                                                              check=False).stderr)

    def test_mix_shows_what_a_job_draws(self):
        data, other = self.build("one", "bytes"), self.build("two", "bytes", "--fraction", "0.3")
        run = self.cluster.jobctl("dataset", "mix", f"{data}=3", other, "--sequence-length", 64, "--tokens", 100000)
        self.assertRegex(run.stdout, r"SOURCE +TOKENS +WEIGHT +SHARE +DRAWN +EPOCHS\n")
        self.assertRegex(run.stdout, rf"{data} +\d+ +3 +75\.00 % +\d+ +\d")
        self.assertIn(f"warning: {other} is passed over", run.stderr)
        job = json.loads(self.job([{"path": data, "weight": 3}, {"path": other, "weight": 1}], ""))
        job["model"] = {"preset": "hearth-nano"}
        path = os.path.join(self.cluster.dir, "job.yaml")
        with open(path, "w") as f:
            json.dump(job, f)
        report = self.cluster.json("dataset", "mix", "-f", path)
        self.assertEqual((report["samples"], [s["drawn_tokens"] for s in report["sources"]]), (40, [960, 320]))
        run = self.cluster.jobctl("dataset", "mix", data, self.build("trained", "bpe:300"), check=False)
        self.assertIn("data.train[1].path", run.stderr)


if __name__ == "__main__":
    harness.main()
