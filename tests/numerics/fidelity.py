#!/usr/bin/env python3
"""Compares the losses of runs that differ in one thing, such as BF16 and FP8: is the second within half a percent of the first?

  fidelity.py NAME=metrics.jsonl NAME=metrics.jsonl ... [--window 200] [--bound 0.005]

The first run is the one to meet. Prints, for each: the training loss at the end (mean of the last --window steps), the last held-out loss,
and their relative gaps; then the held-out losses side by side.
hearth-trainer compare runs the recipes of a job one after another and draws such curves.
Exit status: 0 all gaps within the bound, 1 not, or the runs differ in their steps. Standard library only.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import metrics_file  # noqa: E402


def read(path):
    """([(step, loss)], [(step, held-out loss)]) in order; of a repeated step the last."""
    rows = metrics_file.read(path)
    train = [(s, float(rows[s]["loss"])) for s in sorted(rows)]
    # Protobuf's JSON names a field either way; a step without evaluation has none.
    held = [(s, float(rows[s].get("validation_loss", rows[s].get("validationLoss")))) for s in sorted(rows)
            if "validation_loss" in rows[s] or "validationLoss" in rows[s]]
    return train, held


def final(points, window):
    tail = [y for _, y in points[-window:]]
    return sum(tail) / len(tail)


def report(runs, window, bound):
    """Prints the tables; whether all gaps are within the bound."""
    base, (base_train, base_held) = next(iter(runs.items()))
    width = max(map(len, runs))
    good = True
    print(f"{'run'.ljust(width)}  training (last {window})     gap   held out     gap")
    for name, (train, held) in runs.items():
        gap = final(train, window) / final(base_train, window) - 1
        held_gap = held[-1][1] / base_held[-1][1] - 1 if held and base_held else None
        good = good and abs(gap) <= bound and (held_gap is None or abs(held_gap) <= bound)
        print(f"{name.ljust(width)}  {final(train, window):20.5f}  {100 * gap:+5.2f} %  " +
              (f"{held[-1][1]:9.5f}  {100 * held_gap:+5.2f} %" if held_gap is not None else "        -        -"))
    if base_held:
        print("\nheld out  " + "  ".join(name.rjust(18) for name in runs))
        columns = {name: dict(held) for name, (_, held) in runs.items()}
        for step, first in base_held:
            cells = [f"{columns[n][step]:9.5f} {100 * (columns[n][step] / first - 1):+6.2f} %" if step in columns[n] else "-" for n in runs]
            print(f"{step:8d}  " + "  ".join(cell.rjust(18) for cell in cells))
    print(f"bound {100 * bound:g} %: {'ok' if good else 'FAILED'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=metrics.jsonl")
    parser.add_argument("--window", type=int, default=200)
    parser.add_argument("--bound", type=float, default=0.005)
    args = parser.parse_args()
    runs = {}
    for run in args.runs:
        name, equals, path = run.partition("=")
        if not equals or name in runs:
            parser.error(f"{run}: want NAME=FILE, each name once")
        runs[name] = read(path)
    last = {name: train[-1][0] if train else 0 for name, (train, _) in runs.items()}
    if len(runs) < 2 or min(last.values()) < 2:
        parser.error("at least two runs of at least two steps")
    good = report(runs, args.window, args.bound)
    if len(set(last.values())) > 1:
        print("FAILED: the runs end at different steps: " + ", ".join(f"{n} {s}" for n, s in last.items()))
        good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
