#!/usr/bin/python3
"""A rank whose own work takes longer than that of the others is named: by an event, in describe and doctor, as a metric; not the ranks
that wait for it."""

import peers  # noqa: F401  (finds the harness)
import harness

# Far more than what a busy machine adds to a step of some milliseconds.
DELAY_MS = 150


class Straggler(harness.ClusterTest):
    WORKERS = 0

    def test_slow_rank_is_named_and_no_other(self):
        for name in ("w0", "w1", "slow"):
            if name == "slow":
                self.cluster.env["HEARTH_FAULTS"] = f"trainer.step=delay:{DELAY_MS}ms@1+"
            self.cluster.start_worker(name)
            self.cluster.wait_worker(name)
        job = self.cluster.submit(harness.tiny_job(self.data, 100000, workers=3, batch={"global_batch_tokens": 192}))
        named = harness.wait_until("the event", lambda: [e for e in self.cluster.events(job) if e["type"] == "straggler"], 120)
        rank = self.cluster.job(job)["workers"].index("slow")
        self.assertRegex(named[0]["message"], rf"^rank {rank} on slow is [\d.]+ x slower than the median of the others$")
        print(named[0]["message"])
        self.assertEqual([(s.get("rank", 0), s["workerId"]) for s in self.cluster.job(job)["stragglers"]], [(rank, "slow")])
        self.assertRegex(self.cluster.jobctl("describe", job).stdout, rf"Straggler:\s+rank {rank} on slow is ")
        self.assertIn(f"rank {rank} on slow is", self.cluster.jobctl("doctor", job, check=False).stdout)
        scrape = self.cluster.get("/metrics")
        self.assertRegex(scrape, rf'hearth_job_straggler_ratio\{{job_id="{job}",rank="{rank}",worker_id="slow"\}} ')
        self.assertEqual(scrape.count("hearth_job_straggler_ratio{"), 1)
        own = {}
        for worker in self.cluster.list_workers():
            for line in self.cluster.get("/metrics", worker["httpAddress"]).splitlines():
                if line.startswith("hearth_worker_job_compute_seconds{"):
                    own[worker["workerId"]] = float(line.split()[-1])
        print({name: round(1000 * seconds, 1) for name, seconds in own.items()}, "ms")
        self.assertEqual(set(own), {"w0", "w1", "slow"})
        self.assertGreaterEqual(own["slow"], DELAY_MS / 1000)
        self.assertLess(max(own["w0"], own["w1"]), own["slow"])
        self.cluster.jobctl("cancel", job)
        self.cluster.wait_state(job, "CANCELLED")
        self.assertEqual(self.cluster.job(job)["stragglers"], [])


if __name__ == "__main__":
    harness.main()
