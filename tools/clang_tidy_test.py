#!/usr/bin/python3
"""What clang_tidy.py remembers: a file stays clean until something changes on which its findings depend."""
import os
import tempfile
import unittest

import clang_tidy

TREE = {
    "a/a.cc": '#include "a/a.h"\n#include "gen/a.pb.h"\n#include <vector>\n',
    "a/a.h": '#include "b/b.h"\n',
    "b/b.h": '#include "near.h"\n',
    "b/near.h": '#include "a/a.h"\n',  # a cycle
    "b/b.cc": '#include "b/near.h"\n',
    "c/c.cc": "int c;\n",
}


class CleanFilesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name
        for path, content in TREE.items():
            self.write(path, content)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, content):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        before = os.stat(full).st_mtime_ns if os.path.exists(full) else 0
        with open(full, "w") as out:
            out.write(content)
        os.utime(full, ns=(before + 1, before + 1))  # a test is faster than some clocks of files

    def files(self, common="checks"):
        return clang_tidy.CleanFiles(os.path.join(self.root, "memory.txt"), self.root, common)

    def known(self, path, flags=("-I.",), common="checks"):
        return self.files(common).known(path, list(flags))

    def remember(self, path):
        files = self.files()
        files.add(path, files.digest(path, ["-I."]))

    def test_clean_file_is_known_to_the_next_run_alone(self):
        self.remember("a/a.cc")
        self.assertTrue(self.known("a/a.cc"))
        self.assertFalse(self.known("c/c.cc"))

    def test_anything_that_findings_depend_on_makes_it_unknown(self):
        self.remember("a/a.cc")
        self.assertFalse(self.known("a/a.cc", flags=["-I.", "-DX"]))
        self.assertFalse(self.known("a/a.cc", common="other checks"))
        for path in ("a/a.cc", "a/a.h", "b/b.h", "b/near.h"):
            with self.subTest(path=path):
                self.write(path, TREE[path] + "int another;\n")
                self.assertFalse(self.known("a/a.cc"))
                self.write(path, TREE[path])
                self.assertTrue(self.known("a/a.cc"))

    def test_lines_of_comments_count_only_if_they_steer_the_checks(self):
        self.remember("a/a.cc")
        self.write("b/b.h", "// What b is.\n" + TREE["b/b.h"] + "    // indented\n")
        self.assertTrue(self.known("a/a.cc"))
        for steering in ("// NOLINTNEXTLINE(bugprone-x)\n", "int b;  // at the end of code\n"):
            with self.subTest(steering=steering):
                self.write("b/b.h", steering + TREE["b/b.h"])
                self.assertFalse(self.known("a/a.cc"))

    def test_memory_is_good_in_another_checkout(self):
        files = self.files()
        files.add("c/c.cc", files.digest("c/c.cc", [f"-I{self.root}/gen"]))
        with open(os.path.join(self.root, "memory.txt")) as lines:
            memory = lines.read()
        self.tearDown()
        self.setUp()
        with open(os.path.join(self.root, "memory.txt"), "w") as out:
            out.write(memory)
        self.assertTrue(self.known("c/c.cc", flags=[f"-I{self.root}/gen"]))

    def test_what_it_does_not_include_changes_nothing(self):
        self.remember("a/a.cc")
        self.write("b/b.cc", "int b;\n")
        self.write("gen/other.pb.h", "int p;\n")
        self.assertTrue(self.known("a/a.cc"))

    def test_an_edit_during_the_check_is_seen(self):
        files = self.files()
        digest = files.digest("c/c.cc", ["-I."])
        self.write("c/c.cc", "int d;\n")
        files.add("c/c.cc", digest)
        self.assertFalse(files.known("c/c.cc", ["-I."]))

    def test_a_line_cut_short_by_an_interruption_is_ignored(self):
        self.remember("a/a.cc")
        self.remember("c/c.cc")
        memory = os.path.join(self.root, "memory.txt")
        with open(memory) as lines:
            text = lines.read()
        for cut in range(len(text)):
            with open(memory, "w") as out:
                out.write(text[:cut])
            self.assertFalse(self.known("c/c.cc") and cut < len(text) - 1, cut)


class UnitedTest(unittest.TestCase):
    def test_flags_of_all_once_and_folders_behind_their_word(self):
        self.assertEqual(clang_tidy.united([["-isystem", "a", "-O1"], ["-isystem", "b", "-O1", "-DX"], []]),
                         ["-isystem", "a", "-O1", "-isystem", "b", "-DX"])


class CleanMembersTest(unittest.TestCase):
    GROUP = ["a/a.cc", "a/b.cc", "a/c.cc"]

    def clean(self, *findings):
        return clang_tidy.clean_members(self.GROUP, list(findings))

    def test_without_findings_all_are(self):
        self.assertEqual(self.clean(), self.GROUP)

    def test_those_without_a_finding_are(self):
        self.assertEqual(self.clean("a/b.cc:3:1: error: no braces [readability-braces-around-statements]"), ["a/a.cc", "a/c.cc"])

    def test_a_finding_in_a_header_leaves_none(self):
        self.assertEqual(self.clean("a/b.h:3:1: error: no braces [readability-braces-around-statements]"), [])

    def test_an_error_of_the_compiler_leaves_none(self):
        self.assertEqual(self.clean("a/b.cc:3:1: error: no such file [clang-diagnostic-error]"), [])


if __name__ == "__main__":
    unittest.main()
