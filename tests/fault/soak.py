#!/usr/bin/python3
"""Random faults on a real cluster for as long as you like: the rows of soak_faults.py, alone or one right behind another, while jobs run,
pause, are cancelled and go on. First each row once, in an order of the seed, then at random by weight. After each fault: the jobs that it
hit make steps again, and no other job has been restarted. At the end: every job whose submission was acknowledged is there and has
succeeded, each of its steps is in the history once with the losses of an undisturbed run, its weights are those of that run bit for bit,
no folder is left that no job needs, and no process.

  tests/fault/soak.sh --faults 1000 --seed 1      prints each fault, then a table; exit status 0 = all of that holds
  tests/fault/soak.sh --seconds 3600              the same for about so long
  tests/fault/soak.sh --clusters 12 --faults 1000 the same on twelve clusters side by side, 1,000 faults in all; a table of all, and exit
                                                  status 1 if the check of any fails: its log and folder stay
  tests/fault/soak.sh --clusters 12 --cluster 3 --faults 1000     what the third of these does, alone
  tests/fault/soak.sh --only jump_clock --faults 5
  tests/fault/soak.sh --gpus 2 --faults 20        one job at a time, a rank on each GPU (the programs must be built with CUDA)
  tests/fault/soak.sh --json FILE ...             also the times of all faults; soak_table.py FILE... makes one table of several runs
  tests/fault/soak.sh --dossiers DIR ...          where it leaves what it saw of each fault that was noticed after more than 5 s, or whose
                                                  job ran again after more than 8 s; the end of the output names them and the phase that took
                                                  the longest

Cutting cables and filling disks needs root, network namespaces and loop devices; without them these rows are left out, and it says so.
It needs Python alone and the programs, in $HEARTH_BIN_DIR, also those of a bundle:

  HEARTH_BIN_DIR=/opt/hearth/bin python3 tests/fault/soak.py --gpus 2 --faults 20
"""

import argparse
import dataclasses
import http.client
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))
import harness  # noqa: E402
import rig  # noqa: E402
import soak_clusters  # noqa: E402
import soak_dossier  # noqa: E402
import soak_faults  # noqa: E402
import soak_table  # noqa: E402

