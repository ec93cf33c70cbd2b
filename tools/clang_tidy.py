#!/usr/bin/env python3
"""Runs clang-tidy over many .cc files, several of one folder in one go.

    tools/clang_tidy.py -p build/dev [--seconds N] [-j N] FILE...

Most of clang-tidy's time goes into the headers that a file includes. Files of one folder with the same compiler flags are
therefore included by one file in a temporary folder, which is checked in their place; a group that does not compile as one file
(two anonymous helpers of one name) is divided until it does. Findings are printed once each, with the path of the file they are in.

Exits with 0 if no file has findings, 1 if one has, 3 if time was up before all files were reached (without findings so far).
Files that the build does not compile are left out and counted.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from typing import Dict, List, Tuple

GROUP = 12  # files checked in one go: more gain little and take more memory
FOLDERS = ("common", "coordinator", "jobctl", "kernels", "libexec", "tests", "tools", "worker")
FINDING = re.compile(r"^(?P<path>[^\s:]+):(?P<line>\d+):\d+: (?:error|warning): .*\[(?P<check>[\w.,-]+)\]$")


class Checker:
    """Checks groups of files; its methods may be called by several threads."""

    def __init__(self, build: str, deadline: float):
        self.build = build
        self.deadline = deadline
        self.root = os.getcwd()
        self.commands = {os.path.relpath(entry["file"], self.root): entry
                         for entry in json.load(open(os.path.join(build, "compile_commands.json")))}
        self.lock = threading.Lock()
        self.findings: Dict[str, str] = {}  # first line -> whole text
        self.broken: List[str] = []         # files on which clang-tidy itself failed
        self.missed = 0                     # files not reached in time

    def flags(self, path: str) -> List[str]:
        """The compiler's arguments for `path` without the names of the input and the output."""
        words = shlex.split(self.commands[path]["command"])
        kept, skip = [], False
        for word in words[1:]:
            if skip:
                skip = False
            elif word in ("-o", "-c"):
                skip = True
            else:
                kept.append(word)
        return kept

    def groups(self, files: List[str]) -> List[List[str]]:
        """Files of one folder with the same flags, at most GROUP of them, tests apart: they use the same names."""
        found: Dict[Tuple, List[str]] = {}
        for path in files:
            key = (os.path.dirname(path), path.endswith("_test.cc"), tuple(self.flags(path)))
            found.setdefault(key, []).append(path)
        return [group[i:i + GROUP] for group in found.values() for i in range(0, len(group), GROUP)]

    def source(self, group: List[str], folder: str) -> str:
        """A file that stands for the group."""
        if len(group) == 1:
            return os.path.join(self.root, group[0])
        path = os.path.join(folder, "group.cc")
        with open(path, "w") as out:
            out.writelines(f'#include "{os.path.join(self.root, member)}"  // NOLINT\n' for member in group)
        return path

    def collisions(self, group: List[str]) -> List[str]:
        """Members that do not compile behind those before them."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["clang++", "-fsyntax-only", "-ferror-limit=0", "-w", *self.flags(group[0]), self.source(group, folder)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode == 0:
            return []
        wrong = {os.path.relpath(m.group(1), self.root) for m in re.finditer(r"^([^\s:]+):\d+:\d+: (?:fatal )?error:", done.stderr, re.M)}
        named = [path for path in group[1:] if path in wrong]
        return named or group[len(group) // 2:]

    def run(self, group: List[str]) -> Tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            command = ["clang-tidy", "--quiet", "--config-file=.clang-tidy",
                       f"--header-filter=^{self.root}/({'|'.join(FOLDERS)})/", self.source(group, folder), "--"]
            done = subprocess.run(command + self.flags(group[0]), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            return done.returncode, done.stdout

    def check(self, group: List[str]) -> None:
        if time.monotonic() > self.deadline:
            with self.lock:
                self.missed += len(group)
            return
        apart = self.collisions(group) if len(group) > 1 else []
        if apart:
            self.check([path for path in group if path not in apart])
            self.check(apart)
            return
        code, output = self.run(group)
        text, first = "", ""
        blocks: Dict[str, str] = {}
        for line in output.splitlines():
            if FINDING.match(line):
                first = line
                blocks.setdefault(first, "")
            if first:
                blocks[first] += line + "\n"
        with self.lock:
            for first, text in blocks.items():
                if first not in self.findings:
                    self.findings[first] = text
                    print(text.replace(self.root + "/", ""), end="", flush=True)
            if code != 0 and not blocks:
                self.broken.extend(group)


def main(argv: List[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-p", "--build", required=True, help="build folder with compile_commands.json and generated files")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=86400, help="start no further group after this time")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args(argv)
    started = time.monotonic()
    checker = Checker(options.build, started + options.seconds)
    files = [path for path in map(os.path.normpath, options.files) if path in checker.commands]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(checker.check, checker.groups(files)))
    unknown = len(options.files) - len(files)
    note = f"; {unknown} are not compiled by this build" if unknown else ""
    where = {FINDING.match(first).group("path") for first in checker.findings}
    for path in checker.broken:
        print(f"{path}: clang-tidy failed without a finding")
    print(f"clang-tidy: {len(files) - checker.missed} of {len(files)} files in {time.monotonic() - started:.0f} s, "
          f"{len(checker.findings)} findings in {len(where)} files{note}")
    if checker.findings or checker.broken:
        return 1
    return 3 if checker.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
