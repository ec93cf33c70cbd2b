#!/usr/bin/python3
"""Two network namespaces as two hosts, joined by a virtual cable: a job over both, a pulled cable, and growth when it is back. Needs
root (namespaces, host names); skipped with the reason where that is not permitted."""

import os
import subprocess
import unittest

import harness

COORDINATOR_ADDRESS, OTHER_ADDRESS = "10.77.31.1", "10.77.31.2"
NAMES = tuple(f"hearth-{os.getpid()}-{host}" for host in "ab")
CABLES = tuple(f"hth{os.getpid() % 1000000}{host}" for host in "ab")  # at most 15 characters


def sh(*argv, check=True):
    run = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    if check and run.returncode != 0:
        raise OSError(f"{' '.join(argv)}: {run.stderr.strip() or run.stdout.strip()}")
    return run


def take_down():
    for name in NAMES:
        sh("ip", "netns", "del", name, check=False)
    sh("ip", "link", "del", CABLES[0], check=False)


def set_up():
    for name in NAMES:
        sh("ip", "netns", "add", name)
    sh("ip", "link", "add", CABLES[0], "type", "veth", "peer", "name", CABLES[1])
    for name, cable, address in zip(NAMES, CABLES, (COORDINATOR_ADDRESS, OTHER_ADDRESS)):
        sh("ip", "link", "set", cable, "netns", name)
        sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", cable)
        sh("ip", "-n", name, "link", "set", cable, "up")
        sh("ip", "-n", name, "link", "set", "lo", "up")
    sh("ip", "netns", "exec", NAMES[1], "unshare", "--uts", "hostname", "probe")


class TwoHostsTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(take_down)
        try:
            set_up()
        except OSError as error:
            self.skipTest(f"network namespaces are not permitted here: {error}")
        self.cluster = c = harness.Cluster(["--insecure", "--reattach-grace-seconds", "1", "--resize-interval-seconds", "1",
                                       "--resize-settle-seconds", "0.2"])
        self.addCleanup(c.close)
        self.data = os.path.join(c.dir, "tokens.bin")
        harness.write_tokens(self.data)
        c.prefix = self.on(0)
        c.address = f"{COORDINATOR_ADDRESS}:0"
        c.start_coordinator()
        c.client_args = ["--insecure", "--token-file", harness.token_file(c.address)]
        c.worker_args = ["--insecure", "--token-file", harness.token_file(c.address, worker=True)]
        for host, address, workers in ((0, COORDINATOR_ADDRESS, ("a0", "a1")), (1, OTHER_ADDRESS, ("b0",))):
            for name in workers:
                c.prefix = self.on(host)
                c.start_worker(name, "--advertise", address)
        c.prefix = self.on(0)
        for name in c.workers:
            c.wait_worker(name)

    @staticmethod
    def on(host):
        """Runs a program on that host, which has a name of its own; the process is the program itself."""
        return ["ip", "netns", "exec", NAMES[host], "unshare", "--uts", "sh", "-c", f'hostname node-{"ab"[host]} && exec "$@"', "sh"]

    def test_job_spans_hosts_and_survives_a_pulled_cable(self):
        c = self.cluster
        job = c.submit(harness.tiny_job(self.data, 10**6, checkpoint={"every_steps": 100, "keep_last": 2},
                                        batch={"global_batch_tokens": 384},
                                        resources={"workers": 3, "min_workers": 2, "max_restarts": 0}))
        c.wait_step(job, 150)
        self.assertEqual(c.job(job)["workers"], ["a0", "a1", "b0"])
        self.assertEqual([w["host"] for w in c.list_workers()], ["node-a", "node-a", "node-b"])
        old = c.trainer_pids("b0")
        self.assertEqual(len(old), 1)

        sh("ip", "-n", NAMES[1], "link", "set", CABLES[1], "down")
        harness.wait_until("the job on one host", lambda: c.job(job)["workers"] == ["a0", "a1"] and
                           c.job(job)["state"] == "JOB_STATE_RUNNING", 40)
        event = [e for e in c.events(job) if e["type"] == "recovery"][-1]["message"]
        print(event, flush=True)
        self.assertIn("lost rank 2 on b0 (worker b0 is silent", event)
        self.assertEqual(c.trainer_pids("b0"), old, "out of reach, it waits for its peers")

        sh("ip", "-n", NAMES[1], "link", "set", CABLES[1], "up")
        grown = harness.wait_until("the job on both hosts", lambda: (lambda j: j if len(j["workers"]) == 3 and
                                   j["state"] == "JOB_STATE_RUNNING" else None)(c.job(job)), 60)
        self.assertEqual(grown["workers"], ["a0", "a1", "b0"])
        self.assertEqual(grown["runInfo"]["globalBatchTokens"], "384")
        self.assertNotEqual(c.trainer_pids("b0"), old, "the stale rank was fenced")
        self.assertFalse(os.path.exists(f"/proc/{old[0]}"))
        c.jobctl("cancel", job, "--now")
        c.wait_state(job, "CANCELLED")
        self.assert_no_step_twice(job)

    def assert_no_step_twice(self, job):
        steps = [int(row["step"]) for row in self.cluster.metrics(job)]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))


if __name__ == "__main__":
    harness.main()
