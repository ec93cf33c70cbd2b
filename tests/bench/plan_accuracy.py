#!/usr/bin/python3
"""How far plans are from what a GPU does: runs jobs with `hearth-trainer bench`, plans each with
`jobctl plan --gpu here`, and prints tok/s, memory and watts of both with their errors.

usage: plan_accuracy.py [--bin DIR] [--rows FILE] [--calibration FILE] [--steps N] [--out FILE]

Rows are those of bench_table.py: "name | job file of configs/jobs | field=value ...". `--out` gets a
JSON line a row, and behind them lines for `runs:` of a file of configs/calibration; it is written again after each row.
A row that fails (it does not fit this GPU) is named, and the next one runs; the exit status is then 1.
"""
import argparse
import json
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def read_rows(path):
    rows = []
    for line in pathlib.Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, job, fields = (part.strip() for part in line.split("|"))
            rows.append((name, TOP / "configs/jobs" / f"{job}.yaml", fields.split()))
    return rows


def output_of(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    # 3: jobctl plan says NO, and prints why.
    if done.returncode not in (0, 3):
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def sets(fields):
    return [part for field in fields for part in ("--set", field)]


def compare(options, name, job, fields):
    common = fields + ["train.deterministic=false"]
    measured = output_of([options.bin / "hearth-trainer", "bench", job, "--device", "cuda:0", "--no-floor",
                          "-o", "json", "--steps", options.steps] + sets(common))
    plan = [options.bin / "jobctl", "plan", job, "--gpu", "here", "-o", "json"] + sets(common)
    if options.calibration:
        plan += ["--calibration", options.calibration]
    planned = output_of(plan)["plans"][0]
    return {
        "name": name,
        "verdict": planned["verdict"],
        "tok_s": (planned["time"]["tok_s"], measured["tok_s"]),
        "bytes": (planned["memory"]["total_bytes"], measured["measured_bytes"]),
        "watts": (planned["time"]["watts"], measured.get("watts")),
        # A model that is no preset has no line for `runs:`.
        "preset": None if any(field.startswith("model.") for field in fields) else job.stem.rsplit("-", 1)[0],
        "run": {"job": [job.stem.rsplit("-", 1)[0], measured["recipe"], measured["lm_head"], measured["micro_batch_size"],
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


def write(path, results):
    if path is None:
        return
    lines = [json.dumps(result) for result in results]
    lines += ["  - " + json.dumps(result["run"]).replace('"', "") for result in results if result["preset"]]
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=TOP / "build/release/bin")
    parser.add_argument("--rows", type=pathlib.Path, default=TOP / "tests/bench/plan.rows")
    parser.add_argument("--calibration", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    results = []
    failed = 0
    print(f"{'planned / measured':28} {'tok/s':>34} {'GB':>30} {'W':>26}")
    for name, job, fields in read_rows(options.rows):
        try:
            result = compare(options, name, job, fields)
        except RuntimeError as error:
            print(f"{name:28} failed: {error}", flush=True)
            failed += 1
            continue
        results.append(result)
        write(options.out, results)
        print(f"{name:28} {text(result['tok_s']):>34} {text(result['bytes'], 1e9):>30} {text(result['watts']):>26}",
              flush=True)
    print(f"largest errors: tok/s {worst(results, 'tok_s')} (target 5 %), memory {worst(results, 'bytes')} (1 %), "
          f"watts {worst(results, 'watts')} (10 %)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
