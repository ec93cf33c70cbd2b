#!/usr/bin/python3
"""A job on a simulated GPU: our NVML reports what the test writes into a file, and a trainer of a few lines reports steps. The GPU's
measurements are kept with the job: its hottest temperature, energy and cost in describe, in the summary, in the report, over HTTP, after
the end and after a restart of the coordinator."""

import json
import os
import unittest

import harness

FAKE_NVML = os.path.join(os.path.dirname(harness.BIN), "tests", "libhearth_fake_nvml.so")

# A step of 1,000 tokens each 20 ms until the file `stop` is there. Messages of trainer.proto, written by hand.
TRAINER = r"""#!/usr/bin/python3
import os, struct, sys, time

def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])

def message(**fields):
    out = b""
    for name, value in fields.items():
        number = int(name[1:])
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out

def send(payload):
    frame = struct.pack("<I", len(payload)) + payload
    while frame:
        frame = frame[os.write(fd, frame):]

fd = int(os.environ["HEARTH_TRAINER_FD"])
os.read(fd, 1 << 20)  # the task
send(message(f1=message(f1=1000000, f2=2, f3=1, f4=256, f5=b"bf16", f6=b"native", f8=1 << 29, f12=b"cuda:0")))
step = 0
while step < 30 or not os.path.exists(os.path.join(os.environ["HEARTH_HOME"], "stop")):
    step += 1
    now = message(f1=int(time.time()))
    send(message(f2=message(f1=1, f2=step, f3=now, f4=1.0 + 1.0 / step, f5=0.5, f7=1000 * step, f8=0.02, f9=50000.0, f10=0.4, f11=1 << 30)))
    send(message(f10=b""))
    time.sleep(0.02)
send(message(f7=message(f1=1, f3=step)))
"""


@unittest.skipUnless(os.path.exists(FAKE_NVML), "the NVML that plays GPUs is not built")
class GpuTest(unittest.TestCase):
    """A coordinator and the worker g0, whose GPU is played."""

    def setUp(self):
        self.cluster = harness.Cluster()
        self.addCleanup(self.cluster.close)
        self.gpu(celsius=40, joules=1000)
        self.cluster.env.update(HEARTH_NVML_LIBRARY=FAKE_NVML, HEARTH_FAKE_NVML=self.path("gpu"))
        self.cluster.env.pop("CUDA_VISIBLE_DEVICES", None)
        with open(self.path("trainer"), "w") as f:
            f.write(TRAINER)
        os.chmod(self.path("trainer"), 0o755)
        self.data = self.path("tokens.bin")
        harness.write_tokens(self.data)
        self.cluster.start_coordinator()
        self.cluster.start_worker("g0", "--device", "cuda:0", "--trainer", self.path("trainer"))
        self.cluster.wait_worker("g0")

    def path(self, name):
        return os.path.join(self.cluster.dir, name)

    def gpu(self, celsius, joules):
        state = {"name": "NVIDIA H200", "uuid": "GPU-0", "pci": "00000000:01:00.0", "cc": "90", "total": 32 << 30, "used": 1 << 30,
                 "reserved": 0, "procs": "", "temp": celsius, "energy": 1000 * joules, "power": 500000, "gpu_util": 90}
        lines = ["driver=580.82.07", "cuda=13000", "count=1", *(f"0.{key}={value}" for key, value in state.items())]
        with open(self.path("gpu.new"), "w") as f:
            f.write("\n".join(lines) + "\n")
        os.rename(self.path("gpu.new"), self.path("gpu"))

    def gpu_job(self):
        spec = harness.tiny_job(self.data, 10**6, workers=1, precision={"recipe": "bf16"})
        spec["resources"] = {"workers": 1, "device": "cuda"}
        return spec

    def stop(self):
        """The trainer ends after its next step."""
        with open(self.path("stop"), "w"):
            pass


