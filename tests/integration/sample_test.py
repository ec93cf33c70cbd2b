#!/usr/bin/python3
"""jobctl sample: a job's newest checkpoint writes a text on an idle worker, jobs go before texts, and refusals say why."""

import json
import os
import subprocess

import harness

STEPS = 120


class SampleTest(harness.ClusterTest):
    WORKERS = 2

    def setUp(self):
        super().setUp()
        text = os.path.join(self.cluster.dir, "text.txt")
        with open(text, "w") as f:
            f.write("".join(f"{i} plus {i % 9} is {i + i % 9}.\n" for i in range(3000)))
        self.data = os.path.join(self.cluster.dir, "text")
        self.cluster.jobctl("dataset", "build", "--input", text, "--tokenizer", "bytes", "--out", self.data)

    def spec(self, steps=STEPS, workers=1, **over):
        return harness.tiny_job(self.data, steps, workers=workers, **{"model": {"vocab": 257}, "optimizer": {"lr": 0.01}, "checkpoint": {"every_steps": STEPS},
                                                                      **over})

    def finished(self, **over):
        job = self.cluster.submit(self.spec(**over))
        self.cluster.wait_state(job, "SUCCEEDED")
        return job

    def sample(self, job, *args, check=True):
        return self.cluster.jobctl("-o", "json", "sample", job, *args, check=check)

    def test_a_text_of_the_newest_checkpoint(self):
        c = self.cluster
        job = self.finished(train={"steps": STEPS, "seed": 7, "ema": 0.9})
        args = ["--prompt", "12 plus 3 is", "--max-tokens", 40, "--seed", 11, "--top-k", 8]
        text = json.loads(self.sample(job, *args).stdout)
        self.assertEqual((text["job_id"], text["step"], text["seed"]), (job, STEPS, 11))
        self.assertIn(text["worker"], ("w0", "w1"))
        # The same model, options and seed write the same text without a coordinator.
        alone = subprocess.run([harness.program("hearth-trainer"), "sample", c.final_checkpoint(job)["path"], "--prompt", "12 plus 3 is",
                                "--tokens", "40", "--seed", "11", "--top-k", "8", "-o", "json"], capture_output=True, text=True, timeout=harness.patience(120))
        self.assertEqual(alone.returncode, 0, alone.stderr)
        same = json.loads(alone.stdout)
        self.assertEqual((text["text"], text["end"]), (same["text"], same["end"]))
        self.check_log_probs(c.final_checkpoint(job)["path"])
        # For people: the prompt and what follows it.
        shown = c.jobctl("sample", job, *args)
        self.assertEqual(shown.stdout, "12 plus 3 is" + text["text"] + "\n")
        self.assertIn(f"step {STEPS} on w", shown.stderr)
        # The average is another model; a prompt may come from a file.
        prompt = os.path.join(c.dir, "prompt")
        with open(prompt, "w") as f:
            f.write("12 plus 3 is")
        other = json.loads(self.sample(job, "--prompt-file", prompt, *args[2:], "--ema", "--worker", "w1").stdout)
        self.assertEqual(other["worker"], "w1")
        self.assertNotEqual(other["text"], text["text"])
        stopped = json.loads(self.sample(job, *args, "--stop", text["text"][5:7]).stdout)
        self.assertEqual(stopped["end"], "stop")
        self.assertEqual(stopped["text"], text["text"][:text["text"].index(text["text"][5:7])])
        self.assertEqual(c.trainer_pids("w0"), [])
        self.assertEqual(c.trainer_pids("w1"), [])

    def check_log_probs(self, checkpoint):
        """Those of training are of the same texts, and differ from those of generation by roundings. The job's sequences have 32 tokens."""
        def alone(tokens, *args):
            return subprocess.run([harness.program("hearth-trainer"), "sample", checkpoint, "--prompt", "12 plus 3 is", "--tokens", str(tokens),
                                   "--seed", "11", *args], capture_output=True, text=True, timeout=harness.patience(120))

        lines = {}
        for source in ("auto", "generation", "training"):
            run = alone(20, "--log-probs", source, "-o", "json")
            self.assertEqual(run.returncode, 0, run.stderr)
            lines[source] = json.loads(run.stdout)
        self.assertEqual(lines["auto"], lines["generation"])
        self.assertEqual({name: line["log_prob_from"] for name, line in lines.items()},
                         {"auto": "generation", "generation": "generation", "training": "training"})
        self.assertEqual(lines["generation"]["tokens"], lines["training"]["tokens"])
        pairs = list(zip(lines["generation"]["log_prob"], lines["training"]["log_prob"], strict=True))
        self.assertTrue(pairs)
        for a, b in pairs:
            self.assertAlmostEqual(a, b, delta=1e-4)
        for args, said in (((40, "--log-probs", "training", "-o", "json"), "2 x 32 tokens has no room for texts of 52 tokens"),
                           ((20, "--log-probs", "training"), "only -o json"), ((20, "--log-probs", "both", "-o", "json"), "must be auto or")):
            run = alone(*args)
            self.assertEqual(run.returncode, 1, run.stdout)
            self.assertIn(said, run.stderr)

    def test_refusals_say_why(self):
        c = self.cluster
        job = self.finished()

        def refused(*args):
            run = self.sample(*args, check=False)
            self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
            return run.stderr

        self.assertIn("no-such-job", refused("no-such-job"))
        self.assertIn(f"{job}/999", refused(job, "--step", 999))
        self.assertIn("nobody", refused(job, "--worker", "nobody"))
        self.assertIn("temperature", refused(job, "--temperature", -1))
        self.assertIn("top_p", refused(job, "--top-p", 0))
        self.assertIn("train.ema", refused(job, "--ema"))
        # Both workers are busy with a job that has no checkpoint yet.
        second = c.submit(self.spec(steps=10**7, workers=2, checkpoint={"every_steps": 0}))
        c.wait_state(second, "RUNNING")
        self.assertIn("no checkpoint yet", refused(second))
        said = refused(job)
        self.assertIn(f"w0 runs {second}", said)
        self.assertIn(f"w1 runs {second}", said)
        c.jobctl("cancel", second, "--now")
        c.wait_state(second, "CANCELLED")
        c.jobctl("cordon", "w0")
        c.jobctl("cordon", "w1")
        self.assertIn("w0 is cordoned", refused(job))
        self.assertIn("w0 is cordoned", refused(job, "--worker", "w0"))

    def test_a_job_ends_the_text(self):
        c = self.cluster
        job = self.finished()
        endless = [harness.program("jobctl"), "--coordinator", c.address, "sample", job, "--max-tokens", "65536", "--worker", "w1",
                   "--temperature", "1"]
        writing = subprocess.Popen(endless, env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(writing.stdout.close)
        self.addCleanup(writing.stderr.close)
        self.addCleanup(writing.kill)
        harness.wait_until("the first words", lambda: writing.stdout.read(1) != "")
        busy = self.sample(job, "--worker", "w1", check=False)
        self.assertEqual(busy.returncode, 1)
        self.assertIn("1 run from worker w1", busy.stderr)
        # Two ranks need both workers.
        second = c.submit(self.spec(workers=2))
        _, said = writing.communicate(timeout=harness.patience(60))
        self.assertEqual(writing.returncode, 1)
        self.assertIn(f"worker w1: a task of {second} was placed on this worker", said)
        c.wait_state(second, "SUCCEEDED")

    def test_a_client_that_leaves_frees_the_worker(self):
        c = self.cluster
        job = self.finished()
        writing = subprocess.Popen([harness.program("jobctl"), "--coordinator", c.address, "sample", job, "--max-tokens", "65536",
                                    "--worker", "w0", "--temperature", "1"], env=c.env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(writing.stdout.close)
        harness.wait_until("the first words", lambda: writing.stdout.read(1) != "")
        writing.kill()
        writing.wait()
        harness.wait_until("the end of its process", lambda: c.trainer_pids("w0") == [])
        self.assertEqual(json.loads(self.sample(job, "--worker", "w0", "--max-tokens", 3).stdout)["worker"], "w0")


if __name__ == "__main__":
    harness.main()
