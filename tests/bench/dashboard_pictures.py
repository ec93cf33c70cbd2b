#!/usr/bin/python3
"""Pictures of the dashboards for docs/: a coordinator, two CPU workers, a job that loses its trainer once, and Prometheus with the
shipped configuration, drawn by deploy/grafana/pictures.py.

  HEARTH_BIN_DIR=build/release/bin tests/bench/dashboard_pictures.py [--seconds 120] OUT"""

import argparse
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
import harness  # noqa: E402
from prometheus_server import PrometheusServer  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("out")
    options = parser.parse_args()
    cluster = harness.Cluster()
    prometheus = None
    try:
        data = os.path.join(cluster.dir, "tokens.bin")
        harness.write_tokens(data, count=200000)
        cluster.start(2)
        prometheus = PrometheusServer(os.path.join(cluster.dir, "prometheus"), cluster.http)
        prometheus.wait_ready()
        harness.wait_until("all targets", lambda: len(prometheus.healthy_targets()) >= 3)
        start = time.monotonic()
        # Steps of some 20 ms, so that the curve takes the whole picture.
        job = cluster.submit(harness.tiny_job(
            data, 10**6, name="docs-run",
            model={"layers": 4, "hidden": 128, "heads": 4, "kv_heads": 2, "ffn_hidden": 256, "vocab": 64},
            data={"train": data, "validation": data, "sequence_length": 64}, batch={"micro_batch_size": 4, "global_batch_tokens": 1024},
            precision={"recipe": "fp8", "stats_every": 10}, optimizer={"lr": 0.0005}, train={"steps": 10**6, "seed": 7, "eval_every": 50, "eval_batches": 2},
            checkpoint={"every_steps": 100}))
        cluster.submit(harness.tiny_job(data, 100, name="waits"))
        cluster.wait_step(job, 20)
        while time.monotonic() - start < options.seconds * 0.6:
            time.sleep(0.5)
        os.kill(cluster.trainer_pids("w1")[0], signal.SIGKILL)
        while time.monotonic() - start < options.seconds:
            time.sleep(0.5)
        return subprocess.run(
            [sys.executable, "-B", os.path.join(harness.SOURCE, "deploy", "grafana", "pictures.py"), "--prometheus", prometheus.base,
             "--out", options.out, "--dashboards", "cluster,job,coordinator", "--seconds", str(options.seconds), "--rate-interval", "10s",
             "--var", f"job_id={job}"], check=False).returncode
    finally:
        if prometheus is not None:
            prometheus.close()
        cluster.close()


if __name__ == "__main__":
    sys.exit(main())
