#!/usr/bin/python3
"""Time from `jobctl submit` to the first step reported, on an idle CPU worker. Target: at most 1 s.

  HEARTH_BIN_DIR=build/release/bin /usr/bin/python3 tests/bench/submit_to_first_step.py [RUNS]
"""

import os
import statistics
import sys
import time
from datetime import datetime

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import harness  # noqa: E402

TARGET = 1.0


def event_time(cluster, job, state):
    text = next(e["time"] for e in cluster.events(job) if e["toState"] == "JOB_STATE_" + state)
    return datetime.fromisoformat(text[:26].rstrip("Z").ljust(26, "0") if "." in text else text.rstrip("Z")).timestamp()


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    cluster = harness.Cluster()
    try:
        data = os.path.join(cluster.dir, "tokens.bin")
        harness.write_tokens(data)
        cluster.start(1)
        seen, inside = [], []
        for _ in range(runs):
            begin = time.monotonic()
            job = cluster.submit(harness.tiny_job(data, 10**7, workers=1))
            cluster.wait_step(job, 1)
            seen.append(time.monotonic() - begin)
            inside.append(event_time(cluster, job, "RUNNING") - event_time(cluster, job, "QUEUED"))
            cluster.jobctl("cancel", job, "--now")
            cluster.wait_state(job, "CANCELLED")
            cluster.wait_worker("w0", ("WORKER_STATE_IDLE",))
    finally:
        cluster.close()
    for name, values in (("client, jobctl included", seen), ("QUEUED to RUNNING", inside)):
        median = statistics.median(values)
        print(f"submit to first step, {name}: median {median:.3f} s, min {min(values):.3f}, max {max(values):.3f} "
              f"({runs} runs); target / median = {TARGET / median:.2f}")


if __name__ == "__main__":
    main()
