#!/usr/bin/env python3
"""Speed of whole jobs by number of workers, through a running coordinator (scripts/start-node.sh): what users get, not what a bench loop gets.

  gang_bench.py [--jobctl PATH] [--steps 60] [--workers 1,2,4] [--data FOLDER] [--peer PEER.py] [--out DIR] ROWS

ROWS: lines LABEL | JOB | FIELD=VALUE ..., JOB a file of configs/jobs without .yaml or a path; batch.global_batch_tokens is for one worker
and is multiplied by their number. For each row and number of workers: tokens per second (the median of the second half of the steps),
the share of that many times one worker, exposed communication and bytes a step, watts of rank 0's GPU, seconds from submit to the first
step in the history. --peer: the PyTorch peer (torch_peer.sh says which) on the same GPUs afterwards, one process and as many as workers.
The first row runs twice and the first time is not counted: it finds plans not tuned and files not cached.
Exit status: 0 all ran, 1 one failed. Standard library only.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "numerics")]
import bench_table  # noqa: E402
import world_sizes  # noqa: E402


def measure(jobctl, row, workers, steps, data):
    label, job, sets = row
    tokens = [int(s.split("=")[1]) for s in sets if s.startswith("batch.global_batch_tokens=")]
    sets = [s for s in sets if not s.startswith("batch.global_batch_tokens=")]
    if tokens:
        sets.append(f"batch.global_batch_tokens={tokens[0] * workers}")
    sets += [f"data.train={data}", "data.validation=[]"] if data else []
    sets += [f"resources.workers={workers}", f"resources.min_workers={workers}", f"train.steps={steps}", "train.eval_every=0",
             "checkpoint.every_steps=0", "schedule.warmup_steps=1", "schedule.decay_steps=0"]
    history, first = world_sizes.run(jobctl, job, f"bench-w{workers}", sets)
    half = [history[s] for s in sorted(history) if s > steps // 2]
    median = {key: statistics.median(float(r[key]) for r in half)
              for key in ("tokens_per_second", "step_seconds", "comm_seconds", "comm_bytes", "power_watts")}
    return {"label": label, "workers": workers, "first_step_s": first, **median}


def measure_peer(peer, count):
    """What the peer prints of itself, run as torchrun runs it; None, and why, when it fails."""
    command = [sys.executable, peer] if count == 1 else [shutil.which("torchrun") or "torchrun", "--standalone", "--nproc-per-node", str(count), peer]
    # As long as torch_peer.sh times this model: 2 s of warm-up and more, 60 steps.
    done = subprocess.run([*command, "--steps", "60", "--warmup", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        print(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    said = json.loads(lines[-1])
    return {"label": said["peer"], "workers": count, "tokens_per_second": float(said["tok_s"]), "step_seconds": float(said["ms"]) / 1e3,
            "first_step_s": float(said["first_step_s"])}


def show(result):
    def number(key, factor, digits):
        return "" if result.get(key) is None else f"{factor * result[key]:.{digits}f}"
    print(f"{result['label']:<34} {result['workers']:>7} {result['tokens_per_second']:>12,.0f} {number('step_seconds', 1e3, 2):>8} "
          f"{result['scaling']:>8.4f} {number('comm_seconds', 1e3, 3):>11} {number('comm_bytes', 1e-6, 1):>8} {number('power_watts', 1, 0):>6} "
          f"{number('first_step_s', 1, 2):>13}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows")
    parser.add_argument("--jobctl", default="jobctl")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--data", default="")
    parser.add_argument("--peer")
    parser.add_argument("--out")
    args = parser.parse_args()
    jobctl = world_sizes.Jobctl(args.jobctl)
    rows = bench_table.parse_rows(args.rows)
    workers = [int(w) for w in args.workers.split(",")]
    measure(jobctl, rows[0], workers[-1], 8, args.data)
    print(f"{'':<34} {'workers':>7} {'tok/s':>12} {'ms':>8} {'scaling':>8} {'exposed ms':>11} {'MB sent':>8} {'W':>6} {'first step s':>13}", flush=True)
    runs = [(lambda count, row=row: measure(jobctl, row, count, args.steps, args.data)) for row in rows]
    runs += [lambda count: measure_peer(args.peer, count)] if args.peer else []
    lines = []
    failed = False
    for run in runs:
        one = None
        for count in workers:
            result = run(count)
            if result is None:
                failed = True
                break
            one = one or result["tokens_per_second"] / count
            result["scaling"] = result["tokens_per_second"] / (one * count)
            lines.append(result)
            show(result)
            if args.out:
                os.makedirs(args.out, exist_ok=True)
                with open(os.path.join(args.out, "gang_bench.jsonl"), "w") as f:
                    f.writelines(json.dumps(line) + "\n" for line in lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
