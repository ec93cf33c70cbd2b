#!/usr/bin/python3
"""Pages that lead through the code name files that exist, what docs/tour.md shows of them is there, and so are the tests that
docs/reliability.md names."""
import glob
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCK = re.compile(r"```cpp\n// (\S+)\n(.*?)```", re.S)
FILE = re.compile(r"`((?:common|coordinator|jobctl|kernels|proto|scripts|tests|tools|worker)/[\w/.-]+\.(?:cc|cu|cuh|h|proto|py|sh|txt))`")

NAMED_TEST = re.compile(r"`([\w/.]+_test\.(?:cc|py))::([\w.]+)`")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


class ExcerptsTest(unittest.TestCase):
    def test_files_exist(self):
        pages = ["docs/architecture.md", "docs/tour.md"] + glob.glob("docs/how-to/*.md", root_dir=ROOT)
        for page in pages:
            for path in FILE.findall(read(page)):
                self.assertTrue(os.path.exists(os.path.join(ROOT, path)), f"{page} names {path}, which does not exist")

    def test_named_tests_exist(self):
        named = NAMED_TEST.findall(read("docs/reliability.md"))
        self.assertGreater(len(named), 20)
        for path, name in named:
            written = name.replace(".", ", ") if path.endswith(".cc") else f"def {name}(self)"
            self.assertIn(f"({written})" if path.endswith(".cc") else written, read(path), f"{path} has no test {name}")

    def test_lines_are_those_of_the_files_in_their_order(self):
        blocks = BLOCK.findall(read("docs/tour.md"))
        self.assertGreater(len(blocks), 10)
        for path, text in blocks:
            rest = [line.strip() for line in read(path).splitlines()]
            for line in (line.strip() for line in text.splitlines()):
                if line == "// ...":
                    continue
                self.assertIn(line, rest, f"{path} does not have this line, or has it earlier")
                rest = rest[rest.index(line) + 1:]


if __name__ == "__main__":
    unittest.main()
