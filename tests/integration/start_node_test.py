#!/usr/bin/python3
"""scripts/start-node.sh: one command starts eight CPU workers and a coordinator, a job runs on all of them, and a stop leaves nothing."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import harness

SCRIPT = os.path.join(harness.SOURCE, "scripts", "start-node.sh")

# The name of this machine in those of its workers, as the script has it.
HOST = "hostname -s | tr A-Z a-z | tr -c 'a-z0-9\\n' - | sed 's/^-*//; s/-*$//'"

FAKE_NVML = os.path.join(os.path.dirname(harness.BIN), "tests", "libhearth_fake_nvml.so")


class StartNodeTest(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="hearth-node-")
        self.addCleanup(harness.remove_or_keep, self.home, harness.Outcome.count)
        self.env = dict(os.environ, HEARTH_HOME=self.home, OMP_NUM_THREADS="1", NO_COLOR="1")
        self.addCleanup(self.node, "--stop", check=False)

    def node(self, *args, check=True, env=None):
        limit = {"--stop": 120, "--status": None}.get(args[0] if args else "", 60)  # the script's own
        if limit and "--timeout" not in args:
            args = (*args, "--timeout", str(int(harness.patience(limit))))
        run = subprocess.run([SCRIPT, "--bin", harness.BIN, *args], capture_output=True, text=True, timeout=harness.patience(150), env=env or self.env)
        if check:
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run

    def start(self, *args):
        return self.node("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *args)

    @staticmethod
    def runs(pid):
        """An ended process that nobody has reaped does not."""
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError:
            return False

    def pids(self):
        found = {}
        for name in os.listdir(os.path.join(self.home, "node")):
            if name.endswith(".pid"):
                with open(os.path.join(self.home, "node", name)) as f:
                    found[name[:-4]] = int(f.read().split()[0])
        return found

    def jobctl(self, *args, stdin=None):
        return subprocess.run([harness.program("jobctl"), *args], capture_output=True, text=True, timeout=harness.patience(100), env=self.env, input=stdin)

    def test_eight_workers_run_a_job(self):
        out = self.start("--cpu", "8").stdout
        self.env["HEARTH_COORDINATOR"] = re.search(r"HEARTH_COORDINATOR=(\S+)", out).group(1)
        self.assertIn("jobctl submit", out)
        pids = self.pids()
        self.assertEqual(len(pids), 9)

        again = self.start("--cpu", "8")
        self.assertIn("already running", again.stdout)
        self.assertEqual(self.pids(), pids)
        os.kill(pids["cpu3"], signal.SIGKILL)
        harness.wait_until("the worker's end", lambda: "cpu3 has ended" in self.node("--status").stdout)
        self.start("--cpu", "8")  # brings it back, and touches nothing else
        changed = self.pids()
        self.assertNotEqual(changed.pop("cpu3"), pids.pop("cpu3"))
        self.assertEqual(changed, pids)

        data = os.path.join(self.home, "tokens.bin")
        harness.write_tokens(data)
        spec = harness.tiny_job(data, 20, workers=8, batch={"global_batch_tokens": 512})
        submitted = self.jobctl("submit", "-f", "-", "-o", "name", "--wait", stdin=json.dumps(spec))
        self.assertEqual(submitted.returncode, 0, submitted.stdout + submitted.stderr)
        job = json.loads(self.jobctl("-o", "json", "list").stdout)["jobs"][0]
        self.assertEqual((job["state"], job["step"], job["runInfo"]["worldSize"]), ("JOB_STATE_SUCCEEDED", "20", 8))

        self.bench_the_node(spec)

        # One that is stopped while it trains: the trainers go in order, with a checkpoint.
        spec["train"]["steps"] = 10**6
        spec["checkpoint"]["every_steps"] = 0
        name = self.jobctl("submit", "-f", "-", "-o", "name", stdin=json.dumps(spec)).stdout.strip().removeprefix("job/")
        harness.wait_until("a step", lambda: int(json.loads(self.jobctl("-o", "json", "get", name).stdout)["step"]) > 0)
        pids = self.pids()
        self.assertIn("stopped", self.node("--stop").stdout)
        self.assertEqual(self.pids(), {})
        for unit, pid in pids.items():
            self.assertFalse(self.runs(pid), unit)
        self.assertTrue(os.listdir(os.path.join(self.home, "checkpoints", name, "e1")))
        self.assertIn("nothing", self.node("--stop").stdout)

    def bench_the_node(self, spec):
        """tests/bench/gang_bench.py as on a node of eight GPUs: one worker, then all of them, then a peer."""
        job, rows, peer, out = (os.path.join(self.home, name) for name in ("job.yaml", "node.rows", "peer.py", "bench"))
        with open(job, "w") as f:
            json.dump(dict(spec, name="bench"), f)  # YAML too
        with open(rows, "w") as f:
            f.write(f"tiny | {job} | batch.global_batch_tokens=64\n")
        with open(peer, "w") as f:
            f.write("import json\nprint(json.dumps(dict(peer='pretended', tok_s=100, ms=10.0, first_step_s=0.5)))\n")
        programs = os.path.join(self.home, "programs")
        os.mkdir(programs)
        with open(os.path.join(programs, "torchrun"), "w") as f:
            f.write('#!/bin/sh\n[ "$2 $3" = "--nproc-per-node 8" ] || exit 3\nexec /usr/bin/python3 "$4"\n')
        os.chmod(f.name, 0o755)
        bench = os.path.join(harness.SOURCE, "tests", "bench", "gang_bench.py")
        run = subprocess.run(["/usr/bin/python3", "-B", bench, "--jobctl", harness.program("jobctl"), "--steps", "8", "--workers", "1,8",
                              "--peer", peer, "--out", out, rows], capture_output=True, text=True, timeout=harness.patience(120),
                             env=dict(self.env, PATH=f"{programs}:{self.env['PATH']}"))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        with open(os.path.join(out, "gang_bench.jsonl")) as f:
            one, eight, peer_one, peer_eight = [json.loads(line) for line in f]
        self.assertEqual((one["workers"], eight["workers"]), (1, 8))
        self.assertEqual(one["comm_bytes"], 0)
        self.assertGreater(eight["comm_bytes"], 0)
        self.assertGreater(eight["first_step_s"], 0)
        self.assertAlmostEqual(eight["scaling"], eight["tokens_per_second"] / (8 * one["tokens_per_second"]))
        self.assertEqual((peer_one["scaling"], peer_eight["scaling"]), (1, 1 / 8))
        self.assertRegex(run.stdout, r"pretended +8 +100 +10\.00 +0\.1250")

    def test_taken_port_is_told_and_nothing_is_left(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            run = self.node("--cpu", "1", "--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0", check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"port {port} of 127.0.0.1 is taken", run.stderr)
        self.assertEqual(self.pids(), {})

    def test_restarted_coordinator_listens_where_it_did(self):
        self.env["HEARTH_COORDINATOR_FLAGS"] = "--insecure"
        held = harness.HeldPort("0.0.0.0")
        self.addCleanup(held.release)
        port = held.port
        out = self.node("--cpu", "1", "--listen", f"0.0.0.0:{port}", "--http", "127.0.0.1:0").stdout
        self.assertIn(f"HEARTH_COORDINATOR=127.0.0.1:{port}", out)
        self.assertIn(f"--coordinator {socket.gethostname()}:{port} --token-file tokens", out)
        self.assertNotIn("HEARTH_TOKEN_FILE", out)
        before = self.pids()
        os.kill(before["coordinator"], signal.SIGKILL)
        harness.wait_until("the coordinator's end", lambda: "coordinator has ended" in self.node("--status").stdout)
        out = self.node("--cpu", "1", "--http", "127.0.0.1:0").stdout
        self.assertIn(f"HEARTH_COORDINATOR=127.0.0.1:{port}", out)
        self.assertIn("the coordinator had ended and is started again", out)
        self.assertNotIn("nothing to start", out)
        self.assertIn("already running, nothing to start", self.node("--cpu", "1", "--http", "127.0.0.1:0").stdout)
        after = self.pids()
        self.assertEqual(after["cpu0"], before["cpu0"])
        with open(f"/proc/{after['coordinator']}/cmdline") as f:
            self.assertIn(f"0.0.0.0:{port}", f.read().split("\0"))

    def test_a_node_joins_with_a_token_for_each_worker(self):
        cluster = harness.Cluster()
        self.addCleanup(cluster.close)
        cluster.start_coordinator()
        host = subprocess.run(["bash", "-c", HOST], capture_output=True, text=True, check=True).stdout.strip()
        tokens = os.path.join(self.home, "tokens-given")
        os.mkdir(tokens)

        def join(*args, check=True):
            return self.node("--cpu", "2", "--coordinator", cluster.address, *args, check=check)

        run = join("--token-file", tokens, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn(f"jobctl token create {host}-cpu0 --role worker --worker {host}-cpu0", run.stderr)
        for unit in ("cpu0", "cpu1"):
            cluster.jobctl("token", "create", f"{host}-{unit}", "--role", "worker", "--worker", f"{host}-{unit}", "--output-file",
                           os.path.join(tokens, f"{host}-{unit}.token"))
        run = join("--token-file", os.path.join(tokens, f"{host}-cpu0.token"), check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("is the token of one worker", run.stderr)
        run = self.node("--cpu", "1", "--token-file", tokens, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("goes with --coordinator", run.stderr)
        self.assertIn("2 workers", join("--token-file", tokens).stdout)
        self.assertEqual(sorted(w["workerId"] for w in cluster.list_workers()), [f"{host}-cpu0", f"{host}-cpu1"])
        os.kill(self.pids()["cpu1"], signal.SIGKILL)
        harness.wait_until("the worker's end", lambda: "cpu1 has ended" in self.node("--status").stdout)
        join()  # it remembers the folder
        cluster.jobctl("token", "revoke", f"{host}-cpu0")
        self.assertIn("stopped", self.node("--stop").stdout)
        run = self.node("--cpu", "1", "--coordinator", cluster.address, "--token-file", tokens, "--timeout", "5", check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"not registered at {cluster.address} in time: cpu0", run.stderr)
        self.assertIn("refused by coordinator", run.stderr)

    def test_coordinator_of_this_machines_address_is_found_and_says_how_to_join(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses an address of ours
                address = probe.getsockname()[0]
            except OSError:
                self.skipTest("this machine has no address but loopback")
        self.env.update(HEARTH_COORDINATOR_FLAGS="--insecure", HEARTH_WORKER_FLAGS="--insecure")
        out = self.node("--cpu", "1", "--listen", f"{address}:0", "--http", "127.0.0.1:0").stdout
        port = re.search(rf"HEARTH_COORDINATOR={re.escape(address)}:(\d+)", out).group(1)
        self.assertIn(f"HEARTH_TOKEN_FILE={self.home}/tokens/local-{port}", out)
        self.assertIn("jobctl --insecure token create HOST-gpu0 --role worker --worker HOST-gpu0", out)
        self.assertIn(f'HEARTH_WORKER_FLAGS="--insecure" {SCRIPT} --coordinator {address}:{port} --token-file tokens', out)
        self.env.update(HEARTH_COORDINATOR=f"{address}:{port}", HEARTH_TOKEN_FILE=f"{self.home}/tokens/local-{port}")
        refused = self.jobctl("list")
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertIn("in clear text", refused.stderr)
        self.assertEqual(self.jobctl("--insecure", "list").returncode, 0)

    def test_failed_start_is_taken_back(self):
        env = dict(self.env, HEARTH_WORKER_FLAGS="--no-such-flag")
        run = self.node("--cpu", "2", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", check=False, env=env)
        self.assertEqual(run.returncode, 1)
        self.assertIn("--no-such-flag", run.stderr)
        self.assertEqual(self.pids(), {})

    def test_other_coordinator_than_the_running_one_is_refused(self):
        self.start("--cpu", "1")
        run = self.node("--cpu", "1", "--coordinator", "127.0.0.1:9", check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("already runs for the coordinator", run.stderr)

    def test_ended_processes_do_not_count_as_running(self):
        """A zombie that nobody reaps, as in a container without an init, and one that was gone before its start could be read."""
        os.mkdir(os.path.join(self.home, "node"))
        zombie = subprocess.Popen(["true"])
        self.addCleanup(zombie.wait)

        def stat():
            with open(f"/proc/{zombie.pid}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()

        harness.wait_until("the process's end", lambda: stat()[0] == "Z")
        for unit, line in (("cpu0", f"{zombie.pid} {stat()[19]}"), ("cpu1", "4194305 ")):
            with open(os.path.join(self.home, "node", unit + ".pid"), "w") as f:
                f.write(line + "\n")
        status = self.node("--status").stdout
        self.assertIn("cpu0 has ended", status)
        self.assertIn("cpu1 has ended", status)
        self.assertIn("nothing", self.node("--stop").stdout)
        self.assertEqual(self.pids(), {})

    @unittest.skipUnless(os.path.exists(FAKE_NVML), "the NVML that plays GPUs is not built")
    def test_one_worker_per_gpu(self):
        state = ["driver=580.82.07", "cuda=13000", "count=2"]
        for i in range(2):
            state += [f"{i}.{key}={value}" for key, value in {
                "name": "NVIDIA Test", "uuid": f"GPU-{i}", "pci": f"00000000:0{2 - i}:00.0", "cc": "90", "total": 32 << 30, "used": 0,
                "reserved": 0, "procs": ""}.items()]
        with open(os.path.join(self.home, "gpus"), "w") as f:
            f.write("\n".join(state) + "\n")
        tools = os.path.join(self.home, "tools")
        os.mkdir(tools)
        with open(os.path.join(tools, "nvidia-smi"), "w") as f:
            f.write('#!/bin/sh\n[ "$1" = -L ] && printf "GPU 0: NVIDIA Test (UUID: GPU-0)\\nGPU 1: NVIDIA Test (UUID: GPU-1)\\n"\n')
        os.chmod(os.path.join(tools, "nvidia-smi"), 0o755)
        self.env.update(HEARTH_NVML_LIBRARY=FAKE_NVML, HEARTH_FAKE_NVML=os.path.join(self.home, "gpus"),
                        PATH=tools + ":" + os.environ["PATH"], NCCL_DEBUG="WARN")
        self.env.pop("CUDA_VISIBLE_DEVICES", None)
        out = self.start().stdout
        self.assertIn("resources.workers=2", out)
        self.env["HEARTH_COORDINATOR"] = re.search(r"HEARTH_COORDINATOR=(\S+)", out).group(1)
        workers = json.loads(self.jobctl("-o", "json", "workers").stdout)["workers"]
        self.assertEqual([(w["workerId"].rsplit("-", 1)[1], w["device"]["kind"], w["device"]["pciBusId"]) for w in workers],
                         [("gpu0", "cuda", "00000000:02:00.0"), ("gpu1", "cuda", "00000000:01:00.0")])
        self.assertEqual(sorted(self.pids()), ["coordinator", "gpu0", "gpu1"])

    @unittest.skipIf(os.path.exists("/dev/nvidia0") or shutil.which("nvidia-smi"), "this machine has a GPU")
    def test_no_gpu_is_said(self):
        run = self.node(check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("--cpu N", run.stderr)


if __name__ == "__main__":
    harness.main()
