"""What a slow recovery leaves behind for whoever looks for its cause: the times of a fault in a job, the job's events, what its workers were
and did, the lines of all logs around it, and the processes that were there while the soak waited. While all is quick nothing is written, and
little is looked at."""

import dataclasses
import http.client
import json
import os
import re
import subprocess
import time

NOTICED_MAX, RUNS_MAX = 5, 8  # seconds from the beginning of a fault; what takes longer gets a dossier
LOOK_AT = (1.5, 3, 5, 6.5, 8, 10, 14)  # seconds from the beginning of a fault, at processes, while a job waits
WORKERS_EVERY = 0.2     # seconds, while a job waits
STEP_MISSING = 1.5      # seconds without a step of a job that runs: it waits
BEFORE = 15             # seconds of logs before the fault
LINES_MAX = 400         # of each log
DAY = 86400
STAMP = re.compile(r"^\S*?\d{4}-\d\d-\d\d[T ](\d\d):(\d\d):(\d\d(?:\.\d+)?)Z?\s")


@dataclasses.dataclass(frozen=True)
class Slow:
    """One job that a fault disturbed: seconds from the beginning of the fault; None for what was not seen."""
    fault: str
    job_id: str
    began: float  # time.monotonic()
    noticed: float
    runs: float
    epoch: int    # before the fault
    stepped: float = None  # the last step of that epoch

    def counts(self):
        return (self.noticed or 0) > NOTICED_MAX or (self.runs or 0) > RUNS_MAX


# -- phases --------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Phase:
    name: str
    ends: object  # of (Slow, Lines): the second at which it ends; None: not known, it counts for the next


def stepped(slow, _lines):
    return slow.stepped


def noticed(slow, _lines):
    return slow.noticed


def killed(slow, lines):
    return lines.first(slow, r"{job} e(\d+): kill, grace", old=True)


def exited(slow, lines):
    return lines.last(slow, r"{job} e(\d+): trainer ended", old=True)


def placed(slow, lines):
    return lines.last(slow, r"{job} \S+: epoch (\d+) on", old=False)


def started(slow, lines):
    return lines.last(slow, r"{job} e(\d+): trainer started", old=False)


def runs(slow, _lines):
    return slow.runs


PHASES = (
    Phase("steps that still came", stepped),
    Phase("noticing", noticed),
    Phase("telling the other ranks to end", killed),
    Phase("waiting for the old ranks to exit", exited),
    Phase("waiting for free workers", placed),
    Phase("starting the trainers", started),
    Phase("the way to the first step", runs),
)


class Lines:
    """Lines of all logs and the job's events: (seconds from the beginning of the fault, where, text), in order."""

    def __init__(self, rows):
        self.rows = sorted(rows, key=lambda row: row[0])

    def times(self, slow, pattern, old):
        """When lines came that match, after the fault and until the job ran again, of an epoch before (`old`) or after it."""
        pattern = re.compile(pattern.format(job=re.escape(slow.job_id)))
        found = [(at, pattern.search(text)) for at, _, text in self.rows if 0 <= at <= (slow.runs or at) + 0.5]
        return [at for at, match in found if match and (int(match.group(1)) <= slow.epoch) == old]

    def first(self, slow, pattern, old):
        return min(self.times(slow, pattern, old), default=None)

    def last(self, slow, pattern, old):
        return max(self.times(slow, pattern, old), default=None)


def phases(slow, lines):
    """[(name, seconds)]: where the time went. A phase that ended before the one before it took no time."""
    at, out = 0, []
    for phase in PHASES:
        end = phase.ends(slow, lines)
        if end is not None:
            out.append((phase.name, max(0, end - at)))
            at = max(at, end)
    return out


def guess(slow, lines):
    """One line: which phase took the longest."""
    spans = phases(slow, lines)
    longest = max(spans, key=lambda span: span[1], default=("nothing was seen", 0))
    says = ", ".join(f"{name} {seconds:.1f}" for name, seconds in spans)
    return f"{longest[0]}: {longest[1]:.1f} s (in all: {says})"


def seconds_after(stamp, began):
    """From `began`, seconds since 1970, to a stamp's hour, minute and second. Its day does not count: the soak lets clocks jump by days."""
    hour, minute, second = stamp.groups()
    of_day = int(hour) * 3600 + int(minute) * 60 + float(second)
    return (of_day - began + DAY / 2) % DAY - DAY / 2


def stamped(where, text, began, until):
    """Lines of a log between `BEFORE` seconds before `began` and `until` seconds after it; one without a stamp belongs to the one before."""
    rows, at = [], None
    for line in text.splitlines():
        stamp = STAMP.match(line)
        at = seconds_after(stamp, began) if stamp else at
        if at is not None and -BEFORE <= at <= until:
            rows.append((at, where, line))
    return rows[-LINES_MAX:]


