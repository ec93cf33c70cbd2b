#!/usr/bin/python3
"""The Python client against a real coordinator: submit, watch, metrics, pause and resume, and what its errors say."""

import os
import re
import subprocess
import sys
import unittest.mock

import grpc
import harness
import yaml

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../jobctl/python/build.sh")


class PythonClient(harness.ClusterTest):
    WORKERS = 1

    def setUp(self):
        super().setUp()
        out = str(self.cluster.dir) + "/python"
        subprocess.run([BUILD, out], check=True, capture_output=True)
        sys.path.insert(0, out)
        self.addCleanup(sys.path.remove, out)
        import hearth_client  # pylint: disable=import-outside-toplevel,import-error

        self.client = hearth_client
        self.hearth = hearth_client.Hearth(self.cluster.address, harness.token_file(self.cluster.address), jobctl=harness.program("jobctl"))

    def test_a_job_from_submit_to_its_numbers(self):
        job = self.hearth.submit(harness.tiny_job(self.data, 10**6, workers=1), "train.steps=40", "labels.from=notebook")
        seen = list(self.hearth.watch(job))
        self.assertEqual(self.client.state_name(seen[-1]), "succeeded")
        self.assertEqual(self.hearth.job(job).spec.labels["from"], "notebook")
        self.assertEqual([j.job_id for j in self.hearth.jobs("state=succeeded")], [job])
        self.assertEqual([w.worker_id for w in self.hearth.workers()], ["w0"])
        self.assertIn("checkpoint", {event.type for event in self.hearth.events(job)})

        columns = self.hearth.metrics_columns(job)
        self.assertEqual(columns["step"], list(range(1, 41)))
        self.assertGreater(columns["loss"][0], columns["loss"][-1])
        self.assertEqual(set(columns["validation_loss"]), {None})
        self.assertEqual([report.step for report in self.hearth.metrics(job, from_step=38)], [38, 39, 40])
        rows = self.cluster.metrics(job)
        for row, loss in zip(rows, columns["loss"]):
            self.assertAlmostEqual(float(row["loss"]), loss, places=6)

    def test_the_page_writes_numbers_to_mlflow(self):
        job = self.hearth.submit(harness.tiny_job(self.data, 5, workers=1))
        self.cluster.wait_state(job, "SUCCEEDED")
        with open(os.path.join(harness.SOURCE, "docs", "python.md")) as f:
            [block] = [text for text in re.findall(r"^```python\n(.*?)^```$", f.read(), re.DOTALL | re.MULTILINE) if "import mlflow" in text]
        mlflow = unittest.mock.MagicMock()  # Debian has no MLflow: what it would be told is looked at
        with unittest.mock.patch.dict(sys.modules, {"mlflow": mlflow}):
            exec(block, {"hearth": self.hearth, "job": job})  # pylint: disable=exec-used
        mlflow.start_run.assert_called_once_with(run_name=job)
        told = mlflow.log_metrics.call_args_list
        self.assertEqual([call.kwargs["step"] for call in told], [1, 2, 3, 4, 5])
        self.assertEqual([call.args[0]["loss"] for call in told], self.hearth.metrics_columns(job)["loss"])
        self.assertEqual({type(value) for call in told for value in call.args[0].values()} - {int, float}, set())

    def test_a_job_is_paused_extended_and_followed(self):
        job = self.hearth.submit(harness.tiny_job(self.data, 10**6, workers=1))
        followed = self.hearth.metrics(job, follow=True)
        self.assertEqual(next(followed).step, 1)
        self.hearth.pause(job)
        self.assertEqual(self.client.state_name(list(self.hearth.watch(job))[-1]), "paused")
        steps = self.hearth.job(job).step + 20
        self.hearth.resume(job, f"train.steps={steps}")
        self.assertEqual(max(report.step for report in followed), steps)

    def test_a_job_file_that_pyyaml_read_is_submitted_again(self):
        notify = [{"on": ["cancelled"], "url": "http://127.0.0.1:9/"}]
        words = {"answer": "no", "y": "off"}
        spec = harness.tiny_job(self.data, 3, workers=1, notify=notify, labels=words, parallel={"shard": "off"})
        first = self.hearth.submit(spec)
        printed = yaml.safe_load(self.cluster.jobctl("get", first, "--spec").stdout)
        self.assertEqual((printed["notify"], printed["labels"]), (notify, words))
        again = self.hearth.submit(printed)
        self.assertEqual(self.hearth.job(again).spec, self.hearth.job(first).spec)
        whole = yaml.safe_load(self.cluster.jobctl("get", first, "-o", "yaml").stdout)
        self.assertEqual(whole["spec"]["notify"][0]["on"], ["cancelled"])
        # Without quotes, PyYAML takes the key for true.
        [read] = yaml.safe_load("[{on: [cancelled], url: \"http://127.0.0.1:9/\"}]")
        self.assertIn(True, read)
        third = self.hearth.submit({**spec, "notify": [read]})
        self.assertEqual(self.hearth.job(third).spec.notify[0].on, ["cancelled"])

    def test_errors_are_told(self):
        with self.assertRaises(grpc.RpcError) as unknown:
            self.hearth.job("none")
        self.assertEqual(unknown.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(str(unknown.exception), f"{unknown.exception.details()} (NOT_FOUND, coordinator {self.cluster.address})")
        self.assertIn("none", unknown.exception.details())
        for stream in (self.hearth.watch("none"), self.hearth.metrics("none")):
            with self.assertRaisesRegex(self.client.ServerError, 'job "none" not found'):
                list(stream)
        with self.assertRaises(subprocess.CalledProcessError) as refused:
            self.hearth.submit(harness.tiny_job(self.data, 10), "train.stesp=1")
        self.assertIn("did you mean steps?", refused.exception.stderr)
        self.assertEqual(str(refused.exception), refused.exception.stderr.strip())
        down = self.client.Hearth("127.0.0.1:1", jobctl=harness.program("jobctl"))
        with self.assertRaisesRegex(self.client.ServerError, r"\(UNAVAILABLE, coordinator 127\.0\.0\.1:1\)$"):
            down.job("any")
        with self.assertRaisesRegex(ValueError, "clear text"):
            self.client.Hearth("cluster.example:7070", harness.token_file(self.cluster.address))
        # The token of a coordinator of this machine goes to no other one.
        port = self.cluster.address.rsplit(":", 1)[1]
        self.assertIsNone(self.client.Hearth(f"cluster.example:{port}").token_file)


if __name__ == "__main__":
    harness.main()
