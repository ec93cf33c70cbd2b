#!/usr/bin/python3
"""jobctl logs: job, epoch and rank on each line, choice by rank, time and expression, following; kept when the worker dies."""

import json
import re
import signal
import subprocess

import harness

LINE = re.compile(r"^\[(\S+) e(\d+) r(\d+) (debug|info|warning|error)\] .+$")


class Logs(harness.ClusterTest):
    def lines(self, job, *args):
        return self.cluster.jobctl("logs", job, *args).stdout.splitlines()

    def test_lines_and_choices(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 60, workers=2))
        self.cluster.wait_state(job, "SUCCEEDED")
        everything = self.lines(job)
        self.assertGreater(len(everything), 5)
        for line in everything:
            self.assertEqual(LINE.match(line)[1], job, line)
        ranks = {LINE.match(line)[3] for line in everything}
        self.assertIn("0", ranks)
        for rank in ranks:
            self.assertEqual(self.lines(job, "--rank", rank), [line for line in everything if LINE.match(line)[3] == rank])
        wanted = [line for line in everything if re.search(r"checkpoint of step \d+0:", line)]
        self.assertGreater(len(wanted), 2)
        self.assertEqual(self.lines(job, "--grep", r"checkpoint of step \d+0:"), wanted)
        self.assertEqual(self.lines(job, "--since", "1h"), everything)
        self.assertEqual(self.lines(job, "--since", "2099-01-01 00:00:00"), [])

        rows = [json.loads(line) for line in self.cluster.jobctl("-o", "json", "logs", job).stdout.splitlines()]
        self.assertEqual([f"[{r['job_id']} e{r['epoch']} r{r['rank']} {r['level']}] {r['text']}" for r in rows], everything)
        middle = rows[len(rows) // 2]["time"]
        later = [json.loads(line) for line in self.cluster.jobctl("-o", "json", "logs", job, "--since", middle).stdout.splitlines()]
        self.assertEqual(later, [r for r in rows if r["time"] >= middle])

        for option, value in (("--grep", "("), ("--since", "bogus")):
            bad = self.cluster.jobctl("logs", job, option, value, check=False)
            self.assertEqual(bad.returncode, 2, bad.stderr)
            self.assertIn(f"{option}: {value}", bad.stderr)

    def test_interrupt_detaches_and_says_how_to_come_back(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 10**7, workers=1))
        self.cluster.wait_step(job, 20)
        follow = subprocess.Popen([harness.program("jobctl"), "--coordinator", self.cluster.address, "logs", job, "-f"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.cluster.env)
        self.assertIn(job, follow.stdout.readline())
        follow.send_signal(signal.SIGINT)
        _, said = follow.communicate(timeout=harness.patience(30))
        self.assertEqual((follow.returncode, said.strip()),
                         (0, f"Detached; the job continues. Follow it again with: jobctl logs -f {job}"))
        self.cluster.jobctl("cancel", job, "--now")

    def test_follow_ends_with_the_job(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 500, workers=1))
        follow = subprocess.run([harness.program("jobctl"), "--coordinator", self.cluster.address, "logs", job, "-f", "--grep", "checkpoint"],
                                capture_output=True, text=True, timeout=harness.patience(90), env=self.cluster.env)
        self.assertEqual(follow.returncode, 0, follow.stderr)
        self.assertEqual(follow.stdout.splitlines(), self.lines(job, "--grep", "checkpoint"))
        self.assertIn("checkpoint of step 500", follow.stdout)

    def test_several_jobs_follow_one_another_or_are_followed_at_once(self):
        jobs = [self.cluster.submit(harness.tiny_job(self.data, 60, workers=1)) for _ in range(2)]
        grep = ("--grep", "checkpoint of step")
        followed = self.lines(*jobs, "-f", *grep)  # ends when both have
        self.assertEqual([[line for line in followed if LINE.match(line)[1] == job] for job in jobs],
                         [self.lines(job, *grep) for job in jobs])
        self.assertGreater(len(followed), 4)
        each = [self.lines(job) for job in jobs]
        self.assertEqual(self.lines(*jobs), each[0] + each[1])
        self.assertEqual(self.lines(*jobs, "--tail", "1"), [each[0][-1], each[1][-1]])
        for args in ((jobs[0], "none", "-f"), ("none", jobs[0])):
            run = self.cluster.jobctl("logs", *args, check=False)
            self.assertEqual((run.returncode, run.stdout.splitlines()), (1, [] if "-f" in args else each[0]), args)
            self.assertIn("none", run.stderr)

    def test_json_lines_of_a_worker_name_its_task(self):
        self.cluster.start_worker("json", "--log-json")
        self.cluster.wait_worker("json")
        job = self.cluster.submit(harness.tiny_job(self.data, 60, workers=3))
        self.cluster.wait_state(job, "SUCCEEDED")

        def ended():
            found = [json.loads(line) for line in self.cluster.workers["json"].output().splitlines() if line.startswith("{")]
            return found if any("trainer ended" in line["msg"] for line in found) else None

        lines = harness.wait_until("the trainer's end in the worker's log", ended)
        of_task = [line for line in lines if "job_id" in line]
        # A checkpoint that is removed is of no epoch and no rank.
        self.assertEqual({(line["job_id"], line.get("epoch", 1)) for line in of_task}, {(job, 1)})
        self.assertEqual(len({line["rank"] for line in of_task if "rank" in line}), 1)
        self.assertIn(of_task[0]["rank"], (0, 1, 2))
        self.assertEqual([line for line in lines if job in line["msg"] and "job_id" not in line], [])
        self.assertTrue(any("connected" in line["msg"] and "job_id" not in line for line in lines))

    def test_kept_when_the_worker_dies(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 10**7, workers=2, resources={"min_workers": 1}))
        self.cluster.wait_step(job, 60)
        before = self.lines(job)
        self.assertTrue(any("checkpoint of step 10:" in line for line in before))
        first = self.cluster.job(job)["workers"][0]
        self.cluster.workers[first].kill(signal.SIGKILL)  # the worker of rank 0, with its trainer
        # The coordinator has them, whoever is gone.
        self.assertEqual(self.lines(job)[:len(before)], before)
        harness.wait_until("lines of the next gang", lambda: any(" e2 " in line for line in self.lines(job)), timeout=60)
        self.assertEqual(self.lines(job)[:len(before)], before)
        self.cluster.coordinator.kill(signal.SIGKILL)
        self.cluster.start_coordinator()
        self.assertEqual(self.lines(job)[:len(before)], before)
        self.cluster.jobctl("cancel", job, "--now")


if __name__ == "__main__":
    harness.main()
