#!/usr/bin/python3
"""Each rule of tidy.py finds what it must and leaves alone what it may."""
import contextlib
import io
import os
import tempfile
import unittest

import tidy

LONG_BODY = "  ++x;\n" * 70
FIX = "FIX" + "ME"

# A fault point and its test.
POINT = {"common/fault/points.cc": '    {"a.b", "x"},\n', "c_test.cc": '"a.b=error"'}

# (rule, {path: content} of a tree in which exactly this rule finds something, same tree with the fault mended)
CASES = [
    ("include-direction", {"coordinator/a.cc": '#include "worker/b.h"\n'}, {"coordinator/a.cc": '#include "common/b.h"\n'}),
    ("include-direction", {"worker/daemon/a.cc": '#include "kernels/b.h"\n'}, {"worker/trainer/a.cc": '#include "kernels/b.h"\n'}),
    ("include-direction", {"kernels/a.cc": '#include "hearth/v1/job.pb.h"\n'}, {"jobctl/a.cc": '#include "hearth/v1/job.pb.h"\n'}),
    ("include-direction", {"jobctl/a.cc": '#include "tests/b.h"\n'}, {"tests/a.cc": '#include "tests/b.h"\n'}),
    ("include-direction", {"common/io/a.cc": "#include <grpcpp/channel.h>\n"}, {"common/rpc/a.cc": "#include <grpcpp/channel.h>\n"}),
    ("include-direction", {"worker/trainer/a.cc": '#include "hearth/v1/job.grpc.pb.h"\n'},
     {"jobctl/a.cc": '#include "hearth/v1/job.grpc.pb.h"\n'}),
    ("include-direction", {"coordinator/core/a.cc": "#include <sqlite3.h>\n"}, {"coordinator/store/a.cc": "#include <sqlite3.h>\n"}),
    ("sql-place", {"coordinator/core/a.cc": 'Run("SELECT 1");\n'}, {"coordinator/store/a.cc": 'Run("SELECT 1");\n'}),
    ("banned", {"common/a.cc": "auto t = std::chrono::steady_clock::now();\n"},
     {"common/time/a.cc": "auto t = std::chrono::steady_clock::now();\n"}),
    ("banned", {"common/a.cc": "auto t = absl::Now();\n"}, {"common/a.cc": "// absl::Now() is banned\n"}),
    ("banned", {"common/a_test.cc": "absl::SleepFor(d);\n"}, {"common/a.cc": "absl::SleepFor(d);\n"}),
    ("banned", {"kernels/a.cu": "cudaDeviceSynchronize();\n"}, {"kernels/a.cu": "cudaStreamSynchronize(s);\n"}),
    ("banned", {"common/a.cc": "int x = rand();\n"}, {"common/a.cc": "int x = Brand();\n"}),
    ("banned", {"common/a.cc": "std::cout << 1;\n"}, {"jobctl/a.cc": "std::cout << 1;\n"}),
    ("banned", {"common/a.h": "using namespace std;\n"}, {"common/a.h": "using std::string;\n"}),
    ("banned", {"common/a.cc": "throw 1;\n"}, {"common/a.cc": 'Say("never throw");\n'}),
    ("banned", {"worker/trainer/step/a.cc": 'if (recipe.name() == "fp8") {}\n'},
     {"common/spec/recipe/a.cc": 'if (recipe.name() == "fp8") {}\n'}),
    ("banned", {"common/spec/rules/a.cc": 'if (p.lm_head() == "fp8") {}\n'},
     {"common/spec/recipe/a.cc": 'if (p.lm_head() == "fp8") {}\n'}),
    ("banned", {"common/spec/plan/a.cc": "if (x.scaling != spec::Scaling::kBlock) {}\n"},
     {"common/spec/plan/a_test.cc": "if (x.scaling != spec::Scaling::kBlock) {}\n"}),
    ("forbidden-words", {"docs.txt": "see " + "/work" + "/x\n"}, {"docs.txt": "see build" + "/work" + "/x\n"}),
    ("todo", {"a.py": f"# {FIX}: later\n"}, {"a.py": "# later\n"}),
    ("todo", {"a.sh": "# TODO: later\n"}, {"a.sh": "# TODO(#12): later\n"}),
    ("plain-words", {"docs/a.md": "It starts anew.\n"}, {"docs/a.md": "Renewed.\n## Who can see it\nThe first of the two.\n"}),
    ("plain-words", {"common/a.h": "// All but for the last.\n"}, {"common/a.h": "// All except for the last.\n"}),
    ("plain-words", {"jobctl/a.cc": 'Say("besides");  // kept\n'}, {"jobctl/a.cc": 'Say("beside it");  // kept\n'}),
    ("plain-words", {"jobctl/a.cc": "// Of a job without workers.\n"}, {"jobctl/a.cc": "int n;  // of a job without workers\n"}),
    ("plain-words", {"jobctl/a.h": "  // Of one run.\n"}, {"jobctl/a.h": "  // What one run has.\n"}),
    ("plain-words", {"scripts/a.sh": "# Who asks is answered.\n"}, {"scripts/a.sh": "# Every question is answered.\n"}),
    ("plain-words", {"docs/a.md": "It counts. Of these, one is kept.\n"}, {"docs/a.md": "It counts. One of these is kept.\n"}),
    ("plain-words", {"docs/a.md": "- Who may read is told.\n"}, {"docs/a.md": "- Who may read it? Users may.\n"}),
    ("plain-words", {"jobctl/a.cc": 'Help("Whom it acts for");\n'}, {"jobctl/a.cc": 'Help("User that it acts for");\n'}),
    ("plain-words", {"jobctl/a.h": "// A word; of two,\n// one. Of three, none.\n"}, {"jobctl/a.h": "// Of() makes one.\n"}),
    ("plain-words", {"jobctl/a.h": "// That the shape is whole.\n"}, {"jobctl/a.h": "// That is enough. That shape is whole.\n"}),
    ("plain-words", {"jobctl/a.h": "// Kept. Should that be lost: an error.\n"}, {"jobctl/a.h": "// Should it be kept? It should.\n"}),
    ("plain-words", {"jobctl/a.h": "// Not checked, for the request has an answer.\n"},
     {"jobctl/a.h": "// Waits, for a reason that is not ours, for all that it has.\n"}),
    ("plain-words", {"jobctl/a.h": "int a;\n// Without c.\nvoid F();\n"},
     {"jobctl/a.h": "// Fills it.\n// Without c.\nvoid F();\n\n// Leaves c out.\nvoid G();\n"}),
    ("torn-text", {"docs/a.md": "# A\n\nA paragraph that\nwas torn.\n"},
     {"docs/a.md": "# A\n\nA paragraph that was not torn,\nbut goes on.\n\nShort:\n- a\n- b\n```\na\nb\n```\n"}),
    ("torn-text", {"jobctl/a.cc": 'Say("a long message "\n    "of "\n    "two lines");\n'},
     {"jobctl/a.cc": 'Say("a long message "\n    "of two lines", {"a",\n "b",\n "c"});\n'}),
    ("torn-text", {"jobctl/a.h": "// A sentence that a formatter\n// has cut in two.\nint a;\n"},
     {"jobctl/a.h": "// A sentence.\n// Another one:\n// a : a table\n// b : of two rows\nint a;\n"}),
    ("braces", {"coordinator/web/a.js": "if (a) b(`{${c}`);\n"}, {"coordinator/web/a.js": "if (a) {\n  b(`if (x) y`);\n}\n"}),
    ("braces", {"jobctl/a.cc": "if (a[f(x)])\n  return;\n"}, {"jobctl/a.cc": "if (a[f(x)]) {\n  return;\n}\n"}),
    ("braces", {"jobctl/a.cc": "if (a) {\n} else\n  b();\n"}, {"jobctl/a.cc": "if (a) {\n} else if constexpr (c) {\n} else {\n}\n"}),
    ("braces", {"jobctl/a.cc": "for (int i : x) b();\n"}, {"jobctl/a.cc": "// if (a) b();\nfor (int i : x) [[likely]] {\n}\n"}),
    ("braces", {"jobctl/a.cc": "while (a) b();\n"}, {"jobctl/a.cc": "do {\n  b();\n} while (a);\n"}),
    ("braces", {"jobctl/a.cc": "do b(); while (a);\n"}, {"jobctl/a.cc": "#if (A)\n#else\n#define F(a) \\\n  if (a) b()\n#endif\nint form(if_x);\n"}),
    ("header-names", {"common/io/a.h": "#pragma once\n", "jobctl/a.h": "#pragma once\n", "b.cc": '#include "common/io/a.h"\n#include "jobctl/a.h"\n',
                      "CMakeLists.txt": "b.cc"},
     {"common/io/a.h": "#pragma once\n", "jobctl/aa.h": "#pragma once\n", "b.cc": '#include "common/io/a.h"\n#include "jobctl/aa.h"\n',
      "CMakeLists.txt": "b.cc"}),
    ("fixtures", {"common/fake_a.cc": "\n", "CMakeLists.txt": "common/fake_a.cc"},
     {"tests/support/fake_a.cc": "\n", "CMakeLists.txt": "tests/support/fake_a.cc"}),
    ("fixtures", {"common/a.h": "class FakeA : public A {\n};\n", "common/b.cc": '#include "common/a.h"\n', "CMakeLists.txt": "common/b.cc"},
     {"common/a.h": "class FakeA;\n", "common/b.cc": '#include "common/a.h"\n', "CMakeLists.txt": "common/b.cc"}),
    ("fixtures", {"jobctl/b.h": "\n", "jobctl/a_test.cc": '#include "jobctl/b.h"\n', "CMakeLists.txt": "jobctl/a_test.cc"},
     {"jobctl/b.h": "\n", "jobctl/a.cc": '#include "jobctl/b.h"\n', "CMakeLists.txt": "jobctl/a.cc"}),
    ("stale-folders", {"tools/tidy.py": "\n"}, {"docs/a.md": "# A\n"}),
    ("length", {"a.py": "x = 1\n" * 701}, {"a.py": "x = 1\n" * 700}),
    ("length", {"common/a.cc": "void F(int x) {\n" + LONG_BODY + "}\n"},
     {"common/a.cc": "namespace n {\nclass C {\n  void F(int x) {\n  }\n" + "  int y;\n" * 80 + "};\n}\n"}),
    ("comment-width", {"kernels/a.h": "  //" + " word" * 20 + "\n"}, {"kernels/a.h": "  //" + " word" * 19 + "\n"}),
    ("dead-files", {"common/a.cc": "\n"}, {"common/a.cc": "\n", "common/CMakeLists.txt": "add_component(a SRCS a.cc)\n"}),
    ("dead-files", {"k/rms/rms_cpu.cc": "\n"},
     {"k/rms/rms_cpu.cc": "\n", "k/CMakeLists.txt": "list(APPEND SRCS ${op}/${op}_cpu.cc)\n"}),
    ("dead-files", {"common/a.h": "\n"}, {"common/a.h": "\n", "common/b.cc": '#include "common/a.h"\n', "CMakeLists.txt": "common/b.cc"}),
    ("dead-files", {"tests/a_test.py": "\n"}, {"tests/a_test.py": "\n", "tests/CMakeLists.txt": "foreach(t a_test)\n"}),
    ("dead-files", {"tools/a.py": "\n"}, {"tools/a.py": "\n", "README.md": "run tools/a.py\n"}),
    ("fault-points", {**POINT, "c.cc": 'HEARTH_FAULT_POINT("a.c");\nfault::Check("a.b");\n'}, {**POINT, "c.cc": 'HEARTH_FAULT_POINT("a.b");\n'}),
    ("fault-points", {"common/fault/points.cc": POINT["common/fault/points.cc"], "c_test.cc": '"a.b"'},
     {**POINT, "c.cc": 'HEARTH_FAULT_POINT(\n    "a.b");\n'}),
    ("fault-points", {**POINT, "c_test.cc": '"a.bc=error"', "common/fault/fault_test.cc": '"a.b"', "c.cc": 'fault::Check("a.b");\n'},
     {"common/fault/points.cc": '    {"trainer.attention", "x"},\n', "c.cc": 'fault::Check("trainer.attention");\n'}),
    ("fault-points", {"common/fault/points.cc": '    {"trainer.attention", "x"},\n', "c.cc": 'fault::Check("trainer.attention");\n',
                      "tests/a.py": '"trainer.attention"'},
     {**POINT, "c_test.cc": "", "tests/a_test.py": '"x=1,a.b=error"', "c.cc": 'fault::Check("a.b");\n'}),
    ("fault-points", {**POINT, "c_test.cc": "// see a.b\n", "c.cc": 'fault::Check("a.b");\n'},
     {**POINT, "c_test.cc": 'Visit("a.b@2");\n', "c.cc": 'fault::Check("a.b");\n'}),
    ("metric-names", {"deploy/a.yml": "expr: rate(hearth_x_total[1m])\n"},
     {"deploy/a.yml": "expr: rate(hearth_x_bucket[1m]) + job:hearth_z:rate1m\n", "docs/metrics.md": "| `hearth_x` | counter |\n"}),
    ("metric-names", {"deploy/a.yml": "  - alert: Down\n"}, {"deploy/a.yml": "  - alert: Down\n", "docs/runbook.md": "# R\n## Down\n"}),
    ("proto-comments", {"proto/hearth/a.proto": "message M {\n  int64 x = 1;\n}\n"},
     {"proto/hearth/a.proto": "message M {\n  // Seconds.\n  int64 x = 1;\n  int64 y = 2;\n\n  int64 z = 3;  // Bytes.\n}\n"}),
    ("proto-comments", {"proto/hearth/a.proto": "message M {\n  // Seconds.\n  int64 x = 1;\n\n  int64 y = 2;\n}\n"},
     {"proto/hearth/a.proto": "// A point.\nmessage M {\n  int64 x = 1;\n}\nmessage N {\n  M m = 1;\n  string job_id = 2;\n}\n"}),
    ("docs-links", {"docs/a.md": "# A\n[b](b.md)\n"}, {"docs/a.md": "# A\n[b](b.md#x) [c](https://x.y/z)\n", "docs/b.md": "# B\n"}),
    ("docs-tests", {"docs/a.md": "`a_test.cc::A.Works`\n", "a_test.cc": "TEST(A, WorksNot) {}\n"},
     {"docs/a.md": "`a_test.cc::A.Works`, `b_test.py::test_b`\n", "a_test.cc": "TEST_F(A,\n       Works) {}\n",
      "b_test.py": "class B:\n    def test_b(self):\n"}),
    ("docs-tests", {"docs/a.md": "`b_test.py::test_b`\n"}, {"docs/a.md": "`b_test.py`\n"}),
    ("time-limits", {"a/CMakeLists.txt": "set_tests_properties(a PROPERTIES LABELS unit\n  TIMEOUT 60)\n"},
     {"a/CMakeLists.txt": "set_tests_properties(a PROPERTIES LABELS unit)\nhearth_time_limit(60 a)\nadd_unit_test(b TIMEOUT 60)\n"}),
    ("docs-sources", {"docs/a.md": "`step/b.cc`\n", "step/ab.cc": ""},
     {"docs/a.md": "`step/b.cc` `b.cc`\n```\n`step/c.cc`\n```\n", "worker/step/b.cc": "", "CHANGELOG.md": "`old/a.cc`\n"}),
    ("docs-columns", {"docs/a.md": "# A\n" + "word " * 31 + "\n"},
     {"docs/a.md": "# A\n" + "word " * 30 + "\n| " + "cell " * 31 + "|\n```\n" + "out " * 50 + "\n```\n<!-- x: made by y -->\n" + "z " * 90 + "\n"}),
    ("docs-title", {"docs/a.md": "# A\n# B\n"}, {"docs/a.md": "# A\n```\n# not a title\n```\n"}),
]


