#!/usr/bin/python3
"""No reader uses a file whose recorded SHA-256 no longer matches: one byte is changed in each kind of file; each reader refuses the
file, names it, and reads it only with --no-verify."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import harness  # noqa: E402

BAD_DATA = 23  # exit status of hearth-trainer run


def change_a_byte(path):
    """In the middle, by the lowest bit: a text stays a text, a token stays small."""
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte ^ 1]))


class VerifyTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hearth-verify-")
        self.addCleanup(harness.remove_or_keep, self.dir, harness.Outcome.count)
        self.outputs = 0
        self.home = os.path.join(self.dir, "home")
        self.env = dict(os.environ, HEARTH_HOME=self.home, OMP_NUM_THREADS="1", NO_COLOR="1")
        self.data = self.make_dataset()
        self.model = self.train()

    def run_program(self, name, *args):
        return subprocess.run([harness.program(name), *map(str, args)], capture_output=True, text=True, errors="replace",
                              env=self.env, timeout=120, cwd=self.dir)

    def make_dataset(self):
        texts = os.path.join(self.dir, "texts")
        os.mkdir(texts)
        for i in range(40):
            with open(os.path.join(texts, f"{i}.txt"), "w") as f:
                f.write("".join(f"the {i * k % 17} of {k}\n" for k in range(60)))
        out = os.path.join(self.dir, "data")
        run = self.run_program("jobctl", "dataset", "build", "--input", texts, "--out", out, "--tokenizer", "bytes")
        self.assertEqual(run.returncode, 0, run.stderr)
        return os.path.join(out, "train") if os.path.isdir(os.path.join(out, "train")) else out

    def job(self, **over):
        path = os.path.join(self.dir, "job.yaml")
        spec = harness.tiny_job(self.data, 4, workers=1, checkpoint={"every_steps": 0})
        del spec["model"]["vocab"]  # the dataset says it
        spec.update(over)
        with open(path, "w") as f:
            json.dump(spec, f)
        return path

    def train(self):
        run = self.run_program("hearth-trainer", "run", self.job(), "--out", os.path.join(self.dir, "run"), "-q")
        self.assertEqual(run.returncode, 0, run.stderr)
        return max(glob.glob(os.path.join(self.dir, "run", "checkpoints", "step-*")))

    def commands(self):
        """Readers of data and model: name -> (arguments, reads data, reads the model)."""
        self.outputs += 1
        continued = ["run", self.job(model={"from": self.model}), "--out"]
        return {
            "eval": (["eval", self.model, "--data", self.data, "--batches", "1"], True, True),
            "sample": (["sample", self.model, "--prompt", "the", "--tokens", "3"], False, True),
            "run": ([*continued, os.path.join(self.dir, f"out-{self.outputs}"), "-q"], True, True),
        }

    def check(self, path, of_data):
        """One changed byte in `path` stops each of its readers; --no-verify and data.verify: false let it pass."""
        saved = path + ".saved"
        shutil.copy2(path, saved)
        change_a_byte(path)
        for name, (args, reads_data, reads_model) in self.commands().items():
            if not (reads_data if of_data else reads_model):
                continue
            with self.subTest(file=os.path.basename(path), reader=name):
                run = self.run_program("hearth-trainer", *args)
                self.assertEqual(run.returncode, BAD_DATA if name == "run" else 1, run.stdout + run.stderr)
                kind, digits = ("SHA-256", 64) if of_data else ("XXH3", 32)  # checkpoints carry XXH3
                self.assertRegex(run.stderr, rf"{path}: {kind} is [0-9a-f]{{{digits}}}, recorded [0-9a-f]{{{digits}}}")
        for name, (args, reads_data, reads_model) in self.commands().items():
            if not (reads_data if of_data else reads_model) or path.endswith(".json"):
                continue  # what a changed json means is another question
            with self.subTest(file=os.path.basename(path), reader=name, verify=False):
                run = self.run_program("hearth-trainer", *args, "--no-verify")
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        os.replace(saved, path)

    def test_each_kind_of_file_each_reader(self):
        for path in glob.glob(os.path.join(self.data, "*.bin")):
            self.check(path, of_data=True)
        files = [e["path"] for e in json.load(open(os.path.join(self.model, "MANIFEST.json")))["files"] if not e["path"].startswith("state/")]
        self.assertIn("model.safetensors", files)
        self.assertIn("config.json", files)
        self.assertIn("hearth_tokenizer.json", files)
        for name in files:
            self.check(os.path.join(self.model, name), of_data=False)
        for name, (args, _, _) in self.commands().items():
            run = self.run_program("hearth-trainer", *args)
            self.assertEqual(run.returncode, 0, f"{name}: all is as recorded again: {run.stderr}")

    def test_a_folder_without_hashes_is_read_without_a_word(self):
        folder = os.path.join(self.dir, "published")
        os.mkdir(folder)
        for name in ("config.json", "model.safetensors", "hearth_tokenizer.json"):
            shutil.copy(os.path.join(self.model, name), folder)
        change_a_byte(os.path.join(folder, "model.safetensors"))
        run = self.run_program("hearth-trainer", "sample", folder, "--prompt", "the", "--tokens", "3")
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_what_was_verified_is_remembered_and_damage_to_that_harms_nobody(self):
        memory = os.path.join(self.home, "verified", "files")
        past = 1_600_000_000
        for path in glob.glob(os.path.join(self.data, "*.bin")):
            os.utime(path, (past, past))  # written long ago; the time of the inode is now, a moment before the reading
        args = ["eval", self.model, "--data", self.data, "--batches", "1"]
        def lines():
            if not os.path.exists(memory):
                return []  # nothing is remembered yet
            with open(memory, errors="replace") as f:
                return f.read().splitlines()
        harness.wait_until("all files remembered", lambda: self.run_program("hearth-trainer", *args).returncode == 0 and
                           any("model.safetensors" in line for line in lines()) and any(".bin" in line for line in lines()))
        def nothing_is_written():  # once the last file is old enough to be remembered: nothing was read
            before = os.stat(memory).st_ino
            self.assertEqual(self.run_program("hearth-trainer", *args).returncode, 0)
            return os.stat(memory).st_ino == before
        harness.wait_until("a run that reads nothing", nothing_is_written)
        with open(memory, "wb") as f:
            f.write(b"hearth verified files 1\n\xff\x00garbage")
        self.assertEqual(self.run_program("hearth-trainer", *args).returncode, 0)
        self.assertIn("model.safetensors", "\n".join(lines()))
        self.assertNotIn("garbage", "\n".join(lines()))


class JobTest(harness.ClusterTest):
    WORKERS = 2

    def test_a_job_on_changed_data_fails_and_with_verify_false_it_trains(self):
        folder = os.path.join(self.cluster.dir, "texts")
        os.mkdir(folder)
        for i in range(40):
            with open(os.path.join(folder, f"{i}.txt"), "w") as f:
                f.write("".join(f"the {i * k % 17} of {k}\n" for k in range(60)))
        out = os.path.join(self.cluster.dir, "data")
        self.cluster.jobctl("dataset", "build", "--input", folder, "--out", out, "--tokenizer", "bytes")
        data = os.path.join(out, "train") if os.path.isdir(os.path.join(out, "train")) else out
        path = glob.glob(os.path.join(data, "*.bin"))[0]
        change_a_byte(path)
        spec = harness.tiny_job(data, 10)
        spec["model"]["vocab"] = 512
        job = self.cluster.wait_state(self.cluster.submit(spec), "FAILED")
        self.assertEqual(job["reasonCode"], "bad_data")
        self.assertIn(f"{path}: SHA-256 is ", job["reason"])
        spec["data"]["verify"] = False
        self.cluster.wait_state(self.cluster.submit(spec), "SUCCEEDED")


if __name__ == "__main__":
    harness.main()
