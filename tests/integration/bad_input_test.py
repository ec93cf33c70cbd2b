#!/usr/bin/python3
"""Bad input: a clear message that names the field, line or file, a non-zero exit code, and nothing changed."""

import os
import struct
import subprocess
import unittest

import harness

GOOD = """name: bad-input
model: {layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 64, vocab: 64}
data: {train: DATA, sequence_length: 32}
batch: {micro_batch_size: 2, global_batch_tokens: 128}
train: {steps: 10}
"""

# What is wrong, the replacement in GOOD, and what the message must contain.
BAD_FILES = [
    ("unknown key", ("steps: 10", "stepz: 10"), ["job.yaml:5", "train.stepz", "steps"]),
    ("duplicate key", ("steps: 10", "steps: 10, steps: 11"), ["job.yaml:5", "steps", "duplicate"]),
    ("wrong type", ("layers: 2", "layers: two"), ["job.yaml:2", "model.layers", "two"]),
    ("octal trap", ("steps: 10", "steps: 010"), ["job.yaml:5", "train.steps"]),
    ("negative steps", ("steps: 10", "steps: -5"), ["train.steps", "-5"]),
    ("heads not divisible", ("kv_heads: 2", "kv_heads: 3"), ["model.kv_heads", "3"]),
    ("batch not a multiple", ("global_batch_tokens: 128", "global_batch_tokens: 100"), ["batch.global_batch_tokens", "100"]),
    ("unknown recipe", ("train: {steps: 10}", "train: {steps: 10}\nprecision: {recipe: fp16}"), ["precision.recipe", "fp16"]),
    ("unknown preset", ("model: {layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 64, vocab: 64}",
                        "model: {preset: hearth-112mm}"), ["model.preset", "hearth-112m"]),
    ("not YAML", ("train: {steps: 10}", "train: {steps: 10"), ["job.yaml:"]),
]


