#!/usr/bin/python3
"""A trainer floods its log, and a worker ignores the limit: users are still served, and lost lines are counted."""

import os
import time

import peers
import harness
from peers import agent_pb2
from hearth.v1 import job_pb2

import rogue_peer_test

MIB = 200
# Becomes the trainer, after it has left a child that floods the standard error they share.
WRAPPER = """#!/usr/bin/python3
import os, sys
if os.fork() == 0:
    os.closerange(3, 256)
    block = (b"noise " * 170 + b"\\n") * 64
    for _ in range({blocks}):
        os.write(2, block)
    os.write(2, b"the last of the noise\\n")
    os._exit(0)
os.execv({trainer!r}, [{trainer!r}, *sys.argv[1:]])
"""


def counter(text, name):
    return sum(float(l.split()[-1]) for l in text.splitlines() if l.startswith(name + " ") or l.startswith(name + "{"))


class LogFloodTest(harness.ClusterTest):
    WORKERS = 0

    def assert_served(self, seconds):
        """Users' calls meanwhile, the slowest of them."""
        jobs = peers.jobs(self.cluster.address)
        end, slowest = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            begin = time.monotonic()
            jobs.UpdateJob(job_pb2.UpdateJobRequest(job_id=self.job_id, labels={"beat": "x"}))
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.05)
        return slowest

    def test_a_trainer_that_floods_its_log_loses_the_middle_of_it(self):
        wrapper = os.path.join(self.cluster.dir, "trainer")
        with open(wrapper, "w") as f:
            f.write(WRAPPER.format(blocks=MIB * 1024 // 64, trainer=harness.program("hearth-trainer")))
        os.chmod(wrapper, 0o755)
        self.cluster.start_worker("w0", "--trainer", wrapper)
        self.cluster.wait_worker("w0")
        self.job_id = self.cluster.submit(harness.tiny_job(self.data, steps=10**6, workers=1))
        self.cluster.wait_step(self.job_id, 1)
        slowest = self.assert_served(5)
        harness.wait_until("the last line", lambda: "the last of the noise" in self.cluster.job_log(self.job_id), 60)
        log = self.cluster.jobctl("logs", self.job_id)
        self.assertLess(len(log.stdout), 40 << 20)
        self.assertIn("lines dropped", log.stderr)
        lost = counter(self.cluster.get("/metrics", self.cluster.list_workers()[0]["httpAddress"]),
                       "hearth_worker_log_dropped_bytes_total")
        self.assertGreater(lost, MIB / 2 * 2**20)
        self.assertGreater(counter(self.cluster.get("/metrics"), "hearth_log_lines_dropped_total"), 1000)
        print(f"slowest of a user's calls: {slowest:.3f} s")
        self.assertLess(slowest, 5)
        self.cluster.jobctl("cancel", self.job_id, "--now")

    def test_a_worker_that_sends_too_much_loses_its_lines_and_no_other(self):
        rogue = rogue_peer_test.Rank(self.cluster, "flood")
        self.addCleanup(rogue.close)
        self.job_id = self.cluster.submit(rogue_peer_test.spec("flood"), "--job-id", "flood")
        rogue.take()
        rogue.step(1)
        lines = [job_pb2.LogLine(text="x" * 4000) for _ in range(64)]
        for _ in range(800):  # 200 MiB
            rogue.report(logs=agent_pb2.LogBatch(lines=lines))
        rogue.step(2)
        slowest = self.assert_served(3)
        self.cluster.wait_step("flood", 2)
        metrics = self.cluster.get("/metrics")
        self.assertGreater(counter(metrics, "hearth_log_lines_dropped_total"), 10000)
        self.assertLess(slowest, 5)
        self.assertIn("dropped", self.cluster.jobctl("logs", "flood", "--tail", "5").stderr + self.cluster.jobctl("logs", "flood").stderr)


if __name__ == "__main__":
    harness.main()
