#!/usr/bin/python3
"""jobctl top in a terminal: it redraws, fits the window, ends with q and with Ctrl-C, and leaves the terminal as it was."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import harness


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, argv, env, columns=80, rows=12):
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(argv, stdin=self.slave, stdout=self.slave, stderr=self.slave, env={**env, "TERM": "xterm"},
                                        preexec_fn=self.control)
        self.seen = ""

    def control(self):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds=0.05):
        """What was written since the last call."""
        out, deadline = b"", time.monotonic() + seconds
        while select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0]:
            out += os.read(self.master, 65536)
        self.seen += out.decode()
        return out.decode()

    def wait_for(self, what, condition):
        def met():
            self.read()
            return condition(self.seen)

        harness.wait_until(what, met)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class Top(harness.ClusterTest):
    def top(self, **size):
        terminal = Terminal([harness.program("jobctl"), "--coordinator", self.cluster.address, "top"], self.cluster.env, **size)
        self.addCleanup(terminal.close)
        return terminal

    def test_redraws_fits_and_ends(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 10**7, workers=2, checkpoint={"every_steps": 10**6}))
        self.cluster.wait_step(job, 20)
        for key, echoed in (("q", "q"), ("\x03", "^C")):
            terminal = self.top(columns=40, rows=6)
            terminal.wait_for("both workers", lambda seen: "w0" in seen and "w1" in seen and job[:6] in seen)
            terminal.wait_for("another screen", lambda seen: seen.count("\033[H") >= 3)
            for screen in terminal.seen.split("\033[H")[1:-1]:
                lines = [re.sub(r"\033\[[?\d]*[a-zA-Z]", "", line).rstrip("\r") for line in screen.split("\n")]
                self.assertLessEqual(len(lines), 6)
                self.assertLessEqual(max(map(len, lines)), 40)
            terminal.seen = ""
            os.write(terminal.master, key.encode())
            self.assertEqual(terminal.process.wait(harness.patience(10)), 0)
            terminal.read()
            if key == "q":
                self.assertNotIn(echoed, terminal.seen.replace("q ends", ""))
            self.assertIn("\033[?25h", terminal.seen, "the cursor comes back")
            self.assertEqual(termios.tcgetattr(terminal.slave), terminal.before)
        self.cluster.jobctl("cancel", job, "--now")


if __name__ == "__main__":
    harness.main()
