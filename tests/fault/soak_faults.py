"""The faults of the soak: a row each. An action gets the soak and its running jobs, does its harm, undoes what must be undone, and returns
what it hit; None when there was nothing to hit."""

import dataclasses
import os
import signal
import subprocess
import threading
import time

import harness

DAY = 86400


@dataclasses.dataclass(frozen=True)
class Hit:
    workers: set = frozenset()  # it may have stopped their jobs
    ended: dict = dataclasses.field(default_factory=dict)  # by job: the epoch that it has ended for sure, as only the action itself knows


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    weight: int
    act: object
    alone: bool = False  # only as the first of two
    needs: str = ""  # of the soak: "hosts", "disks"
    away: bool = False  # for a while there is no coordinator, or it has just started: it judges nobody
    what: str = ""  # for the table


def any_worker(soak, jobs):
    return soak.random.choice(sorted(w for job in jobs.values() for w in job["workers"]))


# -- trainers ------------------------------------------------------------------------------------------------------
def signal_trainer(soak, jobs, how):
    worker = any_worker(soak, jobs)
    trainer = soak.trainer(worker)
    if trainer is None:
        return None
    try:
        os.kill(trainer.pid, how)
    except ProcessLookupError:
        return None  # it has just ended
    return Hit({worker}, {trainer.job: trainer.epoch})


def kill_trainer(soak, jobs):
    return signal_trainer(soak, jobs, signal.SIGKILL)


def stop_trainer(soak, jobs):
    return signal_trainer(soak, jobs, signal.SIGSTOP)


def hang_step(soak, jobs):
    worker = any_worker(soak, jobs)
    trainer = soak.trainer(worker)
    if trainer is None or soak.cluster.job(trainer.job)["state"] != "JOB_STATE_RUNNING":
        return None  # a fault before is not over yet; the first step may take long
    gate = soak.gate(worker)
    os.unlink(gate)
    # Back once the trainer has ended, for the next one.
    harness.wait_until("the hanging trainer to end", lambda: not os.path.exists(f"/proc/{trainer.pid}"), soak.RECOVERY_MAX)
    open(gate, "w").close()
    return Hit({worker}, {trainer.job: trainer.epoch})


# -- workers -------------------------------------------------------------------------------------------------------
def restart_workers(soak, workers, how, upgrade=False):
    for worker in workers:
        soak.end_daemon(worker, how)
    ended = soak.last_epochs(workers)  # now that they start no more
    soak.pause(0, 3)
    for worker in workers:
        if upgrade:
            soak.other_version(worker)
        soak.start_worker(worker)
    return Hit(set(workers), ended)


def restart_worker(soak, jobs, how):
    return restart_workers(soak, [any_worker(soak, jobs)], how)


def kill_worker(soak, jobs):
    return restart_worker(soak, jobs, signal.SIGKILL)


def end_worker(soak, jobs):
    return restart_worker(soak, jobs, signal.SIGTERM)


def upgrade_worker(soak, jobs):
    # A gang has one version: where a job needs all workers, it waits until all have the same.
    needs_all = len(soak.names) == soak.shape.ranks
    workers = soak.names if needs_all else [any_worker(soak, jobs)]
    return restart_workers(soak, workers, soak.random.choice([signal.SIGTERM, signal.SIGKILL]), upgrade=True)


def stop_worker(soak, jobs):
    worker = any_worker(soak, jobs)
    soak.cluster.workers[worker].kill(signal.SIGSTOP, wait=False)
    soak.pause(0.2, 9)
    soak.cluster.workers[worker].kill(signal.SIGCONT, wait=False)
    return Hit({worker})


# -- the network ---------------------------------------------------------------------------------------------------
def cut_worker(soak, jobs):
    worker = any_worker(soak, jobs)
    soak.hosts.pull(worker)
    soak.pause(0.2, 9)
    soak.hosts.plug(worker)
    soak.wait_heard(worker)
    return Hit({worker})


def one_way(soak, worker, pairs):
    for source, target in pairs:
        soak.hosts.lose(source, target)
    soak.pause(0.2, 9)
    for source, target in pairs:
        soak.hosts.deliver(source, target)
    soak.wait_heard(worker)


