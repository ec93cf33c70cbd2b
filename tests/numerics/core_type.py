#!/usr/bin/env python3
"""Runs programs with the kernels that OpenBLAS has for another kind of CPU: sums come in another order there.

  core_type.py TYPE COMMAND [-- COMMAND ...]

TYPE is one of OpenBLAS's core types, as OPENBLAS_CORETYPE takes them. Exit status: 0 every command ended with 0; 77 this CPU cannot run the
type (it says what is missing); 1 a command failed, or OpenBLAS did not take the type.
"""
import os
import subprocess
import sys
import tempfile

# Type -> what /proc/cpuinfo must list.
NEEDS = {
    "Haswell": ("avx2", "fma"),
    "Zen": ("avx2", "fma"),
    "SkylakeX": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def cpu_flags(path="/proc/cpuinfo"):
    with open(path) as f:
        for line in f:
            if line.startswith("flags"):
                return set(line.split(":", 1)[1].split())
    return set()


def missing(core_type, flags):
    return [flag for flag in NEEDS[core_type] if flag not in flags]


def split_commands(words):
    commands = [[]]
    for word in words:
        if word == "--":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def main(argv):
    if len(argv) < 3 or argv[1] not in NEEDS:
        print(f"usage: core_type.py {'|'.join(NEEDS)} COMMAND [-- COMMAND ...]", file=sys.stderr)
        return 2
    core_type = argv[1]
    absent = missing(core_type, cpu_flags())
    if absent:
        print(f"skipped: OpenBLAS's kernels for {core_type} need {', '.join(absent)}, which this CPU lacks")
        return 77
    # A folder of its own for the tests' files: other core types run the same tests at the same time.
    with tempfile.TemporaryDirectory(prefix="hearth-core-type-") as folder:
        return run_all(core_type, split_commands(argv[2:]), folder)


def run_all(core_type, commands, folder):
    # With 2 OpenBLAS says on stderr which type it runs.
    environment = {**os.environ, "OPENBLAS_CORETYPE": core_type, "OPENBLAS_VERBOSE": "2", "TEST_TMPDIR": folder}
    failed = []
    for command in commands:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        taken = f"Core: {core_type}\n" in done.stdout
        if done.returncode != 0 or not taken:
            failed.append(os.path.basename(command[0]))
            sys.stdout.write(done.stdout)
            print(f"{' '.join(command)}: exit status {done.returncode}" + ("" if taken else f", and OpenBLAS did not take {core_type}"))
    print(f"{core_type}: {len(commands) - len(failed)} programs passed, failed: {' '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
