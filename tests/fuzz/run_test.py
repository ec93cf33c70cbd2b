#!/usr/bin/python3
"""tests/fuzz/run.sh with a program that plays hearth-fuzz, libFuzzer's own lines included: what runs at a time, and what a defect leads to."""

import os
import shutil
import subprocess
import tempfile
import time
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.sh")

# Without a target it names them. A target waits until all that are to run beside it have begun; one called "bad" fails, one called
# "endless" never ends.
PROGRAM = """#!/bin/bash
if [ -z "${HEARTH_FUZZ_TARGET:-}" ]; then
  printf 'INFO: Seed: 7\\nINFO: -max_len is not provided\\nHEARTH_FUZZ_TARGET is one of:\\none\\ntwo\\nthree\\n' >&2
  printf '==9== ERROR: libFuzzer: fuzz target exited\\nSUMMARY: libFuzzer: fuzz target exited\\n' >&2
  exit 2
fi
echo "$@" >"began/$HEARTH_FUZZ_TARGET"
until [ "$(ls began | wc -l)" -ge "$(cat beside)" ]; do read -rt 0.02 <>"$PWD/pipe" || true; done
case $HEARTH_FUZZ_TARGET in
  bad) echo "SUMMARY: on purpose"; exit 77 ;;
  endless) echo $$ >endless; exec sleep 1000 ;;
esac
echo "Done 7 runs in 1 second(s)"; echo "stat::number_of_executed_units: 7"; echo "stat::peak_rss_mb: 40"
"""


class RunTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hearth-fuzz-")
        self.addCleanup(shutil.rmtree, self.dir)
        for folder in ("tests/fuzz", "build/fuzz/bin", "began"):
            os.makedirs(os.path.join(self.dir, folder))
        shutil.copy(SCRIPT, os.path.join(self.dir, "tests", "fuzz"))
        os.mkfifo(os.path.join(self.dir, "pipe"))
        program = os.path.join(self.dir, "build", "fuzz", "bin", "hearth-fuzz")
        with open(program, "w") as f:
            f.write(PROGRAM)
        os.chmod(program, 0o755)

    def run_script(self, *args, beside=1):
        with open(os.path.join(self.dir, "beside"), "w") as f:
            f.write(str(beside))
        return subprocess.run([os.path.join(self.dir, "tests", "fuzz", "run.sh"), "--no-build", *args], capture_output=True, text=True,
                              timeout=60)

    def begun(self):
        return sorted(os.listdir(os.path.join(self.dir, "began")))

    def test_all_targets_one_after_another(self):
        run = self.run_script("--seconds", "5")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.begun(), ["one", "three", "two"])
        self.assertIn("3 targets, 5 s each, nothing found", run.stdout)
        self.assertEqual(run.stdout.count("stat::number_of_executed_units: 7"), 3)
        with open(os.path.join(self.dir, "began", "two")) as f:
            self.assertRegex(f.read(), r"-max_total_time=5 .*build/fuzz/grown/two tests/fuzz/corpus/two")

    def test_jobs_run_side_by_side(self):
        run = self.run_script("--jobs", "3", beside=3)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_defect_ends_all_and_is_named(self):
        run = self.run_script("--jobs", "2", "endless", "bad", "one", beside=2)
        self.assertEqual(run.returncode, 1)
        self.assertIn("SUMMARY: on purpose", run.stderr)
        self.assertIn("bad failed; input in build/fuzz/found/bad", run.stderr)
        self.assertEqual(self.begun(), ["bad", "endless"])
        if os.path.exists(os.path.join(self.dir, "endless")):
            with open(os.path.join(self.dir, "endless")) as f:
                self.assertFalse(self.runs(int(f.read())))

    @staticmethod
    def runs(pid):
        """An ended process that nobody has reaped does not."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with open(f"/proc/{pid}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] in "ZX":
                        return False
            except OSError:
                return False
            time.sleep(0.02)
        return True

    def test_bad_options_are_refused(self):
        for args in (["--jobs", "0"], ["--seconds", "many"], ["--no-such-option"]):
            run = self.run_script(*args)
            self.assertEqual(run.returncode, 2, args)
            self.assertTrue(run.stderr)
        self.assertEqual(self.begun(), [])

    def test_program_without_targets_is_no_success(self):
        with open(os.path.join(self.dir, "build", "fuzz", "bin", "hearth-fuzz"), "w") as f:
            f.write("#!/bin/sh\nexit 127\n")
        run = self.run_script()
        self.assertEqual(run.returncode, 2)
        self.assertIn("names no targets", run.stderr)


if __name__ == "__main__":
    unittest.main()
