#!/usr/bin/python3
"""compare.py and fidelity.py on made-up runs: they pass what is within their bounds, fail what is not, and say so by their exit status.

Also that the tools of this folder and of tests/bench ask each other only for names that exist: most need torch or a GPU, so no test runs them.
"""
import ast
import glob
import json
import math
import os
import subprocess
import sys
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support", "common")]
import temp_folder  # noqa: E402
import tensor_file  # noqa: E402


def names_of(path):
    """What the top level of a module defines or imports."""
    with open(path) as f:
        tree = ast.parse(f.read(), path)
    found = set()
    for node in tree.body:
        for part in ast.walk(node) if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) else [node]:
            if isinstance(part, (ast.FunctionDef, ast.ClassDef)):
                found.add(part.name)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                found.add(part.id)
            elif isinstance(part, ast.alias):
                found.add((part.asname or part.name).split(".")[0])
    return found


def missing_names(paths):
    """"file:line: module.name" for each name that one of these files takes from another and that is not there."""
    modules = {os.path.basename(path)[:-len(".py")]: names_of(path) for path in paths}
    problems = []
    for path in paths:
        with open(path) as f:
            nodes = list(ast.walk(ast.parse(f.read(), path)))
        aliases = {a.asname or a.name: a.name for node in nodes if isinstance(node, ast.Import) for a in node.names if a.name in modules}
        used = [(node.lineno, aliases[node.value.id], node.attr) for node in nodes
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases]
        used += [(node.lineno, node.module, a.name) for node in nodes if isinstance(node, ast.ImportFrom) and node.module in modules
                 for a in node.names]
        problems += [f"{os.path.basename(path)}:{line}: {module}.{name}" for line, module, name in used
                     if name not in modules[module] | {"__file__", "__doc__", "__name__"}]
    return problems


class Tools(temp_folder.FolderTest):
    def metrics(self, name, factor=lambda step: 1.0, steps=400, held_every=100, skip=()):
        with open(self.path(name), "w") as f:
            for step in range(1, steps + 1):
                row = {"step": str(step), "loss": (3 + 5 * math.exp(-step / 60)) * factor(step)}
                if step % held_every == 0:
                    row["validation_loss"] = row["loss"] + 0.1
                if step not in skip:
                    f.write(json.dumps(row) + "\n")
        return self.path(name)

    def run_tool(self, name, *args):
        run = subprocess.run([sys.executable, os.path.join(HERE, name), *map(str, args)], capture_output=True, text=True, timeout=60)
        self.assertNotIn("Traceback", run.stderr)
        return run

    def test_compare_losses_within_and_beyond_the_bound(self):
        base = self.metrics("a.jsonl")
        near = self.metrics("b.jsonl", lambda s: 1 + 0.009 * math.sin(s))
        far = self.metrics("c.jsonl", lambda s: 1.011 if s == 57 else 1.0)
        not_a_number = self.metrics("d.jsonl", lambda s: math.nan if s == 9 else 1.0)
        self.assertEqual(self.run_tool("compare.py", near, base).returncode, 0)
        failed = self.run_tool("compare.py", far, base)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("at step 57", failed.stdout)
        self.assertEqual(self.run_tool("compare.py", not_a_number, base).returncode, 1)
        missing = self.run_tool("compare.py", self.metrics("e.jsonl", skip=(8,)), base)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("first 8", missing.stdout)

    def test_compare_gradients_by_cosine_and_name(self):
        base = self.metrics("a.jsonl")
        rng = np.random.default_rng(3)
        good = {f"layer.{i}.weight": rng.standard_normal((7, 13 + i)).astype(np.float32) for i in range(3)}
        tensor_file.write(self.path("good"), good)
        noisy = {n: t + np.float32(0.01) * rng.standard_normal(t.shape).astype(np.float32) for n, t in good.items()}
        tensor_file.write(self.path("noisy"), noisy)
        tensor_file.write(self.path("flipped"), {**noisy, "layer.1.weight": -noisy["layer.1.weight"]})
        tensor_file.write(self.path("short"), {n: t for n, t in noisy.items() if n != "layer.2.weight"})
        for name, status, text in (("noisy", 0, "ok"), ("flipped", 1, "layer.1.weight"), ("short", 1, "layer.2.weight")):
            run = self.run_tool("compare.py", base, base, "--gradients", self.path(name), self.path("good"))
            self.assertEqual(run.returncode, status, run.stdout + run.stderr)
            self.assertIn(text, run.stdout)

    def test_tensor_file_round_trip_and_bf16(self):
        tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones((1,), np.float32)}
        tensor_file.write(self.path("t"), tensors)
        back = tensor_file.read(self.path("t"))
        for name in tensors:
            np.testing.assert_array_equal(back[name], tensors[name])
        header = json.dumps({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
        with open(self.path("bf16"), "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + bytes([0x80, 0x3F, 0x40, 0xC0]))
        np.testing.assert_array_equal(tensor_file.read(self.path("bf16"))["x"], [1.0, -3.0])

    def test_tools_ask_each_other_only_for_names_that_exist(self):
        for name, text in (("helper", "import json\nLIMIT = 3\n\n\ndef read():\n    inner = LIMIT\n    return inner\n"),
                           ("user", "import helper as h\nfrom helper import LIMIT, gone\n\n\ndef f():\n    return h.read(), h.json, h.inner\n")):
            with open(self.path(name + ".py"), "w") as f:
                f.write(text)
        self.assertEqual(missing_names([self.path("helper.py"), self.path("user.py")]), ["user.py:6: helper.inner", "user.py:2: helper.gone"])
        folders = [HERE] + [os.path.join(HERE, "..", *parts) for parts in (("bench",), ("support", "common"), ("integration",))]
        tools = [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, "*.py")))]
        self.assertIn("sft_compare.py", [os.path.basename(path) for path in tools])
        self.assertEqual(missing_names(tools), [])

    def test_fidelity_gaps(self):
        base = self.metrics("bf16.jsonl")
        near = self.metrics("fp8.jsonl", lambda s: 1.003)
        far = self.metrics("bad.jsonl", lambda s: 1.006)
        run = self.run_tool("fidelity.py", f"bf16={base}", f"fp8={near}")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("+0.30 %", run.stdout)
        self.assertEqual(self.run_tool("fidelity.py", f"bf16={base}", f"fp8={far}").returncode, 1)
        # Held-out losses count too, and runs of different length are not compared in silence.
        short = self.metrics("short.jsonl", steps=300)
        self.assertEqual(self.run_tool("fidelity.py", f"bf16={base}", f"fp8={short}").returncode, 1)
        self.assertEqual(self.run_tool("fidelity.py", f"bf16={base}").returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
