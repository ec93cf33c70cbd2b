#!/usr/bin/python3
"""Daemons and trainers that die or fail at a fault point, one point after the other. Whatever the point: the job ends in the weights and
losses of one that nobody disturbed, each step is once in its history, a job whose trainers live is not restarted, and no trainer and no
half-written checkpoint is left."""

import dataclasses
import json
import os
import signal

import peers  # noqa: F401  (finds the harness)
import harness

STEPS = 20
FAULTY = "w0"  # the worker that has the faults


@dataclasses.dataclass(frozen=True)
class Row:
    point: str
    action: str
    says: str = ""  # "": its program dies; else what its log or an event of the job has to say
    cancelled: bool = False  # the point is reached when a job is cancelled
    epochs: int = 2  # how often the job has to start, at least


WORKER = (
    Row("agent.before_connect", "crash"),
    Row("agent.before_hello", "crash"),
    Row("agent.send", "crash@4"),
    Row("agent.send", "error@4", says="injected fault at agent.send"),
    Row("agent.receive", "crash@3"),
    Row("agent.receive", "error@3", says="injected fault at agent.receive"),
    Row("agent.before_spawn", "crash"),
    Row("agent.spawn", "error@1", says="injected fault at agent.spawn"),
    Row("agent.after_spawn", "crash"),
    Row("agent.trainer_send", "crash@2"),
    Row("agent.trainer_receive", "crash@4"),
    Row("agent.before_kill", "crash", cancelled=True),
    Row("agent.after_reap", "crash"),
)
TRAINER = (
    Row("trainer.send", "crash@6", says="trainer ended, status -9"),
    Row("trainer.send", "error@6", says="trainer ended"),
    Row("trainer.receive", "crash@1", says="trainer ended, status -9"),
    Row("trainer.receive", "error@1", says="trainer ended"),
    Row("trainer.before_exit", "crash", says="trainer ended, status -9", epochs=1),  # it had said that all went well
)
COORDINATOR = (
    Row("coordinator.before_serve", "crash"),
    Row("coordinator.before_serve", "error", says="injected fault at coordinator.before_serve"),
    Row("coordinator.apply", "crash@9"),
    Row("coordinator.receive", "crash@7"),
    Row("coordinator.receive", "error@7", says="injected fault at coordinator.receive"),
    Row("coordinator.send", "crash@5"),
    Row("coordinator.send", "error@5", says="injected fault at coordinator.send"),
    Row("coordinator.before_ack", "crash@3"),
)