class PlayedGpu(GpuTest):
    def test_submit_says_what_the_plan_is_before_it_sends(self):
        spec = json.dumps({**self.gpu_job(), "name": "planned"})
        said = self.cluster.jobctl("submit", "-f", "-", "--price-per-gpu-hour", "2", stdin=spec).stderr
        self.assertRegex(said, r"(?m)^plan for H200: YES: [0-9.]+ of [0-9.]+ GB; .*; \$\S+; confidence: measured on this GPU")
        self.stop()

    def until(self, what, condition):
        return harness.wait_until(what, lambda: condition(self.cluster.job(self.job)))

    def test_what_a_gpu_measures_is_kept_with_the_job(self):
        self.job = self.cluster.submit(self.gpu_job())
        self.cluster.wait_step(self.job, 1)
        self.gpu(celsius=91, joules=1500)
        self.until("the heat", lambda job: job.get("devices", {}).get("hottestCelsius") == 91)
        self.gpu(celsius=60, joules=3000)
        self.until("the energy", lambda job: job["lastReport"]["energyJoules"] > 0 or sum(
            float(row["energy_joules"]) for row in self.cluster.metrics(self.job)) >= 1500)
        self.stop()
        self.cluster.wait_state(self.job, "SUCCEEDED")
        self.check()
        self.cluster.coordinator.kill()
        self.cluster.workers["g0"].kill()
        self.cluster.start_coordinator()
        self.check()  # without a worker to ask

    def check(self):
        hottest = r"hottest: 91 C on g0 at step \d+"
        described = self.cluster.jobctl("describe", self.job).stdout
        self.assertRegex(described, rf"Temperature: +warning, {hottest} \(limit 85 C\)\n")
        self.assertRegex(described, r"Devices: +1 x NVIDIA H200 on \S+, driver 580.82.07, CUDA 13.0, hearth \S+")
        limit = ("--temperature-limit", "95")
        self.assertRegex(self.cluster.jobctl("describe", self.job, *limit).stdout, rf"Temperature: +ok, {hottest} \(limit 95 C\)\n")
        prices = ("--price-per-kwh", "0.10")
        report = json.loads(self.cluster.jobctl("report", self.job, "-o", "json", *prices).stdout)
        self.assertEqual((report["hottest_celsius"], report["temperature_limit"]), (91, 85))
        self.assertEqual([(d["worker"], d["model"], d["driver"]) for d in report["devices"]], [("g0", "NVIDIA H200", "580.82.07")])
        self.assertIn({"check": "temperature", "status": "warning"},
                      [{"check": v["check"], "status": v["status"]} for v in report["verdict"]])
        joules = report["energy_joules"]
        self.assertTrue(1500 <= joules <= 2000, joules)
        self.assertAlmostEqual(report["tokens_per_joule"], report["tokens"] / joules)
        self.assertAlmostEqual(report["cost"], joules / 3.6e6 * 0.10)
        summary = self.cluster.jobctl("watch", self.job, *prices).stdout
        self.assertRegex(summary, rf"\nwarning +temperature +{hottest}")
        self.assertRegex(summary, r"\nEnergy: \S+ kJ, \S+ tokens per joule\nCost: \$\S+, \$\S+ per billion tokens\n")
        page = json.loads(self.cluster.get(f"/api/v1/jobs/{self.job}"))
        self.assertEqual(page["hottest_celsius"], 91)
        columns = json.loads(self.cluster.get(f"/api/v1/jobs/{self.job}/metrics"))["columns"]
        self.assertEqual({round(mfu, 6) for mfu in columns["mfu"]}, {0.4})
        self.assertIn(500, columns["power_watts"])
        self.assertIn(91, columns["temperature_celsius"])
        self.assertEqual({round(busy, 6) for busy in columns["utilization_ratio"] if busy is not None}, {0.9})
        self.check_plan(page["plan"])

    def check_plan(self, shown):
        """What was planned for the job on this GPU stands beside what its steps measured."""
        self.assertEqual((shown["gpu"], shown["gpus"], shown["unknown"], shown["calibrated"]), ("H200", 1, "", True))
        self.assertAlmostEqual(shown["measured"]["tokens_per_second"], 50000)
        self.assertGreater(shown["planned"]["tokens_per_second"], 0)
        self.assertEqual((shown["planned"]["memory_bytes"], shown["measured"]["memory_bytes"]), ((1 << 29) + 566000000, 1 << 30))
        rows = self.cluster.jobctl("plan", "--accuracy", "--on-coordinator", "--gpu", "h200").stdout
        self.assertRegex(rows, rf"(?m)^{self.job} +H200 +1 +- +bf16 +2 +32 +4 +50000 ")
        plan = self.cluster.jobctl("plan", os.path.join(harness.SOURCE, "configs", "jobs", "hearth-112m-bf16.yaml"), "--gpu", "H200",
                                   "--on-coordinator").stdout
        self.assertRegex(plan, r"confidence: measured on this GPU: plans of the nearest runs \(")


if __name__ == "__main__":
    harness.main()
