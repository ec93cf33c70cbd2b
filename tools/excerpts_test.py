#!/usr/bin/python3
"""Pages that lead through the code name files that exist, what docs/tour.md shows of them is there, and so are the tests that
docs/reliability.md names. Fields that how-tos add to protos have names and numbers that are free."""
import glob
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCK = re.compile(r"```cpp\n// (\S+)\n(.*?)```", re.S)
FILE = re.compile(r"`((?:common|coordinator|jobctl|kernels|proto|scripts|tests|tools|worker)/[\w/.-]+\.(?:cc|cu|cuh|h|proto|py|sh|txt))`")

# The message to which a how-to's example adds a field: {(page, field): (file, message)}.
ADDED_FIELDS = {
    ("field.md", "residual_init"): ("job_spec.proto", "ModelSpec"),
    ("metric.md", "host_seconds"): ("step.proto", "StepReport"),
    ("rpc.md", "note"): ("worker.proto", "Worker"),
}
FIELD = re.compile(r"^\s*(?:optional |repeated )?(?:map<[^>]+>|[\w.]+) (\w+) = (\d+)\b", re.M)

NAMED_TEST = re.compile(r"`([\w/.]+_test\.(?:cc|py))::([\w.]+)`")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def message_body(text, name):
    """The text between the braces of a message."""
    start = re.search(rf"^message {name} {{$", text, re.M).end()
    return text[start:text.index("\n}", start)]


class ExcerptsTest(unittest.TestCase):
    def test_files_exist(self):
        pages = ["docs/architecture.md", "docs/tour.md"] + glob.glob("docs/how-to/*.md", root_dir=ROOT)
        for page in pages:
            for path in FILE.findall(read(page)):
                self.assertTrue(os.path.exists(os.path.join(ROOT, path)), f"{page} names {path}, which does not exist")

    def test_fields_that_how_tos_add_are_free(self):
        seen = set()
        for page in glob.glob("docs/how-to/*.md", root_dir=ROOT):
            text = "\n".join(re.findall(r"```proto\n(.*?)```", read(page), re.S))
            text += "".join("\n" + code for code in re.findall(r"`(string \w+ = \d+;)`", read(page)))
            for message in re.findall(r"^\s*message (\w+) {", text, re.M):
                for path in glob.glob("proto/hearth/v1/*.proto", root_dir=ROOT):
                    self.assertNotIn(f"message {message} {{", read(path), f"{page}: {path} has this message")
            own_messages = re.compile(r"^\s*message \w+ {.*?^\s*}", re.S | re.M)
            for name, number in FIELD.findall(own_messages.sub("", text)):
                key = (os.path.basename(page), name)
                self.assertIn(key, ADDED_FIELDS, "name the message that gets this field")
                seen.add(key)
                path, message = ADDED_FIELDS[key]
                body = message_body(read("proto/hearth/v1/" + path), message)
                taken = dict(FIELD.findall(body))
                self.assertGreater(len(taken), 10, f"{path}: {message}")
                self.assertNotIn(name, taken, f"{page}: {message} has this field")
                self.assertNotIn(number, taken.values(), f"{page}: {message} has a field with the number of {name}")
                reserved = " ".join(re.findall(r"^\s*reserved ([^;]*);", body, re.M))
                self.assertNotIn(number, re.findall(r"\d+", reserved), f"{page}: {message} reserves the number of {name}")
        self.assertEqual(seen, set(ADDED_FIELDS))

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