def mute_worker(soak, jobs):
    worker = any_worker(soak, jobs)
    one_way(soak, worker, [(worker, other) for other in soak.hosts.names if other != worker])
    return Hit({worker})


def deafen_worker(soak, jobs):
    worker = any_worker(soak, jobs)
    one_way(soak, worker, [(other, worker) for other in soak.hosts.names if other != worker])
    return Hit({worker})


# -- the coordinator -----------------------------------------------------------------------------------------------
def restart_coordinator(soak, how):
    soak.end_daemon("coordinator", how)
    soak.pause(0, 2)
    soak.start_coordinator()
    return Hit()


def kill_coordinator(soak, _jobs):
    return restart_coordinator(soak, signal.SIGKILL)


def end_coordinator(soak, _jobs):
    return restart_coordinator(soak, signal.SIGTERM)


def upgrade_coordinator(soak, _jobs):
    soak.other_version("coordinator")
    return restart_coordinator(soak, soak.random.choice([signal.SIGTERM, signal.SIGKILL]))


def stop_coordinator(soak, _jobs):
    soak.cluster.coordinator.kill(signal.SIGSTOP, wait=False)
    soak.pause(0.2, 4)
    soak.cluster.coordinator.kill(signal.SIGCONT, wait=False)
    return Hit()