CHECKPOINT_EVERY = 100
STEP_DELAY_MS = 2
NOTICED_GOAL, RUNS_GOAL = 5, 10  # seconds from the beginning of a fault; docs/reliability.md
EVENTS_OF_A_RECOVERY = 12
SLOW_END = 5  # seconds; gRPC's calls get 2 of them to end
ONE_BEHIND_ANOTHER = 0.25  # of the faults have another right behind them


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a soak runs: a cluster and its jobs."""
    devices: tuple  # of the workers
    jobs: int       # at a time
    ranks: int      # of each job
    steps: int
    job: dict       # sections of its file


CPU = Shape(("cpu",) * 5, 2, 2, 1500, {})  # one worker is free


def threads_of(pid):
    """Their names and where they wait; with gdb, their stacks."""
    lines = []
    for task in sorted(os.listdir(f"/proc/{pid}/task")):
        try:
            texts = [open(f"/proc/{pid}/task/{task}/{name}").read().strip() for name in ("comm", "wchan")]
        except OSError:
            continue
        lines.append(" ".join([task, *texts]))
    if shutil.which("gdb"):
        lines.append(subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all backtrace 20"], capture_output=True, text=True,
                                    timeout=60).stdout)
    return "\n".join(lines)


def on_gpus(count):
    return Shape(tuple(f"cuda:{k}" for k in range(count)), 1, count, 3000, {
        "model": {"hidden": 128, "heads": 2, "kv_heads": 1, "ffn_hidden": 256, "vocab": 512},  # what attention on a GPU takes
        "batch": {"micro_batch_size": 4, "global_batch_tokens": 256 * count},
        "precision": {"recipe": "bf16"}, "train": {"deterministic": True}, "resources": {"device": "cuda"}})


@dataclasses.dataclass(frozen=True)
class Trainer:
    pid: int
    job: str
    epoch: int


class Failure(Exception):
    pass


class Watch:
    """What the coordinator's page says of jobs over time. Its answers come over HTTP, so that a machine without gRPC for Python will do."""

    HEALTHY = ("running", "succeeded")
    ON_ITS_WAY = (*HEALTHY, "starting")  # a fault can disturb it
    NOTICED_BY = ("worker:", "user:")    # actors of events that tell of a fault

    def __init__(self, cluster, jobs):
        self.cluster, self.began, self.over = cluster, time.monotonic(), threading.Event()
        self.recorder = soak_dossier.Recorder(cluster)
        self.seen = {job_id: [(self.began, int(job["epoch"]), "running")] for job_id, job in jobs.items()}  # each change: when, epoch, state
        self.notices = {}  # by job: when an event of it says that the coordinator has noticed something
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.over.wait(0.03):
            for job_id, seen in self.seen.items():
                try:
                    now = json.loads(self.cluster.get("/api/v1/jobs/" + job_id, timeout=1))
                except (OSError, http.client.HTTPException):
                    continue  # no coordinator answers
                if (now["epoch"], now["state"]) != seen[-1][1:]:
                    seen.append((time.monotonic(), now["epoch"], now["state"]))
                self.recorder.job(job_id, now)
            self.recorder.look()

    def end(self):
        self.over.set()
        self.thread.join()

    def read_notices(self, job_id, events):
        """`events`: those of the job. Their times are right whatever the day is, as the soak lets the coordinator's clock jump by days."""
        now, wall = time.monotonic(), time.time()
        stamps = [soak_dossier.STAMP.match(event["time"] + " ") for event in events
                  if event["actor"].startswith(self.NOTICED_BY) and event["type"] != "note"]
        self.notices[job_id] = [now + soak_dossier.seconds_after(stamp, wall) for stamp in stamps]

    def after(self, job_id, began, until):
        """Seconds from a fault's beginning until the coordinator noticed it in the job, before `until`, and until the job ran again; None for
        what was not seen. It has noticed it at the time of its event, which others see after a commit, or when the job was seen to be
        disturbed. A fault that finds the job stopped already, by the one before, does not disturb it."""
        before = [change for change in self.seen[job_id] if change[0] <= began][-1]
        later = [(at, epoch > before[1], state) for at, epoch, state in self.seen[job_id] if at > began]
        noticed = min([at for at, again, state in later if again or state not in self.ON_ITS_WAY][:1] +
                      [at for at in self.notices.get(job_id, ()) if at > began] + [until])
        if before[2] not in self.ON_ITS_WAY or noticed >= until:
            return None, None
        runs = next((at for at, again, state in later if again and state in self.HEALTHY), None)
        return noticed - began, None if runs is None else runs - began

    def times(self, hits):
        """[(which fault, job, noticed, runs again)]; `hits`: when each fault began, and the jobs that it hit. Each counts from the beginning
        of its own fault. A job that is hit twice and was not disturbed in between counts for the later one."""
        out = []
        for k, (began, job_ids) in enumerate(hits):
            for job_id in sorted(job_ids):
                until = min((later for later, hit in hits[k + 1:] if job_id in hit), default=math.inf)
                out.append((k, job_id, *self.after(job_id, began, until)))
        return out

    def slowest(self, hits):
        """(noticed, runs again) of the slowest job."""
        times = self.times(hits)
        return tuple(max((row[column] for row in times if row[column] is not None), default=None) for column in (2, 3))

    def slow(self, names, hits):
        """The jobs of which a dossier is wanted."""
        found = []
        for k, job_id, noticed, runs in self.times(hits):
            began = hits[k][0]
            epoch = int([change for change in self.seen[job_id] if change[0] <= began][-1][1])
            stepped = max(0, self.recorder.stepped.get((job_id, epoch), began) - began)
            found.append(soak_dossier.Slow(names[k], job_id, began, noticed, runs, epoch, stepped))
        return [slow for slow in found if slow.counts()]