class FaultPoints(harness.ClusterTest):
    GATES = {"step": "trainer.step@8"}

    def spec(self, name):
        return harness.tiny_job(self.data, STEPS, name=name.replace(".", "-").replace("_", "-"), checkpoint={"every_steps": 5})

    def outcome(self, job):
        self.cluster.wait_state(job, "SUCCEEDED")
        losses = [row["loss"] for row in self.assert_every_step_once(job, STEPS)]
        checkpoint = self.cluster.final_checkpoint(job)
        folder = os.path.dirname(checkpoint["path"])
        self.assertEqual([name for name in os.listdir(folder) if ".tmp" in name], [])
        for worker in self.cluster.workers:
            harness.wait_until(f"{worker} without trainers", lambda w=worker: not self.cluster.trainer_pids(w))
        return harness.weights_sha256(checkpoint), losses

    def each(self, rows, act):
        """`act` provokes the fault of a row and mends it; its job must end as one that nothing disturbed."""
        undisturbed = self.outcome(self.cluster.submit(self.spec("undisturbed")))
        for row in rows:
            with self.subTest(point=row.point, action=row.action):
                self.assertEqual(self.outcome(act(row)), undisturbed)

    def restart_worker(self, faults="", wait=True):
        """w0 again, with or without faults of its own; its trainers stop at the gate as before."""
        self.cluster.workers[FAULTY].kill()
        self.cluster.envs[FAULTY] = {"HEARTH_FAULTS": ",".join(filter(None, (self.cluster.env["HEARTH_FAULTS"], faults)))}
        os.unlink(self.cluster.workers[FAULTY].log_path)
        self.cluster.start_worker(FAULTY)
        if wait:
            self.cluster.wait_worker(FAULTY)

    def killed(self, daemon):
        harness.wait_until("its end", lambda: not daemon.alive())
        self.assertEqual(daemon.process.returncode, -signal.SIGKILL, daemon.output())

    def said(self, job, text):
        events = [e.get("reason", "") + e.get("message", "") for e in self.cluster.events(job)] if job else []
        return any(text in said for said in (*events, *(d.output() for d in (*self.cluster.workers.values(), self.cluster.coordinator))))

    def test_worker(self):
        def act(row):
            self.restart_worker(f"{row.point}={row.action}", wait=False)
            if row.cancelled:
                self.hold()
            job = self.cluster.submit(self.spec(row.point))
            if row.cancelled:
                self.cluster.wait_step(job, 7)
                self.cluster.jobctl("cancel", job, "--now")
            if row.says:
                harness.wait_until(row.says, lambda: self.said(job, row.says))
                return job
            self.killed(self.cluster.workers[FAULTY])
            self.restart_worker()
            if row.cancelled:
                self.release()
                self.cluster.wait_state(job, "CANCELLED")
                self.cluster.jobctl("resume", job)
            return job

        self.each(WORKER, act)

    def test_trainer(self):
        def act(row):
            self.restart_worker(f"{row.point}={row.action}")
            job = self.cluster.submit(self.spec(row.point))
            harness.wait_until(row.says, lambda: row.says in self.cluster.workers[FAULTY].output())
            if row.action.startswith("error"):
                named = f"injected fault at {row.point}"
                harness.wait_until(named, lambda: named in self.cluster.jobctl("logs", job).stdout)
            harness.wait_until("the next start", lambda: int(self.cluster.job(job)["epoch"]) >= row.epochs)
            self.restart_worker()
            if row.epochs == 1:
                self.assertEqual(int(self.cluster.wait_state(job, "SUCCEEDED")["epoch"]), 1)
            return job

        self.each(TRAINER, act)

    def test_coordinator(self):
        def act(row):
            self.hold()
            job = self.cluster.submit(self.spec(row.point))
            self.cluster.wait_step(job, 7)
            self.cluster.coordinator.kill()
            self.cluster.envs["coordinator"] = {"HEARTH_FAULTS": f"{row.point}={row.action}"}
            try:
                self.cluster.start_coordinator()
            except AssertionError:
                self.assertFalse(self.cluster.coordinator.alive())
            del self.cluster.envs["coordinator"]
            self.release()
            if row.says:
                harness.wait_until(row.says, lambda: self.said(None, row.says))
            else:
                self.killed(self.cluster.coordinator)
            if not self.cluster.coordinator.alive():
                self.cluster.start_coordinator()
            self.cluster.wait_state(job, "SUCCEEDED")
            self.assertEqual(int(self.cluster.job(job)["epoch"]), 1, "a healthy job was restarted")
            return job

        self.each(COORDINATOR, act)

    def jobctl(self, faults, *args, **how):
        self.cluster.env["HEARTH_FAULTS"] = faults
        try:
            return self.cluster.jobctl(*args, **how)
        finally:
            self.cluster.env["HEARTH_FAULTS"] = self.workers_faults

    def test_jobctl(self):
        self.workers_faults = self.cluster.env["HEARTH_FAULTS"]
        text = json.dumps(self.spec("jobctl"))
        refused = self.jobctl("jobctl.call=error", "submit", "-f", "-", check=False, stdin=text)
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn("injected fault at jobctl.call", refused.stderr)
        self.assertEqual(self.cluster.json("list").get("jobs", []), [])
        # A caller without an answer is told so, and asks again.
        job = self.cluster.submit(self.spec("jobctl"))
        self.cluster.wait_state(job, "SUCCEEDED")
        unheard = self.jobctl("jobctl.answer=error", "get", job, check=False)
        self.assertEqual(unheard.returncode, 1)
        self.assertIn("injected fault at jobctl.answer", unheard.stderr)
        self.assertIn(job, self.cluster.jobctl("get", job).stdout)
        # A stream that breaks goes on where it stood: each step is there once.
        whole = self.cluster.jobctl("metrics", job, "-o", "csv").stdout
        self.assertEqual(len(whole.splitlines()), STEPS + 1)
        broken = self.jobctl("jobctl.stream=error@1", "metrics", job, "--follow", "-o", "csv")
        self.assertEqual(broken.stdout, whole)
        # One that does not follow ends instead.
        ended = self.jobctl("jobctl.stream=error@1", "metrics", job, "-o", "csv", check=False)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("injected fault at jobctl.stream", ended.stderr)

    def test_call_that_fails_changes_nothing(self):
        self.cluster.coordinator.kill()
        self.cluster.envs["coordinator"] = {"HEARTH_FAULTS": "coordinator.call=error"}
        self.cluster.start_coordinator()
        refused = self.cluster.jobctl("submit", "-f", "-", check=False, stdin=json.dumps(self.spec("refused")))
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("injected fault at coordinator.call", refused.stderr)
        self.cluster.coordinator.kill()
        del self.cluster.envs["coordinator"]
        self.cluster.start_coordinator()
        self.assertEqual(self.cluster.json("list").get("jobs", []), [])


if __name__ == "__main__":
    harness.main()
