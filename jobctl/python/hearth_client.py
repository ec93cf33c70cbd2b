"""Hearth from Python, for notebooks: submit jobs, watch them, read their numbers.

  hearth = Hearth("127.0.0.1:7070")
  job = hearth.submit("job.yaml", "optimizer.lr=1e-3")
  for seen in hearth.watch(job):
      print(seen.state, seen.step)
  hearth.metrics_frame(job).plot("step", "loss")        # with pandas

Jobs, steps and events are the messages of proto/hearth/v1, with their names of fields; jobctl/python/build.sh generates them. No part of
Hearth needs this file. Errors are ServerError, a grpc.RpcError that says what the coordinator said, and JobctlError of `submit`."""
import contextlib
import json
import os
import subprocess

import grpc
from hearth.v1 import job_pb2, job_pb2_grpc, worker_pb2, worker_pb2_grpc

UNARY_SECONDS = 10
ENDED = {job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED}


def state_name(job):
    """"running" of a job in JOB_STATE_RUNNING."""
    return job_pb2.JobState.Name(job.state)[len("JOB_STATE_"):].lower()


def step_number(record, name):
    """A number of a step report by its field's name; None where the step did not measure an optional one."""
    field = record.DESCRIPTOR.fields_by_name[name]
    optional = field.containing_oneof is not None
    return None if optional and not record.HasField(name) else getattr(record, name)


class ServerError(grpc.RpcError):
    """What the coordinator answered instead, or why there is no answer."""

    def __init__(self, error, address):
        super().__init__(f"{error.details()} ({error.code().name}, coordinator {address})")
        self._code, self._details = error.code(), error.details()

    def code(self):
        """A grpc.StatusCode."""
        return self._code

    def details(self):
        return self._details


class JobctlError(subprocess.CalledProcessError):
    """jobctl refused; `stderr` is what it said."""

    def __str__(self):
        return self.stderr.strip() or super().__str__()


