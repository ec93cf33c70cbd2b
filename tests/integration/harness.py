"""A real cluster on loopback for the integration tests: hearth-coordinator, hearth-worker and hearth-trainer as processes, driven
through jobctl. Everything lives in one temporary folder and on ports the kernel chose; close() leaves no process behind. The folder of a
test that failed is kept and its path printed.

Programs are found in $HEARTH_BIN_DIR (ctest sets it)."""

import csv
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("HEARTH_BIN_DIR", os.path.join(SOURCE, "build", "dev", "bin"))
# How much slower the programs are than without sanitizers: the time limits of tests are multiplied by it. ctest sets it.
SLOWDOWN = float(os.environ.get("HEARTH_SLOWDOWN", "1"))
TERMINAL = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


def program(name):
    return os.path.join(BIN, name)


def patience(seconds):
    """A time limit of so many seconds, for programs as they are built here. For waits that end with what they wait for; what a program
    promises is not multiplied."""
    return seconds * SLOWDOWN


def wait_until(what, condition, timeout=120.0):
    """Polls `condition` until it returns something true, which is returned; fails naming `what`. The time is what a busy machine may
    need, not what is promised."""
    timeout = patience(timeout)
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {timeout} s waiting for {what}")
        time.sleep(0.02)


def token_file(address, worker=False):
    """Where the coordinator at that address, of this machine and $HEARTH_HOME, leaves its token for admins, or for workers."""
    return os.path.join(os.environ["HEARTH_HOME"], "tokens", f"local-{address.rsplit(':', 1)[1]}" + ("-worker" if worker else ""))


def metadata(address, worker=False):
    """What a caller sends to prove who it is."""
    with open(token_file(address, worker)) as f:
        return [("authorization", "Bearer " + f.readline().strip())]


class HeldPort:
    """A port that the kernel chose and gives to nobody who asks for any: it is bound, and as nobody listens on it here, the program that it
    is meant for can. Without this, a program that is restarted may find its port taken by some other connection of the machine."""

    def __init__(self, host="127.0.0.1"):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((host, 0))
        self.port = self.socket.getsockname()[1]

    def release(self):
        self.socket.close()