class BadInput(harness.ClusterTest):
    WORKERS = 1

    def refused(self, text, *needles, args=()):
        path = os.path.join(self.cluster.dir, "job.yaml")
        with open(path, "w") as f:
            f.write(text.replace("DATA", self.data))
        run = self.cluster.jobctl("submit", "-f", path, *args, check=False)
        self.assertNotEqual(run.returncode, 0, run.stdout)
        for needle in needles:
            self.assertIn(needle, run.stderr)
        self.assertEqual(self.cluster.json("list").get("jobs", []), [], "a refused job was stored")

    def test_job_files(self):
        for what, (old, new), needles in BAD_FILES:
            with self.subTest(what):
                self.assertIn(old, GOOD)
                self.refused(GOOD.replace(old, new), *needles)

    def test_all_violations_at_once(self):
        text = GOOD.replace("steps: 10", "steps: -5").replace("kv_heads: 2", "kv_heads: 3")
        self.refused(text, "train.steps", "model.kv_heads")

    def test_validate_only_refuses_the_same(self):
        self.refused(GOOD.replace("kv_heads: 2", "kv_heads: 3"), "model.kv_heads", args=("--dry-run", "server"))
        self.refused(GOOD.replace("kv_heads: 2", "kv_heads: 3"), "model.kv_heads", args=("--dry-run", "client"))

    def test_missing_dataset(self):
        self.refused(GOOD.replace("DATA", "/nonexistent/tokens.bin"), "data.train[0].path: on worker w0: /nonexistent/tokens.bin: no such file or folder")

    def test_truncated_dataset(self):
        path = os.path.join(self.cluster.dir, "truncated.bin")
        header = struct.pack("<3i", 20240520, 1, 5000) + bytes(4 * 253)
        with open(path, "wb") as f:
            f.write(header + bytes(2 * 100))
        self.refused(GOOD.replace("DATA", path), "data.train", path)

    def test_missing_job_file(self):
        run = self.cluster.jobctl("submit", "-f", "/nonexistent/job.yaml", check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("/nonexistent/job.yaml", run.stderr)

    def test_token_beyond_the_vocabulary_fails_the_job_with_file_and_offset(self):
        path = os.path.join(self.cluster.dir, "big-token.bin")
        harness.write_tokens(path, 2000)
        with open(path, "r+b") as f:
            f.seek(2 * 40)
            f.write(struct.pack("<H", 999))
        spec = harness.tiny_job(path, 50, workers=1, data={"train": path, "sequence_length": 32, "shuffle": False})
        job = self.cluster.submit(spec)
        self.assertEqual(self.cluster.jobctl("wait", job, check=False).returncode, 100)
        reason = self.cluster.job(job)["reason"]
        self.assertIn("999", reason)
        self.assertIn(path, reason)

    def test_checkpoint_of_another_model(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 5, workers=1))
        self.cluster.wait_state(job, "SUCCEEDED")
        checkpoint = self.cluster.final_checkpoint(job)["path"]
        other = os.path.join(self.cluster.dir, "other.yaml")
        with open(other, "w") as f:
            f.write(GOOD.replace("DATA", self.data).replace("hidden: 32", "hidden: 48"))
        run = subprocess.run([harness.program("hearth-trainer"), "run", other, "--resume", checkpoint, "--out",
                              os.path.join(self.cluster.dir, "out")], capture_output=True, text=True)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("hidden", run.stderr + run.stdout)

    def test_a_second_run_into_the_same_folder(self):
        path = os.path.join(self.cluster.dir, "alone.yaml")
        with open(path, "w") as f:
            f.write(GOOD.replace("DATA", self.data))
        run = [harness.program("hearth-trainer"), "run", path, "--out", os.path.join(self.cluster.dir, "alone")]
        self.assertEqual(subprocess.run(run, capture_output=True).returncode, 0)
        again = subprocess.run(run, capture_output=True, text=True)
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("--resume", again.stderr)

    def test_unreachable_coordinator(self):
        run = subprocess.run([harness.program("jobctl"), "--coordinator", "127.0.0.1:1", "list"], capture_output=True,
                             text=True, timeout=harness.patience(30))
        self.assertEqual(run.returncode, 1)
        self.assertIn("127.0.0.1:1", run.stderr)

    def test_more_workers_than_exist_stays_queued_with_the_reason(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 10, workers=3, batch={"micro_batch_size": 2, "global_batch_tokens": 384}))
        self.cluster.wait_state(job, "QUEUED")
        described = harness.wait_until("a reason", lambda: self.cluster.jobctl("describe", job).stdout)
        self.assertRegex(described, r"Reason: +\S.*3")
        self.assertEqual(self.cluster.job(job)["epoch"], "0")

    def test_unwritable_data_dir(self):
        run = subprocess.run([harness.program("hearth-coordinator"), "--data-dir", "/proc/hearth", "--listen", "127.0.0.1:0",
                              "--http", "127.0.0.1:0"], capture_output=True, text=True, timeout=harness.patience(30))
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("/proc/hearth", run.stderr + run.stdout)

    def test_second_coordinator_on_the_same_data_dir(self):
        run = subprocess.run([harness.program("hearth-coordinator"), "--data-dir", os.path.join(self.cluster.dir, "coordinator"),
                              "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"], capture_output=True, text=True, timeout=harness.patience(30))
        self.assertNotEqual(run.returncode, 0)
        self.assertIn(str(self.cluster.coordinator.pid), run.stderr + run.stdout)
        self.assertEqual(self.cluster.json("list").get("jobs", []), [])

    def test_non_loopback_without_tls(self):
        run = subprocess.run([harness.program("hearth-coordinator"), "--data-dir", os.path.join(self.cluster.dir, "other"),
                              "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0"], capture_output=True, text=True, timeout=harness.patience(30))
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("--insecure", run.stderr + run.stdout)


@unittest.skipUnless(os.geteuid() == 0, "mounting a tmpfs needs root")
class FullDisk(harness.ClusterTest):
    WORKERS = 0

    def test_during_a_checkpoint(self):
        root = os.path.join(self.cluster.dir, "small")
        os.mkdir(root)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", root], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", root], check=True)
        self.cluster.start_worker("w0", "--checkpoint-root", root)
        self.cluster.wait_worker("w0")
        # The first checkpoint fits (weights, masters and two moments of 29k parameters), the second does not.
        job = self.cluster.submit(harness.tiny_job(self.data, 40, workers=1, checkpoint={"every_steps": 10, "keep_last": 3},
                                                   resources={"workers": 1, "device": "cpu", "max_restarts": 1}))
        self.assertEqual(self.cluster.jobctl("wait", job, check=False).returncode, 100)
        failed = self.cluster.job(job)
        self.assertIn(root, failed["reason"])
        self.assertRegex(failed["reason"].lower(), "no space|full")
        # What was announced is whole, and nothing half-written is left.
        kept = self.cluster.checkpoints(job)
        self.assertTrue(all(os.path.exists(os.path.join(c["path"], "MANIFEST.json")) for c in kept))
        left = [d for _, dirs, _ in os.walk(root) for d in dirs if ".tmp" in d]
        self.assertEqual(left, [])


if __name__ == "__main__":
    harness.main()
