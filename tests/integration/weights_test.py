#!/usr/bin/python3
"""Weights out of a cluster: a checkpoint is copied, exported and averaged by jobctl; the copy survives a kill of jobctl and of the worker
that reads it."""

import json
import os
import signal
import struct
import subprocess
import unittest

import harness

STEPS = 4


def files_of(folder):
    """Relative path -> SHA-256 of every file below."""
    return {os.path.relpath(os.path.join(where, name), folder): harness.sha256(os.path.join(where, name))
            for where, _, names in os.walk(folder) for name in names}


class WeightsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = c = harness.Cluster()
        cls.addClassCleanup(c.close)
        data = os.path.join(c.dir, "tokens.bin")
        harness.write_tokens(data)
        c.worker_args = ["--checkpoint-root", os.path.join(c.dir, "checkpoints")]
        c.start(workers=2)
        # Some 100 MB of state, so that there is a middle to be interrupted in.
        cls.job = c.submit(harness.tiny_job(data, STEPS, workers=1, model={"hidden": 256, "vocab": 32768}, checkpoint={"every_steps": 2}))
        c.wait_state(cls.job, "SUCCEEDED")
        cls.checkpoint = c.final_checkpoint(cls.job)

    def out(self, name):
        return os.path.join(self.cluster.dir, name)

    def begin_download(self, out):
        """jobctl that copies the whole checkpoint; returns once some of its weights have come."""
        c = self.cluster
        process = subprocess.Popen([harness.program("jobctl"), "--coordinator", c.address, "checkpoints", "download", self.job, "--state",
                                    "--out", out], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def some_came():
            self.assertIsNone(process.poll(), "the download ended before it could be interrupted")
            path = os.path.join(out + ".downloading", "model.safetensors")
            return os.path.exists(path) and os.path.getsize(path) > 0

        harness.wait_until("the first bytes", some_came)
        return process

    def test_a_download_is_the_folder(self):
        c = self.cluster
        c.jobctl("checkpoints", "download", self.job, "--state", "--out", self.out("whole"))
        self.assertEqual(files_of(self.out("whole")), files_of(self.checkpoint["path"]))
        said = c.jobctl("checkpoints", "download", self.job, "--step", 2, "--out", self.out("model")).stdout
        self.assertIn("step 2", said)
        self.assertIn("checksums good", said)
        source = next(x for x in c.checkpoints(self.job) if int(x["step"]) == 2)["path"]
        wanted = {name: digest for name, digest in files_of(source).items()
                  if not name.startswith("state/") or name == "state/meta.json"}
        found = files_of(self.out("model"))
        del wanted["MANIFEST.json"], found["MANIFEST.json"]
        self.assertEqual(found, wanted)
        again = c.jobctl("checkpoints", "download", self.job, "--out", self.out("model"), check=False)
        self.assertEqual(again.returncode, 1)
        self.assertIn("already there", again.stderr)

    def test_a_killed_download_goes_on(self):
        out = self.out("killed")
        process = self.begin_download(out)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertFalse(os.path.exists(out))
        said = self.cluster.jobctl("checkpoints", "download", self.job, "--state", "--out", out).stdout
        self.assertIn("were here already", said)
        self.assertEqual(files_of(out), files_of(self.checkpoint["path"]))
        self.assertFalse(os.path.exists(out + ".downloading"))

    def test_another_worker_takes_over(self):
        c = self.cluster
        out = self.out("lost")
        process = self.begin_download(out)
        c.workers["w0"].kill()  # the first of those that see the folder
        said, _ = process.communicate(timeout=harness.patience(120))
        self.assertEqual(process.returncode, 0, said)
        self.assertIn("worker w0: the worker that was asked about the checkpoint has gone", said)
        self.assertEqual(files_of(out), files_of(self.checkpoint["path"]))
        c.start_worker("w0")
        c.wait_worker("w0")

    def test_exports_and_means(self):
        c = self.cluster
        c.jobctl("checkpoints", "export", self.job, "--format", "gguf", "--dtype", "q8_0", "--no-tokenizer", "--out", self.out("m.gguf"))
        with open(self.out("m.gguf"), "rb") as f:
            magic, version, tensors, _ = struct.unpack("<4sIQQ", f.read(24))
        self.assertEqual((magic, version, tensors), (b"GGUF", 3, 2 + 2 * 9))
        c.jobctl("checkpoints", "export", self.checkpoint["path"], "--dtype", "f32", "--out", self.out("hf"))
        with open(self.out("hf/config.json")) as f:
            self.assertEqual(json.load(f)["torch_dtype"], "float32")
        said = c.jobctl("checkpoints", "average", self.job, "--last", 2, "--out", self.out("mean")).stdout
        self.assertIn("the mean of 2", said)
        # The mean of one checkpoint is that checkpoint.
        c.jobctl("checkpoints", "average", self.checkpoint["path"], "--dtype", "f32", "--out", self.out("itself"))
        self.assertEqual(harness.sha256(self.out("itself/model.safetensors")), harness.sha256(self.out("hf/model.safetensors")))
        refused = c.jobctl("checkpoints", "average", self.checkpoint["path"], "--last", 2, "--out", self.out("no"), check=False)
        self.assertIn("--last is for a job's checkpoints", refused.stderr)
        # A job can start from what was written.
        spec = harness.tiny_job(os.path.join(c.dir, "tokens.bin"), 2, workers=1)
        spec["model"] = {"from": self.out("mean")}
        started = c.submit(spec)
        c.wait_state(started, "SUCCEEDED")
        refused = c.jobctl("checkpoints", "export", self.job, "--format", "gguf", "--out", self.out("t.gguf"), check=False)
        self.assertIn("no tokenizer", refused.stderr)
        self.assertFalse(os.path.exists(self.out("t.gguf")))

    def test_nvfp4_blocks_go_into_a_gguf_file_as_they_are(self):
        c = self.cluster
        job = c.submit(harness.tiny_job(os.path.join(c.dir, "tokens.bin"), 2, workers=1, model={"hidden": 64, "ffn_hidden": 128},
                                        precision={"recipe": "bf16"}, weights={"store": "nvfp4"}))
        c.wait_state(job, "SUCCEEDED")
        out = self.out("nvfp4.gguf")
        said = c.jobctl("checkpoints", "export", job, "--format", "gguf", "--dtype", "nvfp4", "--no-tokenizer", "--out", out).stderr
        self.assertIn("matrices were trained in nvfp4", said)
        with open(out, "rb") as f:
            gguf = f.read()
        with open(os.path.join(c.final_checkpoint(job)["path"], "state", "tensors.safetensors"), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            state = f.read()
        # The rows of these lie in the file as in the checkpoint.
        whole = [name for name in header if name.startswith("nvfp4.") and name.endswith((".attn_out.weight", ".down.weight"))]
        self.assertEqual(len(whole), 4)
        for name in whole:
            begin, end = header[name]["data_offsets"]
            self.assertIn(state[begin:end], gguf, name)
        self.assertIn(b"blk.1.ffn_down.scale", gguf)


if __name__ == "__main__":
    unittest.main(verbosity=2)
