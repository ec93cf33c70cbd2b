#!/usr/bin/python3
""".ci/nightly with scripts that play its parts: which run, and what a failure leads to."""

import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".ci", "nightly")
PARTS = ("tests/fuzz/run.sh", "scripts/sanitize.sh", "tests/fault/soak.sh")


class NightlyTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hearth-nightly-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.makedirs(os.path.join(self.dir, ".ci"))
        shutil.copy(SCRIPT, os.path.join(self.dir, ".ci"))
        for part in PARTS:
            path = os.path.join(self.dir, part)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write('#!/bin/bash\necho "$0 $*"\n[ "$1" != "$FAILS" ]\n')
            os.chmod(path, 0o755)

    def nightly(self, *parts, fails="nothing"):
        done = subprocess.run([os.path.join(self.dir, ".ci", "nightly"), *parts], capture_output=True, text=True, check=False,
                              env={**os.environ, "FAILS": fails, "HEARTH_JOBS": "3", "HEARTH_SOAK_SEED": "9"})
        return done.returncode, [line for line in done.stdout.splitlines() if line and not line.startswith("==")]

    def test_all_parts_run(self):
        code, lines = self.nightly()
        self.assertEqual((code, lines), (0, ["tests/fuzz/run.sh --seconds 60 --jobs 3", "scripts/sanitize.sh asan", "scripts/sanitize.sh tsan",
                                             "tests/fault/soak.sh --faults 1000 --seed 9"]))

    def test_a_failure_is_named_and_the_others_run(self):
        code, lines = self.nightly(fails="asan")
        self.assertEqual((code, len(lines)), (1, 5))
        log = os.path.join(os.path.realpath(self.dir), "build", "nightly", "asan.log")
        self.assertEqual(lines[-1], f"FAILED: asan ({log})")
        with open(log, encoding="utf-8") as f:
            self.assertEqual(f.read(), "scripts/sanitize.sh asan\n")

    def test_parts_that_are_asked_for(self):
        self.assertEqual(self.nightly("tsan"), (0, ["scripts/sanitize.sh tsan"]))
        self.assertEqual(self.nightly("tsan", "else"), (2, []))


if __name__ == "__main__":
    unittest.main()
