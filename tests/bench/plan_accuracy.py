#!/usr/bin/python3
"""How far plans are from what a GPU does: plans jobs with `jobctl plan`, then runs them with `hearth-trainer bench`, and prints tok/s,
memory and watts of both with their errors.

usage: plan_accuracy.py [--calibrate FILE [--schemes] | --calibration FILE] [--devices 0,1,2,3] [--scaling] [--seconds 240] [--table FILE]
                        [--out FILE] [--bin DIR] [--rows FILE] [--scaling-rows FILE] [--steps N]

Rows are those of bench_table.py: "name | job file of configs/jobs | field=value ...". All of them are planned, and the plans are printed,
before the first is measured.
  --calibrate    runs `hearth-trainer bench --calibrate` first, on the first device, writes FILE, and plans with it
  --schemes      measures with every scheme of `bench --calibrate` (-v): FILE with what it said of each figure beside it (FILE.log), and
                 FILE-NAME.yaml of each other scheme, whose plans are compared with the same measurements at the end
  --devices      GPUs that the rows are divided among, the longest first
  --scaling      then the rows of scaling.rows on 1, 2, 4, ... of the devices together; their global batch is that of one GPU
  --seconds      no row starts that would hardly end by then; such rows are "not run"
  --table        the same as a table in Markdown
  --out          a JSON line a row, and behind them lines for `runs:` of a file of configs/calibration; written again after each row
A row that fails (it does not fit this GPU) is named, and the next one runs. Exit status: 0 all rows ran, 1 not all. Standard library only.
"""
import argparse
import concurrent.futures
import json
import pathlib
import queue
import subprocess
import sys
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
TARGETS = {"tok_s": ("tok/s", 5), "bytes": ("memory", 1), "watts": ("watts", 10)}  # percent
SCALING_POINTS = 3
# What a run needs beside the steps that it measures, and how long it measures them: for --seconds.
START_SECONDS = 12
STEPS_SECONDS = 5
SCALING_SECONDS = 40


class NotRun(Exception):
    pass


def read_rows(path):
    rows = []
    for line in pathlib.Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, job, fields = (part.strip() for part in line.split("|"))
            rows.append((name, TOP / "configs/jobs" / f"{job}.yaml", fields.split()))
    return rows


def sets(fields):
    return [part for field in fields for part in ("--set", field)]


def times_batch(fields, count):
    """The fields with `count` times the global batch."""
    name = "batch.global_batch_tokens="
    return [f"{name}{int(field.removeprefix(name)) * count}" if field.startswith(name) else field for field in fields]


class Session:
    def __init__(self, options):
        self.options = options
        self.calibration = options.calibration
        self.schemes = {}  # the files of the other schemes
        self.end = time.monotonic() + options.seconds if options.seconds else None

    def left(self):
        return None if self.end is None else self.end - time.monotonic()

    def run(self, command, needs=0):
        left = self.left()
        if left is not None and left < needs:
            raise NotRun(f"not run: {max(left, 0):.0f} s were left, about {needs:.0f} are needed")
        try:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            raise NotRun(f"no end after {left:.0f} s") from None
        # 3: jobctl plan says NO, and prints why.
        if done.returncode not in (0, 3):
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
        return done

    def output_of(self, command, needs=0):
        return self.run(command, needs).stdout

    def calibrate(self):
        if self.options.calibrate is None:
            return
        began = time.monotonic()
        command = [self.options.bin / "hearth-trainer", "bench", "--calibrate", "--device", f"cuda:{self.options.devices[0]}"]
        done = self.run(command + (["-v"] if self.options.schemes else []))
        self.calibration = self.options.calibrate
        self.calibration.write_text(done.stdout)
        if self.options.schemes:
            self.keep_schemes(done.stderr)
        print(f"calibrated in {time.monotonic() - began:.0f} s: {self.calibration}", flush=True)

    def keep_schemes(self, said):
        """The other schemes' files are lines of what `bench --calibrate -v` said: "NAME| line"."""
        files, log = {}, []
        for line in said.splitlines():
            name, bar, rest = line.partition("| ")
            if bar and name.isidentifier():
                files.setdefault(name, []).append(rest)
            elif not line.endswith("|"):
                log.append(line)
        self.calibration.with_name(self.calibration.name + ".log").write_text("\n".join(log) + "\n")
        for name, lines in files.items():
            path = self.calibration.with_name(f"{self.calibration.stem}-{name}.yaml")
            path.write_text("\n".join(lines) + "\n")
            self.schemes[name] = path

    def plan(self, job, fields, gpus=1, calibration=None):
        command = [self.options.bin / "jobctl", "plan", job, "--gpu", "here", "-o", "json", "--gpus", gpus] + sets(fields)
        if calibration or self.calibration:
            command += ["--calibration", calibration or self.calibration]
        return json.loads(self.output_of(command))["plans"][0]

    def bench(self, job, fields, devices, needs):
        where = ["--device", f"cuda:{devices[0]}"] if len(devices) == 1 else ["--devices", ",".join(map(str, devices))]
        command = [self.options.bin / "hearth-trainer", "bench", job, *where, "--no-floor", "-o", "json"] + sets(fields)
        if self.options.steps:
            command += ["--steps", self.options.steps]
        return json.loads(self.output_of(command, needs))


