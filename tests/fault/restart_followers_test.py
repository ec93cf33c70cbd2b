#!/usr/bin/python3
"""The coordinator is stopped in order and restarted 20 times while four commands follow a job: each continues, says so,
and shows every step and every line of the log exactly once."""

import csv
import os
import re
import signal
import subprocess

import peers  # noqa: F401  (finds the harness)
import harness

RESTARTS = 20


class Follower:
    """A command in the background; its output in files that can be read meanwhile."""

    def __init__(self, cluster, name, *args):
        self.name = name
        self.paths = [os.path.join(cluster.dir, f"{name}.{kind}") for kind in ("out", "err")]
        out, err = (open(path, "wb") for path in self.paths)
        self.process = subprocess.Popen([harness.program("jobctl"), "--coordinator", cluster.address, *args], stdout=out, stderr=err,
                                        stdin=subprocess.DEVNULL, env=cluster.env)
        out.close()
        err.close()

    def read(self, which):
        with open(self.paths[which]) as f:
            return f.read()

    def out(self):
        return self.read(0)

    def err(self):
        return self.read(1)


class RestartFollowers(harness.ClusterTest):
    WORKERS = 1

    def setUp(self):
        os.environ["HEARTH_FAULTS"] = "trainer.step=delay:20ms"
        self.addCleanup(os.environ.pop, "HEARTH_FAULTS")
        super().setUp()

    def followers(self, job):
        made = [Follower(self.cluster, "watch", "watch", job), Follower(self.cluster, "wait", "wait", job),
                Follower(self.cluster, "logs", "logs", "-f", job),
                Follower(self.cluster, "metrics", "metrics", "-f", "-o", "csv", job)]
        for follower in made:
            self.addCleanup(lambda process=follower.process: (process.poll() is None and process.kill(), process.wait()))
        return made

    def restart(self):
        self.cluster.coordinator.kill(signal.SIGTERM)
        self.assertEqual(self.cluster.coordinator.process.returncode, 0, self.cluster.logs())
        self.cluster.start_coordinator()

    def test_every_follower_goes_on(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 20000, workers=1, checkpoint={"every_steps": 5}))
        self.cluster.wait_step(job, 6)
        followers = self.followers(job)
        watch, wait, logs, metrics = followers
        harness.wait_until("the first numbers", lambda: logs.out() and metrics.out().count("\n") > 2 and watch.out())
        for restart in range(1, RESTARTS + 1):
            self.restart()
            for follower in followers:
                def back():
                    self.assertIsNone(follower.process.poll(), f"{follower.name} ended at restart {restart}: {follower.err()}")
                    return follower.err().count("connected again") >= restart

                harness.wait_until(f"{follower.name} after restart {restart}", back, 60)
        self.cluster.jobctl("cancel", job)
        last = int(self.cluster.wait_state(job, "CANCELLED")["step"])
        codes = {follower.name: follower.process.wait(harness.patience(60)) for follower in followers}
        self.assertEqual(codes, {"watch": 0, "wait": 103, "logs": 0, "metrics": 0}, [f.err() for f in followers])

        rows = list(csv.DictReader(metrics.out().splitlines()))
        self.assertEqual([int(row["step"]) for row in rows], list(range(1, last + 1)))
        self.assertEqual(logs.out(), self.cluster.jobctl("logs", job).stdout)
        drawn = [int(step) for step in re.findall(r"^step (\d+)/", watch.out(), re.M)]
        self.assertEqual(drawn, sorted(set(drawn)))
        self.assertEqual(drawn[-1], last)
        self.assertIn(f"CANCELLED at step {last}", watch.out())
        self.assertIn(f"job/{job} CANCELLED", wait.err())
        for follower in followers:
            self.assertRegex(follower.err(), r"(?m)^reconnecting, \d+ s: ")
            self.assertNotIn("error", follower.err())


if __name__ == "__main__":
    harness.main()
