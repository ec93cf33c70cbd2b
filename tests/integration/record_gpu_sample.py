#!/usr/bin/python3
"""Makes data/gpu_sample.prom, what observability_test.py serves to Prometheus where there is no GPU, of a recording on a GPU.

  record_gpu_sample.py OUT/logs/metrics.txt [SAMPLE]

metrics.txt is what the step "cluster" of scripts/gpu-check.sh writes: scrapes of worker and coordinator, each after a line
"# scrape NAME SECONDS". The first of each gives the values, the second how fast counters grow. The job's id becomes "sample", the
GPU's UUID "GPU-sample". Exit status 1: no GPU series in it."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "observability"))
import series  # noqa: E402

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "gpu_sample.prom")
SCRAPE = re.compile(r"^# scrape (\w+) ([\d.]+)$")
LINE = re.compile(r"^(\w+)(\{.*\})? (\S+)$")
# What the panels of a GPU use.
KEPT = {
    "worker": re.compile(r"hearth_gpu_.+|hearth_worker_connected|hearth_worker_job_.+|hearth_weight_quantizations_total"),
    "coordinator": re.compile(r"hearth_job_info|hearth_job_tokens_total|hearth_job_energy_joules_total|hearth_job_mfu_ratio"),
}


def parse(lines):
    """[(name of the program, time, {series: value})] in the order of the file; series is a name with its labels."""
    scrapes = []
    for line in lines:
        if head := SCRAPE.match(line.strip()):
            scrapes.append((head[1], float(head[2]), {}))
        elif scrapes and (found := LINE.match(line.strip())) and KEPT[scrapes[-1][0]].fullmatch(found[1]):
            scrapes[-1][2][found[1] + (found[2] or "")] = float(found[3])
    return scrapes


def rename(text, job_id):
    text = re.sub(r'\buuid="[^"]*"', 'uuid="GPU-sample"', text)
    return text.replace(f'job_id="{job_id}"', 'job_id="sample"')


def job_of(scrapes):
    """The job that runs on the worker; the coordinator may know others."""
    found = {m[1] for program, _, values in scrapes if program == "worker" for key in values if (m := re.search(r'job_id="([^"]+)"', key))}
    if len(found) != 1:
        raise SystemExit(f"one job must run on the worker, found: {sorted(found) or 'none'}")
    return found.pop()


def convert(lines):
    """The sample's lines and the documented GPU series that this GPU does not tell."""
    scrapes = parse(lines)
    job_id, types = job_of(scrapes), series.documented()
    out, told = [], set()
    for program in KEPT:
        mine = [s for s in scrapes if s[0] == program]
        (_, start, first), later = mine[0], mine[1:]
        for key, value in first.items():
            name = re.match(r"\w+", key)[0]
            if 'job_id="' in key and f'job_id="{job_id}"' not in key:
                continue
            told.add(name)
            growth = ""
            if types[name][0] == "counter" and later and key in later[0][2] and later[0][2][key] > value:
                growth = f" +{(later[0][2][key] - value) / (later[0][1] - start):.6g}"
            out.append(f"{rename(key, job_id)} {value:.12g}{growth}")
    missing = sorted(name for name in types if name.startswith("hearth_gpu_") and name not in told)
    return out, missing


HEAD = """# What a worker and its coordinator said of a job on a GPU, recorded by record_gpu_sample.py, one series a line; "+N" after a
# counter's value: how much it grew a second. Served to Prometheus where there is no GPU (observability_test.py).
"""


def main(argv):
    if len(argv) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    with open(argv[0], encoding="utf-8") as f:
        lines, missing = convert(f)
    if not any(line.startswith("hearth_gpu_info") for line in lines):
        print("no hearth_gpu_info in it: was the worker on a GPU?", file=sys.stderr)
        return 1
    with open(argv[1] if len(argv) == 2 else SAMPLE, "w", encoding="utf-8") as f:
        f.write(HEAD + "".join(f"# not told: {name}\n" for name in missing) + "\n".join(lines) + "\n")
    print(f"{len(lines)} series" + (f"; not told by this GPU: {', '.join(missing)}" if missing else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