@contextlib.contextmanager
def tree_of(files):
    with tempfile.TemporaryDirectory() as root:
        for path, content in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(content)
        yield tidy.Tree(root)


def found(files, rule):
    with tree_of(files) as tree:
        return [f for f in tidy.check(tree) if f.rule == rule]


class TidyTest(unittest.TestCase):
    def test_every_case_faulty_tree_is_found_and_mended_tree_is_clean(self):
        for rule, faulty, mended in CASES:
            with self.subTest(rule=rule, faulty=faulty):
                self.assertTrue(found(faulty, rule))
                self.assertEqual(found(mended, rule), [])

    def test_without_git_only_the_build_folder_at_the_top_is_left_out(self):
        with tree_of({"build/a.cc": "", "common/dataset/build/b.cc": ""}) as tree:
            self.assertEqual(tree.paths, ["common/dataset/build/b.cc"])

    def test_every_rule_has_a_case(self):
        self.assertEqual({case[0] for case in CASES}, set(tidy.RULES))

    def test_points_without_a_test_are_in_the_table(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(tidy.__file__)), "..", "common", "fault", "points.cc"), encoding="utf-8") as f:
            points = {m.group(1) for m in map(tidy.POINT_ROW.match, f) if m}
        self.assertLessEqual(tidy.UNTESTED_POINTS.keys(), points)

    def test_excuse_on_the_line_before_silences_that_rule_only(self):
        line = "std::cout << rand();\n"
        self.assertEqual(found({"a.cc": "// tidy: allow(banned): a demonstration\n" + line}, "banned"), [])
        self.assertTrue(found({"a.cc": "// tidy: allow(length): wrong rule\n" + line}, "banned"))

    def test_ratchet_allows_recorded_length_and_no_more(self):
        with tree_of({"a.py": "x = 1\n" * 710}) as tree:
            tidy.write_ratchet(tree)
            same = tidy.Tree(tree.root)
            self.assertEqual(list(tidy.length(same)), [])
            with open(os.path.join(tree.root, "a.py"), "a", encoding="utf-8") as f:
                f.write("x = 2\n")
            longer = tidy.Tree(tree.root)
            self.assertEqual(len(list(tidy.length(longer))), 1)
            tidy.write_ratchet(longer)  # never raises
            self.assertEqual(len(list(tidy.length(tidy.Tree(tree.root)))), 1)

    def test_functions_nested_and_multi_line_heads_are_measured_whole(self):
        code = tidy.strip_cpp(
            "namespace {\n"
            "class A {\n"
            " public:\n"
            "  int F(int a,\n"
            "        int b) const {\n"
            "    if (a) { return '}'; }\n"
            "    return Call([&] { return \"{\"; });\n"
            "  }\n"
            "};\n"
            "constexpr int kTable[] = {\n  1,\n};\n"
            "TEST(Suite, Case) {\n"
            "}\n"
            "}  // namespace\n").split("\n")
        self.assertEqual(list(tidy.functions(code)), [("F", 4, 8), ("Suite.Case", 13, 14)])

    def test_strip_cpp_keeps_line_numbers(self):
        text = 'a /* x\ny */ b // "c\nR"(q\n{)" d \'\\\'\' 1\'000\n'
        self.assertEqual(tidy.strip_cpp(text).count("\n"), text.count("\n"))
        self.assertNotIn("{", tidy.strip_cpp(text))
        self.assertIn("1'000", tidy.strip_cpp(text))

    def test_main_reports_and_fails(self):
        with tree_of({"docs/a.md": "no title\n"}) as tree:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                self.assertEqual(tidy.main(["--root", tree.root]), 1)
                self.assertEqual(tidy.main(["--root", tree.root, "--only", "docs-links,length"]), 0)
            self.assertIn("docs/a.md:0: [docs-title]", out.getvalue())
            with contextlib.redirect_stderr(out), self.assertRaises(SystemExit):
                tidy.main(["--root", tree.root, "--only", "spelling"])
            self.assertIn("no rule spelling", out.getvalue())


if __name__ == "__main__":
    unittest.main()
