// Starts a program in a session of its own, and proves that none of its processes is left. Linux
// only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/fd.h"

namespace hearth::worker {

class Confinement;

struct SpawnOptions {
  std::string program;                   // path; not searched for
  std::vector<std::string> arguments;    // after argv[0]
  std::vector<std::string> environment;  // "KEY=value", added to what it inherits of ours
  // What confines it; its environment is added too. Null = that it cannot gain privileges.
  std::shared_ptr<const Confinement> confinement;
};

struct ChildProcess {
  pid_t pid = -1;  // also its process group and session
  Fd pidfd;        // readable when it has ended
  Fd pipe;         // our end of the socketpair, non-blocking
  Fd out;          // what it writes to stdout, non-blocking
  Fd err;          // stderr, non-blocking
};

// Starts `program` as the leader of a new session and process group. It has stdin from /dev/null,
// stdout and stderr into pipes, the other end of the socketpair as descriptor 3 and in
// HEARTH_TRAINER_FD, and no other descriptor of ours; of our environment it has what training
// reads. Signals are handled by default, its OOM score is higher than ours, and it is confined from
// its first instruction on, as are its children. It is SIGKILLed when the calling *thread* ends, so
// call this from a thread that lives as long as the daemon. kNotFound, kPermissionDenied,
// kResourceExhausted...: the text names the program.
absl::StatusOr<ChildProcess> Spawn(const SpawnOptions& options);

// Makes this process the parent of its descendants' orphans, so that it can reap them where pid 1
// does not.
void BecomeSubreaper();

struct ProcessStat {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  char state = '?';      // as in /proc/PID/stat: R S D Z ...
  bool exiting = false;  // of the first thread: in exit() in the kernel, or about to, by SIGKILL
  int exit_code = 0;     // as waitpid() gives it, of one that is exiting; 0 = not known, or 0
  double cpu_seconds = 0.0;  // user and system
  int64_t resident_bytes = 0;
};

// Parses a line of /proc/PID/stat. kDataLoss: not one.
absl::StatusOr<ProcessStat> ParseProcessStat(const std::string& line);

// kNotFound: no such process.
absl::StatusOr<ProcessStat> ReadProcessStat(pid_t pid);

// Processes, zombies excepted, whose group or session is `leader`: what must be gone before a task
// counts as ended. The leader itself is listed while it lives. Reaps the group's orphans that came
// to us, never the leader.
std::vector<pid_t> LiveMembers(pid_t leader);

// SIGKILLs the group and every straggler of the session. Harmless when nothing is left.
void KillAll(pid_t leader);

// True when no live process has this group or session any more. Call after KillAll() and after
// reaping the leader.
bool GroupIsGone(pid_t leader);

}  // namespace hearth::worker
