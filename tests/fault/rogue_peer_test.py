#!/usr/bin/python3
"""A worker breaks the protocol: the coordinator ends its stream, names the field, and others are not affected."""

import os
import shutil

import peers
import harness
from peers import agent_pb2, grpc
from hearth.v1 import job_pb2, step_pb2, trainer_pb2

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def spec(name, steps=1000):
    return dict(harness.tiny_job("/nowhere/data", steps=steps, workers=1), name=name)


def violations(cluster):
    line = [l for l in cluster.get("/metrics").splitlines() if l.startswith("hearth_agent_violations_total ")]
    return float(line[0].split()[1])


class Rank(peers.RoguePeer):
    """A worker by hand that was given rank 0 of a job."""

    def __init__(self, cluster, name, **over):
        super().__init__(cluster.address)
        self.cluster = cluster
        self.name = name
        self.send(hello=peers.hello(name, **over))
        harness.wait_until("a welcome", lambda: self.of_kind("welcome"))
        self.keep_alive()  # a worker that is silent is lost, and on a slow machine a test takes longer than that

    def take(self):
        def answer():
            for asked in self.of_kind("inspect"):
                result = agent_pb2.InspectPathsResult(request_id=asked.request_id)
                for path in asked.paths:
                    result.paths.add(path=path, kind="dataset", tokens=1 << 20, vocab=64)
                self.send(inspect_result=result)
            return self.of_kind("start")

        self.task = harness.wait_until("a task", answer)[0].task
        self.seq = 0
        return self

    def report(self, **part):
        self.seq += 1
        self.send(report=agent_pb2.TaskReport(job_id=self.task.job_id, epoch=self.task.epoch, rank=0, seq=self.seq, **part))

    def step(self, number):
        self.report(step=step_pb2.StepReport(step=number, loss=1.0, tokens=16 * number))

    def path(self, step=1):
        return f"{self.task.checkpoint_dir}/step-{step:08d}"


