#!/usr/bin/python3
"""Strangers at the ranks' rendezvous: a client that connects to a trainer's port and sends wrong bytes, or nothing, does no harm."""

import os
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import harness  # noqa: E402

LISTENING = "0A"


def listening_ports():
    """Ports on which somebody of this machine listens, and the socket's inode."""
    found = set()
    with open("/proc/net/tcp") as f:
        for line in f.readlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING:
                found.add((int(fields[1].rsplit(":", 1)[1], 16), fields[9]))
    return found


class Scanner(threading.Thread):
    """Connects to each port that is new, sends 64 random bytes or nothing, and holds the connection."""

    def __init__(self):
        super().__init__(daemon=True)
        self.known = listening_ports()
        self.stopping = threading.Event()
        self.held = []
        self.start()

    def run(self):
        while not self.stopping.wait(0.0005):
            for port, inode in listening_ports() - self.known:
                self.known.add((port, inode))
                for said in (os.urandom(64), b""):
                    try:
                        connection = socket.create_connection(("127.0.0.1", port), timeout=1)
                        connection.sendall(said)
                        self.held.append(connection)
                    except OSError:
                        pass  # it is gone already

    def stop(self):
        self.stopping.set()
        self.join()
        for connection in self.held:
            connection.close()


class StrangerTest(harness.ClusterTest):
    WORKERS = 2
    ROUNDS = 6

    def setUp(self):
        super().setUp()
        # One rank comes later than the others, whose ports are open meanwhile.
        self.cluster.env["HEARTH_FAULTS"] = "trainer.before_rendezvous=delay:300ms"
        self.cluster.start_worker("late")
        self.cluster.wait_worker("late")

    def test_gangs_form_with_strangers_on_every_port(self):
        scanner = Scanner()
        self.addCleanup(scanner.stop)
        turned_away = 0
        for _ in range(self.ROUNDS):
            before = len(scanner.held)
            began = time.monotonic()
            job_id = self.cluster.submit(harness.tiny_job(self.data, 20, workers=3))
            job = self.cluster.wait_state(job_id, "SUCCEEDED", timeout=60)
            log = self.cluster.job_log(job_id)
            turned_away += log.count("turned a stranger away")
            print(f"{job_id}: {time.monotonic() - began:.1f} s, {len(scanner.held) - before} connections of strangers", flush=True)
            self.assertEqual((job["epoch"], job.get("restarts", 0)), ("1", 0), log)
            self.assertGreater(len(scanner.held), before, "the scanner found the ports")
        self.assertGreater(turned_away, 0, "and the log says so")


class SlowStartTest(unittest.TestCase):
    def test_gang_of_which_one_rank_never_comes_is_started_again_with_the_reason(self):
        cluster = harness.Cluster(["--loading-seconds", "3", "--rendezvous-seconds", "5"])
        self.addCleanup(cluster.close)
        data = os.path.join(cluster.dir, "tokens.bin")
        harness.write_tokens(data)
        cluster.start_coordinator()
        cluster.start_worker("w0")
        # Its first trainer loads for ever.
        cluster.env["HEARTH_FAULTS"] = "trainer.before_rendezvous=delay:600s"
        cluster.start_worker("w1")
        for name in ("w0", "w1"):
            cluster.wait_worker(name)
        job_id = cluster.submit(harness.tiny_job(data, 20, workers=2, resources={"workers": 2, "max_restarts": 1}))
        events = harness.wait_until("the next epoch", lambda: [
            e for e in cluster.events(job_id) if e.get("reasonCode") == "gang_not_formed"], 60)
        self.assertRegex(events[0]["message"], r"the gang did not form: rank \d on w1 has (been loading for 3s|not said)")
        self.assertIn("did not form", cluster.jobctl("describe", job_id).stdout)
        harness.wait_until("another epoch", lambda: int(cluster.job(job_id)["epoch"]) >= 2, 60)


if __name__ == "__main__":
    harness.main()
