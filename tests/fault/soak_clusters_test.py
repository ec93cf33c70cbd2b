#!/usr/bin/python3
"""Soaks side by side: the clusters together do what one was asked for, nothing of a failed one is lost, and one table has all."""

import collections
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import soak_clusters
import soak_table

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = [f"row{k}" for k in range(23)]

# A soak that takes no cluster: it leaves a folder, says what it does, and ends as its number says.
SOAK = """
import json, os, signal, sys, time
name, folder, summary = sys.argv[1:]
os.makedirs(folder)
print("seed", name, flush=True)
def write(failure):
    with open(summary, "w") as f:
        json.dump({"seed": int(name), "faults": 2, "jobs": 3, "checked": 1 if failure else 3, "restarted": [], "took": {"kill": [[0.1, 0.5, 1.0]]},
                   "left_out": {}, "missing": [], "failure": failure}, f)
if name == "2":
    write("Failure: j1 was lost")
    print("FAILED", file=sys.stderr)
    sys.exit(1)
if name == "3":
    sys.exit("no summary")
if name == "4":
    def end(*_):
        write("SystemExit: 143")
        sys.exit(1)
    signal.signal(signal.SIGTERM, end)
    print("waiting", flush=True)
    time.sleep(100)
write(None)
"""


def parts(clusters, seed=7):
    return [soak_clusters.Part(k, clusters, seed) for k in range(1, clusters + 1)]


def run_of(rows, **over):
    return {"seed": 1, "faults": len(rows), "jobs": 2, "checked": 2, "restarted": [], "took": {"kill": rows}, "left_out": {}, "missing": [],
            "failure": None, **over}


class PartTest(unittest.TestCase):
    def test_faults_add_up_and_differ_by_one_at_most(self):
        for clusters in (1, 3, 12, 30):
            for faults in (30, 100, 1000, sys.maxsize):
                shares = [part.faults(faults) for part in parts(clusters)]
                self.assertEqual(sum(shares), faults)
                self.assertLessEqual(max(shares) - min(shares), 1)

    def test_seeds_differ_between_clusters_and_runs(self):
        seeds = [part.own_seed() for seed in (1, 2, 7) for part in parts(12, seed)]
        self.assertEqual(len(seeds), len(set(seeds)))
        self.assertEqual(soak_clusters.Part(1, 1, 7).own_seed(), 7)

    def test_each_row_comes_first_in_one_cluster(self):
        for clusters in (1, 4, 12, 30):
            first = collections.Counter(row for part in parts(clusters) for row in part.comes_first(ROWS))
            self.assertEqual(first, dict.fromkeys(ROWS, 1))
        self.assertEqual([part.comes_first(reversed(ROWS)) for part in parts(4)], [part.comes_first(ROWS) for part in parts(4)])
        self.assertNotEqual([part.comes_first(ROWS) for part in parts(4, 8)], [part.comes_first(ROWS) for part in parts(4)])


class MergeTest(unittest.TestCase):
    def test_times_of_all_clusters_count(self):
        merged = soak_table.merge([run_of([[float(k), k + 0.5, k + 1.0]] * 2, missing=["pause", "cancel"]) for k in range(5)]
                                  + [run_of([[None, None, 9.0]], missing=["pause", "cut"])])
        self.assertEqual((merged["faults"], merged["jobs"], merged["checked"]), (11, 12, 12))
        self.assertEqual(merged["missing"], ["pause"])
        self.assertEqual(merged["spreads"]["kill"]["times"], 11)
        self.assertEqual(merged["spreads"]["kill"]["noticed"], {"times": 10, "p50": 2.0, "p90": 4.0, "max": 4.0})
        self.assertEqual(merged["spreads"]["all"]["all is back"]["max"], 9.0)
        self.assertIsNone(merged["failure"])

    def test_a_merged_summary_merges_again(self):
        once = soak_table.merge([run_of([[0.1, 0.2, 0.3]]), run_of([[0.4, 0.5, 0.6]], restarted=["kill w1: restarted j2"])])
        twice = soak_table.merge([once])
        self.assertEqual(once, twice)
        self.assertIn("1 healthy jobs restarted", soak_table.table([once]))

    def test_one_that_failed_fails_all_and_is_named(self):
        runs = [run_of([[0.1, 0.2, 0.3]], seed=7001, cluster="1"),
                run_of([], seed=7002, cluster="2", failure="j1 was lost", log="/x/2.log", folder="/x/2")]
        self.assertEqual(soak_table.merge(runs)["failure"], "cluster 2 (seed 7002) after 0 faults: j1 was lost")
        for text in ("FAILED: cluster 2 (seed 7002)", "/x/2.log", "/x/2\n"):
            self.assertIn(text, soak_table.table(runs) + "\n")


class SideBySideTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name

    def test_failed_ones_are_told_from_the_others_and_stay(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            runs = soak_clusters.side_by_side(3, self.dir, lambda k, *paths: [sys.executable, "-c", SOAK, str(k), *paths])
        self.assertEqual([run["failure"] for run in runs], [None, "Failure: j1 was lost", "it ended with exit status 1"])
        self.assertEqual([run["faults"] for run in runs], [2, 2, 0])
        self.assertEqual(sorted(os.listdir(self.dir)), ["1.json", "2", "2.json", "2.log", "3", "3.log"])
        for line in ("[1] seed 1", "[2] FAILED", "[3] no summary"):
            self.assertIn(line, out.getvalue().splitlines())
        with open(runs[1]["log"]) as f:
            self.assertEqual(f.read(), "seed 2\nFAILED\n")
        merged = soak_table.merge(runs)
        self.assertEqual((merged["faults"], merged["checked"]), (4, 4))
        self.assertIn("cluster 3", merged["failure"])

    def test_an_interruption_ends_all_and_loses_nothing(self):
        script = (f"import sys; sys.path.insert(0, {HERE!r}); import json, soak_clusters\n"
                  f"soak = lambda k, *paths: [sys.executable, '-c', {SOAK!r}, '4' if k == 2 else str(k), *paths]\n"
                  f"print(json.dumps([run['failure'] for run in soak_clusters.side_by_side(2, {self.dir!r}, soak)]))")
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
            lines = iter(process.stdout.readline, "")
            for line in lines:
                if line == "[2] waiting\n":
                    process.send_signal(signal.SIGTERM)
                    break
            self.assertIn("SystemExit: 143", process.communicate(timeout=60)[0])
        self.assertIn("2.log", os.listdir(self.dir))


if __name__ == "__main__":
    unittest.main(verbosity=2)
