#!/usr/bin/python3
"""Random faults on a real cluster for as long as you like: trainers, workers and the coordinator are killed, stopped, asked to leave and
made to hang, alone or one right behind another, while jobs run, pause, are cancelled and go on. After each fault: the jobs that it hit make steps again, and no other job has
been restarted. At the end: every job whose submission was acknowledged is there and has succeeded, each of its steps is in the history
once with the losses of an undisturbed run, its weights are those of that run bit for bit, no folder is left that no job needs, and no
process.

  tests/fault/soak.sh --faults 1000 --seed 1      prints each fault, then a table; exit status 0 = all of that holds
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time

import peers  # noqa: F401  (finds the harness)
import harness

WORKERS = 5
JOBS = 2  # at a time, of two ranks each: one worker is free
STEPS = 1500
CHECKPOINT_EVERY = 100
STEP_DELAY_MS = 2
RECOVERY_MAX = 120  # seconds until a fault counts as not recovered from
ONE_BEHIND_ANOTHER = 0.25  # of the faults have another right behind them


class Failure(Exception):
    pass


def stopped(pid):
    """SIGSTOP; false when the process has just ended."""
    try:
        os.kill(pid, signal.SIGSTOP)
        return True
    except ProcessLookupError:
        return False


class Soak:
    def __init__(self, seed, folder):
        self.random = random.Random(seed)
        self.cluster = harness.Cluster(root=folder)
        self.data = os.path.join(folder, "tokens.bin")
        harness.write_tokens(self.data)
        self.acknowledged = []  # job ids, in the order of their submission
        self.open = set()       # of these, not yet seen to have succeeded
        self.took = {}          # by fault: seconds from its beginning until all jobs make steps and all workers are back
        self.reference = None
        self.done = 0

    # -- the cluster ------------------------------------------------------------------------------------------
    def gate(self, worker):
        return os.path.join(self.cluster.dir, "gate-" + worker)

    def start_worker(self, name):
        open(self.gate(name), "w").close()
        self.cluster.env["HEARTH_FAULTS"] = f"trainer.step=hold:{self.gate(name)},trainer.after_step=delay:{STEP_DELAY_MS}ms"
        self.cluster.start_worker(name)

    def start(self):
        self.cluster.start_coordinator()
        names = [f"w{k}" for k in range(WORKERS)]
        for name in names:
            self.start_worker(name)
        for name in names:
            self.cluster.wait_worker(name)

    def submit(self):
        spec = harness.tiny_job(self.data, STEPS, workers=2, name="soak", checkpoint={"every_steps": CHECKPOINT_EVERY, "keep_last": 2},
                                resources={"workers": 2, "max_restarts": 1000})
        job = self.cluster.submit(spec)
        self.acknowledged.append(job)
        self.open.add(job)
        return job

    def jobs(self):
        """The open ones, as the coordinator has them; those that have succeeded are replaced by new ones."""
        found = {}
        for job_id in sorted(self.open):
            job = self.cluster.job(job_id)
            if job["state"] == "JOB_STATE_SUCCEEDED":
                self.open.discard(job_id)
            elif job["state"] == "JOB_STATE_FAILED":
                raise Failure(f"{job_id} failed: {job['reason']}\n{self.cluster.job_log(job_id)}")
            else:
                found[job_id] = job
        return found

    def running(self):
        """Waits until enough jobs run."""
        def ready():
            jobs = self.jobs()
            for _ in range(JOBS - len(jobs)):
                self.submit()
            busy = {k: j for k, j in jobs.items() if j["state"] == "JOB_STATE_RUNNING"}
            return busy if len(busy) == JOBS else None
        return harness.wait_until(f"{JOBS} running jobs", ready, RECOVERY_MAX)

    # -- faults: each returns the workers whose jobs it may stop, or None when there was nothing to hit --------------
    def any_worker(self, jobs):
        return self.random.choice(sorted(w for job in jobs.values() for w in job["workers"]))

    def kill_trainer(self, jobs):
        worker = self.any_worker(jobs)
        pids = self.cluster.trainer_pids(worker)
        if not pids:
            return None
        os.kill(pids[0], signal.SIGKILL)
        return {worker}

    def stop_trainer(self, jobs):
        worker = self.any_worker(jobs)
        pids = self.cluster.trainer_pids(worker)
        return {worker} if pids and stopped(pids[0]) else None

    def hang_step(self, jobs):
        worker = self.any_worker(jobs)
        pids = self.cluster.trainer_pids(worker)
        [job] = [job_id for job_id, job in jobs.items() if worker in job["workers"]]
        if not pids or self.cluster.job(job)["state"] != "JOB_STATE_RUNNING":
            return None  # a fault before is not over yet; the first step may take long
        gate = self.gate(worker)
        os.unlink(gate)
        # Back once the trainer has ended, for the next one.
        harness.wait_until("the hanging trainer to end", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), RECOVERY_MAX)
        open(gate, "w").close()
        return {worker}

    def restart_worker(self, jobs, how):
        worker = self.any_worker(jobs)
        self.cluster.workers[worker].kill(how)
        time.sleep(self.random.uniform(0, 3))
        self.start_worker(worker)
        return {worker}

    def kill_worker(self, jobs):
        return self.restart_worker(jobs, signal.SIGKILL)

    def end_worker(self, jobs):
        return self.restart_worker(jobs, signal.SIGTERM)

    def stop_worker(self, jobs):
        worker = self.any_worker(jobs)
        self.cluster.workers[worker].kill(signal.SIGSTOP, wait=False)
        time.sleep(self.random.uniform(0.2, 9))
        self.cluster.workers[worker].kill(signal.SIGCONT, wait=False)
        return {worker}

    def restart_coordinator(self, how):
        self.cluster.coordinator.kill(how)
        time.sleep(self.random.uniform(0, 2))
        self.cluster.start_coordinator()
        return set()

    def kill_coordinator(self, _jobs):
        return self.restart_coordinator(signal.SIGKILL)

    def end_coordinator(self, _jobs):
        return self.restart_coordinator(signal.SIGTERM)

    def stop_coordinator(self, _jobs):
        self.cluster.coordinator.kill(signal.SIGSTOP, wait=False)
        time.sleep(self.random.uniform(0.2, 4))
        self.cluster.coordinator.kill(signal.SIGCONT, wait=False)
        return set()

    def submit_into_a_kill(self, jobs):
        """A submission is on its way when the coordinator dies: it was acknowledged or it was not."""
        sent = threading.Thread(target=self.submit_or_not)
        sent.start()
        time.sleep(self.random.uniform(0, 0.1))
        hit = self.kill_coordinator(jobs)
        sent.join()
        return hit

    def submit_or_not(self):
        try:
            self.submit()
        except AssertionError:
            pass

    def again(self, jobs, verb, state, *flags):
        job = self.random.choice(sorted(jobs))
        self.cluster.jobctl(verb, job, *flags, check=False)
        now = harness.wait_until(f"{job} {state} or succeeded", lambda: (lambda j: j["state"] if j["state"] in
                                 ("JOB_STATE_" + state, "JOB_STATE_SUCCEEDED") else None)(self.cluster.job(job)), RECOVERY_MAX)
        if now != "JOB_STATE_SUCCEEDED":
            self.cluster.jobctl("resume", job)
        return set(jobs[job]["workers"])

    def pause(self, jobs):
        return self.again(jobs, "pause", "PAUSED")

    def cancel(self, jobs):
        return self.again(jobs, "cancel", "CANCELLED", "--now")

    # Each with its weight, and whether the job that it hits starts again for certain.
    FAULTS = ((kill_trainer, 4, True), (stop_trainer, 2, True), (hang_step, 2, True), (kill_worker, 3, True), (end_worker, 1, True),
              (stop_worker, 2, False), (kill_coordinator, 3, False), (end_coordinator, 1, False), (stop_coordinator, 2, False))
    ALONE = ((submit_into_a_kill, 1, False), (pause, 1, True), (cancel, 1, True))  # only as the first of two

    # -- one fault and what must follow ------------------------------------------------------------------------------
    def one_fault(self):
        jobs = self.running()
        began = time.monotonic()
        names, hit, restarted = [], set(), set()
        for kinds in (self.FAULTS + self.ALONE, self.FAULTS)[:2 if self.random.random() < ONE_BEHIND_ANOTHER else 1]:
            fault, _, restarts = self.random.choices(kinds, [weight for _, weight, _ in kinds])[0]
            workers = fault(self, jobs)
            if workers is not None:
                names.append(" ".join([fault.__name__, *sorted(workers)]))
                here = {k for k, job in jobs.items() if workers & set(job["workers"])}
                hit |= here
                restarted |= here if restarts else set()
        if names:
            self.expect_recovery(jobs, began, names, hit, restarted)

    def expect_recovery(self, jobs, began, names, hit, restarted):
        """Jobs in `restarted` were hit by something that they cannot have got over without a new start."""
        kind = "one behind another" if len(names) == 2 else names[0].split()[0]

        def goes_on(job_id):
            before, now = jobs[job_id], self.cluster.job(job_id)
            if now["state"] == "JOB_STATE_SUCCEEDED":
                return now
            advanced = int(now["epoch"]) > int(before["epoch"]) if job_id in restarted else \
                (int(now["epoch"]), int(now["step"])) > (int(before["epoch"]), int(before["step"]))
            return now if now["state"] == "JOB_STATE_RUNNING" and advanced else None

        for job_id in sorted(hit) + sorted(set(jobs) - hit):
            now = harness.wait_until(f"{job_id} to go on after {', '.join(names)}", lambda: goes_on(job_id), RECOVERY_MAX)
            if job_id not in hit and now["epoch"] != jobs[job_id]["epoch"]:
                raise Failure(f"{', '.join(names)}: restarted {job_id}, which runs on {jobs[job_id]['workers']}: "
                              f"{[e['message'] for e in self.cluster.events(job_id)][-3:]}")
        for name in self.cluster.workers:
            self.cluster.wait_worker(name)
        self.done += len(names)
        took = time.monotonic() - began
        self.took.setdefault(kind, []).append(took)
        print(f"{self.done} {', '.join(names)}: {took:.1f} s", flush=True)

    # -- the end ---------------------------------------------------------------------------------------------------
    def outcome(self, job_id):
        rows = self.cluster.metrics(job_id)
        if [int(r["step"]) for r in rows] != list(range(1, STEPS + 1)):
            raise Failure(f"{job_id}: {len(rows)} steps in the history, or not each once")
        return [r["loss"] for r in rows], harness.weights_sha256(self.cluster.final_checkpoint(job_id))

    def check(self):
        known = {job["jobId"]: job["state"] for job in self.cluster.json("list", "--limit", 0).get("jobs", [])}
        for job_id in self.acknowledged:
            if known.get(job_id) != "JOB_STATE_SUCCEEDED":
                raise Failure(f"{job_id} was acknowledged and is {known.get(job_id, 'lost')}")
            if self.outcome(job_id) != self.reference:
                raise Failure(f"{job_id}: losses or weights differ from those of the undisturbed run")
        for job_id in set(known) - set(self.acknowledged):  # it was taken and its answer lost
            self.cluster.wait_state(job_id, "SUCCEEDED")
        harness.wait_until("the removal of folders that no job needs", self.no_folder_is_left, RECOVERY_MAX)
        trainers = [pid for name in self.cluster.workers for pid in self.cluster.trainer_pids(name)]
        if trainers:
            raise Failure(f"trainers are left: {trainers}")
        for daemon in [*self.cluster.workers.values(), self.cluster.coordinator]:
            daemon.kill(signal.SIGTERM)
        left = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if self.is_ours(pid)]
        if left:
            raise Failure(f"processes are left: {left}")

    def no_folder_is_left(self):
        found = self.cluster.json("checkpoints", "prune", "--dry-run", "--min-age", "0s")
        return not found.get("folders") and not any(root.get("pending") for root in found["roots"])

    def is_ours(self, pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                return f"HEARTH_HOME={self.cluster.dir}".encode() in f.read().split(b"\0")
        except OSError:
            return False

    def run(self, faults):
        self.start()
        self.submit()
        harness.wait_until("the undisturbed run", lambda: not self.jobs(), RECOVERY_MAX)
        self.reference = self.outcome(self.acknowledged[0])
        while self.done < faults:
            self.one_fault()
        harness.wait_until("the last jobs", lambda: not self.jobs(), RECOVERY_MAX)
        self.check()

    def table(self):
        print(f"\n{'fault':<20} {'times':>5} {'p50 s':>6} {'p90 s':>6} {'max s':>6}   from its beginning until all jobs make steps and all workers are back")
        for name, took in sorted(self.took.items()):
            took = sorted(took)
            at = lambda q: took[min(len(took) - 1, int(q * len(took)))]
            print(f"{name:<20} {len(took):>5} {at(0.5):>6.1f} {at(0.9):>6.1f} {took[-1]:>6.1f}")
        print(f"{self.done} faults, {len(self.acknowledged)} jobs acknowledged and finished", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="hearth-soak-")
    soak = Soak(options.seed, folder)
    try:
        soak.run(options.faults)
    except Exception as error:
        harness.Outcome.count += 1  # keeps the folder
        print(f"FAILED after {soak.done} faults: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        soak.cluster.close()
    soak.table()
    return 0


if __name__ == "__main__":
    sys.exit(main())
