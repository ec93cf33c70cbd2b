#!/usr/bin/python3
"""Being told: each notification once in normal runs, at least once over crashes and restarts of the coordinator, and signed. Jobs that
start at a time or after another, and notes."""

import datetime
import hashlib
import hmac
import http.server
import json
import os
import signal
import stat
import threading

import harness

SECRET = "0123456789abcdef0123456789abcdef"


class Sink:
    """Takes notifications down. `held`: requests are taken down but not answered until it is set; `status`: what it answers."""

    def __init__(self):
        self.lock, self.taken, self.held, self.status = threading.Lock(), [], threading.Event(), 200
        self.held.set()
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with sink.lock:
                    sink.taken.append((dict(self.headers), body))
                    status = sink.status
                sink.held.wait(60)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass  # the coordinator was killed meanwhile

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def bodies(self):
        with self.lock:
            return [json.loads(body) for _, body in self.taken]

    def close(self):
        self.held.set()
        self.server.shutdown()
        self.server.server_close()


class Notify(harness.ClusterTest):
    WORKERS = 0

    def setUp(self):
        self.sink = Sink()
        self.addCleanup(self.sink.close)
        super().setUp()

    def configure(self, **settings):
        """Restarts the coordinator with this file of --notify."""
        path = os.path.join(self.cluster.dir, "notify.yaml")
        with open(path, "w") as f:
            json.dump(settings, f)  # JSON is YAML
        self.cluster.coordinator_args = ["--notify", path]
        self.restart(signal.SIGTERM)

    def restart(self, sig):
        self.cluster.coordinator.kill(sig)
        self.cluster.start_coordinator()

    def job_file(self, on, steps=20, **over):
        return harness.tiny_job(self.data, steps, workers=1, notify=[{"on": on, "url": self.sink.url}], **over)

    def cancelled(self, **over):
        """A job that ends at once; there is no worker."""
        job = self.cluster.submit(self.job_file(["cancelled"], **over))
        self.cluster.jobctl("cancel", job)
        return job

    def wait_told(self, jobs):
        harness.wait_until("a notification of each job", lambda: set(jobs) <= {b["job"]["job_id"] for b in self.sink.bodies()})

    def notifications(self, job):
        return self.cluster.job(job).get("notifications", [])

    def wait_delivered(self, job, count=1):
        def delivered():
            states = [n["state"] for n in self.notifications(job)]
            return len(states) == count and set(states) == {"NOTIFICATION_STATE_DELIVERED"}

        harness.wait_until(f"{count} deliveries of {job}", delivered)

    def test_each_once_signed_and_visible(self):
        secret, told = os.path.join(self.cluster.dir, "secret"), os.path.join(self.cluster.dir, "told")
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(SECRET + "\n")
        script = os.path.join(self.cluster.dir, "tell")
        with open(script, "w") as f:
            f.write(f"#!/bin/sh\ncat >> {told}\n")
        os.chmod(script, stat.S_IRWXU)
        self.configure(secret_file=secret, commands={"tell": script}, all_jobs=[{"on": ["succeeded"], "command": "tell"}])
        self.cluster.start_worker("w0")
        job = self.cluster.submit(self.job_file(["succeeded", "paused"], steps=10**6))
        self.cluster.wait_step(job, 3)
        self.cluster.jobctl("pause", job)
        self.cluster.wait_state(job, "PAUSED")
        self.wait_delivered(job)
        steps = int(self.cluster.job(job)["step"]) + 10
        self.cluster.jobctl("resume", job, "--set", f"train.steps={steps}")
        self.cluster.wait_state(job, "SUCCEEDED")
        self.wait_delivered(job, 3)

        bodies = self.sink.bodies()
        self.assertEqual([b["on"] for b in bodies], ["paused", "succeeded"])
        self.assertEqual(bodies[1]["job"]["step"], steps)
        with open(told) as f:
            self.assertEqual(json.load(f)["on"], "succeeded")
        for headers, body in self.sink.taken:
            fields = dict(part.split("=", 1) for part in headers["Hearth-Signature"].split(","))
            mac = hmac.new(SECRET.encode(), fields["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
            self.assertEqual(mac, fields["v1"])
            self.assertEqual(headers["Hearth-Notification"], json.loads(body)["id"])
        described = self.cluster.jobctl("describe", job).stdout
        self.assertIn(f"succeeded to {self.sink.url}: delivered ", described)
        self.assertIn("succeeded to command tell: delivered ", described)
        self.assertIn('hearth_coordinator_notifications_total{outcome="delivered"} 3', self.cluster.get("/metrics"))

    def test_killed_while_delivering_delivers_again(self):
        self.sink.held.clear()
        job = self.cancelled()
        self.wait_told([job])
        self.restart(signal.SIGKILL)
        harness.wait_until("the second attempt", lambda: len(self.sink.bodies()) == 2)
        self.sink.held.set()
        self.wait_delivered(job)
        first, second = self.sink.bodies()
        self.assertEqual(first, second)  # also the id, by which a receiver knows it again

    def test_crashes_lose_none(self):
        jobs = []
        for _ in range(10):
            jobs.append(self.cancelled())
            self.restart(signal.SIGKILL)
        self.wait_told(jobs)

    def test_graceful_restarts_lose_none(self):
        jobs = []
        for _ in range(20):
            jobs.append(self.cancelled())
            self.restart(signal.SIGTERM)
        self.wait_told(jobs)
        for job in jobs:
            self.wait_delivered(job)

    def test_a_receiver_that_fails_is_tried_again(self):
        self.sink.status = 503
        job = self.cancelled()

        def failed_once():
            found = self.notifications(job)
            return found and int(found[0].get("attempts", 0)) == 1

        harness.wait_until("the first failure", failed_once)
        self.assertIn("cancelled to " + self.sink.url + ": pending, 1 attempt failed", self.cluster.jobctl("describe", job).stdout)
        messages = [e["message"] for e in self.cluster.events(job) if e["type"] == "notification"]
        self.assertEqual(len(messages), 1)
        self.assertIn("the receiver answered 503; tried again", messages[0])
        self.assertIn("hearth_coordinator_notifications_pending 1", self.cluster.get("/metrics"))
        self.sink.status = 204
        self.restart(signal.SIGTERM)  # tries at once
        self.wait_delivered(job)

    def test_what_is_not_allowed_is_refused_at_submit(self):
        self.configure(url_prefixes=["https://example.org/"], commands={"mail": "/bin/true"})
        refused = self.cluster.jobctl("submit", "-f", "-", check=False, stdin=json.dumps(self.job_file(["failed"])))
        self.assertIn("notify[0].url: this coordinator sends to no such URL; it must begin with https://example.org/", refused.stderr)
        spec = harness.tiny_job(self.data, notify=[{"on": ["done"], "command": "mial"}])
        refused = self.cluster.jobctl("submit", "-f", "-", check=False, stdin=json.dumps(spec))
        self.assertIn('notify[0].on[0]: "done" is not an event; did you mean succeeded?', refused.stderr)
        spec["notify"][0]["on"] = ["failed"]
        refused = self.cluster.jobctl("submit", "-f", "-", check=False, stdin=json.dumps(spec))
        self.assertIn('notify[0].command: "mial" is not a command; did you mean mail?', refused.stderr)

    def test_a_file_with_mistakes_stops_the_start(self):
        path = os.path.join(self.cluster.dir, "notify.yaml")
        with open(path, "w") as f:
            f.write("comands: {}\n")
        daemon = harness.Daemon([harness.program("hearth-coordinator"), "--data-dir", self.cluster.dir + "/other", "--notify", path],
                                self.cluster.dir + "/other.log")
        self.assertEqual(daemon.process.wait(harness.patience(60)), 2)
        self.assertIn("notify.yaml:1: comands: unknown key; did you mean commands?", daemon.output())


class StartLater(harness.ClusterTest):
    WORKERS = 1

    def tiny(self, **over):
        return harness.tiny_job(self.data, 10, workers=1, **over)

    def test_at(self):
        at = datetime.datetime.now().replace(microsecond=0) + datetime.timedelta(seconds=4)
        job = self.cluster.submit(self.tiny(), "--at", at.strftime("%Y-%m-%d %H:%M:%S"))

        def waits():
            return self.cluster.job(job)["reasonCode"] == "start_time" or self.cluster.job(job)["state"] != "JOB_STATE_QUEUED"

        harness.wait_until("what the job waits for", waits)
        started = self.cluster.wait_state(job, "SUCCEEDED")["startTime"]
        self.assertGreaterEqual(datetime.datetime.fromisoformat(started[:19] + "+00:00").timestamp(), at.timestamp())
        self.assertIn("its start time has come", self.cluster.jobctl("events", job).stdout)

    def test_after(self):
        first = self.cluster.submit(self.tiny(start={"not_before": "2199-01-01T00:00:00Z"}))
        second = self.cluster.submit(self.tiny(), "--after", "job/" + first)
        third = self.cluster.submit(self.tiny(), "--after", second)
        harness.wait_until("what the job waits for", lambda: self.cluster.job(second)["reasonCode"] == "after_job")
        self.assertIn(f"waits for job {first} to succeed (start.after)", self.cluster.jobctl("describe", second).stdout)
        self.cluster.jobctl("pause", first)
        self.assertRegex(self.cluster.jobctl("describe", first).stdout, r"\nStarts: +not before 219[89]-")
        self.assertRegex(self.cluster.jobctl("describe", second).stdout, rf"\nStarts: +when job {first} has succeeded\n")
        self.cluster.jobctl("resume", first, "--set", "start=null")
        self.cluster.wait_state(third, "SUCCEEDED")
        ends = [self.cluster.job(job)["endTime"] for job in (first, second, third)]
        self.assertEqual(ends, sorted(ends))

    def test_after_a_job_that_is_cancelled(self):
        first = self.cluster.submit(self.tiny(start={"not_before": "2199-01-01T00:00:00Z"}))
        second = self.cluster.submit(self.tiny(), "--after", first)
        self.cluster.jobctl("cancel", first)
        harness.wait_until("the end of the other", lambda: self.cluster.job(second)["state"] == "JOB_STATE_CANCELLED")
        self.assertIn(f"job {first}, whose success it waited for (start.after), is cancelled", self.cluster.job(second)["reason"])
        refused = self.cluster.jobctl("submit", "-f", "-", "--after", first, check=False, stdin=json.dumps(self.tiny()))
        self.assertIn(f"start.after: job {first} is cancelled", refused.stderr)
        rerun = self.cluster.jobctl("rerun", second, "-o", "name").stdout.strip().removeprefix("job/")
        last = self.cluster.jobctl("rerun", first, second, "--after", rerun, "--at", "+1s", "-o", "name").stdout.split()
        self.assertEqual(len(last), 2)
        for job in [rerun, *(name.removeprefix("job/") for name in last)]:
            self.cluster.wait_state(job, "SUCCEEDED")
        self.assertEqual(self.cluster.job(last[0].removeprefix("job/"))["spec"]["start"]["after"], rerun)

    def test_a_note(self):
        job = self.cluster.submit(self.tiny())
        self.cluster.wait_state(job, "SUCCEEDED")
        self.cluster.jobctl("note", job, "the", "best so far")
        for shown in (["describe", job], ["events", job], ["report", job, "-o", "md"]):
            self.assertIn("the best so far", self.cluster.jobctl(*shown).stdout, shown)


if __name__ == "__main__":
    harness.main()
