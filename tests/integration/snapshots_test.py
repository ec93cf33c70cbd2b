#!/usr/bin/python3
"""What people see in a terminal of 80 and of 200 columns, in tmux. No line is wider than the window unless -o wide asks for that, nothing
is left of another screen, and what has room is shown."""

import os
import re
import subprocess

import harness

JOB = "a-job-with-a-rather-long-name-that-people-chose"


class Window:
    """A program in a tmux server of its own, in a window of this size."""

    def __init__(self, socket, argv, env, columns, rows=60):
        self.tmux = ["tmux", "-S", socket, "-f", "/dev/null"]
        command = " ".join(f"'{word}'" for word in argv)
        # The window stays after the program has ended.
        subprocess.run([*self.tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), f"{command}; echo '<END>'; exec cat"], check=True,
                       env={**env, "TERM": "xterm-256color"})

    def screen(self):
        """Its lines; those that the terminal has wrapped are one."""
        out = subprocess.run([*self.tmux, "capture-pane", "-p", "-J"], check=True, capture_output=True, text=True).stdout
        return [line.rstrip() for line in out.rstrip("\n").split("\n")]

    def wait_for(self, text):
        def shown():
            screen = self.screen()
            return screen if text in "\n".join(screen) else None

        return harness.wait_until(f"{text!r} on the screen", shown)

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], check=False, capture_output=True)


class Snapshots(harness.ClusterTest):
    WORKERS = 2
    GATES = {"step": "trainer.step@40"}

    def setUp(self):
        super().setUp()
        self.hold()
        spec = harness.tiny_job(self.data, 60, workers=2, labels={"team": "research", "run": "baseline"}, name="a-name-for-people")
        self.cluster.submit(spec, "--job-id", JOB)
        self.cluster.wait_step(JOB, 38)

    def show(self, columns, *args, until="<END>", wider=False):
        """The screen. `wider`: lines may be wider than the window."""
        socket = os.path.join(self.cluster.dir, f"tmux-{args[0]}-{columns}")
        window = Window(socket, [harness.program("jobctl"), "--coordinator", self.cluster.address, *args], self.cluster.env, columns)
        self.addCleanup(window.close)
        screen = window.wait_for(until)
        for line in screen:
            self.assertTrue(wider or len(line) <= columns, line)
        return "\n".join(screen)

    def test_list(self):
        narrow, wide = self.show(80, "list"), self.show(200, "-o", "wide", "list")
        self.assertRegex(narrow, r"NAME|JOB")
        self.assertIn(JOB[:20], narrow)
        self.assertIn(JOB, wide)
        self.assertIn("team=research", wide)
        self.assertIn(JOB, self.show(80, "-o", "wide", "list", wider=True))

    def test_describe(self):
        for columns in (80, 200):
            shown = self.show(columns, "describe", JOB)
            self.assertIn("Events:", shown)
            self.assertIn("running since step 1", shown)

    def test_events(self):
        for columns in (80, 200):
            shown = self.show(columns, "events", JOB)
            self.assertRegex(shown, r"TIME +TYPE")
            self.assertRegex(shown, r"\d\d-\d\d \d\d:\d\d:\d\d +state .*submitted")  # no time is cut
        self.assertRegex(self.show(200, "-o", "wide", "events", JOB), r"FROM +TO +EPOCH")

    def test_checkpoints(self):
        harness.wait_until("a checkpoint", lambda: self.cluster.checkpoints(JOB))
        self.assertRegex(self.show(80, "checkpoints", JOB), r"\.\.\.\S*step-000000\d0")
        path = self.cluster.checkpoints(JOB)[-1]["path"]
        self.assertIn(path, self.show(80, "checkpoints", JOB, "-o", "wide", wider=True))

    def test_metrics(self):
        shown = self.show(80, "metrics", JOB)
        self.assertRegex(shown, r"loss +val_loss +grad_norm +lr +tokens +tok_s +step_s")
        self.assertNotIn("...", shown)
        self.assertRegex(self.show(200, "metrics", JOB), r"tokens_per_second +step_seconds")

    def test_diff(self):
        other = self.cluster.jobctl("rerun", JOB, "--set", "optimizer.lr=1e-3", "--set", "train.seed=8", "-o", "name").stdout.strip()
        for columns in (80, 200):
            shown = self.show(columns, "diff", JOB, other)
            self.assertRegex(shown, r"optimizer\.lr\s+\S*\s*0\.003\s+\S*\s*0\.001")
            self.assertNotIn("...", shown)

    def test_watch(self):
        for columns in (80, 200):
            shown = self.show(columns, "watch", JOB, until="60")
            self.assertIn("loss", shown)
        self.release()
        shown = self.show(80, "watch", JOB)
        self.assertIn("SUCCEEDED", shown)

    def test_watch_of_several(self):
        other = self.cluster.jobctl("rerun", JOB, "-o", "name").stdout.strip()
        for columns in (80, 200):
            shown = self.show(columns, "watch", JOB, other, until="TOK/S")
            self.assertRegex(shown, r"NAME +STATE +STEP +LOSS +TOK/S +LEFT")
        self.release()
        shown = self.show(80, "watch", JOB, other)
        self.assertEqual(len(re.findall(r"^NAME +STATE", shown, re.M)), 1, "the table is drawn over")
        self.assertEqual(len(re.findall(r"^\S+ +SUCCEEDED +60/60 ", shown, re.M)), 2, shown)

    def test_top(self):
        for columns in (80, 200):
            shown = self.show(columns, "top", until="w1")
            self.assertIn("w0", shown)
            rows = [line for line in shown.split("\n") if re.match(r"w\d ", line)]
            self.assertEqual(len(rows), 2, shown)


if __name__ == "__main__":
    harness.main()
