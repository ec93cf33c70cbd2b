#!/usr/bin/env python3
"""core_type.py: what it says of CPUs and commands."""
import contextlib
import io
import sys
import unittest

import core_type


def run(*argv, flags):
    out = io.StringIO()
    real, core_type.cpu_flags = core_type.cpu_flags, lambda: set(flags)
    try:
        with contextlib.redirect_stdout(out):
            return core_type.main(["core_type.py", *argv]), out.getvalue()
    finally:
        core_type.cpu_flags = real


class CoreTypeTest(unittest.TestCase):
    AVX2 = ("avx2", "fma")

    def test_cpu_without_the_type_skips_by_name(self):
        code, text = run("SkylakeX", "true", flags=self.AVX2)
        self.assertEqual(code, 77)
        self.assertIn("SkylakeX need avx512f, avx512bw", text)

    def test_every_command_must_end_well_with_the_type(self):
        says = [sys.executable, "-c", "import os; print('Core: ' + os.environ['OPENBLAS_CORETYPE'])"]
        fails = [sys.executable, "-c", "print('Core: Zen'); raise SystemExit(3)"]
        self.assertEqual(run("Zen", *says, "--", *says, flags=self.AVX2), (0, "Zen: 2 programs passed, failed: none\n"))
        code, text = run("Zen", *says, "--", *fails, flags=self.AVX2)
        self.assertEqual(code, 1)
        self.assertIn("exit status 3", text)
        # A library that ignores the variable proves nothing.
        code, text = run("Haswell", sys.executable, "-c", "print('Core: Zen')", flags=self.AVX2)
        self.assertEqual(code, 1)
        self.assertIn("did not take Haswell", text)


if __name__ == "__main__":
    unittest.main()