def result_of(name, job, fields, planned, measured):
    preset = job.stem.rsplit("-", 1)[0]
    return {
        "name": name,
        "verdict": planned["verdict"],
        "tok_s": (planned["time"]["tok_s"], measured["tok_s"]),
        "bytes": (planned["memory"]["total_bytes"], measured["measured_bytes"]),
        "watts": (planned["time"]["watts"], measured.get("watts")),
        # A model that is no preset has no line for `runs:`.
        "preset": None if any(field.startswith("model.") for field in fields) else preset,
        "run": {"job": [preset, measured["recipe"], measured["lm_head"], measured["micro_batch_size"],
                        measured["sequence_length"], measured["micro_batches"], 1],
                "tok_s": round(measured["tok_s"]), "watts": round(measured.get("watts") or 0)},
    }


def error(pair):
    planned, measured = pair
    return None if not planned or not measured else planned / measured - 1


def text(pair, scale=1):
    planned, measured = pair
    off = error(pair)
    return "-" if off is None else f"{planned / scale:,.5g} / {measured / scale:,.5g} ({100 * off:+.1f} %)"


def worst(results, key):
    errors = [abs(off) for off in (error(result[key]) for result in results) if off is not None]
    return f"{100 * max(errors):.1f} %" if errors else "-"


def summary(results):
    parts = [f"{name} {worst(results, key)} ({'target ' if key == 'tok_s' else ''}{most} %)" for key, (name, most) in TARGETS.items()]
    return "largest errors: " + ", ".join(parts)


def write(path, results):
    if path is None:
        return
    lines = [json.dumps(result) for result in results]
    lines += ["  - " + json.dumps(result["run"]).replace('"', "") for result in results if result.get("preset")]
    path.write_text("\n".join(lines) + "\n")


def cells(pair, scale, digits):
    planned, measured = pair
    off = error(pair)
    shown = [f"{value / scale:,.{digits}f}" if value else "-" for value in (planned, measured)]
    return [*shown, "-" if off is None else f"{100 * off:+.1f} %"]


