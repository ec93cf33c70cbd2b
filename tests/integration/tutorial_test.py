#!/usr/bin/python3
"""docs/tutorial.md, command by command as it stands there, at the scale of a CPU. Only the time of day of --at is replaced, by one that
comes soon."""

import json
import os
import re
import stat
import subprocess

import harness

TUTORIAL = os.path.join(harness.SOURCE, "docs", "tutorial.md")


def commands():
    """The blocks of shell commands, in their order."""
    with open(TUTORIAL) as f:
        return re.findall(r"^```sh\n(.*?)^```$", f.read(), re.DOTALL | re.MULTILINE)


class Tutorial(harness.ClusterTest):
    WORKERS = 0

    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.cluster.dir, "work")
        os.makedirs(os.path.join(self.folder, "chats"))
        self.env = dict(self.cluster.env, HEARTH_COORDINATOR=self.cluster.address, PATH=harness.BIN + ":" + os.environ["PATH"])

    def run_shell(self, script):
        run = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, env=self.env, capture_output=True, text=True,
                             timeout=600)
        self.assertEqual(run.returncode, 0, script + run.stdout + run.stderr + self.cluster.logs())
        return run.stdout

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.cluster.dir, name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def configure_tell(self):
        """What the operator has done."""
        self.told = os.path.join(self.cluster.dir, "told")
        tell = self.write("tell", f"#!/bin/sh\ncat >> {self.told}\n", stat.S_IRWXU)
        self.cluster.coordinator_args = ["--notify", self.write("notify.yaml", json.dumps({"commands": {"tell": tell}}))]
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator()
        for name in ("w0", "w1"):
            self.cluster.start_worker(name)
            self.cluster.wait_worker(name)

    def make_inputs(self):
        """A folder of conversations, and a model that has read some text."""
        for part in range(2):
            with open(os.path.join(self.folder, "chats", f"part-{part}.jsonl"), "w") as f:
                for i in range(part * 200, part * 200 + 200):
                    f.write(json.dumps({"messages": [{"role": "user", "content": f"What is {i} plus 1?"},
                                                     {"role": "assistant", "content": f"It is {i + 1}."}]}) + "\n")
        self.write("text.txt", "".join(f"What is {i} plus 1? It is {i + 1}. The sum of {i} and 1 is {i + 1}.\n" for i in range(2000)))
        job = {"name": "base", "model": {"layers": 2, "hidden": 64, "heads": 4, "ffn_hidden": 160},
               "data": {"train": self.cluster.dir + "/text", "sequence_length": 128},
               "batch": {"micro_batch_size": 4, "global_batch_tokens": 1024}, "precision": {"recipe": "fp32"}, "optimizer": {"lr": 3e-3},
               "train": {"steps": 40}, "checkpoint": {"every_steps": 40}}
        path = self.write("base.json", json.dumps(job))
        self.run_shell(f"jobctl dataset build --input ../text.txt --tokenizer bpe:400 --out ../text\n"
                       f"hearth-trainer run {path} --out ../base --threads 2\n"
                       f"cp -r ../base/checkpoints/step-00000040 base; rm -r base/state base/MANIFEST.json")

    def test_every_command(self):
        self.configure_tell()
        self.make_inputs()
        blocks = commands()
        self.assertEqual(len(blocks), 6)
        script = "\necho =====\n".join(blocks)
        self.assertEqual(script.count("--at 22:00"), 1)
        soon = "--at $(date -d '+4 seconds' +%H:%M:%S)"
        parts = self.run_shell(script.replace("--at 22:00", soon)).split("=====\n")
        data, _, plan, submitted, ended, chat = parts
        self.assertIn("⟦It is ", data)
        self.assertIn("would be submitted", plan)
        self.assertRegex(submitted, "waits for its start time|checking its paths|accepted|STARTING|RUNNING")
        self.assertIn("first try with the new conversations", submitted)
        self.assertIn("loss", ended)
        harness.wait_until("the notification", lambda: os.path.exists(self.told) and open(self.told).read().endswith("}"))
        with open(self.told) as f:
            told = json.load(f)  # once, or this is no JSON
        self.assertEqual((told["on"], told["job"]["name"]), ("succeeded", "chat"))
        job = self.cluster.job(told["job"]["job_id"])
        self.assertGreaterEqual(job["startTime"][:19], job["spec"]["start"]["notBefore"][:19])
        with open(os.path.join(self.folder, "report.md")) as f:
            self.assertIn("first try with the new conversations", f.read())
        before, after = [float(loss) for loss in re.findall(r"^([0-9.]+) ", chat, re.MULTILINE)[:2]]
        self.assertLess(after, 0.7 * before)
        self.assertRegex(chat.splitlines()[-1], r"It is \d+")


if __name__ == "__main__":
    harness.main()
