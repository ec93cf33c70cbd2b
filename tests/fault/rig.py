"""What tests of faults need of the machine, each with the reason where it cannot be had: hosts joined by cables that can be cut in one
direction, small disks that can be filled, a second version of the programs, and wall clocks that jump."""

import contextlib
import ctypes
import fcntl
import os
import shutil
import subprocess
import tempfile

import harness

CLONE_NEWNET = 0x40000000
NOBODY = "02:00:00:00:00:00"  # an address of Ethernet that no host has


def sh(*argv, check=True):
    run = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    if check and run.returncode != 0:
        raise OSError(f"{' '.join(argv)}: {run.stderr.strip() or run.stdout.strip()}")
    return run.stdout


@contextlib.contextmanager
def one_at_a_time():
    """Among all processes: the first namespace of a machine, and the search for a free loop device, are not safe side by side."""
    with open(os.path.join(tempfile.gettempdir(), f"hearth-rig-{os.getuid()}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Hosts:
    """Network namespaces on one switch. This process, and what it starts without a prefix, becomes the host "hub" for good."""

    NET = "10.78.41."

    def __init__(self, names):
        self.tag = f"hearth-{os.getpid()}-"
        self.names = ["hub", *names]
        self.cut = {}
        try:
            with one_at_a_time():
                sh("ip", "netns", "add", self.tag + "hub")
            self.enter("hub")
            sh("ip", "link", "set", "lo", "up")
            sh("ip", "link", "add", "switch", "type", "bridge")
            sh("ip", "addr", "add", self.address("hub") + "/24", "dev", "switch")
            sh("ip", "link", "set", "switch", "up")
            for name in names:
                self.join(name)
        except OSError:
            self.close()
            raise

    def enter(self, name):
        with open(f"/run/netns/{self.tag}{name}") as f:
            if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def join(self, name):
        sh("ip", "netns", "add", self.tag + name)
        sh("ip", "link", "add", "to-" + name, "type", "veth", "peer", "name", "eth", "netns", self.tag + name)
        sh("ip", "link", "set", "to-" + name, "master", "switch", "up")
        for words in (("addr", "add", self.address(name) + "/24", "dev", "eth"), ("link", "set", "eth", "up"), ("link", "set", "lo", "up")):
            sh("ip", "-n", self.tag + name, *words)

    def address(self, name):
        return self.NET + str(1 + self.names.index(name))

    def prefix(self, name):
        """Runs a program on that host; the process is the program itself."""
        return ["ip", "netns", "exec", self.tag + name]

    def pull(self, name):
        """Cuts the host off in both directions."""
        sh("ip", "link", "set", "to-" + name, "down")

    def plug(self, name):
        sh("ip", "link", "set", "to-" + name, "up")

    def lose(self, source, target):
        """What `source` sends to `target` gets lost without an error; the other direction works."""
        self.neighbour("replace", source, target, "lladdr", NOBODY, "nud", "permanent")

    def deliver(self, source, target):
        self.neighbour("del", source, target)

    def neighbour(self, verb, source, target, *rest):
        where = () if source == "hub" else ("-n", self.tag + source)
        sh("ip", *where, "neigh", verb, self.address(target), "dev", "switch" if source == "hub" else "eth", *rest)

    def close(self):
        for name in self.names:
            sh("ip", "netns", "del", self.tag + name, check=False)


class SmallDisk:
    """A file system of its own at `path`, on a file beside it."""

    def __init__(self, path, mib):
        self.path, self.image = path, path + ".img"
        os.makedirs(path, exist_ok=True)
        sh("truncate", "-s", f"{mib}M", self.image)
        sh("mkfs.ext4", "-q", "-m", "0", self.image)
        with one_at_a_time():
            sh("mount", "-o", "loop", self.image, path)
        shutil.rmtree(os.path.join(path, "lost+found"), ignore_errors=True)
        self.ballast = os.path.join(path, "lost+found")  # a name that a new file system has: nobody wonders about it

    def fill(self):
        """No byte is left."""
        with open(self.ballast, "wb") as f:
            # Large pieces first, then down to single bytes, until not one more fits.
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        free = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize
                        if size == 1 << 20 and free > 2 * size:
                            os.posix_fallocate(f.fileno(), f.seek(0, os.SEEK_END), free - size)
                        else:
                            os.write(f.fileno(), b"\0" * size)
                except OSError:
                    continue

    def empty(self):
        if os.path.exists(self.ballast):
            os.unlink(self.ballast)

    def close(self):
        sh("umount", "-l", self.path, check=False)


def commit(program):
    """What a program says that it was built from: "unknown" for a source tree without git."""
    return sh(program, "--version").split("(")[1].split(")")[0]


def second_version(folder):
    """Copies of the programs that say they were built from another commit; returns their folder."""
    os.makedirs(folder, exist_ok=True)
    libraries = os.path.join(os.path.dirname(harness.BIN), "lib")  # where programs of a bundle look for theirs
    if os.path.isdir(libraries):
        os.symlink(libraries, os.path.join(os.path.dirname(folder), "lib"))
    for name in ("hearth-coordinator", "hearth-worker", "hearth-trainer"):
        stamp = commit(harness.program(name)).encode()
        # The length stays the same, so that nothing moves in the file.
        other = (b"feedfacefeed" * 2)[:len(stamp)]
        with open(harness.program(name), "rb") as f:
            program = f.read()
        assert stamp in program, f"{name} has no stamp {stamp}"
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(program.replace(stamp, other))
        os.chmod(path, 0o755)
        assert commit(path) == other.decode(), f"{name} still says what it is"
    return folder


class JumpingClock:
    """The wall clock of one daemon."""

    def __init__(self, path):
        self.path = path
        self.set(0)

    def env(self):
        return {"HEARTH_WALL_CLOCK_OFFSET": self.path}

    def set(self, seconds):
        """Ahead of the machine's, or behind it."""
        # Renamed into place: a daemon never reads half a number.
        with open(self.path + ".new", "w") as f:
            f.write(f"{seconds}\n")
        os.rename(self.path + ".new", self.path)
