#!/usr/bin/python3
"""Checks of the house rules that compilers do not make. Standard library only.

  tools/tidy.py                  check the tree; exit 1 and print path:line: [rule] text for each finding
  tools/tidy.py --rules          list the rules
  tools/tidy.py --only RULE,...  only these rules
  tools/tidy.py --write-ratchet  record today's over-long files and functions as the most that is allowed
  tools/tidy.py --root DIR       another tree

A line is excused by "tidy: allow(rule): reason" in a comment on it or on the line before.
Over-long files and functions are excused up to the length recorded in tools/tidy_ratchet.txt; --write-ratchet updates the
recorded lengths and never raises one.
"""
import argparse
import functools
import os
import re
import subprocess
import sys
from typing import Callable, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Tuple

import tidy_docs
import tidy_words

MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 70
RATCHET = "tools/tidy_ratchet.txt"

CPP = (".cc", ".h", ".cu", ".cuh")
SOURCE = CPP + (".proto", ".py", ".sh", ".cmake", ".yaml", ".yml")


class Finding(NamedTuple):
    path: str
    line: int  # 0: the whole file
    rule: str
    text: str


WORD = re.compile(r"\w+")


class Tree:
    """The files of a checkout: tracked and new ones, not ignored ones."""

    def __init__(self, root: str):
        self.root = root
        self.paths = sorted(self._list())

    def _list(self) -> List[str]:
        if os.path.exists(os.path.join(self.root, ".git")):
            out = subprocess.run(
                ["git", "-C", self.root, "ls-files", "-co", "--exclude-standard"],
                capture_output=True, text=True, check=True).stdout
            return [p for p in set(out.splitlines()) if os.path.isfile(os.path.join(self.root, p))]
        found = []
        for folder, dirs, files in os.walk(self.root):
            dirs[:] = [d for d in dirs if folder != self.root or d not in (".git", ".cache", "build")]
            found += [os.path.relpath(os.path.join(folder, f), self.root) for f in files]
        return found

    @functools.lru_cache(maxsize=None)
    def text(self, path: str) -> str:
        """The content; '' for a binary file."""
        with open(os.path.join(self.root, path), "rb") as f:
            data = f.read()
        return "" if b"\0" in data else data.decode("utf-8", errors="replace")

    @functools.lru_cache(maxsize=None)
    def lines(self, path: str) -> List[str]:
        return self.text(path).split("\n")

    @functools.lru_cache(maxsize=None)
    def words(self, path: str) -> FrozenSet[str]:
        return frozenset(WORD.findall(self.text(path)))

    @functools.lru_cache(maxsize=None)
    def code(self, path: str) -> List[str]:
        """Lines of a C++ or JavaScript file with comments and the insides of literals blanked out."""
        return strip_cpp(self.text(path)).split("\n")

    def having(self, *suffixes: str) -> List[str]:
        return [p for p in self.paths if p.endswith(suffixes)]

    def is_excused(self, path: str, line: int, rule: str) -> bool:
        lines = self.lines(path)
        mark = f"tidy: allow({rule})"
        return any(0 < n <= len(lines) and mark in lines[n - 1] for n in (line, line - 1))


CPP_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'|`(?:\\.|[^`\\])*`", re.S)  # `...`: of JavaScript


def strip_cpp(text: str) -> str:
    def blank(match: "re.Match[str]") -> str:
        token = match.group(0)
        newlines = "\n" * token.count("\n")
        if token.startswith("/"):
            return " " + newlines
        return token[0] + newlines + token[-1] if token[0] in "\"'" else '""' + newlines
    return CPP_TOKEN.sub(blank, text)


RULES: Dict[str, Callable[[Tree], Iterator[Finding]]] = {}


def rule(check):
    """Registers check(tree) under its name; its docstring is its description."""
    RULES[check.__name__.replace("_", "-")] = check
    return check


# ---- Dependencies -------------------------------------------------------------------------------------------------------

