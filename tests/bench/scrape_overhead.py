#!/usr/bin/python3
"""What it costs training that coordinator and worker are scraped each second: tokens a second with scraping over those without.

  tests/bench/scrape_overhead.py [--bin DIR] [--device cpu|cuda:N] [--pairs 12] [--window 5] [--set PATH=VALUE]

One job runs through; windows with and without scraping take turns, in an order that a slow drift of the machine does not favour: two
and a half minutes with the defaults, of the standard library and the four programs in DIR (default $HEARTH_BIN_DIR) alone.
Prints the tokens a second with and without, the ratio of the sums with its standard error from the pairs, and what a scrape takes of
the processor (which no noise of the machine hides). Exit status 1 when the ratio is below 0.99 by more than two standard errors, or
scraping takes over 1 % of one core; 2 when it could not be measured: a program is missing, or the job did not train."""

import argparse
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
import harness  # noqa: E402

PROGRAMS = ("hearth-coordinator", "hearth-worker", "hearth-trainer", "jobctl")

# Steps of some 20 ms: the daemons' work per step is then small compared with the cost of a scrape.
CPU_JOB = {"model": {"layers": 4, "hidden": 128, "heads": 4, "kv_heads": 2, "ffn_hidden": 256, "vocab": 64},
           "data": {"sequence_length": 64}, "batch": {"micro_batch_size": 4, "global_batch_tokens": 1024}}
GPU_JOB = {"model": {"layers": 8, "hidden": 512, "heads": 8, "kv_heads": 8, "ffn_hidden": 1536, "vocab": 64},
           "data": {"sequence_length": 512}, "batch": {"micro_batch_size": 32, "global_batch_tokens": 32768},
           "precision": {"recipe": "bf16"}, "checkpoint": {"every_steps": 10**6}}


def job_spec(data, device, sets):
    spec = harness.tiny_job(data, 10**9, workers=1, checkpoint={"every_steps": 10**6})
    if device != "cpu":
        for section, value in GPU_JOB.items():
            spec[section] = {**spec[section], **value}
        spec["resources"] = {"workers": 1, "device": "cuda"}
    else:
        for section, value in CPU_JOB.items():
            spec[section] = {**spec[section], **value}
    for item in sets:
        path, value = item.split("=", 1)
        *folders, last = path.split(".")
        section = spec
        for name in folders:
            section = section.setdefault(name, {})
        section[last] = json.loads(value)
    return spec


class Bench:
    def __init__(self, cluster, job):
        self.cluster, self.job = cluster, job
        found = json.loads(cluster.get("/sd/workers"))
        self.targets = [None] + [t for group in found for t in group["targets"]]
        self.scrapes = self.scrape_seconds = 0

    def tokens(self):
        """Tokens so far and when the step that made them ended, by rank 0's clock."""
        report = self.cluster.json("get", self.job)["lastReport"]
        return int(report["tokens"]), harness_time(report["time"])

    def daemons_cpu(self):
        total = 0.0
        for daemon in [self.cluster.coordinator, *self.cluster.workers.values()]:
            with open(f"/proc/{daemon.pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def window(self, seconds, scraped):
        """Tokens a second and the daemons' processor time a second."""
        (first, begin), cpu, start = self.tokens(), self.daemons_cpu(), time.monotonic()
        due = start
        while time.monotonic() < start + seconds:
            if scraped and time.monotonic() >= due:
                due += 1.0
                before = time.monotonic()
                for target in self.targets:
                    self.cluster.get("/metrics", target)
                self.scrapes += 1
                self.scrape_seconds += time.monotonic() - before
            time.sleep(0.01)
        cpu, wall = self.daemons_cpu() - cpu, time.monotonic() - start
        last, end = self.tokens()
        if end <= begin:
            job = self.cluster.job(self.job)
            raise AssertionError(f"no step in {seconds:g} s; the job is {job['state']}: {job['reason']}\n{self.cluster.job_log(self.job)}")
        return (last - first) / (end - begin), cpu / wall


def harness_time(text):
    """Seconds of "2026-01-31T17:05:00.123456789Z"."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float("0." + (fraction or "0"))


def measure(cluster, options):
    data = os.path.join(cluster.dir, "tokens.bin")
    harness.write_tokens(data, count=200000)
    cluster.start_coordinator()
    cluster.start_worker("w0", "--device", options.device)
    cluster.wait_worker("w0")
    job = cluster.submit(job_spec(data, options.device, options.set))
    cluster.wait_step(job, 20)
    bench = Bench(cluster, job)
    bench.window(options.window, True)
    bench.scrapes = bench.scrape_seconds = 0
    ratios, speed, cpu = [], {True: [], False: []}, {True: [], False: []}
    for pair in range(options.pairs):
        for scraped in ((True, False), (False, True))[pair % 2]:
            rate, used = bench.window(options.window, scraped)
            speed[scraped].append(rate)
            cpu[scraped].append(used)
        ratios.append(speed[True][-1] / speed[False][-1])
        print(f"pair {pair + 1}: {speed[True][-1]:.0f} tok/s with scraping, {speed[False][-1]:.0f} without, {ratios[-1]:.4f}", flush=True)
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    ratio = sum(speed[True]) / sum(speed[False])
    extra = statistics.mean(cpu[True]) - statistics.mean(cpu[False])
    print(f"{options.device}: {statistics.mean(speed[True]):.0f} tok/s with scraping each second, {statistics.mean(speed[False]):.0f} without: "
          f"ratio {ratio:.4f} +- {error:.4f} ({len(ratios)} pairs of {options.window:g} s; target >= 0.99)")
    print(f"scraping {len(bench.targets)} programs takes {1000 * bench.scrape_seconds / bench.scrapes:.1f} ms a second of the clock and "
          f"{100 * extra:.2f} % of one core more in coordinator and worker (target <= 1 %)")
    return int(ratio + 2 * error < 0.99 or extra > 0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=harness.BIN)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=12, help="at least 2")
    parser.add_argument("--window", type=float, default=5, help="seconds")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    if options.pairs < 2:
        parser.error("--pairs: the error of the ratio needs two")
    harness.BIN = os.path.abspath(options.bin)
    missing = [name for name in PROGRAMS if not os.access(harness.program(name), os.X_OK)]
    if missing:
        parser.error(f"no {', '.join(missing)} in {harness.BIN}; --bin DIR says where they are")
    cluster = harness.Cluster()
    try:
        return measure(cluster, options)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        cluster.close()


if __name__ == "__main__":
    sys.exit(main())