class RoguePeerTest(harness.ClusterTest):
    WORKERS = 0

    def rank(self, name):
        """A rogue that runs a job called like it."""
        rogue = Rank(self.cluster, name)
        self.addCleanup(rogue.close)
        self.cluster.submit(spec(name), "--job-id", name)
        rogue.take()
        rogue.step(1)
        self.cluster.wait_step(name, 1)
        return rogue

    def assert_refused(self, rogue, field):
        code, details = rogue.wait_end()
        self.assertEqual(code, INVALID, details)
        self.assertIn(field, details)

    def test_each_bad_field_ends_its_stream_and_nothing_else(self):
        bad_reports = {
            "report.logs.dropped": dict(logs=agent_pb2.LogBatch(dropped=2**63 - 1, lines=[job_pb2.LogLine(text="x")])),
            "report.step.step": dict(step=step_pb2.StepReport(step=2**62)),
            "report.checkpoint.path": dict(checkpoint=trainer_pb2.CheckpointAnnouncement(step=1, path="/etc/../etc")),
            "report.checkpoint.step": dict(checkpoint=trainer_pb2.CheckpointAnnouncement(step=2**63 - 1, path="/x")),
            "report.dying.seconds": dict(dying=agent_pb2.TaskDying(seconds=float("nan"))),
            "report.exit.silent_seconds": dict(exit=agent_pb2.TaskExit(silent_seconds=-1e300)),
            "report.exit.exit.reason": dict(exit=agent_pb2.TaskExit(exit=trainer_pb2.TrainerExit(reason=4711))),
            "report.run_info.start_step": dict(run_info=job_pb2.RunInfo(start_step=-5)),
            "report.step.step_seconds": dict(step=step_pb2.StepReport(step=2, step_seconds=float("inf"))),
        }
        before = violations(self.cluster)
        rogue = self.rank("victim")
        seq = rogue.seq
        for field, part in bad_reports.items():
            with self.subTest(field):
                rogue.report(**part)
                self.assert_refused(rogue, field)
                rogue.close()
                task = rogue.task
                status = agent_pb2.TaskStatus(job_id=task.job_id, epoch=task.epoch, running=True, last_seq=seq, step=1)
                rogue = Rank(self.cluster, "victim", tasks=[status])
                self.addCleanup(rogue.close)
                rogue.task, rogue.seq = task, seq
        self.assertEqual(violations(self.cluster) - before, len(bad_reports))
        # A step past the job's end is within the bounds of a step: the core knows better.
        rogue.step(1001)
        self.assert_refused(rogue, "report.step.step is 1001")
        job = self.cluster.job("victim")
        self.assertEqual(job["step"], "1")
        self.assertEqual(self.cluster.checkpoints("victim"), [])
        # What is right is still taken, before and after a restart of the coordinator.
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator()
        again = Rank(self.cluster, "victim", tasks=[agent_pb2.TaskStatus(
            job_id="victim", epoch=1, running=True, last_seq=seq, step=1)])
        self.addCleanup(again.close)
        again.task, again.seq = rogue.task, seq
        again.report(logs=agent_pb2.LogBatch(dropped=2, lines=[job_pb2.LogLine(text="after all")]))
        again.report(checkpoint=trainer_pb2.CheckpointAnnouncement(step=1, path=again.path()))
        again.step(2)
        self.cluster.wait_step("victim", 2)
        self.assertIn("after all", self.cluster.job_log("victim"))
        self.assertEqual(len(self.cluster.checkpoints("victim")), 1)

    def test_bad_hellos_and_heartbeats_are_refused(self):
        bad = {
            "hello.labels": dict(labels={str(i): "x" for i in range(180000)}),
            "hello.host": dict(host="a\x1b[31mb"),
            "hello.checkpoint_root": dict(checkpoint_root="/tmp/../etc"),
            "hello.incarnation": dict(incarnation="x" * 100000),
            "hello.device.memory_bytes": dict(device=peers.worker_pb2.DeviceInfo(kind="cpu", memory_bytes=-1)),
            "hello.tasks": dict(tasks=[agent_pb2.TaskStatus(job_id="x", epoch=2**63 - 1)]),
            "worker name": dict(worker_id="a b"),
        }
        for field, over in bad.items():
            with self.subTest(field):
                rogue = peers.RoguePeer(self.cluster.address)
                self.addCleanup(rogue.close)
                rogue.send(hello=peers.hello(over.pop("worker_id", "rogue"), **over))
                self.assert_refused(rogue, field)
        self.assertEqual(self.cluster.list_workers(), [])
        beating = Rank(self.cluster, "beating")
        self.addCleanup(beating.close)
        beating.send(heartbeat=agent_pb2.Heartbeat(step=2**62))
        self.assert_refused(beating, "heartbeat.step")

    def test_a_name_belongs_to_the_data_dir_that_had_it_first(self):
        cluster = self.cluster
        cluster.start_worker("mine")
        cluster.wait_worker("mine")
        daemon = cluster.workers["mine"]
        daemon.kill(harness.signal.SIGSTOP, wait=False)  # silent, as behind a cut
        harness.wait_until("silence", lambda: cluster.list_workers()[0]["state"] != "WORKER_STATE_IDLE")
        for key in ("", "0" * 64):
            rogue = peers.RoguePeer(cluster.address)
            self.addCleanup(rogue.close)
            rogue.send(hello=peers.hello("mine", name_key=key))
            code, details = rogue.wait_end()
            self.assertEqual(code, grpc.StatusCode.ALREADY_EXISTS, details)
            self.assertIn("jobctl forget mine", details)
        daemon.kill(harness.signal.SIGCONT, wait=False)
        cluster.wait_worker("mine")
        self.assertTrue(daemon.alive())
        # A restart keeps the name; another data dir has to wait until an operator releases it.
        daemon.kill()
        cluster.start_worker("mine")
        cluster.wait_worker("mine")
        cluster.workers["mine"].kill()
        shutil.rmtree(os.path.join(cluster.dir, "mine"))
        cluster.start_worker("mine")
        harness.wait_until("the refusal", lambda: "another data dir" in cluster.workers["mine"].output())
        cluster.jobctl("forget", "mine")
        cluster.wait_worker("mine")
        with open(os.path.join(cluster.dir, "coordinator", "store.db"), "rb") as store, \
                open(os.path.join(cluster.dir, "mine", "name.key"), "rb") as key:
            self.assertNotIn(key.read().strip(), store.read())  # a hash of it alone


if __name__ == "__main__":
    harness.main()