def write_table(path, rows, scaling):
    """`rows`, `scaling`: (name, result or why there is none)."""
    if path is None:
        return
    lines = ["| job | planned tok/s | measured | error | planned GB | measured | error | planned W | measured | error |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for name, result in rows:
        shown = [result] if isinstance(result, str) else [*cells(result["tok_s"], 1, 0), *cells(result["bytes"], 1e9, 2),
                                                          *cells(result["watts"], 1, 0)]
        lines.append("| " + " | ".join([name, *shown]) + " |")
    lines += ["", summary([result for _, result in rows if not isinstance(result, str)])]
    if scaling:
        lines += ["", "| job | GPUs | planned tok/s | measured | error | planned scaling | measured | points |",
                  "|---|---|---|---|---|---|---|---|"]
        for name, result in scaling:
            lines.append("| " + " | ".join([name, *([result] if isinstance(result, str) else scaling_cells(result))]) + " |")
    path.write_text("\n".join(lines) + "\n")


def scaling_cells(result):
    planned, measured = result["scaling"]
    return [str(result["gpus"]), *cells(result["tok_s"], 1, 0), f"{planned:.4f}", f"{measured:.4f}", f"{100 * (planned - measured):+.1f}"]


def plan_rows(session, rows):
    """For each row its plan, or why there is none."""
    plans = []
    for name, job, fields in rows:
        try:
            planned = session.plan(job, fields + ["train.deterministic=false"])
            took = planned["time"]
            print(f"{name:28} planned: {planned['verdict']}, {took['tok_s'] or 0:,.0f} tok/s, "
                  f"{planned['memory']['total_bytes'] / 1e9:.2f} GB, {took['watts'] or 0:.0f} W", flush=True)
            plans.append(planned)
        except RuntimeError as why:
            plans.append(str(why))
    return plans


def measure_rows(session, rows, plans, show):
    """A thread a device; the longest steps first, so that the devices end together."""
    def step_seconds(i):
        return 0 if isinstance(plans[i], str) else plans[i]["time"].get("step_seconds") or 0
    waiting = queue.SimpleQueue()
    for i in sorted(range(len(rows)), key=step_seconds, reverse=len(session.options.devices) > 1):
        waiting.put(i)
    outcomes = ["not run"] * len(rows)
    lock = threading.Lock()

    def work(device):
        while True:
            try:
                i = waiting.get_nowait()
            except queue.Empty:
                return
            name, job, fields = rows[i]
            try:
                if isinstance(plans[i], str):
                    raise RuntimeError(plans[i])
                # Three steps or two seconds to warm up.
                needs = START_SECONDS + STEPS_SECONDS + 3 * step_seconds(i) if session.end else 0
                measured = session.bench(job, fields + ["train.deterministic=false"], [device], needs)
                outcome = result_of(name, job, fields, plans[i], measured)
            except (RuntimeError, NotRun) as why:
                outcome = f"failed: {why}" if isinstance(why, RuntimeError) else str(why)
            with lock:
                outcomes[i] = outcome
                show(name, outcomes)

    with concurrent.futures.ThreadPoolExecutor(len(session.options.devices)) as pool:
        list(pool.map(work, session.options.devices))
    return outcomes


def compare_schemes(session, rows, outcomes):
    """Plans with the other schemes' files, against the rows that were measured."""
    for scheme, path in session.schemes.items():
        results = []
        for (name, job, fields), outcome in zip(rows, outcomes):
            if isinstance(outcome, str):
                continue
            planned = session.plan(job, fields + ["train.deterministic=false"], calibration=path)["time"]["tok_s"]
            results.append({"tok_s": (planned, outcome["tok_s"][1])})
            print(f"scheme {scheme}: {name:28} {text(results[-1]['tok_s']):>34}", flush=True)
        print(f"scheme {scheme}: largest error of tok/s {worst(results, 'tok_s')}", flush=True)


def scaling_result(session, job, fields, devices):
    count = len(devices)
    fields = fields + ["train.deterministic=false"]
    one = session.plan(job, fields)["time"]["tok_s"]
    all_ = session.plan(job, times_batch(fields, count), count)["time"]["tok_s"]
    measured = session.bench(job, times_batch(fields, count), devices, SCALING_SECONDS if session.end else 0)
    return {"gpus": count, "tok_s": (all_, measured["tok_s"]), "scaling": (all_ / (count * one), measured["scaling_efficiency"])}


def measure_scaling(session):
    if not session.options.scaling:
        return []
    outcomes = []
    print(f"{'planned / measured':28} {'GPUs':>4} {'tok/s':>34} {'scaling':>17} points", flush=True)
    for name, job, fields in read_rows(session.options.scaling_rows):
        count = 2
        while count <= len(session.options.devices):
            try:
                result = scaling_result(session, job, fields, session.options.devices[:count])
                planned, measured = result["scaling"]
                print(f"{name:28} {count:>4} {text(result['tok_s']):>34} {planned:8.4f} {measured:8.4f} {100 * (planned - measured):+6.1f}",
                      flush=True)
            except (RuntimeError, NotRun) as why:
                result = f"failed: {why}" if isinstance(why, RuntimeError) else str(why)
                print(f"{name:28} {count:>4} {result}", flush=True)
            outcomes.append((name, result))
            count *= 2
    points = [abs(result["scaling"][0] - result["scaling"][1]) for _, result in outcomes if not isinstance(result, str)]
    print(f"largest error of scaling: {100 * max(points):.1f} points (target {SCALING_POINTS})" if points else "scaling: nothing measured")
    return outcomes


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=TOP / "build/release/bin")
    parser.add_argument("--rows", type=pathlib.Path, default=HERE / "plan.rows")
    parser.add_argument("--scaling-rows", type=pathlib.Path, default=HERE / "scaling.rows")
    parser.add_argument("--calibration", type=pathlib.Path)
    parser.add_argument("--calibrate", type=pathlib.Path)
    parser.add_argument("--schemes", action="store_true")
    parser.add_argument("--devices", type=lambda words: [int(word) for word in words.split(",")], default=[0])
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.calibrate and options.calibration:
        parser.error("--calibrate writes the file that plans use: leave --calibration out")
    if options.schemes and not options.calibrate:
        parser.error("--schemes are those of --calibrate FILE")
    return options


def main():
    session = Session(parse())
    options = session.options
    try:
        session.calibrate()
    except (RuntimeError, NotRun) as why:
        print(f"bench --calibrate: {why}", file=sys.stderr)
        return 1
    rows = read_rows(options.rows)
    plans = plan_rows(session, rows)
    print(f"{'planned / measured':28} {'tok/s':>34} {'GB':>30} {'W':>26}")

    def show(name, outcomes):
        outcome = outcomes[[row[0] for row in rows].index(name)]
        if isinstance(outcome, str):
            print(f"{name:28} {outcome}", flush=True)
        else:
            print(f"{name:28} {text(outcome['tok_s']):>34} {text(outcome['bytes'], 1e9):>30} {text(outcome['watts']):>26}", flush=True)
        write(options.out, [result for result in outcomes if not isinstance(result, str)])
        write_table(options.table, list(zip((row[0] for row in rows), outcomes)), [])

    outcomes = measure_rows(session, rows, plans, show)
    print(summary([result for result in outcomes if not isinstance(result, str)]))
    compare_schemes(session, rows, outcomes)
    scaling = measure_scaling(session)
    write_table(options.table, list(zip((row[0] for row in rows), outcomes)), scaling)
    return 1 if any(isinstance(result, str) for result in [*outcomes, *(result for _, result in scaling)]) else 0


if __name__ == "__main__":
    sys.exit(main())
