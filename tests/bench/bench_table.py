#!/usr/bin/env python3
"""Runs `hearth-trainer bench` over a table of jobs and prints what each reached.

  bench_table.py [--bin DIR] [--steps N] [--repeat N] [--budget S] [--row-limit S] [--peer PEER.jsonl | --peer-program PEER.py]
                 [--device N] [--free-seconds S] [--markdown] --out DIR ROWS...

A rows file has one run a line, `LABEL | JOB | FIELD=VALUE ...`: JOB names a file of configs/jobs without .yaml, or a path; lines of '#'
are comments. The first word of LABEL is the model: with --peer (lines of torch_peer.sh, the median where a model has several) the share of
that model's PyTorch BF16 speed stands beside. With --peer-program torch_peer.sh measures that program before the rows of each round, so
that the two alternate on one machine. With --repeat all rows run N times, one after the other each time, and the table has the median of
each figure and the spread of the speed, (largest - smallest) / median. --markdown prints the table as our documents have it. Written to
DIR: bench.jsonl (each run's own JSON with label, job, settings, watts) and bench.txt (the table, as printed).
A program starts when the memory of the one before is free again, by nvidia-smi; what is not free after --free-seconds fails the row.
SIGINT, SIGTERM and SIGHUP also end the program that runs.
Exit status: 0 all rows ran, 1 one failed or did not fit into the budget, 2 usage. Standard library only.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

# Watts of shorter runs are left out: a GPU's power has not settled (kWattsSeconds in worker/trainer/cli/bench/bench_length.h).
WATTS_SECONDS = 3

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# Columns: heading, key of the bench's JSON, text of a value.
COLUMNS = [
    ("tok/s", "tok_s", lambda v: f"{v:,.0f}"),
    ("ms", "step_ms", lambda v: f"{v:.2f}"),
    ("fwd", "forward_ms", lambda v: f"{v:.2f}"),
    ("bwd", "backward_ms", lambda v: f"{v:.2f}"),
    ("opt", "optimizer_ms", lambda v: f"{v:.2f}"),
    ("floor", "share_of_floor", lambda v: f"{100 * v:.1f} %"),
    ("MFU", "mfu", lambda v: f"{100 * v:.1f} %"),
    ("GiB", "measured_bytes", lambda v: f"{v / 2**30:.2f}"),
    ("planned", "predicted_bytes", lambda v: f"{v / 2**30:.2f}"),
    ("W", "watts", lambda v: f"{v:.0f}"),
    ("tok/J", "tokens_per_joule", lambda v: f"{v:,.0f}"),
    ("first s", "first_step_s", lambda v: f"{v:.2f}"),
    ("/ torch", "peer_ratio", lambda v: f"{v:.3f}"),
    ("spread", "spread", lambda v: f"{100 * v:.1f} %"),
    ("runs", "runs", lambda v: f"{v:.0f}"),
]


def parse_rows(path):
    rows = []
    with open(path) as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            parts = [p.strip() for p in line.split("|")]
            if len(parts) not in (2, 3) or not parts[0] or not parts[1]:
                raise SystemExit(f"{path}:{number}: want LABEL | JOB | FIELD=VALUE ...")
            job = parts[1] if "/" in parts[1] else os.path.join(ROOT, "configs", "jobs", parts[1] + ".yaml")
            sets = parts[2].split() if len(parts) == 3 else []
            bad = [s for s in sets if "=" not in s]
            if bad or not os.path.isfile(job):
                raise SystemExit(f"{path}:{number}: {'not FIELD=VALUE: ' + bad[0] if bad else 'no file ' + job}")
            rows.append((parts[0], job, sets))
    return rows


def last_json(text):
    """The last object that begins at the start of a line, on one line or several; None when there is none."""
    decoder = json.JSONDecoder()
    at, found = 0, None
    while True:
        start = 0 if at == 0 and text.startswith("{") else text.find("\n{", at) + 1
        if start == 0 and not (at == 0 and text.startswith("{")):
            return found
        try:
            found, length = decoder.raw_decode(text[start:])
            at = start + length
        except ValueError:
            at = start + 1


class GpuMemory:
    """Memory of a GPU by nvidia-smi. A driver may take seconds to free what a program held that has ended."""
    MARGIN_MIB = 1024  # other programs' ups and downs

    def __init__(self, device, limit, clock=time.monotonic, sleep=time.sleep):
        self.device, self.limit, self.clock, self.sleep = device, limit, clock, sleep
        self.at_start = self.used_mib()

    def used_mib(self):
        """None without nvidia-smi, and where it does not answer with a number."""
        try:
            run = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", str(self.device)],
                                 capture_output=True, text=True, timeout=30)
            return int(run.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return None

    def wait_until_free(self):
        """Waits until no more is used than at the start; the problem if that does not happen, else ""."""
        if self.at_start is None:
            return ""
        deadline = self.clock() + self.limit
        while True:
            used = self.used_mib()
            if used is not None and used <= self.at_start + self.MARGIN_MIB:
                return ""
            if self.clock() >= deadline:
                break
            self.sleep(0.2)
        if used is None:
            return f"nvidia-smi does not say how much memory of GPU {self.device} is used"
        return (f"GPU {self.device} uses {used} MiB, {self.at_start} MiB when the table began, {self.limit:g} s after the program before"
                " ended; see nvidia-smi for what still runs on it")


class PowerMeter:
    """nvidia-smi beside a run. Watts while it was busy: the mean of the upper half of the samples, which leaves out start and end."""

    def __init__(self, index):
        try:
            self.process = subprocess.Popen(
                ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "-i", str(index), "-lms", "100"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            self.process = None

    def stop(self):
        if self.process is None:
            return None
        self.process.terminate()
        try:
            text, _ = self.process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            text, _ = self.process.communicate()
        samples = []
        for line in text.splitlines():
            try:
                samples.append(float(line))
            except ValueError:
                continue
        samples.sort()
        upper = samples[len(samples) // 2:]
        return sum(upper) / len(upper) if len(upper) >= 3 else None


def gpu_environment(device):
    """The environment in which the one GPU a program sees is nvidia-smi's number `device` (its order is that of PCI addresses)."""
    return {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(device)}


