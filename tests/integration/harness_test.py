#!/usr/bin/python3
"""The harness keeps the folder of a failed test and removes that of a passed one; it holds ports, and stretches time limits."""

import os
import socket
import subprocess
import sys
import tempfile
import unittest

import harness

TESTS = """
import sys
sys.path.insert(0, {integration!r})
import harness, os, unittest

class Tests(unittest.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster()
        self.addCleanup(self.cluster.close)
        with open(os.path.join(self.cluster.dir, "log"), "w") as f:
            f.write(self.id())
    def test_1_passes(self): pass
    def test_2_fails(self): self.fail("on purpose")
    def test_3_ends_with_an_error(self): raise OSError("on purpose")
    def test_4_fails_in_a_part(self):
        with self.subTest(part=1): self.fail("on purpose")
    def test_5_passes(self): pass

harness.main()
"""


class HarnessTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        self.temporary = os.path.join(self.dir, "tmp")
        os.mkdir(self.temporary)
        self.script = os.path.join(self.dir, "some_test.py")
        with open(self.script, "w") as f:
            f.write(TESTS.format(integration=os.path.dirname(os.path.abspath(harness.__file__))))

    def test_folders_of_failed_tests_are_kept_and_named(self):
        env = dict(os.environ, HEARTH_BIN_DIR=os.path.join(self.dir, "bin"), TMPDIR=self.temporary)
        run = subprocess.run([sys.executable, self.script], capture_output=True, text=True, env=env, timeout=60)
        self.assertEqual(run.returncode, 1, run.stderr)
        kept = os.path.join(self.dir, "failed-tests")
        found = {}
        for name in os.listdir(kept):
            self.assertIn(os.path.join(kept, name), run.stderr)
            self.assertTrue(name.startswith("some_test-"), name)
            with open(os.path.join(kept, name, "log")) as f:
                found[f.read().rsplit(".", 1)[1]] = name
        self.assertEqual(sorted(found), ["test_2_fails", "test_3_ends_with_an_error", "test_4_fails_in_a_part"])
        self.assertEqual(os.listdir(self.temporary), [], "those that passed leave nothing")

    def test_held_port_is_free_for_its_program_alone_and_after_its_end_as_well(self):
        held = harness.HeldPort()
        self.addCleanup(held.release)
        for _ in range(2):
            with socket.socket() as program:
                program.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC and our HTTP server do
                program.bind(("127.0.0.1", held.port))
                program.listen()
                socket.create_connection(("127.0.0.1", held.port)).close()
            with socket.socket() as other, self.assertRaises(OSError):
                other.bind(("127.0.0.1", held.port))
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", held.port))

    def test_time_limits_are_multiplied(self):
        for slowdown, seconds in ((None, 3), ("5", 15)):
            env = {k: v for k, v in os.environ.items() if k != "HEARTH_SLOWDOWN"}
            if slowdown:
                env["HEARTH_SLOWDOWN"] = slowdown
            run = subprocess.run([sys.executable, "-B", "-c", "import harness; print(harness.patience(3))"], capture_output=True, text=True,
                                 env=env, check=True, cwd=os.path.dirname(os.path.abspath(harness.__file__)))
            self.assertEqual(float(run.stdout), seconds)

    def test_wait_for_something_that_never_comes_says_how_long_it_took(self):
        with self.assertRaisesRegex(AssertionError, "waiting for the end of time"):
            harness.wait_until("the end of time", lambda: False, 0.01)


if __name__ == "__main__":
    harness.main()