def second_coordinator(soak, _jobs):
    """It must leave at once, with the exit code of a data dir in use."""
    data = os.path.join(soak.cluster.dir, "coordinator")
    run = subprocess.run([*soak.cluster.start_of("coordinator"), "--data-dir", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
                         capture_output=True, text=True, timeout=60, env=soak.cluster.env_of("coordinator"))
    if run.returncode != 3:
        raise AssertionError(f"a second coordinator on {data} exited with {run.returncode}: {run.stderr}")
    return Hit()


def submit_into_a_kill(soak, jobs):
    """A submission is on its way when the coordinator dies: it was acknowledged or it was not."""
    sent = threading.Thread(target=soak.submit_or_not)
    sent.start()
    soak.pause(0, 0.1)
    hit = kill_coordinator(soak, jobs)
    sent.join()
    return hit


# -- disks ---------------------------------------------------------------------------------------------------------
def with_faults(soak, faults, seconds):
    """The coordinator runs so for a while, or until it ends by itself."""
    soak.end_daemon("coordinator", signal.SIGTERM)
    soak.cluster.envs["coordinator"]["HEARTH_FAULTS"] = faults
    try:
        soak.start_coordinator()
        over = time.monotonic() + seconds
        while time.monotonic() < over and soak.cluster.coordinator.alive():
            time.sleep(0.05)
    finally:
        del soak.cluster.envs["coordinator"]["HEARTH_FAULTS"]
    # Faults are read from the environment at the start: only another process is free of them.
    soak.cluster.coordinator.kill(signal.SIGKILL)
    soak.start_coordinator()
    return Hit()


def slow_disk(soak, _jobs):
    return with_faults(soak, "store.before_commit=delay:100ms,store.before_flush=delay:1s", soak.random.uniform(1, 4))


def failing_disk(soak, _jobs):
    point = soak.random.choice(["store.before_commit", "store.after_commit", "store.before_flush", "store.after_flush"])
    return with_faults(soak, f"{point}=error@{soak.random.randint(2, 30)}", 3)


def full_data_disk(soak, _jobs):
    """The coordinator refuses changes, or ends with what it has acknowledged on the disk, and is started again."""
    soak.disks["coordinator"].fill()
    soak.pause(0.5, 4)
    soak.disks["coordinator"].empty()
    soak.wait_stored()
    return Hit()


def full_checkpoint_disk(soak, jobs):
    soak.disks["checkpoints"].fill()
    soak.pause(0.5, 4)
    soak.disks["checkpoints"].empty()
    return Hit({worker for job in jobs.values() for worker in job["workers"]})


# -- clocks --------------------------------------------------------------------------------------------------------
def jump_clock(soak, jobs):
    daemon = soak.random.choice(["coordinator", any_worker(soak, jobs)])
    soak.clocks[daemon].set(soak.random.choice([-DAY, 0, DAY]))
    return Hit()


# -- users ---------------------------------------------------------------------------------------------------------
def again(soak, jobs, verb, state, *flags):
    job = soak.random.choice(sorted(jobs))
    soak.cluster.jobctl(verb, job, *flags, check=False)
    now = harness.wait_until(f"{job} {state} or succeeded", lambda: (lambda j: j["state"] if j["state"] in
                             ("JOB_STATE_" + state, "JOB_STATE_SUCCEEDED") else None)(soak.cluster.job(job)), soak.RECOVERY_MAX)
    if now != "JOB_STATE_SUCCEEDED":
        soak.cluster.jobctl("resume", job)
    return Hit(set(jobs[job]["workers"]), {job: int(jobs[job]["epoch"])})


def pause(soak, jobs):
    return again(soak, jobs, "pause", "PAUSED")


def cancel(soak, jobs):
    return again(soak, jobs, "cancel", "CANCELLED", "--now")


FAULTS = (
    Fault("kill_trainer", 4, kill_trainer, what="a trainer is killed"),
    Fault("stop_trainer", 2, stop_trainer, what="a trainer is stopped (SIGSTOP)"),
    Fault("hang_step", 2, hang_step, what="a step hangs"),
    Fault("kill_worker", 3, kill_worker, what="a worker is killed, and back within 3 s"),
    Fault("end_worker", 1, end_worker, what="a worker is asked to leave, and back within 3 s"),
    Fault("upgrade_worker", 1, upgrade_worker, what="a worker is replaced by another version"),
    Fault("stop_worker", 2, stop_worker, what="a worker is stopped for 0.2 to 9 s"),
    Fault("cut_worker", 2, cut_worker, needs="hosts", what="a worker's cable is pulled for 0.2 to 9 s"),
    Fault("mute_worker", 1, mute_worker, needs="hosts", what="what a worker sends is lost for 0.2 to 9 s"),
    Fault("deafen_worker", 1, deafen_worker, needs="hosts", what="what is sent to a worker is lost for 0.2 to 9 s"),
    Fault("kill_coordinator", 3, kill_coordinator, away=True, what="the coordinator is killed, and back within 2 s"),
    Fault("end_coordinator", 1, end_coordinator, away=True, what="the coordinator is asked to end, and back within 2 s"),
    Fault("upgrade_coordinator", 1, upgrade_coordinator, away=True, what="the coordinator is replaced by another version"),
    Fault("stop_coordinator", 2, stop_coordinator, away=True, what="the coordinator is stopped for 0.2 to 4 s"),
    Fault("second_coordinator", 1, second_coordinator, what="a second coordinator starts on the data dir"),
    Fault("slow_disk", 1, slow_disk, away=True, what="commits take 100 ms longer, moving records 1 s"),
    Fault("failing_disk", 1, failing_disk, away=True, what="a write of the store fails"),
    Fault("full_data_disk", 1, full_data_disk, needs="disks", away=True, what="the data dir's disk is full for 0.5 to 4 s"),
    Fault("full_checkpoint_disk", 1, full_checkpoint_disk, needs="disks", what="the checkpoints' disk is full for 0.5 to 4 s"),
    Fault("jump_clock", 2, jump_clock, what="a daemon's wall clock jumps by a day or two"),
    Fault("submit_into_a_kill", 1, submit_into_a_kill, alone=True, away=True, what="the coordinator is killed while a job is submitted"),
    Fault("pause", 1, pause, alone=True, what="a job is paused and resumed"),
    Fault("cancel", 1, cancel, alone=True, what="a job is cancelled and resumed"),
)


def kind_of(names):
    """The row of the table for one fault, or for two of which the second came right behind the first. `names`: a fault's, then its workers."""
    rows = [fault for name in names for fault in FAULTS if fault.name == name.split()[0]]
    if len(rows) == 1:
        return rows[0].name
    return "two, coordinator away" if any(fault.away for fault in rows) else "one behind another"
