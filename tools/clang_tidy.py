#!/usr/bin/env python3
"""Runs clang-tidy over many .cc files, several of them in one go, in the order in which they are given.

    tools/clang_tidy.py -p build/dev [--seconds N] [-j N] [--no-cache] FILE...

Most of clang-tidy's time goes into the headers that a file includes: parsing and searching those of a typical file takes 10 s, of
which a group of twenty files needs only one share. Neighbouring files are therefore included by one file in a temporary folder, which
is checked in their place with the compiler flags of all; a group that does not compile as one file (two anonymous helpers of one
name) is divided until it does. Findings are printed once each, with the path of the file they are in.

Files without findings are remembered in BUILD/clang_tidy_clean.txt, so that a run goes on where an earlier one was stopped; the file
may be copied to another checkout. A file is looked at again when it, a header of ours that it includes, its compiler flags,
.clang-tidy or clang-tidy itself is another. Lines that hold only a comment do not count (tools/tidy.py counts the lines of functions),
and neither do changed generated headers (*.pb.h): most changes of a proto leave the findings as they are. --no-cache looks at every
file.

Exits with 0 if no file has findings, 1 if one has, 3 if time was up before all files were reached (without findings so far).
Files that the build does not compile are left out and counted.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from typing import Dict, List, Set, Tuple

GROUP = 20  # files checked in one go: more gain little, and more is lost when a run is stopped
FOLDERS = ("common", "coordinator", "jobctl", "kernels", "libexec", "tests", "tools", "worker")
FINDING = re.compile(r"^(?P<path>[^\s:]+):(?P<line>\d+):\d+: (?:error|warning): .*\[(?P<check>[\w.,-]+)\]$")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
COMMENT_LINE = re.compile(r"^[ \t]*//(?!.*NOLINT).*\n", re.M)


class CleanFiles:
    """Remembers which files had no findings; `known` and `add` may be called by several threads."""

    def __init__(self, memory: str, root: str, common: str):
        """`memory`: the file with a line "DIGEST PATH" for each clean file. `common`: what concerns every file (checks, version)."""
        self.memory = memory
        self.root = root
        self.common = common
        self.lock = threading.Lock()
        self.contents: Dict[Tuple[str, int], Tuple[str, List[str]]] = {}  # (path, time of change) -> see content()
        self.clean: Dict[str, str] = {}                                   # path -> digest with which it was clean
        if os.path.exists(memory):
            with open(memory) as lines:
                # An interrupted run may leave half a line; the last line of a path counts.
                self.clean = {words[1]: words[0] for words in map(str.split, lines) if len(words) == 2 and len(words[0]) == 64}

    def content(self, path: str) -> Tuple[str, List[str]]:
        """The digest of the file's text without lines of comments, and the files of ours that it includes."""
        key = (path, os.stat(os.path.join(self.root, path)).st_mtime_ns)
        if key not in self.contents:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as source:
                text = COMMENT_LINE.sub("", source.read())
            named = [os.path.normpath(os.path.join(folder, name)) for name in INCLUDE.findall(text)
                     for folder in ("", os.path.dirname(path))]
            ours = [name for name in named if os.path.isfile(os.path.join(self.root, name))]
            self.contents[key] = (hashlib.sha256(text.encode()).hexdigest(), ours)
        return self.contents[key]

    def digest(self, path: str, flags: List[str]) -> str:
        """Changes when anything changes on which the findings in `path` depend."""
        reached: Set[str] = set()
        waiting = [path]
        while waiting:
            at = waiting.pop()
            if at not in reached:
                reached.add(at)
                waiting += self.content(at)[1]
        parts = [self.common, path, *(flag.replace(self.root, "") for flag in flags), *(f"{at} {self.content(at)[0]}" for at in sorted(reached))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def known(self, path: str, flags: List[str]) -> bool:
        with self.lock:
            return self.clean.get(path) == self.digest(path, flags)

    def add(self, path: str, digest: str) -> None:
        """`digest` is from before the check, so that an edit during it makes the file unknown again."""
        with self.lock:
            self.clean[path] = digest
            with open(self.memory, "a") as lines:
                lines.write(f"{digest} {path}\n")


def clean_members(group: List[str], findings: List[str]) -> List[str]:
    """Files of a group that are known to be clean, given the first lines of its findings (paths relative to the root).

    A finding in a file that is not of the group (a header) may belong to any of them, and after an error of the compiler nothing is
    sure: then no file is.
    """
    matches = [match for match in map(FINDING.match, findings) if match]
    where = {match.group("path") for match in matches}
    if not where <= set(group) or any("clang-diagnostic-error" in match.group("check") for match in matches):
        return []
    return [path for path in group if path not in where]


def united(lists: List[List[str]]) -> List[str]:
    """Each flag of the lists once; a folder stays behind its -isystem."""
    flags: Dict[Tuple[str, ...], None] = {}
    for words in lists:
        rest = iter(words)
        for word in rest:
            flags.setdefault((word, next(rest)) if word == "-isystem" else (word,))
    return [word for flag in flags for word in flag]


class Checker:
    """Checks groups of files; its methods may be called by several threads."""

    def __init__(self, build: str, deadline: float, use_memory: bool = True):
        self.build = build
        self.deadline = deadline
        self.root = os.getcwd()
        self.commands = {os.path.relpath(entry["file"], self.root): entry
                         for entry in json.load(open(os.path.join(build, "compile_commands.json")))}
        self.lock = threading.Lock()
        self.findings: Dict[str, str] = {}  # first line -> whole text
        self.broken: List[str] = []         # files on which clang-tidy itself failed
        self.missed = 0                     # files not reached in time
        with open(".clang-tidy") as checks:
            common = checks.read() + subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.memory = CleanFiles(os.path.join(build, "clang_tidy_clean.txt"), self.root, common)
        self.use_memory = use_memory

    def unknown(self, files: List[str]) -> List[str]:
        """Those of `files` that no earlier run found clean as they are."""
        return [path for path in files if not (self.use_memory and self.memory.known(path, self.flags(path)))]

    def flags(self, path: str) -> List[str]:
        """The compiler's arguments for `path` without the names of the input, the output and GCC's precompiled header."""
        words = shlex.split(self.commands[path]["command"])
        kept, skip = [], False
        for word in words[1:]:
            if skip:
                skip = False
            elif word in ("-o", "-c", "-include"):
                skip = True
            elif word == "-Winvalid-pch":
                continue
            else:
                kept.append(word)
        return kept

    def groups(self, files: List[str]) -> List[List[str]]:
        """At most GROUP neighbouring files each; tests apart, as they often name their helpers alike."""
        found: Dict[bool, List[str]] = {}
        for path in files:
            found.setdefault(path.endswith("_test.cc"), []).append(path)
        cut = [group[i:i + GROUP] for group in found.values() for i in range(0, len(group), GROUP)]
        place = {path: at for at, path in enumerate(files)}
        return sorted(cut, key=lambda group: place[group[0]])

    def group_flags(self, group: List[str]) -> List[str]:
        """The flags of all members, in their order. They differ in definitions, folders of headers and code generation alone, so that
        one member's do no harm to another."""
        flags = united([self.flags(path) for path in group])
        # What one member names in its anonymous namespace is no outer variable to the others; the build warns of real ones.
        return flags + ["-Wno-shadow"] if len(group) > 1 else flags

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
            done = subprocess.run(["clang++", "-fsyntax-only", "-ferror-limit=0", "-w", *self.group_flags(group),
                                   self.source(group, folder)],
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
            done = subprocess.run(command + self.group_flags(group), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
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
        digests = {path: self.memory.digest(path, self.flags(path)) for path in group}
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
                return
        for path in clean_members(group, [first.replace(self.root + "/", "") for first in blocks]):
            self.memory.add(path, digests[path])


def main(argv: List[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-p", "--build", required=True, help="build folder with compile_commands.json and generated files")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=86400, help="start no further group after this time")
    parser.add_argument("--no-cache", action="store_true", help="look also at files that an earlier run found clean")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args(argv)
    started = time.monotonic()
    checker = Checker(options.build, started + options.seconds, not options.no_cache)
    files = [path for path in map(os.path.normpath, options.files) if path in checker.commands]
    waiting = checker.unknown(files)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(checker.check, checker.groups(waiting)))
    unknown = len(options.files) - len(files)
    note = f"; {unknown} are not compiled by this build" if unknown else ""
    where = {FINDING.match(first).group("path") for first in checker.findings}
    for path in checker.broken:
        print(f"{path}: clang-tidy failed without a finding")
    print(f"clang-tidy: {len(files) - checker.missed} of {len(files)} files ({len(files) - len(waiting)} of them known to be clean) "
          f"in {time.monotonic() - started:.0f} s, "
          f"{len(checker.findings)} findings in {len(where)} files{note}")
    if checker.findings or checker.broken:
        return 1
    return 3 if checker.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