# -- processes -----------------------------------------------------------------------------------------------------
def read(path, size=4096):
    try:
        with open(path, "rb") as f:
            return f.read(size).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def processes(daemons):
    """What runs below these processes, and they themselves: a line each with its state, where its threads wait, and its command.
    `daemons`: by name the process id."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        fields = read(f"/proc/{pid}/stat").rsplit(")", 1)[-1].split()
        if fields:
            parents[int(pid)] = int(fields[1])
    lines = []
    for name, root in daemons.items():
        family, new = [], [root] if root in parents else []
        while new:
            family += new
            new = [pid for pid, parent in parents.items() if parent in new]
        lines += [f"{name}: {process(pid)}" for pid in family] or [f"{name}: process {root} has ended"]
    return lines


def process(pid):
    status = dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    threads = []
    try:
        for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
            fields = read(f"/proc/{pid}/task/{task}/stat").rsplit(")", 1)[-1].split()
            threads.append(f"{read(f'/proc/{pid}/task/{task}/comm')}:{fields[0] if fields else '?'}:"
                           f"{read(f'/proc/{pid}/task/{task}/wchan') or '?'}")
    except OSError:
        pass
    return f"{pid} parent {status.get('PPid', '?')} {status.get('State', 'gone')} {read(f'/proc/{pid}/cmdline')[:120]} [{' '.join(threads)}]"


# -- what is remembered of a fault that is under way ----------------------------------------------------------------
class Recorder:
    """Used by one thread; another calls begin()."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.looks = []    # (when, a line about a job, a worker or a process); times are time.monotonic()
        self.steps = {}    # by job: (when its step was first seen, epoch, step)
        self.stepped = {}  # by job and epoch: when a step was last seen
        self.workers = {}  # by name: what the last look found
        self.asked = 0
        self.begin()

    def begin(self):
        """A fault begins."""
        self.began, self.to_come = time.monotonic(), list(LOOK_AT)

    def tell(self, text):
        self.looks.append((time.monotonic(), text))

    def job(self, job_id, now):
        """What the coordinator says of it."""
        at, said = time.monotonic(), (now["epoch"], now["state"], now["step"])
        before = self.steps.get(job_id)
        if before and before[1][0] == said[0] and before[1][2] < said[2]:
            self.stepped[job_id, int(said[0])] = at
        if before is None or before[1] != said:
            if before and at - before[0] > STEP_MISSING:
                self.tell(f"{job_id}: after {at - before[0]:.1f} s as {before[1]} it is {said}")
            self.steps[job_id] = (at, said)

    def waits(self):
        """Whether any job does: it does not run, or no step comes."""
        now = time.monotonic()
        return any(said[1] not in ("running", "succeeded") or now - at > STEP_MISSING for at, said in self.steps.values())

    def look(self):
        if not self.waits():
            return
        now = time.monotonic()
        if now - self.asked > WORKERS_EVERY:
            self.asked = now
            self.look_at_workers()
        if self.to_come and now - self.began >= self.to_come[0]:
            self.to_come = [at for at in self.to_come if at > now - self.began]
            daemons = {"coordinator": self.cluster.coordinator, **self.cluster.workers}
            for line in processes({name: daemon.pid for name, daemon in daemons.items()}):
                self.tell("process of " + line)

    def look_at_workers(self):
        try:
            found = json.loads(self.cluster.get("/api/v1/workers", timeout=1))["workers"]
        except (OSError, http.client.HTTPException):
            return
        for worker in found:
            said = {key: worker[key] for key in ("state", "job_id", "rank", "version", "reason", "draining")}
            if self.workers.get(worker["worker_id"]) != said:
                self.workers[worker["worker_id"]] = said
                self.tell(f"worker {worker['worker_id']}: {json.dumps(said)}")


# -- dossiers ------------------------------------------------------------------------------------------------------
class Dossiers:
    """Those of one cluster, in `folder`, which is made with the first. `prefix`: of their names, as clusters share the folder."""

    def __init__(self, cluster, folder, prefix=""):
        self.cluster, self.folder, self.prefix = cluster, folder, prefix
        self.written = []  # {"path", "guess"}, for the summary

    def lines(self, slow):
        """Lines of all logs around the fault, with the job's events; those of the trainers."""
        until = time.monotonic() - slow.began
        began = time.time() - until
        rows = []
        for name, daemon in {"coordinator": self.cluster.coordinator, **self.cluster.workers}.items():
            rows += stamped(name, daemon.output(), began, until)
        for event in self.cluster.events(slow.job_id):
            rows += stamped("event", f"{event['time']} {slow.job_id} {event['actor']}: {event['message']}", began, until)
        log = self.cluster.jobctl("logs", "--timestamps", slow.job_id, check=False, timeout=20).stdout
        return Lines(rows), stamped("trainer", log, began, until) or [(0, "trainer", line) for line in log.splitlines()[-LINES_MAX:]]

    def add(self, slow, names, recorder):
        """Writes one. It must not end a soak: what cannot be had is missing."""
        try:
            lines, trainers = self.lines(slow)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            lines, trainers = Lines([]), [(0, "trainer", f"no logs: {error}")]
        looks = [(at - slow.began, "look", text) for at, text in recorder.looks]
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, f"{self.prefix}{len(self.written) + 1}-{slow.fault.replace(' ', '-')}-{slow.job_id}.txt")
        says = guess(slow, lines)
        times = ", ".join(f"{name} after {at:.2f} s" if at is not None else f"not seen: {name}"
                          for name, at in (("noticed", slow.noticed), ("runs again", slow.runs)))
        with open(path, "w", encoding="utf-8") as f:
            print(f"{', '.join(names)}: {slow.job_id}, epoch {slow.epoch} before, {times}\nlongest: {says}\n\n"
                  "Seconds from the beginning of the fault, and where the line is from; \"look\" is the soak's own.\n", file=f)
            for at, where, text in sorted([*lines.rows, *trainers, *looks], key=lambda row: row[0]):
                print(f"{at:+8.2f} {where}: {text}", file=f)
        self.written.append({"path": path, "guess": f"{', '.join(names)}, {slow.job_id}, {times}; {says}"})
        print(f"DOSSIER {path}: {says}", flush=True)
