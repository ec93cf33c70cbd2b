#!/usr/bin/python3
"""A worker never answers the coordinator's questions about paths: a job that cannot fit in any case is still refused, others are
accepted with a warning."""

import json
import tempfile

import peers
import harness

# About 1.7 PiB of weights, masters, gradients and optimizer state.
HUGE = {"layers": 1024, "hidden": 65536, "heads": 512, "kv_heads": 512, "ffn_hidden": 262144}


class UncheckedJob(harness.ClusterTest):
    WORKERS = 0

    def submit(self, **over):
        spec = harness.tiny_job(self.data, 10, workers=1, **over)
        del spec["model"]["vocab"]
        return self.cluster.jobctl("submit", "-f", "-", stdin=json.dumps(spec), check=False)

    def check(self, why, largest):
        run = self.submit()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn(f"warning: paths not checked: {why}", run.stderr)
        run = self.submit(model=HUGE)
        self.assertEqual((run.returncode, run.stdout), (1, ""), run.stderr)
        self.assertRegex(run.stderr, rf"batch.micro_batch_size 2 needs \S+ [TP]iB a worker, the largest {largest}")

    def test_refused_where_it_can_be_known(self):
        self.check("no worker with device cpu is online", "host known has")
        peer = peers.RoguePeer(self.cluster.address)
        self.addCleanup(peer.close)
        peer.send(hello=peers.hello("mute"))
        harness.wait_until("a welcome", lambda: peer.of_kind("welcome"))
        peer.keep_alive()
        self.check("the worker that was asked about the paths did not answer", r"worker that the job may run on \(mute\)")

    def test_a_path_beyond_the_data_roots_gets_one_answer(self):
        outside = tempfile.NamedTemporaryFile(suffix=".bin")
        self.addCleanup(outside.close)
        self.cluster.start_worker("bounded", "--data-root", self.cluster.dir)
        self.cluster.wait_worker("bounded")
        said = set()
        for path in (outside.name, outside.name + "-absent", "/etc/passwd"):
            run = self.cluster.jobctl("submit", "-f", "-", "--dry-run", "server", check=False,
                                      stdin=json.dumps(harness.tiny_job(path, 10, workers=1)))
            self.assertEqual(run.returncode, 1, run.stdout)
            said.add(run.stderr.replace(path, "PATH"))
        self.assertEqual(len(said), 1, said)
        self.assertIn("--data-root", said.pop())
        self.assertEqual(self.cluster.jobctl("submit", "-f", "-", "--dry-run", "server",
                                             stdin=json.dumps(harness.tiny_job(self.data, 10, workers=1))).returncode, 0)


if __name__ == "__main__":
    harness.main()