# (files, what they must not include, except from). Prefixes of paths; the first column '' = all files but tests/.
FORBIDDEN_INCLUDES = [
    ("common/", ("coordinator/", "worker/", "jobctl/", "kernels/"), "common depends on nothing above it"),
    ("common/formats/", ("common/base/", "common/io/", "common/log/", "common/rpc/", "common/spec/", "common/time/", "absl/",
                         "hearth/v1/"), "common/formats is a leaf, for CUDA files too"),
    ("common/base/", ("common/rpc/", "common/spec/", "common/config/", "common/io/", "common/time/", "common/log/",
                      "common/metrics/", "common/fault/", "hearth/v1/"), "common/base stands alone"),
    ("kernels/", ("coordinator/", "worker/", "jobctl/", "hearth/v1/", "google/protobuf/"),
     "kernels know no protocol and no caller"),
    ("kernels/", ("common/rpc/", "common/config/", "common/metrics/", "common/spec/"), "kernels use only common/base and common/formats"),
    ("coordinator/", ("worker/", "jobctl/", "kernels/"), "the coordinator and the workers share only protos and common"),
    ("coordinator/core/", ("coordinator/service/", "coordinator/store/", "coordinator/http/"), "the core is pure"),
    ("coordinator/scheduler/", ("coordinator/service/", "coordinator/store/", "coordinator/http/", "common/io/"),
     "the scheduler is pure"),
    ("worker/", ("coordinator/", "jobctl/"), "the coordinator and the workers share only protos and common"),
    ("worker/daemon/", ("worker/trainer/", "kernels/"), "the daemon must survive what happens to the engine"),
    ("worker/trainer/", ("worker/daemon/", "common/rpc/", "common/metrics/"), "the engine has no network and no HTTP"),
    ("jobctl/", ("coordinator/", "worker/", "kernels/"), "jobctl is a client"),
    ("", ("tests/",), "nothing depends on tests; *_test.cc may include tests/support/"),
]

