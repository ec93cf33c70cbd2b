#!/usr/bin/python3
"""One job from submit to sample, through the programs that people use."""

import json
import os
import subprocess

import harness


class EndToEnd(harness.ClusterTest):
    def test_submit_watch_inspect(self):
        c = self.cluster
        job = c.submit(harness.tiny_job(self.data, 60, data={"train": self.data, "validation": self.data, "sequence_length": 32},
                                        train={"steps": 60, "seed": 7, "eval_every": 20, "eval_batches": 2}))
        watched = c.jobctl("watch", job, "--exit-status")
        self.assertIn("step 60/60", watched.stdout)
        self.assertIn("SUCCEEDED", watched.stdout)
        rows = self.assert_every_step_once(job, 60)
        self.assertLess(float(rows[-1]["loss"]), float(rows[0]["loss"]))
        self.assertEqual([int(r["step"]) for r in rows if r["validation_loss"]][-3:], [20, 40, 60])
        self.assertEqual(rows[-1]["tokens"], str(60 * 256))
        # Steps that were reported together count once each.
        scrape = c.get("/metrics")
        self.assertIn(f'hearth_job_tokens_total{{job_id="{job}"}} {60 * 256}\n', scrape)
        self.assertIn(f'hearth_job_step_duration_seconds_count{{job_id="{job}"}} 60\n', scrape)

        done = c.job(job)
        self.assertEqual((done["state"], done["epoch"]), ("JOB_STATE_SUCCEEDED", "1"))
        states = [e["toState"] for e in c.events(job) if e["type"] == "state"]
        self.assertEqual([s.removeprefix("JOB_STATE_") for s in states], ["QUEUED", "STARTING", "RUNNING", "SUCCEEDED"])
        revisions = [int(e["revision"]) for e in c.events(job)]
        self.assertEqual(revisions, sorted(set(revisions)))

        described = c.jobctl("describe", job).stdout
        for text in ("SUCCEEDED", "60 of 60", "silent for 4 s", "Events:", "seed: 7", "gloo"):
            self.assertIn(text, described)
        self.assertIn(job, c.jobctl("list").stdout)
        self.assertEqual(c.jobctl("list", "-o", "name").stdout.strip(), f"job/{job}")
        self.assertEqual(c.json("list", "--state", "running").get("jobs", []), [])
        self.assertIn("sequenceLength: 32", c.jobctl("get", job, "-o", "yaml").stdout)
        self.assertEqual([int(x["step"]) for x in c.checkpoints(job)][0], 60)
        self.assertTrue(c.job_log(job).strip(), "the trainer logged nothing")
        self.assertTrue(all(w["state"] == "WORKER_STATE_IDLE" for w in c.list_workers()))

        folder = c.final_checkpoint(job)["path"]
        self.assertTrue({"config.json", "model.safetensors", "MANIFEST.json", "state"} <= set(os.listdir(folder)))
        with open(os.path.join(folder, "config.json")) as f:
            again = json.load(f)
        self.assertEqual((again["model_type"], again["vocab_size"]), ("llama", 64))
        c.jobctl("delete", job, "--yes")
        self.assertEqual(c.jobctl("wait", job, check=False).returncode, 102)

    def test_exit_codes_of_wait(self):
        c = self.cluster
        good = c.submit(harness.tiny_job(self.data, 5))
        self.assertEqual(c.jobctl("wait", good, check=False).returncode, 0)
        self.assertEqual(c.jobctl("wait", "no-such-job", check=False).returncode, 102)
        endless = c.submit(harness.tiny_job(self.data, 10**7))
        c.wait_state(endless, "RUNNING")
        self.assertEqual(c.jobctl("wait", endless, "--timeout", "1s", check=False).returncode, 101)
        c.jobctl("cancel", endless)
        self.assertEqual(c.jobctl("wait", endless, check=False).returncode, 103)
        # A learning rate that blows the model up: the guard stops the job and says why.
        bad = c.submit(harness.tiny_job(self.data, 200, optimizer={"lr": 1e30, "grad_clip": 0}))
        self.assertEqual(c.jobctl("wait", bad, check=False).returncode, 100)
        self.assertIn("finite", c.job(bad)["reason"])

    def test_mutations(self):
        c = self.cluster
        c.jobctl("cordon", "w0")
        self.assertTrue(next(w for w in c.list_workers() if w["workerId"] == "w0")["cordoned"])
        job = c.submit(harness.tiny_job(self.data, 20))
        queued = c.wait_state(job, "QUEUED")
        self.assertIn("2", queued["reason"])
        c.jobctl("update", job, "--priority", 5, "--label", "team=research")
        updated = c.job(job)
        self.assertEqual(updated["spec"]["resources"]["priority"], 5)
        self.assertEqual(updated["spec"]["labels"], {"team": "research"})
        self.assertIn(job, c.jobctl("list", "-l", "team=research", "-o", "name").stdout)
        c.jobctl("uncordon", "w0")
        c.wait_state(job, "SUCCEEDED")

        # More steps than the spec had: a resume may say so, and the change is an event.
        endless = c.submit(harness.tiny_job(self.data, 10**6))
        c.wait_step(endless, 20)
        c.jobctl("pause", endless)
        step = int(c.wait_state(endless, "PAUSED")["step"])
        c.jobctl("resume", endless, "--set", f"train.steps={step + 10}")
        done = c.wait_state(endless, "SUCCEEDED")
        self.assertEqual(int(done["step"]), step + 10)
        self.assertTrue(any(e["type"] == "override" and "train.steps" in e["message"] for e in c.events(endless)))
        refused = c.jobctl("resume", endless, "--set", "model.layers=3", check=False)
        self.assertNotEqual(refused.returncode, 0)

    def test_idempotent_create(self):
        c = self.cluster
        spec = harness.tiny_job(self.data, 3)
        request = "3f2b8a52-6a53-4d7c-9b70-1d2f0c9b7a11"
        first = c.submit(spec, "--request-id", request)
        again = c.submit(spec, "--request-id", request)
        self.assertEqual(first, again)
        c.coordinator.kill()
        c.start_coordinator()
        self.assertEqual(c.submit(spec, "--request-id", request), first)
        self.assertEqual(len(c.json("list")["jobs"]), 1)

    def test_validate_only_stores_nothing(self):
        c = self.cluster
        out = c.jobctl("submit", "-f", "-", "--dry-run", "server", stdin=json.dumps(harness.tiny_job(self.data, 3)))
        self.assertIn("would be submitted", out.stdout)
        self.assertEqual(c.json("list").get("jobs", []), [])

    def test_drain_moves_the_job(self):
        c = self.cluster
        job = c.submit(harness.tiny_job(self.data, 10**6, workers=1))
        first = c.wait_step(job, 15)["workers"][0]
        c.jobctl("drain", first)
        other = "w1" if first == "w0" else "w0"
        harness.wait_until("the job on the other worker", lambda: c.job(job)["workers"] == [other], 60)
        c.wait_state(job, "RUNNING")
        c.jobctl("cancel", job, "--now")
        c.wait_state(job, "CANCELLED")

    def test_completion_and_help(self):
        for shell in ("bash", "zsh", "fish"):
            out = self.cluster.jobctl("completion", shell).stdout
            for word in ("submit", "uncordon", "checkpoints", "dataset"):
                self.assertIn(word, out)
        script = self.cluster.jobctl("completion", "bash").stdout
        self.assertEqual(subprocess.run(["bash", "-n"], input=script, text=True).returncode, 0)
        self.assertIn("--set", self.cluster.jobctl("submit", "--help").stdout)
        self.assertEqual(self.cluster.jobctl("submti", check=False).returncode, 2)


if __name__ == "__main__":
    harness.main()
