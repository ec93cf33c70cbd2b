#!/usr/bin/python3
"""The distributions of one or several runs of the soak, as one table: soak_table.py SUMMARY.json... (what soak.py --json wrote)."""

import json
import sys

COLUMNS = ("noticed", "runs again", "all is back")


def spread(times):
    """Leaves out the times that are not known; {} if none is."""
    times = sorted(t for t in times if t is not None)
    at = lambda q: times[min(len(times) - 1, int(q * len(times)))]
    return {"times": len(times), "p50": at(0.5), "p90": at(0.9), "max": times[-1]} if times else {}


def spreads(took):
    """By kind of fault, and of all: how often it came, and the spread of each column."""
    every = [row for rows in took.values() for row in rows]
    return {kind: {"times": len(rows), **{column: spread(row[i] for row in rows) for i, column in enumerate(COLUMNS)}}
            for kind, rows in [*sorted(took.items()), ("all", every)]}


def merge(runs):
    """One summary of several, with the spreads of all their times. Runs that failed count as far as they came, and are named in `failure`."""
    took = {}
    for run in runs:
        for kind, rows in run["took"].items():
            took.setdefault(kind, []).extend(rows)
    missing = [set(run["missing"]) for run in runs if run["missing"] is not None]  # None: it left no word of what it did
    left_out = {what: why for run in runs for what, why in run["left_out"].items()}
    failed = [f"{name(run)} after {run['faults']} faults: {run['failure']}" for run in runs if run["failure"]]
    return {**{count: sum(run[count] for run in runs) for count in ("faults", "jobs", "checked")},
            "restarted": [text for run in runs for text in run["restarted"]],
            "dossiers": [each for run in runs for each in run.get("dossiers", [])], "took": took, "left_out": left_out,
            "missing": sorted(set.intersection(*missing)) if missing else [], "failure": "; ".join(failed) or None,
            "spreads": spreads(took)}


def name(run):
    return (f"cluster {run['cluster']}" if "cluster" in run else "the run") + (f" (seed {run['seed']})" if "seed" in run else "")


def cell(spread_of_times):
    return "{p50:5.1f} {p90:5.1f} {max:5.1f}".format(**spread_of_times) if spread_of_times else "-"


def table(runs):
    """`runs`: summaries of soak.py."""
    whole = merge(runs)
    lines = ["Seconds from the beginning of a fault, its own duration included, until the coordinator noticed it in a job (by the job's event),",
             "until that job made steps again, and until all jobs made steps and all workers were back: p50 p90 max. -: none was disturbed.", "",
             f"{'fault':<22} {'times':>5}" + "".join(f"{column:>19}" for column in COLUMNS)]
    for kind, row in whole["spreads"].items():
        lines.append(f"{kind:<22} {row['times']:>5}" + "".join(f"{cell(row[column]):>19}" for column in COLUMNS))
    lines.append(f"{whole['faults']} faults; {whole['jobs']} jobs acknowledged, {whole['checked']} of them checked to the last bit; "
                 f"{len(whole['restarted'])} healthy jobs restarted")
    if whole["missing"]:
        lines.append(f"no time for {', '.join(whole['missing'])}")
    lines += [f"left out {what}: {why}" for what, why in whole["left_out"].items()]
    if whole["dossiers"]:
        lines.append(f"{len(whole['dossiers'])} slow recoveries; what was seen of each, and which phase took the longest:")
        lines += [f"  {each['path']}: {each['guess']}" for each in whole["dossiers"]]
    for run in runs:
        if run["failure"]:
            lines.append(f"FAILED: {name(run)} after {run['faults']} faults: {run['failure']}")
            lines += [f"  its {what}: {run[what]}" for what in ("log", "folder") if what in run]
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
