"""jobctl as people type it: names, versions and completion; and time limits of a job that never rests."""

import json
import os
import pty
import re
import signal
import subprocess

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
                             timeout=harness.patience(30), cwd=self.cluster.dir)
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
                                capture_output=True, text=True, timeout=harness.patience(60), env=self.cluster.env)
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
        self.assertEqual(self.complete("submit", "tokens.b"), ["tokens.bin"])
        self.cluster.jobctl("token", "create", "ci", "--role", "viewer")
        self.assertIn("ci", self.complete("token", "revoke", ""))
        self.assertEqual(self.complete("token", "revoke", "token/c"), ["token/ci"])
        self.assertEqual(self.complete("token", "create", "x", "--role", "op"), ["operator"])
        self.assertEqual(self.complete("token", "create", "x", "--out"), ["--output-file"])
        self.assertIn("use", self.complete("context", ""))

    def test_names_complete_with_their_kind(self):
        job = self.cluster.submit(harness.tiny_job(self.data, steps=2, workers=1))
        self.assertIn("job/" + job, self.complete("get", "job/"))
        self.assertEqual(self.complete("get", "job/" + job[:-1]), ["job/" + job])
        self.assertEqual(self.complete("cordon", "worker/w"), ["worker/w0"])

    def test_submit_says_that_no_worker_has_the_device(self):
        spec = harness.tiny_job(self.data, steps=2, workers=1)
        path = os.path.join(self.cluster.dir, "waits.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(spec, file)
        run = self.cluster.jobctl("submit", path, "--set", "resources.device=cuda", "-q")
        self.assertIn("warning: no worker has resources.device cuda; the job waits until", run.stderr)
        self.cluster.jobctl("cancel", run.stdout.strip(), "--now")
        self.assertNotIn("no worker", self.cluster.jobctl("submit", path).stderr)
        many = self.cluster.jobctl("submit", path, "--set", "resources.workers=3", "-q")
        self.assertIn("warning: the job asks for 3 workers with resources.device cpu; 1 is connected; it waits until more join", many.stderr)
        self.cluster.jobctl("cancel", many.stdout.strip().removeprefix("job/"), "--now")

    def test_a_job_is_run_again_and_compared(self):
        one = self.cluster.submit(harness.tiny_job(self.data, steps=2, workers=1))
        changes = ("--set", "train.steps=3", "--set", "optimizer.lr=0.5")
        two = self.cluster.jobctl("rerun", one, *changes, "-q").stdout.strip().removeprefix("job/")
        rows = json.loads(self.cluster.jobctl("diff", one, two, "-o", "json").stdout)
        self.assertEqual([(row["key"], row[two]) for row in rows], [("optimizer.lr", "0.5"), ("train.steps", "3")])
        self.assertIn(f'{two}: "0.5"\n', self.cluster.jobctl("diff", one, two, "-o", "yaml").stdout)
        self.assertIn("optimizer.lr", self.cluster.jobctl("diff", one, f"job/{two}").stdout)
        self.assertIn("the same", self.cluster.jobctl("diff", one, one).stderr)
        path = os.path.join(self.cluster.dir, "other.yaml")
        with open(path, "w") as f:
            json.dump(harness.tiny_job(self.data, steps=2, workers=1, optimizer={"lr": 0.5}), f)
        rows = {row["key"]: row for row in json.loads(self.cluster.jobctl("diff", one, path, "-o", "json").stdout)}
        self.assertEqual((rows["optimizer.lr"][one], rows["optimizer.lr"][path]), ("0.003", "0.5"))
        self.assertNotIn("train.steps", rows)
        missing = self.cluster.jobctl("diff", one, "none.yaml", check=False)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("none.yaml", missing.stderr)
        self.cluster.jobctl("wait", two)
        self.assertEqual(self.cluster.job(two)["state"], "JOB_STATE_SUCCEEDED")

    def test_plot_draws_jobs_by_step(self):
        one = self.cluster.submit(harness.tiny_job(self.data, steps=30, workers=1))
        two = self.cluster.submit(harness.tiny_job(self.data, steps=20, workers=1))
        for job in (one, two):
            self.cluster.jobctl("wait", job)
        plot = self.cluster.jobctl("metrics", one, "--plot", "loss,tok_s").stdout
        lines = plot.splitlines()
        self.assertEqual([lines[0], lines[21]], [f"loss of {one} by step", f"tok_s of {one} by step"])
        self.assertEqual(len(lines), 41)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertRegex(lines[19], r"^ +1 +30$")
        self.assertTrue(any("\u2801" <= c <= "\u28ff" for c in plot), plot)
        self.assertNotIn("\x1b", plot)
        both = self.cluster.jobctl("metrics", one, two, "--plot", "loss").stdout
        self.assertIn(f"* {one}  + {two}\n", both)
        for wrong in (["--plot", "bogus"], ["--plot", "loss", "-f"], ["--plot", "loss", "-o", "csv"], [two]):
            run = self.cluster.jobctl("metrics", one, *wrong, check=False)
            self.assertEqual((run.returncode, run.stdout), (2, ""), wrong)
        self.assertEqual(self.complete("metrics", one, "--plot", "tok_"), ["tok_s"])

    def at_a_terminal(self, *args):
        """What jobctl says on a standard error that is a terminal."""
        terminal, end = pty.openpty()
        subprocess.run([harness.program("jobctl"), "--coordinator", self.cluster.address, *self.cluster.client_args, *args],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=end, env=self.cluster.env, check=False)
        os.close(end)
        said = os.read(terminal, 65536).decode()
        os.close(terminal)
        return said.replace("\r\n", "\n")

    def test_many_jobs_are_listed_named_and_changed(self):
        jobs = [self.cluster.submit(harness.tiny_job(self.data, steps=10**7, workers=1, name=name, labels={"sweep": "lr"}, optimizer={"lr": lr}))
                for name, lr in (("first", 0.01), ("second", 0.002))]
        first, second = jobs
        columns = ("--columns", "job_id,optimizer.lr,labels.sweep,checkpoint.step")
        rows = self.cluster.json("list", "--sort", "optimizer.lr", "-l", "sweep=lr", *columns)
        self.assertEqual([(row["job_id"], row["optimizer.lr"], row["labels.sweep"]) for row in rows],
                         [(second, 0.002, "lr"), (first, 0.01, "lr")])
        table = self.cluster.jobctl("get", first, second, *columns).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in table], ["job_id", first, second])
        self.assertEqual(self.cluster.jobctl("list", "--search", "FIRST", "-q").stdout, f"job/{first}\n")
        self.assertEqual(self.cluster.jobctl("list", "--since", "2020-01-01 00:00:00", "--user", "nobody", "-q").stdout, "")
        self.assertEqual(self.cluster.jobctl("list", "--since", "2020-01-01", "-q").stdout, f"job/{second}\njob/{first}\n")
        self.assertEqual(self.cluster.jobctl("list", "--since", "2099-01-01 17:05", "-q").stdout, "")
        self.assertIn("sweep=lr", self.cluster.jobctl("list", "-o", "wide", "--watch").stdout)
        shown = self.cluster.jobctl("list", "-o", "jsonpath={.jobs[*].spec.name}")
        self.assertEqual(shown.stdout, "second first\n")
        self.assertEqual(self.cluster.jobctl("get", first, "-o", "jsonpath={.spec.optimizer.lr}").stdout, "0.01\n")
        wrong = self.cluster.jobctl("list", "-o", "jsonpath={.items[*].id}", check=False)
        self.assertEqual((wrong.returncode, wrong.stderr), (1, "error: -o jsonpath: .items[*].id: no field items; did you mean jobs?\n"))
        both = self.cluster.jobctl("list", "--columns", "job_id", "-o", "jsonpath={.jobs}", check=False)
        self.assertEqual((both.returncode, both.stderr), (1, "error: --columns and -o jsonpath both choose fields; give one\n"))
        self.assertEqual(self.cluster.jobctl("get", first, "--spec", "-o", "json", check=False).returncode, 2)
        # Refused before anything is done.
        self.assertEqual(self.cluster.jobctl("cancel", first, "-o", "wide", check=False).stderr,
                         "error: jobctl cancel does not take -o wide; give json, yaml, name, jsonpath or leave -o out\n")
        self.assertEqual(self.cluster.jobctl("-o", "yaml", "wait", first, check=False).returncode, 2)
        wrong = self.cluster.jobctl("diff", first, second, "-o", "jsonpath={.a}", check=False)
        self.assertEqual((wrong.returncode, wrong.stderr), (2, "error: jobctl diff does not take -o jsonpath; give wide, json, yaml or leave -o out\n"))
        wrong = self.cluster.jobctl("list", "--sort", "stp", check=False)
        self.assertEqual(wrong.stderr, "error: stp: no field stp; did you mean step?\n")

        # The beginning of an id is the job, at a terminal for all verbs unless nothing could be taken back; in a script for those that show.
        self.assertEqual(self.at_a_terminal("get", "first"), f"first is job/{first}\n")
        self.assertEqual(self.at_a_terminal("cancel", "first", "second", "--now"),
                         f"error: no job first; with --now give the whole id: {first}?\n")
        self.assertEqual(self.cluster.json("get", "first")["jobId"], first)
        shown = self.cluster.jobctl("get", "first", "-o", "name")
        self.assertEqual((shown.stdout, shown.stderr), (f"job/{first}\n", f"first is job/{first}\n"))
        shown = self.cluster.jobctl("get", "first", "-q")
        self.assertEqual((shown.stdout, shown.stderr), (f"job/{first}\n", ""))
        for verb, code in (("pause", 1), ("wait", 102)):
            refused = self.cluster.jobctl(verb, "first", check=False)
            self.assertEqual(refused.returncode, code)
            self.assertIn(f"error: no job first; did you mean {first}? {verb} needs the whole id in a script", refused.stderr)
        self.assertEqual(self.cluster.jobctl("wait", "none", check=False).returncode, 102)

        shown = self.cluster.jobctl("describe", first, second).stdout
        self.assertRegex(shown, rf"(?s)^Job: +{first}\n.*\n\nJob: +{second}\n")
        self.assertEqual([job["jobId"] for job in self.cluster.json("describe", first, second)["jobs"]], jobs)
        self.assertEqual(self.cluster.json("describe", first)["jobId"], first)
        self.assertEqual(self.at_a_terminal("events", "first", second, "-o", "json"), f"first is job/{first}\n")
        self.cluster.jobctl("note", second, "before")
        self.cluster.jobctl("note", first, "between")
        self.cluster.jobctl("note", second, "after")
        said = self.cluster.jobctl("note", first, "for", "both", "--job", f"job/{second}").stdout
        self.assertEqual(said, f"job/{first} noted\njob/{second} noted\n")
        events = self.cluster.json("events", first, second)["events"]
        self.assertEqual([(event["jobId"], event["message"]) for event in events if event["type"] == "note"],
                         [(second, "before"), (first, "between"), (second, "after"), (first, "for both"), (second, "for both")])
        table = self.cluster.jobctl("events", second, first).stdout.splitlines()
        self.assertEqual(table[0].split(), ["TIME", "JOB", "TYPE", "STATE", "WHAT"])
        self.assertEqual([line.split()[2] for line in table if " note " in line], [second, first, second, first, second])
        self.assertEqual(self.cluster.jobctl("events", first).stdout.split("\n")[0].split()[:3], ["TIME", "TYPE", "ACTOR"])
        missing = self.cluster.jobctl("describe", first, "none", check=False)
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))

        run = self.cluster.jobctl("update", first, "none", second, "--label", "sweep=", check=False)
        self.assertEqual((run.returncode, run.stdout), (1, f"job/{first} updated\njob/{second} updated\n"))
        self.assertIn("error: job/none: ", run.stderr)
        self.cluster.jobctl("cancel", *jobs, "--now")
        both = self.cluster.jobctl("wait", *jobs, check=False)
        self.assertEqual((both.returncode, sorted(line.split(":")[0] for line in both.stderr.splitlines())),
                         (103, sorted(f"job/{job} CANCELLED" for job in jobs)))
        self.assertEqual(self.cluster.jobctl("wait", first, "none", check=False).returncode, 102)
        self.assertIn("needs --yes", self.cluster.jobctl("delete", *jobs, check=False).stderr)
        self.assertEqual(self.cluster.jobctl("delete", *jobs, "--yes").stdout, f"job/{first} deleted\njob/{second} deleted\n")

    def test_numbers_for_tensorboard(self):
        job = self.cluster.submit(harness.tiny_job(self.data, steps=20, workers=1))
        logs = os.path.join(self.cluster.dir, "logs")
        self.cluster.jobctl("metrics", job, "-f", "--tensorboard", logs)  # to its end
        name, = os.listdir(os.path.join(logs, job))
        self.assertIn("tfevents", name)
        with open(os.path.join(logs, job, name), "rb") as f:
            followed = f.read()
        self.assertEqual(followed.count(b"tokens_per_second"), 20)
        for part in (b"brain.Event:2", b"_hparams_/session_start_info", b"optimizer.lr", b"_hparams_/session_end_info"):
            self.assertIn(part, followed)
        self.cluster.jobctl("metrics", job, "--tensorboard", logs)
        with open(os.path.join(logs, job, name), "rb") as f:
            self.assertEqual(f.read(), followed, "a later call writes the same")
        self.assertEqual(self.cluster.jobctl("metrics", job, "--tensorboard", logs, "--plot", "loss", check=False).returncode, 2)
        by_time = self.cluster.jobctl("metrics", job, "--plot", "loss", "--x", "tokens", "--smooth", "5").stdout.splitlines()
        self.assertEqual(by_time[0], f"loss of {job} by tokens, mean of 5 points")
        self.assertRegex(by_time[19], r"^ +256 +5\.12k$")

    def test_top_is_plain_when_piped(self):
        lines = self.cluster.jobctl("top").stdout.splitlines()
        self.assertEqual(lines[0], "1 workers, 0 busy, 0 tok/s")
        self.assertEqual(lines[1].split(), ["NAME", "STATE", "JOB", "TOK/S", "POWER", "TEMP", "MEMORY", "UTIL"])
        self.assertEqual(lines[2].split()[:6], ["w0", "IDLE", "-", "-", "-", "-"])
        self.assertEqual(self.cluster.jobctl("top", "--once", "-o", "json", check=False).returncode, 2)

    def test_report_and_costs_of_a_job(self):
        spec = harness.tiny_job(self.data, steps=30, workers=1)
        spec["data"]["validation"] = self.data
        job = self.cluster.submit(spec)
        self.cluster.jobctl("wait", job)
        prices = ("--price-per-gpu-hour", "3600", "--currency", "EUR")
        report = json.loads(self.cluster.jobctl(*prices, "report", job, "-o", "json").stdout)
        row = self.cluster.job(job)
        self.assertEqual((report["state"], report["step"], report["tokens"]), ("SUCCEEDED", 30, 30 * 256))
        self.assertAlmostEqual(report["cost"], row["runningSeconds"], places=6)
        self.assertEqual(report["cost_to_end"], 0)
        self.assertIsNone(report["energy_joules"])  # a CPU has no counter
        self.assertEqual([d["worker"] for d in report["devices"]], ["w0"])
        self.assertGreater(report["final_validation_loss"], 0)
        self.assertEqual({v["check"] for v in report["verdict"]},
                         {"end", "loss", "memory", "temperature", "numbers", "checkpoint"})
        again = self.cluster.submit(report["spec"])  # the report holds all that a submit needs
        env = dict(self.cluster.env, HEARTH_COORDINATOR=self.cluster.address, PATH=harness.BIN + ":" + os.environ["PATH"])
        rerun = subprocess.run(["bash", "-c", report["command"]], env=env, capture_output=True, text=True, timeout=harness.patience(60))
        self.assertRegex(rerun.stdout, r"^job/\S+ submitted\n$", rerun.stderr)
        third = rerun.stdout.split()[0]
        self.cluster.jobctl("wait", again)
        self.cluster.jobctl("wait", third)
        self.assertEqual(self.cluster.metrics(third)[-1]["loss"], self.cluster.metrics(job)[-1]["loss"])
        self.assertEqual(self.cluster.metrics(again)[-1]["loss"], self.cluster.metrics(job)[-1]["loss"])
        html = self.cluster.jobctl("report", job, "-o", "html").stdout
        self.assertTrue(html.startswith("<!DOCTYPE html>") and "<polyline" in html, html)
        self.assertIn("| ok | end | SUCCEEDED at step 30 of 30: ", self.cluster.jobctl("report", job).stdout)
        self.assertRegex(self.cluster.jobctl("get", job, *prices).stdout, r"COST +TO-END +AGE\n.* EUR +0\.00 EUR ")
        self.assertRegex(self.cluster.jobctl("describe", job, *prices).stdout, r"Energy: +not measured\nCost: +\S+ EUR so far")
        self.assertNotIn("COST", self.cluster.jobctl("get", job).stdout)
        self.assertEqual(self.cluster.jobctl("report", job, "-o", "pdf", check=False).returncode, 2)
        self.assertEqual(self.cluster.jobctl("list", "--price-per-kwh", "-1", check=False).returncode, 2)
        self.assertEqual(self.cluster.jobctl("report", "nothing", check=False).returncode, 1)

    def test_a_watched_job_ends_with_a_summary(self):
        spec = harness.tiny_job(self.data, steps=30, workers=1)
        run = self.cluster.jobctl("--price-per-gpu-hour", "3600", "submit", "-f", "-", "--watch", stdin=json.dumps(spec))
        job = run.stdout.split()[0]
        lines = run.stdout.splitlines()
        summary = lines[lines.index(next(line for line in lines if re.match(r"ok +end ", line))):]
        self.assertEqual([line.split()[1] for line in summary[:6]], ["end", "loss", "memory", "temperature", "numbers", "checkpoint"])
        self.assertRegex(summary[3], "not measured")  # a CPU has no sensor, and no counter of energy
        self.assertRegex(summary[6], r"^7\.68k tokens in \S+, \S+ tok/s$")
        self.assertRegex(summary[7], r"^Cost: \$\S+, \$\S+ per billion tokens$")
        self.assertEqual(summary[8:], [f"To share: jobctl report {job.removeprefix('job/')}"])
        self.assertNotIn("\x1b", run.stdout)
        again = self.cluster.jobctl("watch", job).stdout.splitlines()
        self.assertEqual([line for line in again if line.startswith("Cost")], [], "no price, no cost")
        self.assertIn(summary[0], again)
        self.assertNotIn("To share", self.cluster.jobctl("wait", job).stdout, "wait is for scripts")

    def test_several_jobs_are_watched_at_once(self):
        one, two = (self.cluster.submit(harness.tiny_job(self.data, steps=20, workers=1)) for _ in range(2))
        watched = self.cluster.jobctl("watch", one, f"job/{two}")
        for job in (one, two):
            self.assertRegex(watched.stdout, rf"(?m)^{job} step 20/20  loss ")
            self.assertRegex(watched.stdout, rf"(?m)^{job} SUCCEEDED")
        self.assertNotIn("\x1b", watched.stdout)

        spec = harness.tiny_job(self.data, steps=10**7, workers=1, labels={"sweep": "lr"})
        runs, waits = self.cluster.submit(spec), self.cluster.submit(spec)
        timed_out = self.cluster.jobctl("watch", "-l", "sweep=lr", "--timeout", "3s", check=False)
        self.assertEqual(timed_out.returncode, 101)
        self.assertRegex(timed_out.stdout, rf"(?m)^{waits} QUEUED")
        self.assertIn(f"timed out; job/{runs} is ", timed_out.stderr)
        self.assertNotIn(one, timed_out.stdout, "it has another label")
        self.cluster.jobctl("cancel", "-l", "sweep=lr", "--yes")
        self.assertEqual(self.cluster.jobctl("watch", runs, waits, one).returncode, 0)
        self.assertEqual(self.cluster.jobctl("watch", runs, waits, one, "--exit-status", check=False).returncode, 103)
        self.assertEqual(self.cluster.jobctl("watch", one, "none", "--exit-status", check=False).returncode, 102)
        self.assertEqual(self.cluster.jobctl("watch", "-l", "sweep=lr").stderr,
                         "no job with the label sweep=lr is under way; jobctl list -l sweep=lr shows them\n")
        self.assertEqual(self.cluster.jobctl("watch", check=False).returncode, 2)

    def test_labels_choose_jobs(self):
        spec = harness.tiny_job(self.data, steps=20, workers=1, labels={"sweep": "lr"})
        one, two = self.cluster.submit(spec), self.cluster.submit(spec)
        other = self.cluster.submit(harness.tiny_job(self.data, steps=20, workers=1, labels={"sweep": "batch"}))
        self.assertEqual(self.cluster.jobctl("wait", "-l", "sweep").returncode, 0)
        label = ("-l", "sweep=lr")
        for command in (["get"], ["describe"]):
            rows = json.loads(self.cluster.jobctl(*command, *label, "-o", "json").stdout)["jobs"]
            self.assertEqual([row["jobId"] for row in rows], [one, two], "oldest first")
        self.assertEqual([row["job_id"] for row in json.loads(self.cluster.jobctl("report", *label, "-o", "json").stdout)], [one, two])
        for command in (["logs"], ["events"], ["metrics", "--plot", "loss"]):
            text = self.cluster.jobctl(*command, *label).stdout
            self.assertTrue(one in text and two in text and other not in text, text)
        only = json.loads(self.cluster.jobctl("get", "-l", "sweep=batch", "-o", "json").stdout)
        self.assertEqual([row["jobId"] for row in only["jobs"]], [other], "a list, also of one")
        several = self.cluster.jobctl("metrics", *label, check=False)
        self.assertEqual((several.returncode, several.stderr), (2, "error: several jobs need --plot or --tensorboard\n"))

        # A script sees which jobs would be changed, and that it takes --yes.
        for verb in ("delete", "rerun"):
            refused = self.cluster.jobctl(verb, *label, check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(f"job/{one}, job/{two}", refused.stderr)
            self.assertIn("needs --yes", refused.stderr)
        again = [line.split()[0].removeprefix("job/") for line in self.cluster.jobctl("rerun", *label, "--yes").stdout.splitlines()]
        self.assertEqual(len(again), 2)
        self.cluster.jobctl("wait", *label)
        self.assertEqual(set(self.cluster.jobctl("delete", *label, "--yes").stdout.splitlines()),
                         {f"job/{job} deleted" for job in (one, two, *again)})
        self.assertEqual(self.cluster.jobctl("list", "-q").stdout, f"job/{other}\n")

    def test_labels_choose_jobs_in_the_state_that_a_command_changes(self):
        spec = harness.tiny_job(self.data, steps=10**7, workers=1, labels={"sweep": "lr"})
        runs, waits = self.cluster.submit(spec), self.cluster.submit(spec)
        self.cluster.wait_step(runs, 1)
        label = ("-l", "sweep=lr")
        self.assertEqual(self.cluster.jobctl("resume", *label, "--yes").stderr,
                         "no job with the label sweep=lr is paused; jobctl list -l sweep=lr shows them\n")
        self.assertEqual(self.cluster.jobctl("delete", *label, "--yes").stderr,
                         "all jobs with the label sweep=lr are under way; jobctl list -l sweep=lr shows them\n")
        self.assertEqual(self.cluster.jobctl("pause", *label, check=False).returncode, 1, "it does not ask in a script")
        self.cluster.jobctl("pause", *label, "--yes")
        self.cluster.wait_state(runs, "PAUSED")
        self.cluster.wait_state(waits, "PAUSED")
        self.assertEqual(self.cluster.jobctl("resume", waits, *label, "--yes").stdout, f"job/{waits} resumed\njob/{runs} resumed\n")
        self.cluster.jobctl("cancel", "--now", *label, "--yes")
        self.cluster.wait_state(runs, "CANCELLED")
        self.cluster.wait_state(waits, "CANCELLED")
        self.assertIn("all jobs with the label sweep=lr have ended", self.cluster.jobctl("cancel", *label, "--yes").stderr)
        # A label that no job has is a mistake, also for a script that waits.
        self.assertEqual(self.cluster.jobctl("wait", "-l", "swep=lr", check=False).returncode, 102)
        typo = self.cluster.jobctl("pause", "-l", "swep=lr", "--yes", check=False)
        self.assertEqual((typo.returncode, typo.stderr), (1, "error: no job has the label swep=lr\n"))
        self.assertEqual(self.cluster.jobctl("pause", check=False).returncode, 2)

    def test_every_command_takes_what_output_name_prints(self):
        job = self.cluster.submit(harness.tiny_job(self.data, steps=10**7, workers=1))
        self.cluster.wait_step(job, 1)
        name, = self.cluster.jobctl("list", "-o", "name").stdout.split()
        self.assertEqual(name, f"job/{job}")
        for verb in (["get"], ["describe"], ["logs"], ["events"], ["metrics"], ["report"], ["checkpoints"], ["doctor"],
                     ["update", "--priority", "3"], ["pause"], ["wait"], ["resume"], ["cancel", "--now"]):
            run = self.cluster.jobctl(verb[0], name, *verb[1:], check=False)
            self.assertEqual(run.returncode, 0, (verb, run.stderr))
        self.cluster.wait_state(job, "CANCELLED")
        self.assertEqual(self.cluster.jobctl("delete", name, "--yes").stdout, f"job/{job} deleted\n")
        worker = self.cluster.jobctl("workers", "-o", "name").stdout.strip()
        for verb, done in (("cordon", "cordoned"), ("drain", "draining"), ("uncordon", "uncordoned")):
            several = self.cluster.jobctl(verb, "none", worker, check=False)
            self.assertEqual((several.returncode, several.stdout), (1, f"worker/w0 {done}\n"), "the other goes on")
            self.assertIn("error: worker/none: ", several.stderr)
        self.assertEqual(len(self.cluster.json("workers", "w0", worker)["workers"]), 2)
        for verb in ("cordon", "uncordon", "workers"):
            self.assertIn("w0", self.cluster.jobctl(verb, worker).stdout)

    def test_the_same_file_under_the_same_id_is_the_same_job(self):
        """The job file leaves out what its dataset says (the vocabulary), and no worker can be asked at first."""
        folder = os.path.join(self.cluster.dir, "text-dataset")
        with open(os.path.join(self.cluster.dir, "text.txt"), "w") as f:
            f.write("some text to train on\n" * 200)
        self.cluster.jobctl("dataset", "build", "--input", f.name, "--tokenizer", "bytes", "--out", folder)
        spec = harness.tiny_job(folder, steps=5, workers=1)
        del spec["model"]["vocab"]
        text = json.dumps(spec)
        first = self.cluster.jobctl("submit", "-f", "-", "--job-id", "twice", stdin=text)
        self.assertEqual(first.stdout, "job/twice submitted\n")
        self.cluster.wait_state("twice", "SUCCEEDED")
        again = self.cluster.jobctl("submit", "-f", "-", "--job-id", "twice", stdin=text)
        self.assertEqual(again.stdout, "job/twice was submitted before and is SUCCEEDED\n")
        self.assertIn("warning: job twice exists already with this spec; nothing new was submitted", again.stderr)
        self.cluster.workers["w0"].kill(signal.SIGTERM)
        harness.wait_until("the worker's end", lambda: self.cluster.list_workers()[0]["state"] == "WORKER_STATE_OFFLINE")
        self.assertEqual(self.cluster.jobctl("submit", "-f", "-", "--job-id", "twice", "--set", "name=tiny", stdin=text).stdout, again.stdout)
        other = self.cluster.jobctl("submit", "-f", "-", "--job-id", "twice", "--set", "train.steps=6", stdin=text, check=False)
        self.assertEqual(other.returncode, 1)
        self.assertIn("exists already with another spec: ", other.stderr)
        self.assertIn("modified: train.steps: 5 -> 6", other.stderr)
        self.assertNotIn("model.vocab", other.stderr)

    def test_resume_says_what_is_true(self):
        job = self.cluster.submit(harness.tiny_job(self.data, steps=10**7, workers=3))
        harness.wait_until("a reason", lambda: self.cluster.job(job)["reasonCode"] != "submitted")
        run = self.cluster.jobctl("resume", job)
        self.assertRegex(run.stdout, rf"^job/{job} is QUEUED, nothing to resume: .*worker")
        self.cluster.jobctl("pause", job)
        self.assertEqual(self.cluster.jobctl("resume", job).stdout, f"job/{job} resumed\n")
        self.cluster.jobctl("cancel", job)

    def test_what_an_unreachable_coordinator_advises_works(self):
        job = self.cluster.submit(harness.tiny_job(self.data, steps=10**7, workers=1))
        self.cluster.wait_step(job, 1)
        for verb, then in (("pause", "PAUSED"), ("resume", "RUNNING"), ("cancel", "CANCELLED")):
            lost = subprocess.run([harness.program("jobctl"), "--coordinator", "127.0.0.1:9", verb, job], capture_output=True, text=True,
                                  env=self.cluster.env)
            self.assertEqual(lost.returncode, 1)
            advice = re.search(r"safe to retry with (--request-id) (\S+)", lost.stderr)
            self.cluster.jobctl(verb, job, *advice.groups())
            self.cluster.wait_state(job, then)
            self.cluster.jobctl(verb, job, *advice.groups())
        actors = [(e["type"], e["message"]) for e in self.cluster.events(job) if e["actor"].startswith("user:")]
        self.assertEqual(len([1 for _, message in actors if "cancelled" in message]), 1, actors)

    def test_a_bad_price_is_named(self):
        self.cluster.env["HEARTH_PRICE_PER_KWH"] = "10ct"
        run = self.cluster.jobctl("list", check=False)
        self.assertEqual((run.returncode, run.stderr),
                         (2, "error: HEARTH_PRICE_PER_KWH is '10ct', not a number of at least 0, e.g. 0.10\n"))
        self.assertEqual(self.cluster.jobctl("list", "--price-per-kwh", "0.1").returncode, 0)

    def test_prices_come_from_the_context_file_last(self):
        job = self.cluster.submit(harness.tiny_job(self.data, steps=5, workers=1))
        self.cluster.jobctl("wait", job)
        os.makedirs(os.path.join(self.cluster.dir, "config", "hearth"))
        with open(os.path.join(self.cluster.dir, "config", "hearth", "context.json"), "w") as f:
            json.dump({"price_per_gpu_hour": 2.5, "currency": "CHF"}, f)
        self.cluster.env["XDG_CONFIG_HOME"] = os.path.join(self.cluster.dir, "config")
        report = json.loads(self.cluster.jobctl("-o", "json", "report", job).stdout)
        self.assertEqual((report["price_per_gpu_hour"], report["currency"]), (2.5, "CHF"))
        self.cluster.env["HEARTH_PRICE_PER_GPU_HOUR"] = "4"
        report = json.loads(self.cluster.jobctl("-o", "json", "report", job).stdout)
        self.assertEqual((report["price_per_gpu_hour"], report["currency"]), (4, "CHF"))
        report = json.loads(self.cluster.jobctl("-o", "json", "--price-per-gpu-hour", "0", "report", job).stdout)
        self.assertIsNone(report["cost"])

    def test_time_limit_holds_while_steps_are_reported_all_the_time(self):
        spec = harness.tiny_job(self.data, steps=10**6, workers=1, resources={"time_limit": "1s"}, checkpoint={"every_steps": 0})
        job = self.cluster.submit(spec)
        run = self.cluster.jobctl("wait", job, "--timeout", "60s", check=False)
        self.assertEqual(run.returncode, 100, run.stderr)
        self.assertEqual(self.cluster.job(job)["reasonCode"], "time_limit")


if __name__ == "__main__":
    harness.main()
