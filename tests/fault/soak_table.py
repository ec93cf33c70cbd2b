#!/usr/bin/python3
"""The distributions of one or several runs of the soak, as one table: soak_table.py SUMMARY.json... (what soak.py --json wrote)."""

import json
import sys

COLUMNS = ("noticed", "runs again", "all is back")


def spread(times):
    times = sorted(t for t in times if t is not None)
    at = lambda q: times[min(len(times) - 1, int(q * len(times)))]
    return f"{at(0.5):5.1f} {at(0.9):5.1f} {times[-1]:5.1f}" if times else "-"


def table(runs):
    """`runs`: summaries of soak.py. Runs that failed count as far as they came, and are named."""
    took = {}
    for run in runs:
        for kind, rows in run["took"].items():
            took.setdefault(kind, []).extend(rows)
    lines = ["Seconds from the beginning of a fault, its own duration included, until a job that it disturbed was seen to be, until that",
             "job made steps again, and until all jobs made steps and all workers were back: p50 p90 max. -: it disturbed none.", "",
             f"{'fault':<22} {'times':>5}" + "".join(f"{column:>19}" for column in COLUMNS)]
    every = [row for rows in took.values() for row in rows]
    for name, rows in [*sorted(took.items()), ("all", every)]:
        cells = "".join(f"{spread([row[i] for row in rows]):>19}" for i in range(len(COLUMNS)))
        lines.append(f"{name:<22} {len(rows):>5}{cells}")
    missing = sorted(set.intersection(*(set(run["missing"]) for run in runs))) if runs else []
    lines.append(f"{sum(run['faults'] for run in runs)} faults, {sum(run['jobs'] for run in runs)} jobs acknowledged and finished"
                 + (f"; no time for {', '.join(missing)}" if missing else ""))
    for run in runs:
        lines += [f"seed {run['seed']}: left out {what}: {why}" for what, why in run["left_out"].items()]
        lines += [f"seed {run['seed']} FAILED after {run['faults']} faults: {run['failure']}"] if run["failure"] else []
    return "\n".join(lines)


def main():
    runs = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            runs.append(json.load(f))
    print(table(runs))
    return 1 if any(run["failure"] for run in runs) or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