class Soak:
    RECOVERY_MAX = 120  # seconds until a fault counts as not recovered from

    def __init__(self, part, folder, dossiers, only=(), shape=CPU):
        self.part, self.seed, self.shape, self.only = part, part.own_seed(), shape, only
        self.random = random.Random(self.seed)
        self.devices = {f"w{k}": device for k, device in enumerate(shape.devices)}
        self.names = list(self.devices)
        self.cluster = harness.Cluster(root=folder)
        self.cluster.env["TZ"] = "UTC"  # the times of all logs are of one zone
        self.dossiers = soak_dossier.Dossiers(self.cluster, dossiers, f"{part.cluster}-")
        self.hosts, self.disks = None, {}
        self.left_out = {}      # what rows need and the machine does not have: why
        self.missing = set()    # rows that have not come yet
        self.acknowledged = []  # job ids, in the order of their submission
        self.checked = 0        # of these, at the end
        self.restarted = []     # healthy jobs that a fault stopped: by what, and what they say
        self.open = set()       # of those acknowledged, not yet seen to have succeeded
        self.took = {}          # by fault: (noticed, runs again, all jobs make steps and all workers are back), seconds from its beginning
        self.reference = None
        self.done = 0

    def prepare(self):
        """Takes what it needs of the machine, which close() gives back, and sees which rows there are."""
        self.take_machine()
        self.faults = [f for f in soak_faults.FAULTS if f.needs not in self.left_out and (not self.only or f.name in self.only)]
        self.missing = {fault.name for fault in self.faults}
        first = self.part.comes_first(self.missing)
        # Before chance decides; from the end.
        self.first = [fault for fault in self.random.sample(self.faults, len(self.faults)) if fault.name in first]
        folder = self.cluster.dir
        self.second = rig.second_version(os.path.join(folder, "second"))
        self.clocks = {}
        for daemon in ["coordinator", *self.names]:
            self.clocks[daemon] = rig.JumpingClock(os.path.join(folder, "clock-" + daemon))
            self.cluster.envs[daemon] = self.clocks[daemon].env()
        self.data = os.path.join(folder, "tokens.bin")
        harness.write_tokens(self.data)

    def take_machine(self):
        try:
            if self.shape.devices != CPU.devices:
                raise OSError("ranks on GPUs of one machine exchange through its memory, not its network")
            self.hosts = rig.Hosts(self.names)
        except OSError as error:
            self.left_out["hosts"] = str(error)
        try:
            for name, mib in {"coordinator": 512, "checkpoints": 1024}.items():
                self.disks[name] = rig.SmallDisk(os.path.join(self.cluster.dir, name), mib)
        except OSError as error:
            self.left_out["disks"] = str(error)
        for what, why in self.left_out.items():
            rows = [f.name for f in soak_faults.FAULTS if f.needs == what]
            print(f"LEFT OUT: {', '.join(rows)}: no {what} for this soak: {why}", flush=True)

    def close(self, stays=False):
        """With `stays`, its folder is left where it is."""
        self.cluster.stop()
        for disk in self.disks.values():
            disk.close()
        if self.hosts:
            self.hosts.close()
        if not stays:
            self.cluster.close()

    # -- the cluster ------------------------------------------------------------------------------------------
    def pause(self, least, most):
        time.sleep(self.random.uniform(least, most))

    def gate(self, worker):
        return os.path.join(self.cluster.dir, "gate-" + worker)

    def wait_heard(self, worker):
        """TCP tries again less and less often while a cable is cut: what follows from the cut may come after its end."""
        def seen():
            return next(w.get("lastSeenTime") for w in self.cluster.list_workers() if w["workerId"] == worker)
        before = seen()
        harness.wait_until(f"a word of {worker}", lambda: seen() != before, self.RECOVERY_MAX)

    def other_version(self, daemon):
        bins = self.cluster.bins
        bins[daemon] = harness.BIN if bins.get(daemon) == self.second else self.second

    def start_worker(self, name):
        open(self.gate(name), "w").close()
        self.cluster.envs[name]["HEARTH_FAULTS"] = f"trainer.step=hold:{self.gate(name)},trainer.after_step=delay:{STEP_DELAY_MS}ms"
        where = ("--advertise", self.hosts.address(name)) if self.hosts else ()
        self.cluster.start_worker(name, "--device", self.devices[name], *where)

    def start_coordinator(self):
        """It may end at once with an armed fault; what follows finds out."""
        try:
            self.cluster.start_coordinator()
        except AssertionError:
            if "HEARTH_FAULTS" not in self.cluster.envs["coordinator"]:
                raise

    def end_daemon(self, name, how):
        """Says what its threads do if that takes long."""
        daemon = self.cluster.coordinator if name == "coordinator" else self.cluster.workers[name]
        daemon.kill(how, wait=False)
        try:
            daemon.process.wait(SLOW_END)
        except subprocess.TimeoutExpired:
            print(f"SLOW: {name} has not ended {SLOW_END} s after {how.name}\n{threads_of(daemon.pid)}", flush=True)
        daemon.process.wait(30)
        daemon.log.close()

    def wait_stored(self):
        """Until the coordinator has stored a change. One whose write has failed answers what is under way, ends, and is started again as
        systemd would do."""
        def stored():
            if not self.cluster.coordinator.alive():
                self.start_coordinator()
            return self.cluster.jobctl("note", self.acknowledged[0], "there is room again", check=False).returncode == 0
        harness.wait_until("a change that the coordinator has stored", stored, self.RECOVERY_MAX)

    def start(self):
        c = self.cluster
        if self.hosts:
            c.address, c.coordinator_args = self.hosts.address("hub") + ":0", ["--insecure"]
            c.prefixes = {name: self.hosts.prefix(name) for name in self.names}
        else:
            # Ports stay free while the coordinator is away: clusters beside this one have other addresses.
            c.address = c.http = f"127.0.0.{self.part.cluster}:0"
        self.start_coordinator()
        if self.hosts:
            c.client_args = ["--insecure", "--token-file", harness.token_file(c.address)]
            c.worker_args = ["--insecure", "--token-file", harness.token_file(c.address, worker=True)]
        for name in self.names:
            self.start_worker(name)
        for name in self.names:
            c.wait_worker(name)

    def answer(self, call):
        """What `call` returns. It is made again while a busy disk keeps the coordinator from answering within jobctl's deadline; a job whose
        acknowledgement was lost in this way is one more that must succeed."""
        def once():
            try:
                return [call()]
            except AssertionError as error:
                if "Deadline Exceeded" not in str(error):
                    raise
                return None
        return harness.wait_until("an answer", once, self.RECOVERY_MAX)[0]

    def submit(self):
        shape = self.shape
        spec = harness.tiny_job(self.data, shape.steps, shape.ranks, name="soak", **shape.job)
        spec["checkpoint"] = {"every_steps": CHECKPOINT_EVERY, "keep_last": 2}
        spec["resources"]["max_restarts"] = 1000
        job = self.answer(lambda: self.cluster.submit(spec))
        self.acknowledged.append(job)
        self.open.add(job)
        return job

    def jobs(self):
        """The open ones, as the coordinator has them; those that have succeeded are replaced by new ones."""
        found = {}
        for job_id in sorted(self.open):
            job = self.answer(lambda: self.cluster.job(job_id))
            if job["state"] == "JOB_STATE_SUCCEEDED":
                self.open.discard(job_id)
            elif job["state"] == "JOB_STATE_FAILED":
                raise Failure(f"{job_id} failed: {job['reason']}\n{self.cluster.job_log(job_id)}")
            else:
                found[job_id] = job
        return found

    def tell_open_jobs(self):
        """What the coordinator says of the jobs that have not ended, for failure messages."""
        for job_id in sorted(self.open):
            for command in ("describe", "logs"):
                try:
                    said = self.cluster.jobctl(command, job_id, check=False, timeout=20)
                except subprocess.TimeoutExpired as error:
                    print(f"--- {command} {job_id}: {error}", file=sys.stderr, flush=True)
                    continue
                print(f"--- {command} {job_id}\n{(said.stdout + said.stderr)[-4000:]}", file=sys.stderr, flush=True)

    def running(self):
        """Waits until enough jobs run."""
        def ready():
            jobs = self.jobs()
            for _ in range(self.shape.jobs - len(jobs)):
                self.submit()
            busy = {k: j for k, j in jobs.items() if j["state"] == "JOB_STATE_RUNNING"}
            return busy if len(busy) == self.shape.jobs else None
        return harness.wait_until(f"{self.shape.jobs} running jobs", ready, self.RECOVERY_MAX)

    def submit_or_not(self):
        try:
            self.submit()
        except AssertionError:
            pass

    # -- one fault and what must follow ------------------------------------------------------------------------------
    def draw(self, kinds):
        if self.first:
            return self.first[-1]
        return self.random.choices(kinds, [fault.weight for fault in kinds])[0]

    def one_fault(self):
        jobs = self.running()
        watch = Watch(self.cluster, jobs)
        names, hits = [], []  # hits: of each fault, when it began and the jobs that it hit
        ended = {}  # by job: the last epoch that a fault has ended for sure
        fault = self.draw(self.faults)
        behind = [f for f in self.faults if not f.alone]
        pair = [fault, self.draw(behind)] if not self.first and behind and self.random.random() < ONE_BEHIND_ANOTHER else [fault]
        for fault in pair:
            began = time.monotonic()
            watch.recorder.begin()
            found = fault.act(self, jobs)
            if found is not None:
                if self.first and fault is self.first[-1]:
                    self.first.pop()  # one that found nothing to hit comes again
                self.missing.discard(fault.name)
                names.append(" ".join([fault.name, *sorted(found.workers)]))
                hits.append((began, {k for k, job in jobs.items() if found.workers & set(job["workers"])}))
                for job_id in found.ended.keys() & jobs.keys():
                    # The fault before may have started the job again: what this one has ended is a later epoch then.
                    ended[job_id] = max(ended.get(job_id, 0), found.ended[job_id])
        if names:
            # Jobs that need not start again are measured from here: steps from before the fault
            # show nothing.
            hit = set().union(*(job_ids for _, job_ids in hits))
            since = {job_id: self.cluster.job(job_id) for job_id in hit - set(ended)}
            self.expect_recovery({**jobs, **since}, names, hits, ended, watch)
        else:
            watch.end()

    def trainers_started(self, worker):
        """All that the worker has ever started, by its log, in order."""
        return [Trainer(int(pid), job_id, int(epoch)) for job_id, epoch, pid in
                re.findall(r"(\S+) e(\d+): trainer started, process (\d+)\b", self.cluster.workers[worker].output())]

    def trainer(self, worker):
        """The one that runs there, None without one."""
        pids = self.cluster.trainer_pids(worker)
        if not pids:
            return None

        def known():
            return next((t for t in reversed(self.trainers_started(worker)) if t.pid == pids[0]), None)
        # The process is there before the line in the log.
        harness.wait_until(f"a word of {worker} about process {pids[0]}", lambda: known() or not os.path.exists(f"/proc/{pids[0]}"), 30)
        return known()

    def last_epochs(self, workers):
        """By job: the last epoch for which one of these workers has started a trainer."""
        last = {}
        for trainer in (t for worker in workers for t in self.trainers_started(worker)):
            last[trainer.job] = max(last.get(trainer.job, 0), trainer.epoch)
        return last

    def expect_recovery(self, jobs, names, hits, ended, watch):
        """The jobs in `ended` cannot have got over the faults without a new start, after that epoch."""
        hit = set().union(*(job_ids for _, job_ids in hits))
        kind = soak_faults.kind_of(names)

        def goes_on(job_id):
            before, now = jobs[job_id], self.cluster.job(job_id)
            if now["state"] == "JOB_STATE_SUCCEEDED":
                return now
            advanced = int(now["epoch"]) > ended[job_id] if job_id in ended else \
                (int(now["epoch"]), int(now["step"])) > (int(before["epoch"]), int(before["step"]))
            return now if now["state"] == "JOB_STATE_RUNNING" and advanced else None

        for job_id in sorted(hit) + sorted(set(jobs) - hit):
            now = harness.wait_until(f"{job_id} to go on after {', '.join(names)}", lambda: goes_on(job_id), self.RECOVERY_MAX)
            if job_id not in hit and now["epoch"] != jobs[job_id]["epoch"]:
                self.restarted.append(f"{', '.join(names)}: restarted {job_id}, which runs on {jobs[job_id]['workers']}: "
                                      f"{[e['message'] for e in self.cluster.events(job_id)][-3:]}")
                raise Failure(self.restarted[-1])
        watch.end()
        for job_id in hit:
            watch.read_notices(job_id, self.answer(lambda: self.cluster.events(job_id)))
        noticed, runs = watch.slowest(hits)
        for name in self.cluster.workers:
            self.cluster.wait_worker(name)
        self.done += len(names)
        took = time.monotonic() - watch.began
        self.took.setdefault(kind, []).append((noticed, runs, took))
        print(f"{self.done} {', '.join(names)}: {took:.1f} s", flush=True)
        for slow in watch.slow(names, hits):
            self.dossiers.add(slow, names, watch.recorder)
        if (noticed or 0) > NOTICED_GOAL or (runs or 0) > RUNS_GOAL:
            for job_id in sorted(hit):
                self.tell_recovery(job_id)

    def tell_recovery(self, job_id):
        """What the job's last events say, for whoever looks for the cause of a slow recovery."""
        for event in self.cluster.events(job_id)[-EVENTS_OF_A_RECOVERY:]:
            print(f"SLOW: {job_id} {event['time']} {event['actor']}: {event['message']}", flush=True)

    # -- the end ---------------------------------------------------------------------------------------------------
    def outcome(self, job_id):
        rows = self.cluster.metrics(job_id)
        if [int(r["step"]) for r in rows] != list(range(1, self.shape.steps + 1)):
            raise Failure(f"{job_id}: {len(rows)} steps in the history, or not each once")
        return [r["loss"] for r in rows], harness.weights_sha256(self.cluster.final_checkpoint(job_id))

    def check(self):
        known = {job["jobId"]: job["state"] for job in self.cluster.json("list", "--limit", 0).get("jobs", [])}
        for job_id in self.acknowledged:
            if known.get(job_id) != "JOB_STATE_SUCCEEDED":
                raise Failure(f"{job_id} was acknowledged and is {known.get(job_id, 'lost')}")
            if self.outcome(job_id) != self.reference:
                raise Failure(f"{job_id}: losses or weights differ from those of the undisturbed run")
            self.checked += 1
        for job_id in set(known) - set(self.acknowledged):  # it was taken and its answer lost
            self.cluster.wait_state(job_id, "SUCCEEDED")
        harness.wait_until("the removal of folders that no job needs", self.only_a_person_can_tell, self.RECOVERY_MAX)
        self.answer(lambda: self.cluster.jobctl("checkpoints", "prune", "--min-age", "0s", "--yes"))
        harness.wait_until("the removal of what was pruned", lambda: not self.leftovers().get("folders"), self.RECOVERY_MAX)
        trainers = [pid for name in self.cluster.workers for pid in self.cluster.trainer_pids(name)]
        if trainers:
            raise Failure(f"trainers are left: {trainers}")
        for daemon in [*self.cluster.workers.values(), self.cluster.coordinator]:
            daemon.kill(signal.SIGTERM)
        left = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if self.is_ours(pid)]
        if left:
            raise Failure(f"processes are left: {left}")

    def leftovers(self):
        return self.answer(lambda: self.cluster.json("checkpoints", "prune", "--dry-run", "--min-age", "0s"))

    def only_a_person_can_tell(self):
        """Whether all that is left are whole checkpoints whose times a jump of the clock has made useless (docs/reliability.md)."""
        found = self.leftovers()
        return all(f["folder"]["kind"].endswith("_COMPLETE") and "changed when this job did not run" in f["reason"]
                   for f in found.get("folders", [])) and not any(root.get("pending") for root in found["roots"])

    def is_ours(self, pid):
        try:
            # Children inherit the environment: this finds processes whose parent has ended, too.
            with open(f"/proc/{pid}/environ", "rb") as f:
                return f"HEARTH_HOME={self.cluster.dir}".encode() in f.read().split(b"\0")
        except OSError:
            return False

    def run(self, faults, seconds):
        over = time.monotonic() + seconds
        self.prepare()
        self.start()
        # One job alone first: its losses and weights are what all others must come to.
        self.submit()
        harness.wait_until("the undisturbed run", lambda: not self.jobs(), self.RECOVERY_MAX)
        self.reference = self.outcome(self.acknowledged[0])
        while self.done < faults and time.monotonic() < over:
            self.one_fault()
        harness.wait_until("the last jobs", lambda: not self.jobs(), self.RECOVERY_MAX)
        self.check()

    def summary(self, failure=None):
        """What soak_table.py makes a table of."""
        return {"seed": self.seed, "faults": self.done, "jobs": len(self.acknowledged), "checked": self.checked, "restarted": self.restarted,
                "took": self.took, "left_out": self.left_out, "missing": sorted(self.missing), "failure": failure,
                "dossiers": self.dossiers.written}


