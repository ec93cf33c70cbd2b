#!/usr/bin/python3
"""Pictures of the dashboards for docs/, drawn by deploy/grafana/pictures.py out of a Prometheus with the shipped configuration: of a
coordinator, two CPU workers and a job that loses its trainer once; of *GPU* from the recording tests/integration/data/gpu_sample.prom,
which needs neither a GPU nor programs of ours.

  HEARTH_BIN_DIR=build/release/bin tests/bench/dashboard_pictures.py [--seconds 120] [--dashboards cluster,job,coordinator,gpu] OUT"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
import gpu_sample  # noqa: E402
import harness  # noqa: E402
from prometheus_server import PrometheusServer  # noqa: E402


def draw(prometheus, options, dashboards, seconds, *variables):
    """The exit status of pictures.py."""
    return subprocess.run(
        [sys.executable, "-B", os.path.join(harness.SOURCE, "deploy", "grafana", "pictures.py"), "--prometheus", prometheus.base,
         "--out", options.out, "--dashboards", ",".join(dashboards), "--seconds", str(seconds), "--rate-interval", "10s",
         *[argument for variable in variables for argument in ("--var", variable)]], check=False).returncode


def of_the_recording(options):
    sample = gpu_sample.serve()
    with tempfile.TemporaryDirectory(prefix="hearth-pictures-") as folder:
        # Nobody is at that address: there is no coordinator.
        prometheus = PrometheusServer(os.path.join(folder, "prometheus"), "127.0.0.1:1", gpu_sample.scrape_config(sample))
        try:
            prometheus.wait_ready()
            harness.wait_until("the sample as a target", prometheus.healthy_targets)
            seconds = min(options.seconds, 60)
            time.sleep(seconds + 15)  # a rate is whole only after its window
            return draw(prometheus, options, ["gpu"], seconds, f"job={gpu_sample.JOB}")
        finally:
            prometheus.close()
            sample.shutdown()
            sample.server_close()


def of_a_cluster(options, dashboards):
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
        return draw(prometheus, options, dashboards, options.seconds, f"job_id={job}")
    finally:
        if prometheus is not None:
            prometheus.close()
        cluster.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--dashboards", default="cluster,job,coordinator,gpu")
    parser.add_argument("out")
    options = parser.parse_args()
    wanted = options.dashboards.split(",")
    status = of_the_recording(options) if "gpu" in wanted else 0
    of_cluster = [name for name in wanted if name != "gpu"]
    return status or (of_a_cluster(options, of_cluster) if of_cluster else 0)


if __name__ == "__main__":
    sys.exit(main())