class Hearth:
    """A coordinator. Thread-safe, as gRPC's channels are."""

    def __init__(self, address=None, token_file=None, tls_ca=None, jobctl="jobctl"):
        """As jobctl finds them: the address from HEARTH_COORDINATOR, else 127.0.0.1:7070; the token from `token_file`, HEARTH_TOKEN_FILE or
        the file that a coordinator of this machine left for its account. `tls_ca`: a PEM file; the channel then is TLS. `jobctl`: the program
        that `submit` runs. ValueError: a token would travel in clear text to another machine."""
        self.address = address or os.environ.get("HEARTH_COORDINATOR") or "127.0.0.1:7070"
        self.token_file = token_file or os.environ.get("HEARTH_TOKEN_FILE") or self._local_token_file()
        self.tls_ca, self.jobctl = tls_ca, jobctl
        self._metadata = []
        if self.token_file:
            with open(self.token_file, encoding="ascii") as f:
                self._metadata.append(("authorization", "Bearer " + f.readline().strip()))
        if tls_ca:
            with open(tls_ca, "rb") as f:
                self.channel = grpc.secure_channel(self.address, grpc.ssl_channel_credentials(f.read()))
        else:
            if self._metadata and not self._is_local():
                raise ValueError(f"the token would travel to {self.address} in clear text: give tls_ca")
            self.channel = grpc.insecure_channel(self.address)
        self._jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self._workers = worker_pb2_grpc.WorkerServiceStub(self.channel)

    def _is_local(self):
        return self.address.rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")

    def _local_token_file(self):
        if not self._is_local():
            return None  # that file is for a coordinator of this machine
        home = os.environ.get("HEARTH_HOME") or os.path.expanduser("~/.hearth")
        path = os.path.join(home, "tokens", "local-" + self.address.rsplit(":", 1)[1])
        return path if os.path.exists(path) else None

    @contextlib.contextmanager
    def _errors(self):
        try:
            yield
        except grpc.RpcError as error:
            raise ServerError(error, self.address) from None  # gRPC's own text is ten lines around the message

    def _call(self, method, request):
        with self._errors():
            return method(request, timeout=UNARY_SECONDS, metadata=self._metadata)

    def _stream(self, method, request):
        with self._errors():
            yield from method(request, metadata=self._metadata)

    def submit(self, job, *assignments, job_id=None):
        """Submits a job file, or a dict of the same form, with changes ("optimizer.lr=1e-3"); returns the job's id. jobctl reads and checks the
        file, so that there is one reader of job files. In a dict that PyYAML read, the key True of `notify` stands for `on`."""
        text = None if isinstance(job, (str, os.PathLike)) else json.dumps(job)  # JSON is YAML
        command = [self.jobctl, "--coordinator", self.address, "-q", "submit", "-" if text is not None else os.fspath(job)]
        command += ["--token-file", self.token_file] if self.token_file else []
        command += ["--tls-ca", self.tls_ca] if self.tls_ca else []
        command += ["--job-id", job_id] if job_id else []
        for assignment in assignments:
            command += ["--set", assignment]
        out = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if out.returncode != 0:
            raise JobctlError(out.returncode, command, out.stdout, out.stderr)
        return out.stdout.strip().split("/", 1)[1]

    def job(self, job_id):
        return self._call(self._jobs.GetJob, job_pb2.GetJobRequest(job_id=job_id))

    def jobs(self, filter=""):  # pylint: disable=redefined-builtin
        """Jobs, newest first; `filter` as in `jobctl list --filter`."""
        token = ""
        while True:
            page = self._call(self._jobs.ListJobs, job_pb2.ListJobsRequest(filter=filter, page_size=1000, page_token=token))
            yield from page.jobs
            token = page.next_page_token
            if not token:
                return

    def workers(self):
        token = ""
        while True:
            page = self._call(self._workers.ListWorkers, worker_pb2.ListWorkersRequest(page_token=token))
            yield from page.workers
            token = page.next_page_token
            if not token:
                return

    def events(self, job_id):
        return list(self._call(self._jobs.ListEvents, job_pb2.ListEventsRequest(job_id=job_id)).events)

    def watch(self, job_id):
        """The job now and after each change, up to its end or a pause."""
        for change in self._stream(self._jobs.WatchJob, job_pb2.WatchJobRequest(job_id=job_id)):
            yield change.job
            if change.job.state in ENDED or change.job.state == job_pb2.JOB_STATE_PAUSED:
                return

    def metrics(self, job_id, from_step=1, follow=False):
        """Reports of the steps in force. With `follow` also of new ones until the job ends; then a step comes again when a resume or a recovery
        repeated it, and the later report counts."""
        request = job_pb2.StreamMetricsRequest(job_id=job_id, from_step=from_step, follow=follow)
        for answer in self._stream(self._jobs.StreamMetrics, request):
            for record in answer.records:
                if record.WhichOneof("record") == "step":
                    yield record.step

    def metrics_columns(self, job_id, from_step=1):
        """The numbers of the steps in force as lists, by names of fields: {"step": [..], "loss": [..], ..}. None: not measured in that step."""
        reports = list(self.metrics(job_id, from_step))
        scalars = [field.name for field in job_pb2.MetricRecord.DESCRIPTOR.fields_by_name["step"].message_type.fields
                   if field.message_type is None and field.label != field.LABEL_REPEATED]
        return {name: [step_number(report, name) for report in reports] for name in scalars}

    def metrics_frame(self, job_id, from_step=1):
        """The same as a pandas.DataFrame."""
        import pandas  # pylint: disable=import-outside-toplevel

        return pandas.DataFrame(self.metrics_columns(job_id, from_step))

    def pause(self, job_id):
        return self._call(self._jobs.PauseJob, job_pb2.PauseJobRequest(job_id=job_id))

    def resume(self, job_id, *assignments):
        return self._call(self._jobs.ResumeJob, job_pb2.ResumeJobRequest(job_id=job_id, overrides=assignments))

    def cancel(self, job_id, now=False):
        return self._call(self._jobs.CancelJob, job_pb2.CancelJobRequest(job_id=job_id, now=now))
