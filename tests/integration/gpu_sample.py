"""Serves what a worker on a GPU and its coordinator once said (data/gpu_sample.prom, made by record_gpu_sample.py) to a Prometheus
where there is no GPU."""

import http.server
import os
import re
import threading
import time

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "gpu_sample.prom")
SAMPLE_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)(?: \+(\S+))?$")
JOB = "gpu-sample"  # of Prometheus


def lines():
    """[(name, labels' text or None, value, growth a second)]"""
    with open(SAMPLE) as f:
        found = [SAMPLE_LINE.match(line.rstrip("\n")) for line in f if not line.startswith("#")]
    return [(m[1], m[2], float(m[3]), float(m[4] or 0)) for m in found]


def not_told():
    """GPU series that the recorded GPU does not have."""
    with open(SAMPLE) as f:
        return {line.split()[-1] for line in f if line.startswith("# not told: ")}


def serve():
    """An HTTP server with the sample at /metrics."""
    series, start = lines(), time.monotonic()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            age = time.monotonic() - start
            body = "".join(f"{name}{'{' + labels + '}' if labels else ''} {value + growth * age}\n"
                           for name, labels, value, growth in series).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def scrape_config(server):
    """YAML to append to scrape_configs."""
    return (f"\n  - job_name: {JOB}\n    static_configs:\n      - targets: ['127.0.0.1:{server.server_port}']\n"
            "        labels: {worker_id: sample-gpu0}\n")
