"""What pages promise and a machine can check, for tools/tidy.py: (path, line, text) of each promise that does not hold."""
import os
import re
from typing import Callable, Dict, Iterator, List, Tuple

Broken = Tuple[str, int, str]

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
# A source file in backticks, with at least its folder: `step/trainer.cc`.
SOURCE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:cc|h|cu|cuh|proto|py|sh|js))`")
TEST = re.compile(r"`([\w/.-]+\.(?:cc|cu|py))::([\w.]+)`")


def prose(lines: List[str]) -> Iterator[Tuple[int, str]]:
    """Numbered lines of a Markdown file outside code fences."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def links(tree) -> Iterator[Broken]:
    """Relative links in Markdown files lead somewhere."""
    folders = {os.path.dirname(p) for p in tree.paths}
    for path in list(folders):
        while path:
            folders.add(path)
            path = os.path.dirname(path)
    for path in tree.having(".md"):
        for number, line in prose(tree.lines(path)):
            for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
                target = (match.group(1) or match.group(2)).split("#")[0]
                if not target or re.match(r"[a-z]+:", target):
                    continue
                full = os.path.normpath(os.path.join(os.path.dirname(path), target))
                if full not in tree.paths and full not in folders:
                    yield path, number, f"{target} does not exist"


def titles(tree) -> Iterator[Broken]:
    """Every page in docs/ has exactly one title."""
    for path in tree.having(".md"):
        if path.startswith("docs/"):
            found = [n for n, line in prose(tree.lines(path)) if line.startswith("# ")]
            if len(found) != 1:
                yield path, found[1] if found else 0, f"{len(found)} titles; a page has one"


def has_test(text: str, name: str) -> bool:
    """`name`: Suite.Test of C++, test_x or Class.test_x of Python."""
    suite, _, test = name.rpartition(".")
    if re.search(rf"^\s*def {re.escape(test)}\(", text, re.M):
        return True
    return bool(suite and re.search(rf"\b(?:TYPED_)?TEST(?:_F|_P)?\(\s*{re.escape(suite)},\s*{re.escape(test)}\)", text))


def tests(tree) -> Iterator[Broken]:
    """Tests that a page names as `file::Test` exist."""
    for path in tree.having(".md"):
        for number, line in enumerate(tree.lines(path), 1):
            for file, name in TEST.findall(line):
                if file not in tree.paths:
                    yield path, number, f"{file} does not exist"
                elif not has_test(tree.text(file), name):
                    yield path, number, f"{file} has no test {name}"


def sources(tree) -> Iterator[Broken]:
    """Source files that a page names as `folder/file.cc` exist, below any folder. CHANGELOG.md may name old ones."""
    ends = set()
    for path in tree.paths:
        parts = path.split("/")
        ends.update("/".join(parts[i:]) for i in range(len(parts) - 1))
    for path in tree.having(".md"):
        if path == "CHANGELOG.md":
            continue
        for number, line in prose(tree.lines(path)):
            for name in SOURCE.findall(line):
                if name not in ends:
                    yield path, number, f"{name} does not exist"


MAX_COLUMNS = 150


def columns(tree) -> Iterator[Broken]:
    """Lines of prose in Markdown files have at most 150 columns; tables and what a program makes may be wider."""
    for path in tree.having(".md"):
        for number, line in prose(tree.lines(path)):
            if re.match(r"<!-- .* made by ", line):
                break
            if len(line) > MAX_COLUMNS and not line.lstrip().startswith("|"):
                yield path, number, f"{len(line)} columns; wrap it at 140"


RULES: Dict[str, Callable[..., Iterator[Broken]]] = {
    "docs-links": links, "docs-title": titles, "docs-tests": tests, "docs-sources": sources, "docs-columns": columns,
}
