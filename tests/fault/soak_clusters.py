"""Several soaks side by side: what each of them does of the whole, the processes that do it, and what they leave behind. Knows no cluster and
needs no programs: a soak is a command that prints lines, writes a summary (soak.py --json) and ends with 0 if all went well."""

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading


@dataclasses.dataclass(frozen=True)
class Part:
    """What one cluster does of a run with `seed`: it is number `cluster`, from 1, of `clusters`."""
    cluster: int
    clusters: int
    seed: int

    def own_seed(self):
        """The run's where it is alone; else one that no other cluster has."""
        return self.seed if self.clusters == 1 else self.seed * 1000 + self.cluster

    def faults(self, of_all):
        return of_all // self.clusters + (self.cluster <= of_all % self.clusters)

    def comes_first(self, rows):
        """Which of the rows this cluster does before chance decides: together the clusters do each once."""
        rows = sorted(rows)
        return set(random.Random(self.seed).sample(rows, len(rows))[self.cluster - 1::self.clusters])


@dataclasses.dataclass(frozen=True)
class Soak:
    """One of those that run side by side."""
    name: str
    command: list  # it writes its summary to `summary`, and leaves `folder` behind if it fails
    folder: str
    log: str
    summary: str


class Run:
    """Runs all at once, shows what they print behind their names, and waits for all. Used once."""

    def __init__(self, soaks):
        self.soaks, self.printing, self.processes = soaks, threading.Lock(), {}

    def show(self, name, line):
        with self.printing:
            print(f"[{name}] {line}", flush=True)

    def follow(self, soak):
        with open(soak.log, "w", encoding="utf-8") as log, self.processes[soak.name].stdout as lines:
            for line in lines:
                log.write(line)
                log.flush()
                self.show(soak.name, line.rstrip("\n"))

    def go(self):
        """Their summaries, in order. Those that failed have their reason in `failure`, with their log and folder. An interruption ends
        them all: each takes down what it has started, and says how far it came."""
        readers = []
        try:
            for soak in self.soaks:
                # In a session of its own, so that an interrupt from the terminal comes once, from here.
                self.processes[soak.name] = subprocess.Popen(soak.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                                             stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
                readers.append(threading.Thread(target=self.follow, args=(soak,), name="soak-" + soak.name))
                readers[-1].start()
            for process in self.processes.values():
                process.wait()
        except (KeyboardInterrupt, SystemExit):
            pass
        finally:
            # All at once, and a second interruption changes nothing: each cluster still takes down what it has started.
            for interruption in (signal.SIGINT, signal.SIGTERM):
                signal.signal(interruption, signal.SIG_IGN)
            for process in self.processes.values():
                process.terminate()
            for process in self.processes.values():
                process.wait()
            for reader in readers:
                reader.join()
        return [self.outcome(soak) for soak in self.soaks]

    def outcome(self, soak):
        process = self.processes.get(soak.name)
        status = process.returncode if process else "none: it was not started"
        try:
            with open(soak.summary, encoding="utf-8") as f:
                summary = json.load(f)
        except (OSError, ValueError):
            summary = {"faults": 0, "jobs": 0, "checked": 0, "restarted": [], "took": {}, "left_out": {}, "missing": None, "failure": None}
            status = status or "0 without a summary"
        if status != 0 and not summary["failure"]:
            summary["failure"] = f"it ended with exit status {status}"
        if not summary["failure"]:
            os.unlink(soak.log)
            shutil.rmtree(soak.folder, ignore_errors=True)
        return {**summary, "cluster": soak.name, **({"log": soak.log, "folder": soak.folder} if summary["failure"] else {})}


def side_by_side(clusters, folder, command):
    """Summaries of the clusters. `command(cluster, folder, summary)` is the command of one. What failed stays in `folder`."""
    soaks = []
    for cluster in range(1, clusters + 1):
        base = os.path.join(folder, str(cluster))
        soaks.append(Soak(str(cluster), command(cluster, base, base + ".json"), base, base + ".log", base + ".json"))

    def interrupted(*_):
        sys.exit(128 + signal.SIGTERM)

    before = {signal.SIGINT: signal.getsignal(signal.SIGINT), signal.SIGTERM: signal.signal(signal.SIGTERM, interrupted)}
    try:
        return Run(soaks).go()
    finally:
        for interruption, handler in before.items():
            signal.signal(interruption, handler)
