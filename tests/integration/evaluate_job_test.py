#!/usr/bin/python3
"""task: eval over the checkpoints of a run: each model once, also when the trainer dies or the job is paused between two; results in events,
history, describe, watch, report and the page's JSON, and equal to what `hearth-trainer eval` says."""

import json
import os
import signal
import subprocess
import sys

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "numerics"))
import evaluate_reference as reference  # noqa: E402  (needs the path)


class EvaluateJob(harness.ClusterTest):
    WORKERS = 1
    GATES = {"second": "trainer.evaluate@2"}

    def dataset(self):
        texts = os.path.join(self.cluster.dir, "texts.jsonl")
        reference.write_items(texts, [{"text": i["text"]} for i in reference.make_items("lambada", 200, 5)])
        out = os.path.join(self.cluster.dir, "bytes")
        self.cluster.jobctl("dataset", "build", "--input", texts, "--field", "text", "--tokenizer", "bytes", "--out", out)
        return out

    def trained(self, data):
        """A run with checkpoints of steps 10 and 20."""
        run = self.cluster.submit(harness.tiny_job(
            data, steps=20, workers=1, model={"vocab": 257}, data={"train": data, "sequence_length": 256},
            batch={"micro_batch_size": 2, "global_batch_tokens": 1024}, checkpoint={"every_steps": 10}))
        self.cluster.wait_state(run, "SUCCEEDED")
        return run

    def job(self, run, data, **evaluate):
        self.items = os.path.join(self.cluster.dir, "piqa.jsonl")
        reference.write_items(self.items, reference.make_items("piqa", 12, 6))
        return {"name": "eval", "task": "eval",
                "evaluate": {"job": run, "data": data, "batches": 3, "questions": [{"task": "piqa", "items": self.items, "limit": 10}], **evaluate}}

    def alone(self, checkpoint, *args):
        out = subprocess.run([harness.program("hearth-trainer"), "eval", checkpoint["path"], "--threads", "1", "-o", "json", *args],
                             capture_output=True, text=True, check=True)
        return json.loads(out.stdout)

    def assert_results(self, job_id, run, data):
        job = self.cluster.job(job_id)
        checkpoints = sorted(self.cluster.checkpoints(run), key=lambda c: int(c["step"]))
        self.assertEqual([c["step"] for c in checkpoints], ["10", "20"])
        self.assertEqual([m["checkpoint"]["path"] for m in job["models"]], [c["path"] for c in checkpoints])
        for checkpoint, model in zip(checkpoints, job["models"]):
            loss = self.alone(checkpoint, "--data", data, "--batches", "3")["sources"][0]
            self.assertAlmostEqual(model["heldOut"][0]["loss"], loss["loss"], places=6)
            self.assertAlmostEqual(model["heldOut"][0]["bitsPerByte"], loss["bits_per_byte"], places=6)
            self.assertEqual(int(model["heldOut"][0]["tokens"]), loss["tokens"])
            asked = self.alone(checkpoint, "--task", "piqa", "--items", self.items, "--limit", "10")
            self.assertEqual(model["evaluations"][0].get("accuracy", 0), asked["acc"]["value"])
            self.assertEqual(model["evaluations"][0]["step"], checkpoint["step"])
        self.assertNotEqual(job["models"][0]["heldOut"], job["models"][1]["heldOut"])
        messages = [e["message"] for e in self.cluster.events(job_id) if e["type"] == "evaluation"]
        self.assertEqual([m.split(": ")[0] for m in messages], [f"step {s} of {run}" for s in (10, 10, 20, 20)], "each model once")
        self.assert_every_step_once(job_id, 2)
        return messages

    def test_a_trainer_that_dies_loses_no_result(self):
        data = self.dataset()
        run = self.trained(data)
        self.hold("second")
        job_id = self.cluster.submit(self.job(run, data))
        self.cluster.wait_step(job_id, 1)
        self.assertEqual(self.cluster.job(job_id)["state"], "JOB_STATE_RUNNING")
        [pid] = self.cluster.trainer_pids("w0")
        os.kill(pid, signal.SIGKILL)
        self.cluster.wait_state(job_id, "SUCCEEDED")  # in the next process the second model is the first
        self.assertEqual(self.cluster.job(job_id)["epoch"], "2")
        messages = self.assert_results(job_id, run, data)
        self.assertRegex(messages[0], rf"^step 10 of {run}: {data}: loss \d\.\d{{4}}, \d\.\d{{4}} bits per byte \(\d+ tokens\)$")
        described = self.cluster.jobctl("describe", job_id).stdout
        watched = self.cluster.jobctl("watch", job_id).stdout
        page = json.loads(self.cluster.get(f"/api/v1/jobs/{job_id}"))
        self.assertEqual(page["evaluations"], messages)
        self.assertEqual((page["unit"], page["step"], page["steps"]), ("model", 2, 2))
        self.assertRegex(described, r"\nModels: +2 of 2\n")
        self.assertIn("SUCCEEDED, model 2 of 2", self.cluster.jobctl("doctor", job_id, check=False).stdout)
        for message in messages:
            self.assertIn(message, " ".join(described.split()))
            self.assertIn(message, watched)
        text = self.cluster.jobctl("report", job_id).stdout
        self.assertIn("SUCCEEDED at model 2 of 2", text)
        self.assertNotIn("Tokens", text)
        report = json.loads(self.cluster.jobctl("report", job_id, "-o", "json").stdout)
        self.assertEqual([(m["step"], m["job_id"], len(m["evaluations"]), len(m["data"])) for m in report["models"]], [(10, run, 1, 1), (20, run, 1, 1)])
        self.assertRegex(self.cluster.get("/metrics"), rf'hearth_job_held_out_bits_per_byte{{job_id="{job_id}",source="{data}"}} \d')
        self.assertEqual(self.cluster.checkpoints(job_id), [])

    def test_pause_and_resume_go_on_with_the_next_model(self):
        data = self.dataset()
        run = self.trained(data)
        self.hold("second")
        job_id = self.cluster.submit(self.job(run, data))
        self.cluster.wait_step(job_id, 1)
        self.cluster.jobctl("pause", job_id)
        self.release("second")
        self.cluster.wait_state(job_id, "PAUSED")
        self.assertEqual(self.cluster.job(job_id)["step"], "1")
        self.cluster.jobctl("resume", job_id)
        self.cluster.wait_state(job_id, "SUCCEEDED")
        self.assert_results(job_id, run, data)

    def test_model_folders_and_wrong_jobs(self):
        data = self.dataset()
        run = self.trained(data)
        folder = self.cluster.final_checkpoint(run)["path"]
        job_id = self.cluster.submit({"name": "folder", "task": "eval", "evaluate": {"models": folder, "data": data, "batches": 1}})
        self.cluster.wait_state(job_id, "SUCCEEDED")
        [message] = [e["message"] for e in self.cluster.events(job_id) if e["type"] == "evaluation"]
        self.assertTrue(message.startswith(f"{folder}: {data}: loss "), message)

        def refused(spec, *args):
            out = self.cluster.jobctl("submit", "-f", "-", *args, check=False, stdin=json.dumps(spec))
            self.assertNotEqual(out.returncode, 0)
            return out.stderr

        self.assertIn("evaluate.job: there is no job nobody", refused(self.job("nobody", data)))
        self.assertIn(f"{run} has no checkpoint of step 15", refused(self.job(run, data, steps=[20, 15])))
        self.assertIn("evaluate.data[0]: ", refused(self.job(run, "/nowhere")))
        self.assertIn("optimizer: changes nothing", refused({**self.job(run, data), "optimizer": {"lr": 1.0}}))
        path = os.path.join(self.cluster.dir, "job.yaml")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(self.job(run, data), f)
        plan = self.cluster.jobctl("plan", path, check=False)
        self.assertIn("task: eval trains nothing", plan.stderr)
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"name": "folder", "task": "eval", "evaluate": {"models": folder, "data": data, "batches": 1}}, f)
        alone = subprocess.run([harness.program("hearth-trainer"), "run", path, "--no-verify", "--out", os.path.join(self.cluster.dir, "run")],
                               capture_output=True, text=True, check=False)
        self.assertNotEqual(alone.returncode, 0)
        self.assertIn("--no-verify changes nothing: it acts only with a task that trains; here task is eval", alone.stderr)


if __name__ == "__main__":
    harness.main()
