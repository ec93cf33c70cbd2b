#!/usr/bin/python3
"""Requests of any size: each is refused with the field and the limit named, and lists stay readable for everybody."""

import os
import resource

import peers
import harness
from peers import grpc
from google.protobuf import symbol_database
from hearth.v1 import identity_pb2, job_pb2, job_spec_pb2, worker_pb2

INVALID = grpc.StatusCode.INVALID_ARGUMENT
HUGE = 14 << 20


def spec(name, path="/nowhere/data"):
    out = job_spec_pb2.JobSpec(name=name)
    for key, value in harness.tiny_job(path)["model"].items():
        setattr(out.model, key, value)
    out.precision.recipe = "fp32"
    out.data.train.add(path=path)
    out.data.sequence_length = 16
    out.batch.micro_batch_size = 1
    out.train.steps = 10
    out.resources.workers = 1
    return out


def resident_mib(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() / 2**20


class SizesTest(harness.ClusterTest):
    WORKERS = 0

    def setUp(self):
        super().setUp()
        self.jobs = peers.jobs(self.cluster.address)
        self.workers = peers.workers(self.cluster.address)
        self.identity = peers.identity(self.cluster.address)

    def assert_refused(self, call, *parts, codes=(INVALID,)):
        with self.assertRaises(grpc.RpcError) as caught:
            result = call()
            list(result) if hasattr(result, "__next__") else result  # a stream says so on its first message
        self.assertIn(caught.exception.code(), codes, caught.exception.details())
        for part in parts:
            self.assertIn(part, caught.exception.details())

    def test_every_string_of_every_method_has_a_limit(self):
        checked = 0
        for module, stub in ((job_pb2, self.jobs), (worker_pb2, self.workers), (identity_pb2, self.identity)):
            for service in module.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    for field in method.input_type.fields:
                        if field.type != field.TYPE_STRING:
                            continue
                        with self.subTest(method.name + "." + field.name):
                            request = symbol_database.Default().GetSymbol(method.input_type.full_name)()
                            huge = "x" * (1 << 20)
                            if field.label == field.LABEL_REPEATED:
                                getattr(request, field.name).append(huge)
                            else:
                                setattr(request, field.name, huge)
                            codes = (INVALID, grpc.StatusCode.UNIMPLEMENTED)
                            self.assert_refused(lambda: getattr(stub, method.name)(request), codes=codes)
                            checked += 1
        self.assertGreater(checked, 25)

    def test_large_specs_are_refused_and_the_list_stays_small(self):
        exhausted = (INVALID, grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assert_refused(lambda: self.jobs.CreateJob(job_pb2.CreateJobRequest(spec=spec("long", "/" + "p" * HUGE))), codes=exhausted)
        self.assert_refused(lambda: self.jobs.CreateJob(job_pb2.CreateJobRequest(spec=spec("long", "/" + "p" * 5000))),
                            "spec.data.train[0].path has 5001 bytes", "4096")
        many = spec("many")
        for i in range(200000):
            many.data.train.add(path="/d")
        self.assert_refused(lambda: self.jobs.CreateJob(job_pb2.CreateJobRequest(spec=many)),
                            "spec.data.train has 200001 entries", "1024")
        whole = spec("whole")
        for i in range(100):
            whole.data.train.add(path="/" + "p" * 4000)
        self.assert_refused(lambda: self.jobs.CreateJob(job_pb2.CreateJobRequest(spec=whole)), "spec has 4", "262144")
        # The largest that is taken, many times: pages end early and the list is whole.
        large = spec("large")
        for i in range(60):
            large.data.train.add(path="/" + "p" * 4000)
        for i in range(30):
            self.jobs.CreateJob(job_pb2.CreateJobRequest(job_id=f"large-{i}", spec=large))
        listed, token, pages = [], "", 0
        while True:
            page = self.jobs.ListJobs(job_pb2.ListJobsRequest(page_size=1000, page_token=token))
            self.assertLess(page.ByteSize(), (1 << 20) + (64 << 10))
            listed += [job.job_id for job in page.jobs]
            token, pages = page.next_page_token, pages + 1
            if not token:
                break
        self.assertEqual(sorted(listed), sorted(f"large-{i}" for i in range(30)))
        self.assertEqual(len(self.cluster.json("list")["jobs"]), 30)
        self.assertEqual(len(self.jobs.GetJob(job_pb2.GetJobRequest(job_id="large-0")).spec.data.train), 61)

    def test_request_ids_are_short(self):
        # AddressSanitizer keeps back 256 MiB of what was freed, unless told otherwise.
        options = os.environ.get("ASAN_OPTIONS")
        self.cluster.envs["coordinator"] = {"ASAN_OPTIONS": ":".join(filter(None, [options, "quarantine_size_mb=8"]))}
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator()
        self.jobs = peers.jobs(self.cluster.address)
        self.jobs.CreateJob(job_pb2.CreateJobRequest(job_id="job", spec=spec("job")))
        before = resident_mib(self.cluster.coordinator.pid)
        for i in range(40):
            request = job_pb2.CancelJobRequest(job_id="job", request_id=f"{i}" + "x" * (3 << 20))
            self.assert_refused(lambda: self.jobs.CancelJob(request), "request_id has", "128")
        self.assertLess(resident_mib(self.cluster.coordinator.pid) - before, 100, "120 MiB were sent")

    def test_labels_of_an_update_are_those_of_a_job_file(self):
        self.jobs.CreateJob(job_pb2.CreateJobRequest(job_id="job", spec=spec("job")))
        for key, value in (("team", "a\nb"), ("team", "\x1b[31m"), ("team", "v" * 64), ("Team A", "x"), ("k" * 64, "x"),
                           ("team", "v" * (1 << 20))):
            self.assert_refused(lambda: self.jobs.UpdateJob(job_pb2.UpdateJobRequest(job_id="job", labels={key: value})), "labels")
        self.jobs.UpdateJob(job_pb2.UpdateJobRequest(job_id="job", labels={"team": "research"}))
        self.assertEqual(dict(self.jobs.GetJob(job_pb2.GetJobRequest(job_id="job")).spec.labels), {"team": "research"})

    def test_the_number_of_jobs_is_limited(self):
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator("--max-jobs", "3")
        jobs = peers.jobs(self.cluster.address)
        for i in range(3):
            jobs.CreateJob(job_pb2.CreateJobRequest(job_id=f"job-{i}", spec=spec("job")))
        self.assert_refused(lambda: jobs.CreateJob(job_pb2.CreateJobRequest(job_id="one-more", spec=spec("job"))), "--max-jobs",
                            codes=(grpc.StatusCode.RESOURCE_EXHAUSTED,))
        self.cluster.jobctl("cancel", "job-0")
        self.cluster.jobctl("delete", "job-0", "--yes")
        jobs.CreateJob(job_pb2.CreateJobRequest(job_id="one-more", spec=spec("job")))


if __name__ == "__main__":
    harness.main()