# (header prefixes, who may include them)
RESERVED_HEADERS = [
    (("grpcpp/", "grpc++/", "grpc/"),
     ("common/rpc/", "coordinator/service/", "coordinator/coordinator", "worker/daemon/", "jobctl/", "tests/"), "gRPC"),
    (("sqlite3.h",), ("coordinator/store/", "tests/"), "SQLite"),
    (("prometheus/", "microhttpd.h"),
     ("common/metrics/", "coordinator/service/", "coordinator/http/", "coordinator/coordinator", "worker/daemon/", "tests/"),
     "the metrics server"),
    (("cuda", "cublas", "cudnn", "nccl"), ("kernels/", "worker/trainer/", "tests/"), "CUDA"),
    (("gloo/",), ("worker/trainer/", "tests/"), "Gloo"),
    (("sentencepiece",), ("libexec/", "tests/"), "sentencepiece (its protobuf clashes with ours)"),
    (("yaml-cpp/",), ("common/config/", "common/spec/", "common/dataset/", "jobctl/", "tests/"), "YAML"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


@rule
def include_direction(tree: Tree) -> Iterator[Finding]:
    """Dependencies point one way, and gRPC, SQLite, CUDA ... stay where they belong."""
    for path in tree.having(*CPP):
        for number, line in enumerate(tree.lines(path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match.group(1)
            for who, targets, why in FORBIDDEN_INCLUDES:
                fixture = header.startswith("tests/support/") and path.endswith("_test.cc")
                if path.startswith(who) and header.startswith(targets) and not path.startswith("tests/") and not fixture:
                    yield Finding(path, number, "include-direction", f"must not include {header}: {why}")
            for headers, users, what in RESERVED_HEADERS:
                in_grpc_stub = what == "gRPC" and header.endswith(".grpc.pb.h")
                if (header.startswith(headers) or in_grpc_stub) and not path.startswith(users):
                    yield Finding(path, number, "include-direction",
                                  f"{what} belongs in {', '.join(users)}, not here ({header})")


FAKE = re.compile(r"^\s*(?:class|struct) Fake\w+[^;]*$")


@rule
def fixtures(tree: Tree) -> Iterator[Finding]:
    """What only tests use stands in tests/support: no fake_*, no class Fake* and no header that only *_test.cc include elsewhere."""
    users: Dict[str, set] = {}
    for path in tree.having(*CPP):
        for match in filter(None, map(INCLUDE.match, tree.lines(path))):
            users.setdefault(match.group(1), set()).add(path.endswith("_test.cc") or path.startswith("tests/"))
    for path in tree.having(*CPP):
        if path.startswith("tests/"):
            continue
        if not path.endswith("_test.cc"):
            for number, line in enumerate(tree.lines(path), 1):
                if FAKE.search(line):
                    yield Finding(path, number, "fixtures", "only tests use a fake: tests/support is its place")
        if os.path.basename(path).startswith("fake_") or users.get(path) == {True}:
            yield Finding(path, 0, "fixtures", "only tests use it: tests/support is its place")


SQL = re.compile(r'"\s*(SELECT|INSERT( OR \w+)? INTO|UPDATE \w+ SET|DELETE FROM|CREATE (TABLE|INDEX)|PRAGMA)\b')


@rule
def sql_place(tree: Tree) -> Iterator[Finding]:
    """SQL stands in coordinator/store and nowhere else."""
    for path in tree.having(".cc", ".h"):
        if not path.startswith("coordinator/store/"):
            for number, line in enumerate(tree.lines(path), 1):
                if SQL.search(line):
                    yield Finding(path, number, "sql-place", "SQL outside coordinator/store")


# ---- Banned code --------------------------------------------------------------------------------------------------------

# (rule's word, pattern on stripped code, where it is allowed, what to do instead)
BANS = [
    ("clock", re.compile(r"\b(std::chrono::\w+|\w+_clock)::now\b|\babsl::Now\(|\b(gettimeofday|clock_gettime)\(|\btime\((nullptr|0|NULL)\)"),
     ("common/time/", "kernels/harness/", "tests/"), "ask a Clock (common/time)"),
    ("device-sync", re.compile(r"\bcudaDeviceSynchronize\b"), ("tests/",), "synchronise a stream or an event"),
    ("rand", re.compile(r"(?<![\w:.>])s?rand\("), (), "use a seeded generator"),
    ("cout", re.compile(r"\bstd::cout\b"), ("jobctl/", "tests/", "libexec/"),
     "stdout is for data of the programs; log with common/log"),
    ("using-namespace", re.compile(r"\busing\s+namespace\b(?!\s+std::(literals|string_view_literals|chrono_literals))"), (),
     "name what you use"),
    ("throw", re.compile(r"\bthrow\b"), (), "return absl::Status"),
    ("recipe-branch", re.compile(r"\brecipe\w*(\.|->)name(\(\))?\s*[!=]=|\bIs(Fp8|Mxfp8|Nvfp4)\(|"
                                 r"\blm_head(\(\))?\s*[!=]=|\bscaling(\(\))?\s*[!=]=\s*(\w+::)*Scaling::"),
     ("common/spec/recipe/", "tests/"), "recipes are values: branch on their operands"),
]
TEST_BANS = [
    ("sleep", re.compile(r"\b(sleep_for|sleep_until|SleepFor|usleep|nanosleep)\b|(?<![\w:.>])sleep\("), "use FakeClock or wait for a condition"),
]


@rule
def banned(tree: Tree) -> Iterator[Finding]:
    """Calls that have a house replacement: clocks, rand, std::cout, throw, using namespace, cudaDeviceSynchronize ..."""
    for path in tree.having(*CPP):
        text = "\n".join(tree.code(path))
        bans = [row for row in BANS if row[1].search(text)]  # few files have any
        for number, line in enumerate(tree.code(path), 1):
            for word, pattern, allowed, instead in bans:
                excused = path.endswith({"cout": "main.cc", "recipe-branch": "_test.cc"}.get(word, "\0"))
                if pattern.search(line) and not excused and not (allowed and path.startswith(allowed)):
                    yield Finding(path, number, "banned", f"{word}: {instead}")
            if path.endswith("_test.cc") and not path.startswith("tests/"):
                for word, pattern, instead in TEST_BANS:
                    if pattern.search(line):
                        yield Finding(path, number, "banned", f"{word} in a unit test: {instead}")


WORDS = ("/work" + "/", ".lib" + "rary", "/tmp/bash" + "_jobs")


@rule
def forbidden_words(tree: Tree) -> Iterator[Finding]:
    """Paths that exist on one machine only."""
    for path in tree.paths:
        words = [word for word in WORDS if word in tree.text(path)]
        for number, line in enumerate(tree.lines(path) if words else [], 1):
            for word in words:
                if re.search(r"(?<![\w.~-])" + re.escape(word), line) and not line.lstrip().startswith("#!"):
                    yield Finding(path, number, "forbidden-words", f"contains {word}")


FIX = "FIX" + "ME"


@rule
def todo(tree: Tree) -> Iterator[Finding]:
    """A to-do carries an issue number; a fix-me cannot be merged."""
    for path in tree.having(*SOURCE):
        if path.startswith("tools/tidy") or not re.search(rf"TODO|{FIX}", tree.text(path)):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if re.search(rf"\b{FIX}\b", line):
                yield Finding(path, number, "todo", f"{FIX} cannot be merged")
            for match in re.finditer(r"\bTODO\b(\(#\d+\))?", line):
                if not match.group(1):
                    yield Finding(path, number, "todo", "write TODO(#issue)")


MAX_COMMENT_COLUMNS = 100


@rule
def comment_width(tree: Tree) -> Iterator[Finding]:
    """Comment lines fit in 100 columns; clang-format leaves them alone, so that it cannot tear their lists."""
    for path in tree.having(*CPP):
        drawn = False  # between clang-format off and on
        for number, line in enumerate(tree.lines(path), 1):
            drawn = "clang-format off" in line or drawn and "clang-format on" not in line
            if not drawn and line.lstrip().startswith("//") and len(line) > MAX_COMMENT_COLUMNS:
                yield Finding(path, number, "comment-width", f"{len(line)} columns; break the line by hand")


@rule
def stale_folders(tree: Tree) -> Iterator[Finding]:
    """The tables of tidy.py name folders that exist."""
    if "tools/tidy.py" not in tree.paths:
        return
    named = {prefix for _, _, allowed, _ in BANS for prefix in allowed}
    named.update(prefix for _, users, _ in RESERVED_HEADERS for prefix in users)
    tops = {path.split("/")[0] for path in tree.paths}
    for who, targets, _ in FORBIDDEN_INCLUDES:
        named.update([who] + [t for t in targets if t.split("/")[0] in tops])
    for prefix in sorted(named):
        if not any(path.startswith(prefix) for path in tree.paths):
            yield Finding("tools/tidy.py", 0, "stale-folders", f"{prefix} does not exist")


# ---- Language and braces --------------------------------------------------------------------------------------------------

TEXT = SOURCE + (".md", ".txt", ".js", ".html", ".service")


@rule
def header_names(tree: Tree) -> Iterator[Finding]:
    """No two headers share a name: a name alone says which file is meant."""
    first: Dict[str, str] = {}
    for path in tree.having(".h", ".cuh"):
        other = first.setdefault(os.path.basename(path), path)
        if other != path:
            yield Finding(path, 0, "header-names", f"has the name of {other}")


@rule
def plain_words(tree: Tree) -> Iterator[Finding]:
    """No stiff words, inverted sentences or lone fragments in comments, messages and docs."""
    for path in tree.having(*TEXT):
        if path.startswith(("tools/tidy", "docs/style.md")):  # they quote the words
            continue
        found = list(tidy_words.stiff(tree.lines(path), path.endswith(".md")))
        found += tidy_words.fragments(tree.lines(path)) if path.endswith(CPP) else []
        for number, text in found:
            yield Finding(path, number, "plain-words", text)


@rule
def torn_text(tree: Tree) -> Iterator[Finding]:
    """No line of a few characters inside a paragraph of a page, a message or a comment, before a word that fits on it."""
    for path in tree.having(".md", *CPP):
        lines = tree.lines(path)
        if path.endswith(".md"):
            found = list(tidy_words.torn_paragraphs(tidy_docs.prose(lines)))
        else:
            found = [*tidy_words.torn_literals(lines), *tidy_words.torn_comments(lines)]
        for number, text in found:
            yield Finding(path, number, "torn-text", text)


BRANCH = re.compile(r"\b(?:(if)(?:\s+constexpr)?|(for|while)|(else)|(do))\b\s*(?=(\()?)")


def past_parens(text: str, start: int) -> int:
    """The position behind the parenthesis that closes the one at `start`; -1 if none does."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return -1


def unbraced(code: List[str]) -> Iterator[Tuple[int, str]]:
    """(line, keyword) of each if, else, for, while and do in stripped C++ code whose body has no braces."""
    directive = False  # this line belongs to a preprocessor directive
    kept = []
    for line in code:
        directive = directive or line.lstrip().startswith("#")
        kept.append("" if directive else line)
        directive = directive and line.endswith("\\")
    text = "\n".join(kept)
    for match in BRANCH.finditer(text):
        word = next(group for group in match.groups()[:4] if group)
        end = match.end()
        if word in ("if", "for", "while"):
            end = past_parens(text, end) if match.group(5) else -1
            if end < 0:
                continue
        body = re.compile(r"\s*(\[\[.*?\]\]\s*)?").match(text, end).end()
        if text.startswith("{", body) or word == "else" and re.match(r"if\b", text[body:body + 3]):
            continue
        if word == "while" and text.startswith(";", body) and text[:match.start()].rstrip().endswith("}"):
            continue  # the end of do { } while (...);
        yield text.count("\n", 0, match.start()) + 1, word


@rule
def braces(tree: Tree) -> Iterator[Finding]:
    """The body of every if, else, for, while and do has braces."""
    for path in tree.having(*CPP, ".js"):
        for number, word in unbraced(tree.code(path)):
            yield Finding(path, number, "braces", f"the body of this {word} has no braces")


# ---- Length -------------------------------------------------------------------------------------------------------------

HEAD_SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
# A function's name is the word before its first parenthesis (or the macro's argument, for TEST and its kin).
HEAD_NAME = re.compile(r"([A-Za-z_~][\w:~]*|operator\S{1,3})\s*\(([^()]*)")


def functions(code: List[str]) -> Iterator[Tuple[str, int, int]]:
    """(name, first line, last line) of each outermost function body in stripped C++ code, found by counting braces."""
    no_code = re.compile(r"\s*(#|(public|private|protected):$)")
    text = "\n".join("" if no_code.match(line) else line for line in code)
    stack: List[str] = []  # "scope" | "function" | "block" per open brace
    head_start = 0
    opened = ("", 0)
    line = 1
    head_line = 1
    parens = 0
    for i, c in enumerate(text):
        if c == "\n":
            line += 1
        elif c == "(":
            parens += 1
        elif c == ")":
            parens -= 1
        elif c == "{":
            head = text[head_start:i].strip()
            in_function = "function" in stack
            name = HEAD_NAME.search(re.sub(r"^(template\s*<[^{}]*?>\s*|\[\[.*?\]\]\s*)+", "", head))
            if in_function or parens > 0:
                stack.append("block")
            elif HEAD_SCOPE.search(head.split("(")[0]) and "(" not in re.sub(r"\b\w+\([^()]*\)", "", head):
                stack.append("scope")
            elif name and not head.endswith("="):
                stack.append("function")
                label = name.group(1)
                if label.startswith(("TEST", "TYPED_TEST", "BENCHMARK")):
                    label = name.group(2).replace(",", ".").replace(" ", "")
                opened = (label, head_line)
            else:
                stack.append("block")
        elif c == "}" and stack:
            if stack.pop() == "function":
                yield opened[0], opened[1], line
        if c in "{};" and parens == 0 and "function" not in stack:
            head_start = i + 1
            rest = text[i + 1:]
            head_line = line + len(rest[:len(rest) - len(rest.lstrip())].split("\n")) - 1


def read_ratchet(tree: Tree) -> Dict[str, int]:
    allowed = {}
    if RATCHET in tree.paths:
        for line in tree.lines(RATCHET):
            if line and not line.startswith("#"):
                key, number = line.rsplit(" ", 1)
                allowed[key] = int(number)
    return allowed


def over_long(tree: Tree) -> Iterator[Tuple[str, Finding, int]]:
    """(ratchet key, finding, length) of everything longer than the limits."""
    for path in tree.having(*(CPP + (".py", ".sh", ".proto"))):
        count = len(tree.lines(path)) - 1
        if count > MAX_FILE_LINES:
            yield path, Finding(path, 0, "length", f"{count} lines; a file has at most {MAX_FILE_LINES}"), count
    for path in tree.having(*CPP):
        for name, first, last in functions(tree.code(path)):
            count = last - first + 1
            if count > MAX_FUNCTION_LINES:
                text = f"{name} has {count} lines; a function has at most {MAX_FUNCTION_LINES}"
                yield f"{path}:{name}", Finding(path, first, "length", text), count


@rule
def length(tree: Tree) -> Iterator[Finding]:
    """Files of at most 700 lines and functions of at most 70, with a ratchet for older ones."""
    allowed = read_ratchet(tree)
    for key, finding, count in over_long(tree):
        if count > allowed.get(key, 0):
            yield finding


def write_ratchet(tree: Tree) -> None:
    allowed = read_ratchet(tree)
    lines = []
    for key, finding, count in over_long(tree):
        if not tree.is_excused(finding.path, finding.line, "length"):
            lines.append(f"{key} {min(count, allowed.get(key, count))}")
    path = os.path.join(tree.root, RATCHET)
    if not lines:
        if os.path.exists(path):
            os.remove(path)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write("# Files and functions that were longer than the rule when it came; they may only shrink (tools/tidy.py).\n")
        f.write("\n".join(sorted(lines)) + "\n")


# ---- Dead and missing things ----------------------------------------------------------------------------------------------

def cmake_names(tree: Tree) -> List["re.Pattern[str]"]:
    """Patterns of the paths that CMakeLists.txt files name; ${x} and * stand for anything without a slash."""
    patterns = []
    for path in tree.paths:
        if os.path.basename(path) != "CMakeLists.txt" and not path.endswith(".cmake"):
            continue
        folder = os.path.dirname(path)
        text = re.sub(r"#[^\n]*", "", tree.text(path))
        for word in re.findall(r"[^\s()\"]+\.(?:cc|cu|proto|py)\b", text):
            word = re.sub(r"^\$\{(CMAKE_CURRENT_SOURCE_DIR|CMAKE_CURRENT_LIST_DIR)\}/", "", word)
            anchored = re.sub(r"^\$\{(CMAKE_SOURCE_DIR|PROJECT_SOURCE_DIR)\}/", "//", word)
            full = anchored[2:] if anchored.startswith("//") else os.path.normpath(os.path.join(folder, anchored))
            regex = re.sub(r"\\\$\\\{\w+\\\}|\\\*+", "[^/]+", re.escape(full))
            patterns.append(re.compile(regex + r"\Z"))
    return patterns


@rule
def dead_files(tree: Tree) -> Iterator[Finding]:
    """Every .cc and .cu is named in a CMakeLists.txt, every header is included, every script is mentioned somewhere."""
    names = cmake_names(tree)
    for path in tree.having(".cc", ".cu"):
        if not any(pattern.match(path) for pattern in names):
            yield Finding(path, 0, "dead-files", "no CMakeLists.txt names it")
    included = set()
    for path in tree.having(*CPP):
        included.update(m.group(1) for m in map(INCLUDE.match, tree.lines(path)) if m)
    for path in tree.having(".h", ".cuh"):
        if path not in included:
            yield Finding(path, 0, "dead-files", "nothing includes it")
    for path in tree.having(".py", ".sh"):
        # Python modules are imported, and listed in CMake loops, without their suffix.
        name = re.sub(r"\.py$", "", os.path.basename(path))
        words = set(WORD.findall(name))  # looked up first: a search of the whole tree for each script takes long
        mention = re.compile(rf"\b{re.escape(name)}\b")
        if not any(words <= tree.words(p) and mention.search(tree.text(p)) for p in tree.paths if p != path):
            yield Finding(path, 0, "dead-files", "nothing mentions it")


@rule
def time_limits(tree: Tree) -> Iterator[Finding]:
    """A test's time limit is given by hearth_time_limit or add_unit_test, which give it more under a sanitizer."""
    for path in tree.having("CMakeLists.txt"):
        for found in re.finditer(r"\bPROPERTIES\b[^)]*\bTIMEOUT\b", tree.text(path)):
            yield Finding(path, tree.text(path).count("\n", 0, found.end()) + 1, "time-limits", "use hearth_time_limit")


POINT_USE = re.compile(r'\b(?:HEARTH_FAULT_POINT|fault::Check(?:Step)?)\(\s*"([^"]+)"')
POINT_ROW = re.compile(r'^\s*\{"([a-z_.]+)",')
# Fault points that no test of a machine without a GPU can reach, each with the reason.
UNTESTED_POINTS = {
    "trainer.native_product": "compares a product of block-scaled units with its emulation, and such units are in a GPU",
    "trainer.attention": "cuDNN's attention is there on a GPU only",
    "trainer.illegal_access": "a kernel writes outside the GPU's memory",
}


@rule
def fault_points(tree: Tree) -> Iterator[Finding]:
    """The table of fault points and their uses agree, and each point has a test."""
    table = "common/fault/points.cc"
    if table not in tree.paths:
        return
    rows = {m.group(1): n for n, line in enumerate(tree.lines(table), 1) for m in [POINT_ROW.match(line)] if m}
    used = set()
    for path in tree.having(".cc", ".h", ".cu"):
        if path.startswith("common/fault/"):
            continue
        text = tree.text(path)
        for match in POINT_USE.finditer(text):
            used.add(match.group(1))
            if match.group(1) not in rows:
                number = text.count("\n", 0, match.start()) + 1
                yield Finding(path, number, "fault-points", f"{match.group(1)} is not in {table}")
    # Tests of the points themselves only borrow a name.
    tests = [tree.text(p) for p in tree.having(".cc", ".py")
             if (p.endswith("_test.cc") or p.startswith("tests/")) and not p.startswith("common/fault/")]
    for name, number in rows.items():
        if name not in used:
            yield Finding(table, number, "fault-points", f"no code reaches {name}")
        # In quotes, or with what happens there: a comment that mentions it provokes nothing.
        named = re.compile(rf"([\"']){re.escape(name)}\1|(?<![\w.]){re.escape(name)}[=@]")
        if any(named.search(text) for text in tests) == (name in UNTESTED_POINTS):
            yield Finding(table, number, "fault-points", f"{name} has a test: take it off UNTESTED_POINTS" if name in UNTESTED_POINTS else
                          f"no test provokes {name} (UNTESTED_POINTS in tools/tidy.py is for those that need a GPU)")


METRIC = re.compile(r"(?<![\w:/-])hearth_[a-z0-9_]+")


@rule
def metric_names(tree: Tree) -> Iterator[Finding]:
    """Rules and dashboards in deploy/ use metrics that docs/metrics.md has, and alerts are in the runbook."""
    known = set()
    if "docs/metrics.md" in tree.paths:  # written from the programs' tables by tools/metrics_doc.cc
        known.update(re.findall(r"^\| `(hearth_[a-z0-9_]+)` \|", tree.text("docs/metrics.md"), re.M))
    runbook = tree.text("docs/runbook.md") if "docs/runbook.md" in tree.paths else ""
    for path in tree.having(".yml", ".yaml", ".json"):
        if not path.startswith("deploy/"):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            for name in METRIC.findall(line.split(" #")[0]):
                if name not in known and re.sub(r"_(bucket|sum|count)$", "", name) not in known:
                    yield Finding(path, number, "metric-names", f"no program exports {name}")
            alert = re.match(r"\s*- alert: (\w+)", line)
            if alert and not re.search(rf"^## {alert.group(1)}$", runbook, re.M):
                yield Finding(path, number, "metric-names", f"docs/runbook.md has no '## {alert.group(1)}'")


# ---- Protos and docs ------------------------------------------------------------------------------------------------------

FIELD = re.compile(r"^\s*((repeated|optional) )?(?P<type>map<[^>]+>|[\w.]+) (?P<name>\w+) = \d+( \[[^\]]*\])?;(?P<rest>.*)$")
# Fields that mean the same in every message; docs/glossary.md defines them.
KNOWN_FIELDS = {"job_id", "worker_id", "incarnation", "epoch", "rank", "generation", "request_id", "etag",
                "page_size", "page_token", "next_page_token"}


def commented_messages(tree: Tree) -> set:
    """Names of messages and enums with a comment above them: it serves for fields of that type."""
    names = set()
    for path in tree.having(".proto"):
        lines = tree.lines(path)
        for above, line in zip(lines, lines[1:]):
            match = re.match(r"\s*(message|enum) (\w+)", line)
            if match and above.strip().startswith("//"):
                names.add(match.group(2))
    return names


@rule
def proto_comments(tree: Tree) -> Iterator[Finding]:
    """Every field of our protos is explained: beside it, above it or its group, or at its type or in the glossary."""
    types = commented_messages(tree)
    for path in tree.having(".proto"):
        if not path.startswith("proto/hearth/"):
            continue
        covered = False      # the current group of adjacent lines began with a comment
        in_message = False
        message_commented = False
        previous = ""
        for number, line in enumerate(tree.lines(path), 1):
            text = line.strip()
            if re.match(r"(message|oneof) ", text):
                in_message, message_commented, covered = True, previous.startswith("//"), False
            elif re.match(r"(enum|service) ", text):
                in_message = False
            elif not text:
                covered = False
            elif text.startswith("//"):
                covered = True
            elif in_message and FIELD.match(line):
                field = FIELD.match(line)
                known = field.group("name") in KNOWN_FIELDS or field.group("type") in types
                if not (covered or message_commented or known or "//" in field.group("rest")):
                    yield Finding(path, number, "proto-comments", f"no comment: {text}")
            previous = text


def docs_rule(name: str, check: Callable[[Tree], Iterator[tidy_docs.Broken]]) -> Callable[[Tree], Iterator[Finding]]:
    def findings(tree: Tree) -> Iterator[Finding]:
        return (Finding(path, line, name, text) for path, line, text in check(tree))
    findings.__doc__ = check.__doc__
    return findings


RULES.update((name, docs_rule(name, check)) for name, check in tidy_docs.RULES.items())


# ---------------------------------------------------------------------------------------------------------------------------

def check(tree: Tree, names: Iterable[str] = RULES) -> List[Finding]:
    found = [f for name in names for f in RULES[name](tree)]
    return sorted(f for f in set(found) if not tree.is_excused(f.path, f.line, f.rule))


def rule_names(text: str) -> List[str]:
    names = text.split(",")
    for name in names:
        if name not in RULES:
            raise argparse.ArgumentTypeError(f"no rule {name}; --rules lists them")
    return names


def main(argv: List[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--only", metavar="RULE,...", default=",".join(RULES), type=rule_names)
    parser.add_argument("--write-ratchet", action="store_true")
    args = parser.parse_args(argv)
    if args.rules:
        for name, function in RULES.items():
            print(f"{name:18} {function.__doc__}")
        return 0
    tree = Tree(args.root)
    if args.write_ratchet:
        write_ratchet(tree)
        return 0
    findings = check(tree, args.only)
    for f in findings:
        print(f"{f.path}:{f.line}: [{f.rule}] {f.text}")
    print(f"tidy: {len(tree.paths)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
