#!/usr/bin/env python3
"""One job on several world sizes: do the losses agree? Through a running coordinator (scripts/start-node.sh), with jobctl.

  world_sizes.py JOB.yaml [--jobctl PATH] [--worlds 1,2,4] [--bound 1e-4] [--texts N] [--set FIELD=VALUE ...] [--out DIR]

Runs the job to its end on each world size, on those above 1 at each level of parallel.shard, and once for each level on the largest up to
half of the steps (pause) and then on half as many workers (resume). With --texts N a step is one micro-batch of each worker, of N / world
texts, as optimizer.fused and gradients.store: fp8 need it; the job's global batch must be N texts. Prints, against the smallest world: the largest
relative gap of the losses over the steps, the seconds from submit to the first step, and tok/s at the end. Writes each run's metrics to
DIR/NAME.csv.
Exit status: 0 every gap within the bound, 1 not, or a job failed. Standard library only.
"""
import argparse
import csv
import io
import os
import subprocess
import sys
import time


LEVELS = ("off", "optimizer", "gradients", "weights")


class Jobctl:
    def __init__(self, program):
        self.program = program

    def __call__(self, *arguments, check=True):
        done = subprocess.run([self.program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if check and done.returncode != 0:
            raise SystemExit(f"jobctl {' '.join(arguments)}: exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def steps(self, job):
        rows = list(csv.DictReader(io.StringIO(self("metrics", job, "-o", "csv"))))
        return {int(row["step"]): row for row in rows}

    def submit(self, path, name, sets):
        arguments = [a for s in [f"name={name}", *sets] for a in ("--set", s)]
        return self("submit", path, "-o", "name", *arguments).strip().removeprefix("job/")

    def wait(self, job, seconds=180):
        done = subprocess.run([self.program, "wait", job, "--timeout", f"{seconds}s"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{job} ended with status {done.returncode}: {done.stdout[-500:]}\n{self('describe', job)}\n"
                             f"{self('logs', job, check=False)[-3000:]}")


def run(jobctl, path, name, sets):
    """Metrics by step of a whole run, and the seconds from submit to its first step."""
    began = time.time()
    job = jobctl.submit(path, name, sets)
    first = None
    while first is None and time.time() - began < 60:
        first = time.time() - began if jobctl.steps(job) else None
        time.sleep(0.05)
    jobctl.wait(job)
    return jobctl.steps(job), first


def pause_and_resume(jobctl, path, name, sets, half, smaller):
    job = jobctl.submit(path, name, sets)
    deadline = time.time() + 120
    while max(jobctl.steps(job), default=0) < half:
        if time.time() > deadline:
            raise SystemExit(f"{name}: no step {half} in time\n{jobctl('describe', job)}")
        time.sleep(0.1)
    jobctl("pause", job)
    while "PAUSED" not in (state := jobctl("get", job, "-o", "json")):
        if "SUCCEEDED" in state:
            raise SystemExit(f"{name}: ended before it could be paused; give the job more steps")
        if time.time() > deadline:
            raise SystemExit(f"{name}: not paused in time\n{jobctl('describe', job)}")
        time.sleep(0.1)
    jobctl("resume", job, *(part for field in smaller for part in ("--set", field)))
    jobctl.wait(job)
    return jobctl.steps(job), None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("job")
    parser.add_argument("--jobctl", default="jobctl")
    parser.add_argument("--worlds", default="1,2,4")
    parser.add_argument("--bound", type=float, default=1e-4)
    parser.add_argument("--texts", type=int)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out")
    args = parser.parse_args()
    jobctl = Jobctl(args.jobctl)
    worlds = sorted(int(w) for w in args.worlds.split(","))
    largest = worlds[-1]

    def of_world(world):
        micro_batch = [] if args.texts is None else [f"batch.micro_batch_size={args.texts // world}"]
        return [f"resources.workers={world}", f"resources.min_workers={world}", *micro_batch]

    def sets(world, *more):
        return [*args.set, *of_world(world), *more]

    runs = {}

    def keep(name, result):
        runs[name] = result
        print(f"{name}: {len(result[0])} steps", file=sys.stderr, flush=True)
        if args.out:
            os.makedirs(args.out, exist_ok=True)
            with open(os.path.join(args.out, name + ".csv"), "w") as f:
                f.write("step,loss,grad_norm\n")
                f.writelines(f"{s},{row['loss']},{row['grad_norm']}\n" for s, row in sorted(result[0].items()))

    for world in worlds:
        for level in LEVELS if world > 1 else LEVELS[:1]:
            name = f"w{world}-{level}"
            keep(name, run(jobctl, args.job, name, sets(world, f"parallel.shard={level}")))
    reference = runs[f"w{worlds[0]}-{LEVELS[0]}"][0]
    last = max(reference)
    for level in LEVELS[1:] if largest > 1 else ():
        name = f"w{largest}-to-w{largest // 2}-{level}"
        keep(name, pause_and_resume(jobctl, args.job, name, sets(largest, f"parallel.shard={level}"), last // 2,
                                    of_world(largest // 2)))
    failed = False
    print(f"{'run':<20} {'largest gap':>12} {'at step':>8} {'first step s':>13} {'tok/s':>12}")
    for name, (steps, first) in runs.items():
        missing = set(reference) ^ set(steps)
        gap, at = max(((abs(float(steps[s]["loss"]) / float(row["loss"]) - 1), s) for s, row in reference.items() if s in steps),
                      default=(float("inf"), 0))
        failed |= bool(missing) or gap > args.bound
        print(f"{name:<20} {gap:>12.2e} {at:>8} {'' if first is None else format(first, '.2f'):>13} "
              f"{float(steps[max(steps)]['tokens_per_second']):>12,.0f}" + (f"  steps missing: {len(missing)}" if missing else ""))
    print(f"bound {args.bound:g}: {'FAILED' if failed else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