class Daemon:
    """A process of ours in its own session, with its output in a file."""

    def __init__(self, argv, log, env=None):
        self.argv, self.log_path = argv, log
        self.log = open(log, "ab")
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        env=env, start_new_session=True)

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def kill(self, sig=signal.SIGKILL, wait=True):
        if self.alive():
            self.process.send_signal(sig)
        if wait:
            self.process.wait(patience(30))
            self.log.close()

    def output(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()


FAILED_TESTS = os.path.join(os.path.dirname(BIN), "failed-tests")  # folders of tests that failed, the newest KEPT_FOLDERS of them
KEPT_FOLDERS = 20


class Outcome(unittest.TextTestResult):
    """Counts failures as they happen: the cleanups of a test, which remove its files, run before it is reported."""

    count = 0

    def addError(self, test, err):
        Outcome.count += 1
        super().addError(test, err)

    def addFailure(self, test, err):
        Outcome.count += 1
        super().addFailure(test, err)

    def addSubTest(self, test, subtest, err):
        Outcome.count += err is not None
        super().addSubTest(test, subtest, err)


def remove_or_keep(folder, failures_before):
    """Removes a test's folder; if a test has failed since `failures_before` was Outcome.count, keeps it and says where."""
    if Outcome.count == failures_before:
        shutil.rmtree(folder, ignore_errors=True)
        return
    kept = os.path.join(FAILED_TESTS, os.path.splitext(os.path.basename(sys.argv[0]))[0] + "-" + os.path.basename(folder))
    try:
        os.makedirs(FAILED_TESTS, exist_ok=True)
        shutil.move(folder, kept)
        known = sorted((os.path.join(FAILED_TESTS, name) for name in os.listdir(FAILED_TESTS)), key=os.path.getmtime)
        for old in known[:-KEPT_FOLDERS]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError:
        kept = folder  # it stays where it is
    print(f"the test failed; its logs and data are kept in {kept}", file=sys.stderr, flush=True)


class Cluster:
    def __init__(self, coordinator_args=(), root=None):
        self.dir = root or tempfile.mkdtemp(prefix="hearth-test-")
        self.failures_before = Outcome.count
        self.coordinator_args = list(coordinator_args)
        self.workers = {}
        self.coordinator = None
        self.address = self.http = None
        self.client_args = []
        self.worker_args = []  # of every worker
        self.prefix = []  # what programs are started through, e.g. in a network namespace; must exec them
        # By daemon, "coordinator" or a worker's name: a prefix of its own, the folder of its programs, and further environment.
        self.prefixes, self.bins, self.envs = {}, {}, {}
        self.held_ports = []
        os.environ["HEARTH_HOME"] = self.dir  # for programs and peers that a test starts by itself: the tokens are there
        self.env = dict(os.environ, OMP_NUM_THREADS="1", NO_COLOR="1")

    def start_of(self, daemon):
        """How its command line begins."""
        binary = "hearth-coordinator" if daemon == "coordinator" else "hearth-worker"
        return [*self.prefixes.get(daemon, self.prefix), os.path.join(self.bins.get(daemon, BIN), binary)]

    def env_of(self, daemon):
        return dict(self.env, **self.envs.get(daemon, {}))

    # -- daemons ------------------------------------------------------------------------------------------------
    def start_coordinator(self, *extra):
        endpoints = os.path.join(self.dir, "coordinator", "endpoints.json")
        listen, http = self.address or "127.0.0.1:0", self.http or "127.0.0.1:0"  # a restart keeps its ports
        if not self.prefixes.get("coordinator", self.prefix):  # else it is on another host
            listen, http = (self.hold_port(address) for address in (listen, http))
        # Else the last run's file would be taken for this one's.
        if os.path.exists(endpoints):
            os.unlink(endpoints)
        self.coordinator = Daemon(
            [*self.start_of("coordinator"), "--data-dir", os.path.join(self.dir, "coordinator"), "--listen", listen,
             "--http", http, *self.coordinator_args, *extra], os.path.join(self.dir, "coordinator.log"), self.env_of("coordinator"))

        def ready():
            if not self.coordinator.alive():
                raise AssertionError("coordinator ended:\n" + self.coordinator.output())
            try:
                with open(endpoints) as f:
                    return json.load(f)
            except (OSError, ValueError):
                return None

        found = wait_until("the coordinator's endpoints.json", ready)
        self.address, self.http = found["listen"], found["http"]
        return self.coordinator

    def hold_port(self, address):
        """Port 0: one that this cluster keeps while its coordinator is down."""
        host, port = address.rsplit(":", 1)
        if port != "0":
            return address
        self.held_ports.append(HeldPort(host))
        return f"{host}:{self.held_ports[-1].port}"

    def start_worker(self, name, *extra):
        self.workers[name] = Daemon(
            [*self.start_of(name), "--coordinator", self.address, "--name", name, "--threads", "1", "--data-dir",
             os.path.join(self.dir, name), "--http", "127.0.0.1:0", *self.worker_args, *extra],
            os.path.join(self.dir, name + ".log"), self.env_of(name))
        return self.workers[name]

    def start(self, workers=2):
        self.start_coordinator()
        names = [f"w{k}" for k in range(workers)]
        for name in names:
            self.start_worker(name)
        for name in names:
            self.wait_worker(name)
        return self

    def wait_worker(self, name, states=("WORKER_STATE_IDLE", "WORKER_STATE_BUSY"), timeout=120):
        def online():
            if not self.workers[name].alive():
                raise AssertionError(f"worker {name} ended:\n" + self.workers[name].output())
            return any(w["workerId"] == name and w["state"] in states for w in self.list_workers())

        wait_until(f"worker {name} in {states}", online, timeout)

    def close(self):
        self.stop()
        for port in self.held_ports:
            port.release()
        remove_or_keep(self.dir, self.failures_before)

    def stop(self):
        """All daemons, and with the workers their trainers."""
        for daemon in [*self.workers.values(), self.coordinator]:
            if daemon is not None and daemon.alive():
                daemon.kill(signal.SIGCONT, wait=False)
                daemon.kill()

    def logs(self):
        """Tails of all daemons' output, for failure messages."""
        parts = []
        for daemon in [self.coordinator, *self.workers.values()]:
            if daemon is not None:
                parts.append(f"--- {daemon.log_path}\n{daemon.output()[-4000:]}")
        return "\n".join(parts)

    # -- jobctl -------------------------------------------------------------------------------------------------
    def jobctl(self, *args, check=True, timeout=120, stdin=None):
        run = subprocess.run([*self.prefix, program("jobctl"), "--coordinator", self.address, *self.client_args, *map(str, args)],
                             capture_output=True, text=True, timeout=patience(timeout), env=self.env, input=stdin)
        if check and run.returncode != 0:
            raise AssertionError(f"jobctl {' '.join(map(str, args))} exited {run.returncode}\n{run.stdout}{run.stderr}\n{self.logs()}")
        return run

    def json(self, *args):
        return json.loads(self.jobctl("-o", "json", *args).stdout)

    def list_workers(self):
        return self.json("workers").get("workers", [])

    def submit(self, spec, *args):
        """`spec` is a job file's text or a dict; returns the job id."""
        text = spec if isinstance(spec, str) else json.dumps(spec)  # JSON is YAML
        out = self.jobctl("submit", "-f", "-", "-o", "name", *args, stdin=text).stdout
        return out.strip().removeprefix("job/")

    def job(self, job_id):
        return self.json("get", job_id)

    def wait_state(self, job_id, *states, timeout=200):
        """Waits for one of the states (short names); fails at once on another terminal one."""
        wanted = tuple("JOB_STATE_" + s for s in states)

        def reached():
            job = self.job(job_id)
            if job["state"] in wanted:
                return job
            if job["state"] in TERMINAL:
                raise AssertionError(f"{job_id} is {job['state']} ({job['reason']}), wanted {states}\n{self.job_log(job_id)}\n{self.logs()}")
            return None

        return wait_until(f"{job_id} in {states}", reached, timeout)

    def wait_step(self, job_id, step, timeout=200):
        def reached():
            job = self.job(job_id)
            if job["state"] in TERMINAL and int(job["step"]) < step:
                raise AssertionError(f"{job_id} is {job['state']} ({job['reason']}) at step {job['step']}\n{self.job_log(job_id)}")
            return job if int(job["step"]) >= step else None

        return wait_until(f"{job_id} at step {step}", reached, timeout)

    def recorded_step(self, job_id):
        """The step that a job goes on from: 0 when a slow disk has no checkpoint of it yet."""
        return int(self.job(job_id).get("checkpoint", {}).get("step", 0))

    def job_log(self, job_id):
        return self.jobctl("logs", job_id, check=False).stdout

    def metrics(self, job_id):
        """The history as a list of dicts of strings, one a step."""
        return list(csv.DictReader(io.StringIO(self.jobctl("metrics", job_id, "-o", "csv").stdout)))

    def events(self, job_id):
        return self.json("events", job_id).get("events", [])

    def checkpoints(self, job_id):
        return self.json("checkpoints", job_id).get("checkpoints", [])

    def final_checkpoint(self, job_id):
        return max(self.checkpoints(job_id), key=lambda c: int(c["step"]))

    def get(self, path, address=None, timeout=10):
        with urllib.request.urlopen(f"http://{address or self.http}{path}", timeout=patience(timeout)) as response:
            return response.read().decode()

    def trainer_pids(self, worker):
        """Processes of ours whose parent is that worker's daemon."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    # The program's name stands in parentheses and may hold spaces and parentheses
                    # itself.
                    fields = f.read().rsplit(")", 1)[1].split()
                if int(fields[1]) == self.workers[worker].pid and fields[0] != "Z":
                    found.append(int(pid))
            except (OSError, IndexError):
                continue
        return found


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def weights_sha256(checkpoint):
    return sha256(os.path.join(checkpoint["path"], "model.safetensors"))


def write_tokens(path, count=20000, vocab=64, seed=3):
    """A headerless uint16 dataset with structure to learn: a deterministic noisy walk."""
    state, value, out = seed, 0, bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        value = (value + (state >> 33) % 5 - 2) % vocab
        out += value.to_bytes(2, "little")
    with open(path, "wb") as f:
        f.write(out)


def tiny_job(path, steps=30, workers=2, **over):
    """A job of about a millisecond a step. Keyword arguments replace or extend whole sections."""
    spec = {
        "name": "tiny",
        "model": {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 64, "vocab": 64},
        "data": {"train": path, "sequence_length": 32},
        "batch": {"micro_batch_size": 2, "global_batch_tokens": 256},
        "precision": {"recipe": "fp32"},
        "optimizer": {"lr": 0.003},
        "schedule": {"name": "constant", "warmup_steps": min(5, steps)},
        "train": {"steps": steps, "seed": 7},
        "checkpoint": {"every_steps": 10},
        "resources": {"workers": workers, "device": "cpu"},
    }
    for section, value in over.items():
        if isinstance(value, dict) and isinstance(spec.get(section), dict):
            spec[section] = {**spec[section], **value}
        else:
            spec[section] = value
    return spec


class ClusterTest(unittest.TestCase):
    """A test case with a cluster of its own and a small dataset."""

    WORKERS = 2
    SHARED_ROOT = False  # all workers write checkpoints below DIR/checkpoints
    # Gates: between hold(gate) and release(gate) each trainer stops where the gate stands, a fault point and the number of the visit
    # to it. What is done to a job meanwhile is done in mid-run, however slow or busy the machine is.
    GATES = {}
    FAULTS = ""  # further HEARTH_FAULTS

    def setUp(self):
        self.cluster = Cluster()
        faults = [self.FAULTS] if self.FAULTS else []
        for gate, place in self.GATES.items():
            point, visit = place.split("@")
            faults.append(f"{point}=hold:{self.gate(gate)}@{visit}")
            self.release(gate)
            self.cluster.worker_args = ["--trainer-hang", "0"]  # whoever waits at a gate does not hang
        if self.SHARED_ROOT:
            self.cluster.worker_args += ["--checkpoint-root", os.path.join(self.cluster.dir, "checkpoints")]
        if faults:
            self.cluster.env["HEARTH_FAULTS"] = ",".join(faults)
        self.addCleanup(self.cluster.close)
        self.data = os.path.join(self.cluster.dir, "tokens.bin")
        write_tokens(self.data)
        self.cluster.start(self.WORKERS)

    def gate(self, name):
        return os.path.join(self.cluster.dir, "gate-" + name)

    def hold(self, gate="step"):
        os.unlink(self.gate(gate))

    def release(self, gate="step"):
        open(self.gate(gate), "w").close()

    def assert_every_step_once(self, job_id, steps):
        rows = self.cluster.metrics(job_id)
        self.assertEqual([int(r["step"]) for r in rows], list(range(1, steps + 1)))
        return rows


def main():
    unittest.main(testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Outcome), argv=[sys.argv[0], *sys.argv[1:]])
