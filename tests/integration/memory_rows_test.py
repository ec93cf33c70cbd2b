#!/usr/bin/python3
"""kill -9 in mid-run loses nothing, whatever a job keeps its weights, gradients and state in: for each row of a table the final weights
and state equal those of a job that nobody disturbed, bit for bit, and so does each loss."""

import glob
import os
import signal

import harness

STEPS = 24
EVERY = 6

# Fields beyond those of base(), by row. Jobs with `workers: 2` divide something.
ROWS = {
    "adamw, bf16 state": {"optimizer": {"state": "bf16"}},
    "adamw, int8 state": {"optimizer": {"state": "int8"}},
    "adamw, int4 state": {"optimizer": {"state": "int4"}},
    "adamw, no masters": {"optimizer": {"master": "none"}},
    "muon": {"optimizer": {"name": "muon"}},
    "muon, int8 state, no masters": {"optimizer": {"name": "muon", "state": "int8", "master": "none"}},
    "muon, int4 state": {"optimizer": {"name": "muon", "state": "int4"}},
    "weights int8": {"weights": {"store": "int8"}},
    "weights q4_0": {"weights": {"store": "q4_0"}},
    "weights nvfp4": {"weights": {"store": "nvfp4"}},
    "fused": {"optimizer": {"fused": True}},
    "gradients fp8": {"gradients": {"store": "fp8"}},
    "weights q4_0, gradients fp8, muon int8": {"weights": {"store": "q4_0"}, "gradients": {"store": "fp8"},
                                               "optimizer": {"name": "muon", "state": "int8"}},
    "tier 1": {"memory_tier": 1},
    "tier 2": {"memory_tier": 2},
    "tier 3": {"memory_tier": 3},
    "shard gradients, fp8 exchange": {"workers": 2, "parallel": {"shard": "gradients"}, "gradients": {"reduce_dtype": "fp8"}},
    "shard weights, fused, int8 state": {"workers": 2, "parallel": {"shard": "weights"}, "optimizer": {"fused": True, "state": "int8"}},
}


def base(data, name, row):
    """One micro-batch of each worker in a step, and matrices that every format takes: rows of whole blocks, 4096 elements or more."""
    over = {**row}
    workers = over.pop("workers", 1)
    over["optimizer"] = {"lr": 0.003, **over.get("optimizer", {})}
    return harness.tiny_job(data, STEPS, name=name, workers=workers, model={"hidden": 64, "ffn_hidden": 128},
                            batch={"micro_batch_size": 2, "global_batch_tokens": 64 * workers}, precision={"recipe": "bf16"},
                            checkpoint={"every_steps": EVERY}, **over)


def batches(rows, workers):
    """The names, in groups that `workers` workers run at the same time."""
    group, free = [], workers
    for name, row in rows.items():
        needed = row.get("workers", 1)
        if needed > free:
            yield group
            group, free = [], workers
        group.append(name)
        free -= needed
    yield group


class MemoryRows(harness.ClusterTest):
    WORKERS = 4
    SHARED_ROOT = True  # parts of a divided checkpoint
    # All jobs of a group stop at the first gate until a checkpoint of each is on disk, and at the second one to be killed.
    GATES = {"written": "trainer.step@12", "killed": "trainer.after_step@19"}
    FAULTS = "trainer.before_allreduce=delay:5ms"  # so that the checkpoint is most often recorded between the gates

    def finish(self, job):
        """Waits for success; returns (checksums of all tensors by file, losses)."""
        self.cluster.wait_state(job, "SUCCEEDED")
        rows = self.assert_every_step_once(job, STEPS)
        checkpoint = self.cluster.final_checkpoint(job)
        self.assertEqual(int(checkpoint["step"]), STEPS)
        files = glob.glob(os.path.join(checkpoint["path"], "**", "*.safetensors"), recursive=True)
        self.assertGreaterEqual(len(files), 2, "the model and the state")
        return {os.path.relpath(f, checkpoint["path"]): harness.sha256(f) for f in files}, [r["loss"] for r in rows]

    def killed(self, names):
        """Jobs of these rows, killed behind a checkpoint and going on; returns {row: (job, step it goes on from)}."""
        c = self.cluster
        self.hold("written")
        self.hold("killed")
        jobs = {name: c.submit(base(self.data, "killed", ROWS[name])) for name in names}
        for job in jobs.values():
            harness.wait_until(f"a checkpoint of {job} on disk", lambda job=job: glob.glob(
                os.path.join(c.dir, "checkpoints", job, "e*", f"step-{EVERY:08d}", "MANIFEST.json")))
        self.release("written")
        for job in jobs.values():
            c.wait_step(job, 15)
        begun = {name: (job, c.recorded_step(job)) for name, job in jobs.items()}
        pids = [pid for worker in c.workers for pid in c.trainer_pids(worker)]
        self.assertEqual(len(pids), sum(ROWS[name].get("workers", 1) for name in names))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.release("killed")
        return begun

    def test_kill_9_of_all_trainers(self):
        resumed = 0
        for names in batches(ROWS, self.WORKERS):
            killed = self.killed(names)
            undisturbed = {name: self.cluster.submit(base(self.data, "undisturbed", ROWS[name])) for name in names}
            for name in names:
                with self.subTest(name):
                    job, step = killed[name]
                    resumed += step > 0
                    found = self.finish(job)
                    self.assertEqual(int(self.cluster.job(job)["epoch"]), 2)
                    wanted = self.finish(undisturbed[name])
                    self.assertEqual(int(self.cluster.job(undisturbed[name])["epoch"]), 1)
                    self.assertEqual(found[1], wanted[1])
                    self.assertEqual(found[0], wanted[0])
        # A disk may be too slow for one; then its job begins again.
        self.assertGreater(resumed, len(ROWS) // 2, "hardly any job went on from a checkpoint")


if __name__ == "__main__":
    harness.main()