def session_members(session):
    """Processes of a session that have not ended. A process group is too little: `timeout` gives its program one of its own."""
    members = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as f:
                state, _, _, of_session = f.read().rsplit(")", 1)[1].split()[:4]
        except OSError:  # it has ended
            continue
        if int(of_session) == session and state not in "ZX":
            members.append(int(name))
    return members


def end_session(session):
    """Kills all processes of a session and waits up to 30 s until they are gone: what holds a GPU may take a while to end."""
    for _ in range(1500):
        members = session_members(session)
        if not members:
            return
        for member in members:
            try:
                os.kill(member, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def run_limited(argv, limit, log, env=None):
    """Output of `argv` and "", or None and what went wrong. Whatever it started has ended when this returns or raises."""
    with open(log, "ab") as out:
        out.write((" ".join(argv) + "\n").encode())
        out.flush()
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                                   env=env)
        try:
            text, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            end_session(process.pid)
            process.communicate()
            out.write(f"killed after {limit:.0f} s\n".encode())
            return None, "no end after %.0f s" % limit
        finally:
            end_session(process.pid)
        out.write(text)
    if process.returncode != 0:
        return None, f"exit status {process.returncode}"
    return text.decode(errors="replace"), ""


def stop_on_signals():
    """The signals that end a program end the table through an exception, which ends the program that runs."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number, _):
        for each in signals:  # a second one must not disturb what the first began
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for each in signals:
        if signal.getsignal(each) != signal.SIG_IGN:  # nohup
            signal.signal(each, stop)


def failure_text(log, begin, fallback):
    """What the trainer said last after byte `begin` of the log."""
    with open(log, errors="replace") as f:
        f.seek(begin)
        lines = [line.strip() for line in f if line.strip()]
    said = [line for line in lines[-5:] if line.startswith("hearth-trainer:")]
    return (said[-1] if said else fallback)[:200]


def read_peers(path):
    """Model -> tok/s of PyTorch in BF16."""
    peers = {}
    with open(path) as f:
        for line in f:
            if line.startswith("{"):
                row = json.loads(line)
                if row.get("peer") == "torch-bf16" and "model" in row:
                    peers.setdefault(row["model"], []).append(float(row["tok_s"]))
    return {model: statistics.median(speeds) for model, speeds in peers.items()}


def measure_peer(args, models, round_number, memory, limit, log):
    """One round of the peer: model -> tok/s of the models it ran."""
    deadline = time.monotonic() + limit
    peers = {}
    for model in models:
        path = os.path.join(args.out, f"peer-{round_number}-{model}.jsonl")
        problem = memory.wait_until_free()
        if not problem:
            argv = [os.path.join(HERE, "torch_peer.sh"), args.peer_program, path, model]
            _, problem = run_limited(argv, max(deadline - time.monotonic(), 1), log, {**gpu_environment(args.device), "PRECISIONS": "bf16"})
        if problem:
            print(f"bench_table: no peer for {model}: {problem}; see {log}", file=sys.stderr)
        else:
            peers.update(read_peers(path))
    return peers


def timed_seconds(bench):
    """How long the steps took that a bench timed; 0 if it does not say."""
    return bench.get("steps", 0) * bench.get("step_ms", 0) / 1e3


def measure(row, args, peers, memory, log, limit):
    label, job, sets = row
    settings = [s for pair in [f"train.deterministic={args.deterministic}", *sets] for s in ("--set", pair)]
    argv = [os.path.join(args.bin, "hearth-trainer"), "bench", job, "-o", "json", *settings]
    if args.steps:
        argv += ["--steps", str(args.steps)]
    if problem := memory.wait_until_free():
        return {"label": label, "job": os.path.basename(job), "set": sets, "error": problem}
    begin = os.path.getsize(log) if os.path.exists(log) else 0
    meter = PowerMeter(args.device)
    try:
        text, problem = run_limited(argv, limit, log, gpu_environment(args.device))
    finally:
        watts = meter.stop()
    found = last_json(text) if text is not None else None
    if found is None:
        return {"label": label, "job": os.path.basename(job), "set": sets,
                "error": failure_text(log, begin, problem or "printed no JSON")}
    result = {"label": label, "job": os.path.basename(job), "set": sets, "bench": found}
    shown = {heading: float(found[key]) for heading, key, _ in COLUMNS if isinstance(found.get(key), (int, float))}
    if not shown.get("W") and watts is not None and timed_seconds(found) >= WATTS_SECONDS:
        shown["W"] = watts
    if shown.get("tok/s") and shown.get("W"):
        shown.setdefault("tok/J", shown["tok/s"] / shown["W"])
    model = label.split()[0]
    if model in peers and shown.get("tok/s"):
        shown["/ torch"] = shown["tok/s"] / peers[model]
    result["shown"] = shown
    return result


def medians(results):
    """One result a label: the median of each figure of its runs, or what failed first. Rounds for which no time was left do not
    hide those that ran; the column "runs" counts these."""
    by_label = {}
    for result in results:
        by_label.setdefault(result["label"], []).append(result)
    out = []
    for runs in by_label.values():
        repeated = len(runs) > 1
        runs = [run for run in runs if not run.get("not_run")] or runs[:1]
        failed = [run for run in runs if "error" in run]
        if failed or not repeated:
            out.append((failed or runs)[0])
            continue
        headings = set().union(*(run["shown"] for run in runs))
        shown = {h: statistics.median(run["shown"][h] for run in runs if h in run["shown"]) for h in headings}
        speeds = [run["shown"]["tok/s"] for run in runs if "tok/s" in run["shown"]]
        if len(speeds) > 1:
            shown["spread"] = (max(speeds) - min(speeds)) / shown["tok/s"]
        shown["runs"] = len(runs)
        out.append({"label": runs[0]["label"], "shown": shown})
    return out


def table(results, markdown=False):
    results = medians(results)
    headings = [h for h, _, _ in COLUMNS if any(h in r.get("shown", {}) for r in results)]
    texts = {h: text for h, _, text in COLUMNS}
    lines = [["", *headings]]
    for r in results:
        shown = r.get("shown", {})
        lines.append([r["label"], *(texts[h](shown[h]) if h in shown else "-" for h in headings)])
    if markdown:
        rows = [f"| {' | '.join(line)} |" if "error" not in r else f"| {line[0]} | FAILED: {r['error']} |"
                for line, r in zip(lines, [{}, *results])]
        return "\n".join([rows[0], "|---" * len(lines[0]) + "|", *rows[1:]]) + "\n"
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings) + 1)]
    out = []
    for line, r in zip(lines, [{}, *results]):
        cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        out.append("  ".join(cells).rstrip() if "error" not in r else f"{line[0].ljust(widths[0])}  FAILED: {r['error']}")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="+", help="rows files")
    parser.add_argument("--bin", default=os.path.join(ROOT, "bin") if os.path.isdir(os.path.join(ROOT, "bin"))
                        else os.path.join(ROOT, "build", "release", "bin"))
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, help="steps measured (default: 60 or 5 s, on a GPU at least 3 s)")
    parser.add_argument("--repeat", type=int, default=1, help="how often all rows run; the table has medians")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--deterministic", default="false", choices=("false", "true", "auto"))
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for all rows; the rest is reported as not run")
    parser.add_argument("--row-limit", type=float, default=90, help="seconds for one row")
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--peer", help="lines of torch_peer.sh")
    peer.add_argument("--peer-program", metavar="PEER.py", help="measured by torch_peer.sh before the rows of each round")
    parser.add_argument("--device", default="0", help="the GPU to measure, as nvidia-smi numbers them")
    parser.add_argument("--free-seconds", type=float, default=60, help="how long memory of the program before may take to be free")
    parser.add_argument("--log", help="everything the runs printed (default: OUT/bench.log)")
    args = parser.parse_args()
    rows = [row for path in args.rows for row in parse_rows(path)]
    peers = read_peers(args.peer) if args.peer else {}
    os.makedirs(args.out, exist_ok=True)
    log = args.log or os.path.join(args.out, "bench.log")
    deadline = time.monotonic() + args.budget
    stop_on_signals()
    memory = GpuMemory(args.device, args.free_seconds)
    results = []
    with open(os.path.join(args.out, "bench.jsonl"), "w") as lines:
        for number, row in enumerate(rows * max(args.repeat, 1)):
            left = deadline - time.monotonic()
            if args.peer_program and number % len(rows) == 0:
                models = list(dict.fromkeys(row[0].split()[0] for row in rows))
                peers = measure_peer(args, models, number // len(rows) + 1, memory, min(max(left, 1), args.row_limit * len(models)), log)
                left = deadline - time.monotonic()
            if left < 5:
                result = {"label": row[0], "job": os.path.basename(row[1]), "set": row[2], "not_run": True,
                          "error": "not run: the time was up"}
            else:
                result = measure(row, args, peers, memory, log, min(args.row_limit, left))
            results.append(result)
            lines.write(json.dumps(result) + "\n")
            lines.flush()
            # The table is rewritten after each row, so that an interrupted run keeps the rows it has.
            with open(os.path.join(args.out, "bench.txt"), "w") as f:
                f.write(table(results, args.markdown))
    sys.stdout.write(table(results, args.markdown))
    return 1 if any("error" in r for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
