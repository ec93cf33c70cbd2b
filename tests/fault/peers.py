"""Peers that speak the protocol by hand, for tests: a worker's stream and a user's client made of the generated stubs alone.

Stubs are found in $HEARTH_PYTHON_STUBS (ctest sets it; by hand build/dev/gen/python after building the target python_stubs)."""

import hashlib
import os
import queue
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.environ.get("HEARTH_PYTHON_STUBS", os.path.join(SOURCE, "build", "dev", "gen", "python")),
                os.path.join(os.path.dirname(HERE), "integration")]

import grpc  # noqa: E402
import harness  # noqa: E402
from hearth.v1 import agent_pb2, agent_pb2_grpc, identity_pb2_grpc, job_pb2_grpc, worker_pb2, worker_pb2_grpc  # noqa: E402

UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Adds metadata to every call."""

    def __init__(self, metadata):
        self.metadata = list(metadata)

    def _go_on(self, goes_on, details, request):
        return goes_on(details._replace(metadata=[*(details.metadata or ()), *self.metadata]), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_stream = _go_on


def channel(address, metadata=()):
    """A connection of its own: channels of one process would share one otherwise."""
    plain = grpc.insecure_channel(address, options=[*UNBOUNDED, ("grpc.use_local_subchannel_pool", 1)])
    return grpc.intercept_channel(plain, Bearer(metadata))


def jobs(address):
    """As the admin that the coordinator's own token makes of its account."""
    return job_pb2_grpc.JobServiceStub(channel(address, harness.metadata(address)))


def workers(address):
    return worker_pb2_grpc.WorkerServiceStub(channel(address, harness.metadata(address)))


def identity(address):
    return identity_pb2_grpc.IdentityServiceStub(channel(address, harness.metadata(address)))


def hello(name, **over):
    """A Hello that a coordinator accepts: an idle CPU worker."""
    fields = dict(worker_id=name, incarnation=hashlib.md5(name.encode()).hexdigest(), host="host-of-" + name,
                  device=worker_pb2.DeviceInfo(kind="cpu", model="test", memory_bytes=1 << 30),
                  checkpoint_root="/nowhere/" + name, root_uuid="00000000-0000-4000-8000-000000000000", version="0.1.0")
    fields.update(over)
    return agent_pb2.Hello(**fields)


class RoguePeer:
    """One Connect stream. What is sent is up to the test; what arrives is kept in `received`, the end of the stream in `ended`."""

    def __init__(self, address, metadata=None):
        """`metadata`: of the call; None = the coordinator's own token for the workers of its machine."""
        self.channel = channel(address, harness.metadata(address, worker=True) if metadata is None else metadata)
        self.outgoing = queue.Queue()
        self.received = []
        self.ended = threading.Event()
        self.code = self.details = None
        self.call = agent_pb2_grpc.AgentServiceStub(self.channel).Connect(iter(self.outgoing.get, None))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        try:
            for message in self.call:
                self.received.append(message)
            self.code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            self.code, self.details = error.code(), error.details()
        self.ended.set()

    def send(self, **part):
        """send(hello=...), send(report=...): one AgentMessage."""
        self.outgoing.put(agent_pb2.AgentMessage(**part))

    def keep_alive(self):
        """Sends a heartbeat every half second until the stream ends."""
        def beat():
            while not self.ended.wait(0.5):
                self.send(heartbeat=agent_pb2.Heartbeat())
        threading.Thread(target=beat, daemon=True).start()

    def of_kind(self, kind):
        return [getattr(m, kind) for m in list(self.received) if m.WhichOneof("message") == kind]

    def wait_end(self, timeout=15):
        """(code, details) of the stream's end."""
        if not self.ended.wait(harness.patience(timeout)):
            raise AssertionError(f"the stream did not end within {harness.patience(timeout)} s; received {len(self.received)} messages")
        return self.code, self.details

    def close(self):
        self.outgoing.put(None)
        self.channel.close()
