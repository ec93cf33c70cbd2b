#!/usr/bin/python3
"""The drill of docs/runbook.md, Backup and restore: what the page prints is what this runs. Jobs run while the copy is made; after the
machine has lost its data dir, the copy is put back, the workers return, and the jobs end as if nothing had happened."""

import os
import re
import shutil
import signal
import subprocess

import peers  # noqa: F401  (finds the harness)
import harness

RUNBOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "runbook.md")


def printed_commands(title):
    """The lines of all ```sh blocks of a chapter of the runbook."""
    with open(RUNBOOK) as f:
        chapter = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", f.read(), re.S | re.M)[1]
    return [line for block in re.findall(r"^```sh\n(.*?)^```", chapter, re.S | re.M) for line in block.splitlines()]


class RestoreDrill(harness.ClusterTest):
    WORKERS = 2
    GATES = {"step": "trainer.step@20"}

    def test_backup_by_command_and_restore(self):
        cluster = self.cluster
        before = cluster.submit(harness.tiny_job(self.data, 60, workers=2, name="before"))
        self.hold("step")
        cluster.jobctl("cancel", cluster.submit(harness.tiny_job(self.data, 10**6, workers=1, name="cancelled")), "--now")
        cluster.wait_step(before, 19)
        data = os.path.join(cluster.dir, "coordinator")
        backup, *restore = printed_commands("Backup and restore")

        # The copy, while a job runs.
        self.assertEqual(backup, "jobctl backup")
        report = cluster.jobctl(*backup.split()[1:]).stdout
        copy = report.splitlines()[0]
        self.assertEqual(os.path.dirname(copy), data + "-backups")
        self.assertRegex(report, r"2 jobs, .* copied and read back in ")
        self.assertEqual(os.stat(copy).st_mode & 0o777, 0o700)
        after = cluster.submit(harness.tiny_job(self.data, 5, workers=1, name="after"))

        # The folder is lost, with its coordinator. The page's lines put the copy back.
        cluster.coordinator.kill(signal.SIGKILL)
        shutil.rmtree(os.path.join(data, "jobs"))
        words = {"DIR": data, "COPY": copy, "DIR-old": data + "-old"}
        for line in restore:
            arguments = [words.get(word, word) for word in line.split()]
            if arguments[0] == "hearth-coordinator" and "--restore" in arguments:
                self.assertEqual(arguments[1:], ["--data-dir", data, "--restore", "..."])
                cluster.start_coordinator("--restore")
                continue
            run = subprocess.run([harness.program(arguments[0]) if arguments[0].startswith("hearth-") else arguments[0], *arguments[1:]],
                                 capture_output=True, text=True, timeout=harness.patience(60))
            self.assertEqual(run.returncode, 0, f"{line}\n{run.stdout}{run.stderr}")
        self.assertTrue(os.path.exists(data + "-old/store.db"))

        # What the copy knows goes on: the trainers have waited at the gate all the time.
        self.release("step")
        cluster.wait_state(before, "SUCCEEDED")
        self.assert_every_step_once(before, 60)
        known = {job["spec"]["name"]: job["state"] for job in cluster.json("list", "--limit", 0)["jobs"]}
        self.assertEqual(known, {"before": "JOB_STATE_SUCCEEDED", "cancelled": "JOB_STATE_CANCELLED"})
        self.assertIn(after, cluster.jobctl("get", after, check=False).stderr)  # newer than the copy
        self.assertIn("restored: ", cluster.coordinator.output())

    def test_only_the_newest_copies_are_kept_and_the_call_is_audited(self):
        cluster = self.cluster
        cluster.coordinator.kill(signal.SIGTERM)
        folder = os.path.join(cluster.dir, "copies")
        cluster.start_coordinator("--backup-dir", folder, "--backup-keep", "2")
        for _ in range(3):
            cluster.json("backup")
        self.assertEqual([name.split("-")[1] for name in sorted(os.listdir(folder))], ["2", "3"])
        [*_, last] = [r for r in cluster.json("audit", "--limit", 0)["records"] if r["method"] == "MakeBackup"]
        self.assertEqual(last["outcome"], "OK")
        token = os.path.join(cluster.dir, "op.token")
        cluster.jobctl("token", "create", "op", "--role", "operator", "--output-file", token)
        refused = cluster.jobctl("--token-file", token, "backup", check=False)
        self.assertEqual(refused.returncode, 4)
        self.assertIn("needs the role admin", refused.stderr)

    def test_a_backup_dir_in_the_data_dir_is_refused(self):
        cluster = self.cluster
        cluster.coordinator.kill(signal.SIGTERM)
        data = os.path.join(cluster.dir, "coordinator")
        run = subprocess.run([harness.program("hearth-coordinator"), "--data-dir", data, "--backup-dir", data + "/copies"],
                             capture_output=True, text=True, timeout=harness.patience(60))
        self.assertEqual(run.returncode, 2)
        self.assertIn("must lie beside --data-dir", run.stderr)


if __name__ == "__main__":
    harness.main()