def options_of(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=0, help="how many in all; 100, or with --seconds as many as fit")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no fault begins later than this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=1, metavar="N", help="side by side, each with its share of the faults")
    parser.add_argument("--cluster", type=int, default=0, metavar="K", help="only the K-th of --clusters, from 1")
    parser.add_argument("--folder", metavar="DIR", help="where all files go, a new one; a failed run leaves there what it has")
    parser.add_argument("--dossiers", metavar="DIR", help="what it saw of slow recoveries goes here; default: beside the folder of all files")
    parser.add_argument("--json", metavar="FILE", help="write the times of all faults here, for soak_table.py; also after a failure")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="workers on cuda:0 to cuda:N-1 instead of five on the CPU")
    parser.add_argument("--optimizer", default="adamw", help="of the jobs")
    parser.add_argument("--only", nargs="+", default=(), choices=[f.name for f in soak_faults.FAULTS], metavar="FAULT")
    options = parser.parse_args(argv)
    if not options.faults:
        options.faults = 100 if options.seconds == float("inf") else sys.maxsize
    if not 0 <= options.cluster <= options.clusters <= options.faults:
        parser.error(f"--cluster {options.cluster} of --clusters {options.clusters} with {options.faults} faults: a cluster has at least one")
    if options.gpus and options.clusters > 1:
        parser.error("--gpus takes one cluster: it has all the GPUs")
    return options


