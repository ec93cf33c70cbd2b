"""A folder for the files of one Python test."""
import os
import tempfile
import unittest


class FolderTest(unittest.TestCase):
    """self.dir: a new folder, which goes away after the test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name

    def path(self, name):
        return os.path.join(self.dir, name)
