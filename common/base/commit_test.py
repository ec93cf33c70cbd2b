#!/usr/bin/python3
"""cmake/commit.cmake says the tree's commit and writes nothing when it has not changed.

  commit_test.py [CMAKE]"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CMAKE = sys.argv.pop(1) if len(sys.argv) > 1 and "cmake" in os.path.basename(sys.argv[1]) else "cmake"
GIT = shutil.which("git")


@unittest.skipUnless(GIT, "no git")
class Commit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hearth_commit_")
        self.addCleanup(folder.cleanup)
        self.tree, self.header = os.path.join(folder.name, "tree"), os.path.join(folder.name, "gen", "commit.h")
        os.mkdir(self.tree)

    def git(self, *args):
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        return subprocess.run([GIT, "-C", self.tree, *who, *args], check=True, capture_output=True, text=True, env=env).stdout.strip()

    def change(self, text):
        with open(os.path.join(self.tree, "file"), "w") as f:
            f.write(text)

    def commit(self, text):
        self.change(text)
        self.git("add", "file")
        self.git("commit", "-q", "-m", text)
        return self.git("rev-parse", "HEAD")[:12]

    def said(self):
        env = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(self.tree)}
        subprocess.run([CMAKE, f"-DSOURCE={self.tree}", f"-DOUT={self.header}", f"-DGIT={GIT}", "-P",
                        os.path.join(ROOT, "cmake", "commit.cmake")], check=True, env=env)
        with open(self.header) as f:
            return f.read().split('"')[1]

    def test_follows_the_tree(self):
        self.assertEqual(self.said(), "unknown")
        self.git("init", "-q")
        first = self.commit("one")
        self.assertEqual(self.said(), first)
        self.change("two")
        self.assertEqual(self.said(), first + "-dirty")
        second = self.commit("two")
        self.assertEqual(self.said(), second)
        self.assertNotEqual(first, second)

    def test_same_commit_leaves_the_header_as_it_is(self):
        self.git("init", "-q")
        self.commit("one")
        self.said()
        os.utime(self.header, (1, 1))
        self.said()
        self.assertEqual(os.stat(self.header).st_mtime, 1)
        self.commit("two")
        self.said()
        self.assertNotEqual(os.stat(self.header).st_mtime, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