def one_cluster(options, folder):
    """Its summary. A failed one leaves its folder behind."""
    part = soak_clusters.Part(options.cluster or 1, options.clusters, options.seed)
    print(f"seed {part.own_seed()}", flush=True)
    shape = on_gpus(options.gpus) if options.gpus else CPU
    shape = dataclasses.replace(shape, job={**shape.job, "optimizer": {"name": options.optimizer}})
    soak = Soak(part, folder, options.dossiers, options.only, shape)
    failure = None
    try:
        soak.run(part.faults(options.faults), options.seconds)
    except BaseException as error:  # an interrupted run says how far it came, too
        for interruption in (signal.SIGINT, signal.SIGTERM):
            signal.signal(interruption, signal.SIG_IGN)
        harness.Outcome.count += 1  # keeps the folder
        failure = f"{type(error).__name__}: {error}"
        print(f"FAILED after {soak.done} faults: {failure}", file=sys.stderr, flush=True)
        traceback.print_exc()
        soak.tell_open_jobs()
    finally:
        soak.close(stays=options.folder and failure)
    return soak.summary(failure)


def several_clusters(options, argv, folder):
    """One summary of all."""
    def command(cluster, own_folder, summary):
        return [sys.executable, os.path.abspath(__file__), *argv, "--cluster", str(cluster), "--folder", own_folder, "--json", summary,
                "--dossiers", options.dossiers]

    runs = soak_clusters.side_by_side(options.clusters, folder, command)
    return {"seed": options.seed, "clusters": runs, **soak_table.merge(runs)}


def main(argv):
    options = options_of(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.folder:
        os.makedirs(options.folder)  # whoever passes all checks removes it
    folder = options.folder or tempfile.mkdtemp(prefix="hearth-soak-")
    options.dossiers = os.path.abspath(options.dossiers or os.path.normpath(folder) + "-dossiers")
    several = options.clusters > 1 and not options.cluster
    summary = several_clusters(options, argv, folder) if several else one_cluster(options, folder)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(summary, f)
    if not (options.cluster and options.json):  # else whoever started it makes one table of all
        print("\n" + soak_table.table(summary["clusters"] if several else [summary]), flush=True)
    if several and not summary["failure"]:
        shutil.rmtree(folder)
    return 1 if summary["failure"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
