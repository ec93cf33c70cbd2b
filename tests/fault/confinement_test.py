#!/usr/bin/python3
"""What confines trainers, on real processes: capabilities, system calls, another account, limits that the machine does not delegate; and
the folders that jobs may name, also when a link changes after it was checked."""

import json
import os
import pwd
import subprocess
import unittest

import peers  # noqa: F401  (finds the harness)
import harness

USER = "nobody"


def status_of(pid):
    """/proc/PID/status as a dict."""
    with open(f"/proc/{pid}/status") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def why_no_other_account():
    """Empty: trainers can run under another account here."""
    if os.geteuid() != 0:
        return "needs root: only root starts processes of another account"
    pid = os.fork()
    if pid == 0:
        os.setgid(pwd.getpwnam(USER).pw_gid)
        os.setuid(pwd.getpwnam(USER).pw_uid)
        os._exit(0 if os.access(harness.program("hearth-trainer"), os.X_OK) else 1)
    return "" if os.waitpid(pid, 0)[1] == 0 else f"{USER} cannot run {harness.program('hearth-trainer')}: a folder above is closed to it"


class Confinement(harness.ClusterTest):
    WORKERS = 0
    GATES = {"start": "trainer.start@1", "step": "trainer.step@5"}

    def start(self, name, *flags):
        self.cluster.start_worker(name, *flags)
        self.cluster.wait_worker(name)

    def trainer(self, worker):
        [pid] = harness.wait_until("a trainer", lambda: self.cluster.trainer_pids(worker))
        return pid

    def refused(self, *flags):
        run = subprocess.run(
            [harness.program("hearth-worker"), "--coordinator", self.cluster.address, "--name", "refused", "--data-dir",
             os.path.join(self.cluster.dir, "refused"), "--http", "127.0.0.1:0", *flags],
            capture_output=True, text=True, timeout=harness.patience(60), env=self.cluster.env)
        self.assertIn(run.returncode, (1, 2), run.stderr)
        return run.stderr

    def test_trainer_has_no_capabilities_and_a_filter(self):
        self.start("w0")
        self.hold("step")
        job = self.cluster.submit(harness.tiny_job(self.data, 30, workers=1))
        self.cluster.wait_step(job, 4)
        status = status_of(self.trainer("w0"))
        self.assertEqual({status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}, {"0" * 16}, status)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        if os.geteuid() == 0:
            self.assertEqual(status["CapBnd"], "0" * 16)
        self.release("step")
        self.cluster.wait_state(job, "SUCCEEDED")
        [worker] = self.cluster.list_workers()
        self.assertEqual(worker["confinement"], ["no capabilities", "no new privileges", "system calls filtered"])
        self.assertIn("trainers run with: no capabilities; no new privileges; system calls filtered", self.cluster.workers["w0"].output())
        self.assertIn("trainers with no capabilities", self.cluster.jobctl("doctor", check=False).stdout)

    def test_ranks_of_a_gang_work_with_a_filter_and_without(self):
        self.start("w0")
        self.start("w1", "--no-trainer-filter")
        job = self.cluster.submit(harness.tiny_job(self.data, 30, workers=2))
        self.cluster.wait_state(job, "SUCCEEDED")
        self.assertNotIn("system calls filtered", next(w for w in self.cluster.list_workers() if w["workerId"] == "w1")["confinement"])

    def test_another_account(self):
        if why := why_no_other_account():
            self.skipTest(why)
        os.chmod(self.cluster.dir, 0o711)
        root = os.path.join(self.cluster.dir, "checkpoints")
        self.start("w0", "--checkpoint-root", root)
        self.hold("step")
        job = self.cluster.submit(harness.tiny_job(self.data, 40, workers=1, checkpoint={"every_steps": 2}))
        self.cluster.wait_step(job, 4)
        self.assertEqual(status_of(self.trainer("w0"))["Uid"].split()[0], "0")
        # The same worker again, with trainers of another account: the job goes on from a checkpoint that root wrote.
        self.cluster.workers["w0"].kill()
        self.start("w0", "--checkpoint-root", root, "--trainer-user", USER)
        harness.wait_until("the next epoch", lambda: int(self.cluster.job(job)["epoch"]) >= 2, 60)
        pid = self.trainer("w0")
        uid = str(pwd.getpwnam(USER).pw_uid)
        status = harness.wait_until("its account", lambda: (s := status_of(pid))["Uid"].split()[0] == uid and s)
        self.assertEqual(set(status["Uid"].split()), {uid})
        self.assertEqual({status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}, {"0" * 16}, status)
        with open(f"/proc/{pid}/environ", "rb") as f:
            environment = f.read().decode().split("\0")
        self.assertIn(f"HEARTH_HOME={self.cluster.dir}/trainers/{USER}", environment)
        # The death of its worker still ends it.
        self.cluster.workers["w0"].kill()
        harness.wait_until("the trainer's end", lambda: not os.path.exists(f"/proc/{pid}"))
        self.release("step")
        self.start("w0", "--checkpoint-root", root, "--trainer-user", USER)
        self.cluster.wait_state(job, "SUCCEEDED")
        self.assertEqual(os.stat(self.cluster.final_checkpoint(job)["path"]).st_uid, int(uid))
        self.assertIn(f"account {USER}", self.cluster.list_workers()[0]["confinement"])

    def test_account_that_cannot_write_checkpoints_is_refused(self):
        if why := why_no_other_account():
            self.skipTest(why)
        os.chmod(self.cluster.dir, 0o700)
        said = self.refused("--trainer-user", USER)
        self.assertIn(f"account {USER} cannot write checkpoints to {self.cluster.dir}/checkpoints", said)
        self.assertIn("no such account", self.refused("--trainer-user", "no-such-account"))

    def test_limits_without_delegation_are_refused(self):
        process = subprocess.Popen(
            [harness.program("hearth-worker"), "--coordinator", self.cluster.address, "--name", "limited", "--data-dir",
             os.path.join(self.cluster.dir, "limited"), "--http", "127.0.0.1:0", "--trainer-pids", "400"],
            stderr=subprocess.PIPE, text=True, env=self.cluster.env)
        self.addCleanup(process.kill)
        try:
            said = process.communicate(timeout=5)[1]
        except subprocess.TimeoutExpired:
            self.skipTest("this machine delegates a cgroup v2 with the controller pids: nothing is refused")
        self.assertEqual(process.returncode, 1, said)
        self.assertRegex(said, "--trainer-pids.* need a delegated cgroup v2: ")

    def test_link_that_changes_after_the_check_is_refused_by_the_trainer(self):
        inside, outside = os.path.join(self.cluster.dir, "inside"), os.path.join(self.cluster.dir, "outside")
        for folder in (inside, outside):
            os.mkdir(folder)
            harness.write_tokens(os.path.join(folder, "tokens.bin"))
        os.symlink(os.path.join(inside, "tokens.bin"), os.path.join(inside, "link.bin"))
        self.start("w0", "--data-root", inside)
        self.hold("start")
        job = self.cluster.submit(harness.tiny_job(os.path.join(inside, "link.bin"), 10, workers=1))
        self.trainer("w0")
        os.symlink(os.path.join(outside, "tokens.bin"), os.path.join(inside, "new"))
        os.rename(os.path.join(inside, "new"), os.path.join(inside, "link.bin"))
        self.release("start")
        failed = self.cluster.wait_state(job, "FAILED")
        self.assertIn(f"{inside}/link.bin lies outside of the folders that worker w0 reads: {inside} (--data-root)", failed["reason"])
        # A path that was never checked, because no worker was there.
        os.unlink(os.path.join(inside, "link.bin"))
        spec = harness.tiny_job(os.path.join(outside, "tokens.bin"), 10, workers=1)
        run = self.cluster.jobctl("submit", "-f", "-", check=False, stdin=json.dumps(spec))
        self.assertIn("lies outside of the folders that worker w0 reads", run.stderr)


if __name__ == "__main__":
    harness.main()
