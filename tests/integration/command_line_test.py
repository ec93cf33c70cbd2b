"""jobctl as people type it: names, versions and completion; and time limits of a job that never rests."""

import json
import os
import subprocess
import unittest

import harness

COMPLETE = r"""
source <(jobctl completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
_jobctl; printf '%s\n' "${COMPREPLY[@]}"
"""


class CommandLineTest(harness.ClusterTest):
    WORKERS = 1

    def complete(self, *words):
        env = dict(self.cluster.env, HEARTH_COORDINATOR=self.cluster.address, PATH=harness.BIN + ":" + os.environ["PATH"])
        out = subprocess.run(["bash", "-c", COMPLETE, "bash", "jobctl", *words], env=env, capture_output=True, text=True,
                             timeout=30, cwd=self.cluster.dir)
        self.assertEqual(out.stderr, "")
        return out.stdout.split()

    def test_unknown_command_is_named(self):
        run = self.cluster.jobctl("bogus", check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn('"bogus"', run.stderr)

    def test_quiet_prints_names_and_version_speaks_json(self):
        self.assertEqual(self.cluster.jobctl("-q", "workers").stdout, "worker/w0\n")
        version = json.loads(self.cluster.jobctl("version", "-o", "json").stdout)
        self.assertEqual(version["coordinator"]["generation"], "1")
        self.assertIn("client", version)

    def test_doctor_speaks_of_the_machine_and_of_a_job(self):
        run = self.cluster.jobctl("doctor", "--no-probe", "-o", "json", check=False)
        checks = {row["check"]: row for row in json.loads(run.stdout)}
        for check in ("coordinator", "clock", "worker w0", "disk", "driver"):
            self.assertIn(check, checks)
        self.assertEqual(checks["clock"]["status"], "ok")
        self.assertIn(" free in " + str(self.cluster.dir), run.stdout)
        failed = [row for row in checks.values() if row["status"] == "failed"]
        self.assertEqual(run.returncode, 1 if failed else 0, failed)
        for row in failed:
            self.assertTrue(row["remedy"], row)
        job = self.cluster.submit(harness.tiny_job(self.data, steps=2, workers=1))
        self.cluster.jobctl("wait", job)
        self.assertIn("SUCCEEDED, step 2 of 2", self.cluster.jobctl("doctor", job).stdout)
        nobody = subprocess.run([harness.BIN + "/jobctl", "--coordinator", "127.0.0.1:1", "doctor", "--no-probe"],
                                capture_output=True, text=True, timeout=60, env=self.cluster.env)
        self.assertEqual(nobody.returncode, 1)
        self.assertRegex(nobody.stdout, r"failed +coordinator")

    def test_completion_knows_where_the_command_begins(self):
        job = self.cluster.submit(harness.tiny_job(self.data, steps=2, workers=1))
        self.assertIn(job, self.complete("get", ""))
        self.assertIn(job, self.complete("-o", "json", "get", ""))
        self.assertIn(job, self.complete("--coordinator", "127.0.0.1", ":", "7070", "get", ""))
        self.assertIn(job, self.complete("logs", "-f", ""))
        self.assertEqual(self.complete("cordon", "w"), ["w0"])
        self.assertEqual(self.complete("submit", "--dry-run", "s"), ["server"])
        self.assertEqual(self.complete("list", "--state", "can"), ["cancelling", "cancelled"])
        self.assertEqual(self.complete("submit", "--dr"), ["--dry-run"])
        self.assertEqual(self.complete("submit", "tok"), ["tokens.bin"])

    def test_time_limit_holds_while_steps_are_reported_all_the_time(self):
        spec = harness.tiny_job(self.data, steps=10**6, workers=1, resources={"time_limit": "1s"}, checkpoint={"every_steps": 0})
        job = self.cluster.submit(spec)
        run = self.cluster.jobctl("wait", job, "--timeout", "60s", check=False)
        self.assertEqual(run.returncode, 100, run.stderr)
        self.assertEqual(self.cluster.job(job)["reasonCode"], "time_limit")


if __name__ == "__main__":
    unittest.main(verbosity=2)
