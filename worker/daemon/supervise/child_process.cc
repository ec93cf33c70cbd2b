#include "worker/daemon/supervise/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "worker/daemon/confine/confinement.h"

extern char** environ;

namespace hearth::worker {
namespace {

constexpr int kTrainerFd = 3;
constexpr int kErrorFd = 4;
constexpr uint64_t kFlagExiting = 0x4;  // PF_EXITING of the kernel, in /proc/PID/stat since 2.6
constexpr uint64_t kSigkillBit = 1u << (SIGKILL - 1);

absl::Status ErrnoStatus(int error, std::string_view what) {
  return absl::ErrnoToStatus(error, absl::string_view(what.data(), what.size()));
}

absl::Status MakePipe(Fd& read_end, Fd& write_end) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return ErrnoStatus(errno, "pipe");
  }
  read_end = Fd(fds[0]);
  write_end = Fd(fds[1]);
  return absl::OkStatus();
}

void SetNonBlocking(const Fd& fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

// What a trainer inherits of its worker's environment: what the system, compilers' runtimes and
// the libraries of training read. Whatever else a service manager or a shell holds, tokens of
// other programs for example, does not concern it. A name that ends in _ stands for all that
// begin so.
constexpr std::string_view kInherited[] = {
    "PATH",          "HOME",         "USER",      "LOGNAME", "LANG",           "LANGUAGE",
    "LC_",           "TZ",           "TMPDIR",    "LD_",     "XDG_CACHE_HOME", "HEARTH_",
    "OMP_",          "GOMP_",        "OPENBLAS_", "MALLOC_", "GLIBC_TUNABLES", "CUDA_",
    "NVIDIA_",       "CUBLAS_",      "CUBLASLT_", "CUDNN_",  "NCCL_",          "GLOO_",
    "UCX_",          "FI_",          "MLX5_",     "RDMAV_",  "ASAN_OPTIONS",   "LSAN_OPTIONS",
    "UBSAN_OPTIONS", "TSAN_OPTIONS", "OFI_NCCL_", "IBV_",    "MLX4_",          "PSM2_",
    "PSM3_",         "SHARP_",       "NVTX_",     "CUPTI_",  "NSYS_",          "LLVM_PROFILE_FILE",
    "GCOV_"};

bool IsInherited(std::string_view entry) {
  const std::string_view name = entry.substr(0, entry.find('='));
  return std::any_of(std::begin(kInherited), std::end(kInherited), [name](std::string_view row) {
    return row.back() == '_' ? name.substr(0, row.size()) == row : name == row;
  });
}

std::vector<std::string> MergedEnvironment(const std::vector<std::string>& extra,
                                           const Confinement& confinement) {
  std::vector<std::string> all = extra;
  all.insert(all.end(), confinement.environment().begin(), confinement.environment().end());
  all.push_back(absl::StrCat("HEARTH_TRAINER_FD=", kTrainerFd));
  // With their '=', so that a name does not stand for longer ones.
  std::vector<std::string> keys;
  for (const std::string& entry : all) {
    keys.push_back(entry.substr(0, entry.find('=') + 1));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool replaced = std::any_of(keys.begin(), keys.end(), [text](const std::string& key) {
      return text.substr(0, key.size()) == key;
    });
    if (!replaced && IsInherited(text)) {
      all.emplace_back(text);
    }
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (std::string& text : strings) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

// Runs between fork and exec in a process with threads: only system calls, no allocation, no lock.
struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* envp;
  pid_t parent;
  const Confinement* confinement;
  int null_fd;
  int out_fd;
  int err_fd;
  int pipe_fd;
  int error_fd;
};

// What it writes if exec does not come about: the measure that failed, or none.
[[noreturn]] void RunChild(const ChildPlan& plan) {
  Confinement::Failure failure;
  int& error = failure.error;
  do {
    // A session and a group of its own, by which the whole tree is found and killed later.
    setsid();
    // Ignored signals stay ignored across exec, and so does the mask: neither is the trainer's
    // business.
    for (int number = 1; number < NSIG; ++number) {
      signal(number, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    // If memory runs out, the kernel shall end the trainer before the daemon, which has to report
    // it.
    const int oom = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (oom >= 0) {
      static_cast<void>(!write(oom, "500", 3));
      close(oom);
    }
    if (failure = plan.confinement->Enter(); error != 0) {
      break;
    }
    // After Enter(): a change of the account takes it away.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != plan.parent) {
      error = ECHILD;  // the daemon is already gone
      break;
    }
    // Lift all five above the numbers they are about to take.
    const int sources[] = {plan.null_fd, plan.out_fd, plan.err_fd, plan.pipe_fd, plan.error_fd};
    int lifted[5];
    for (int i = 0; i < 5 && error == 0; ++i) {
      lifted[i] = fcntl(sources[i], F_DUPFD_CLOEXEC, 16);
      error = lifted[i] < 0 ? errno : 0;
    }
    for (int i = 0; i < 5 && error == 0; ++i) {
      error = dup2(lifted[i], i) < 0 ? errno : 0;
    }
    if (error != 0) {
      break;
    }
    // exec closes it, which tells the parent that exec came about.
    fcntl(kErrorFd, F_SETFD, FD_CLOEXEC);
    syscall(SYS_close_range, kErrorFd + 1, ~0U, 0);
    execve(plan.program, plan.argv, plan.envp);
    error = errno;
    static_cast<void>(!write(kErrorFd, &failure, sizeof(failure)));
    _exit(127);
  } while (false);
  static_cast<void>(!write(plan.error_fd, &failure, sizeof(failure)));
  _exit(127);
}

// No error when exec succeeded (the pipe closed without data).
Confinement::Failure ReadExecError(const Fd& fd) {
  Confinement::Failure failure;
  ssize_t got = 0;
  do {
    got = read(fd.get(), &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof(failure)) ? failure : Confinement::Failure{};
}

}  // namespace

absl::StatusOr<ChildProcess> Spawn(const SpawnOptions& options) {
  ChildProcess child;
  Fd out_write;
  Fd err_write;
  Fd error_read;
  Fd error_write;
  if (absl::Status status = MakePipe(child.out, out_write); !status.ok()) {
    return status;
  }
  if (absl::Status status = MakePipe(child.err, err_write); !status.ok()) {
    return status;
  }
  if (absl::Status status = MakePipe(error_read, error_write); !status.ok()) {
    return status;
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  child.pipe = Fd(pair[0]);
  const Fd theirs(pair[1]);
  const Fd null_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));

  // Everything the child needs is made before the fork: between fork and exec a child of a process
  // with threads may not allocate, because another thread may have held the allocator's lock.
  std::vector<std::string> arguments = {options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  static const Confinement kLeast{};
  const Confinement& confinement = options.confinement == nullptr ? kLeast : *options.confinement;
  std::vector<std::string> environment = MergedEnvironment(options.environment, confinement);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  const ChildPlan plan = {
      options.program.c_str(), argv.data(),     envp.data(),     getpid(),     &confinement,
      null_fd.get(),           out_write.get(), err_write.get(), theirs.get(), error_write.get()};
  HEARTH_RETURN_IF_ERROR(fault::Check("agent.spawn"));
  const pid_t pid = fork();
  if (pid < 0) {
    return ErrnoStatus(errno, "fork");
  }
  if (pid == 0) {
    RunChild(plan);
  }
  // Only now does the pipe have no writer but the child, so that exec, which closes it, reads as an
  // end.
  error_write.Reset();
  child.pid = pid;
  if (const Confinement::Failure failure = ReadExecError(error_read); failure.error != 0) {
    waitpid(pid, nullptr, 0);
    const std::string_view measure = Confinement::MeasureName(failure);
    return ErrnoStatus(
        failure.error,
        absl::StrCat("cannot run ", options.program, measure.empty() ? "" : ", confinement: ",
                     absl::string_view(measure.data(), measure.size())));
  }
  // The child has run exec and has not been waited for, so its pid cannot be another process yet.
  child.pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!child.pidfd.valid()) {
    const int error = errno;
    KillAll(pid);
    waitpid(pid, nullptr, 0);
    return ErrnoStatus(error, "pidfd_open (Linux 5.3 or newer is needed)");
  }
  fcntl(child.pidfd.get(), F_SETFD, FD_CLOEXEC);
  SetNonBlocking(child.pipe);
  SetNonBlocking(child.out);
  SetNonBlocking(child.err);
  return child;
}

void BecomeSubreaper() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

absl::StatusOr<ProcessStat> ParseProcessStat(const std::string& line) {
  // The command name is in parentheses and may itself hold blanks and parentheses.
  const size_t open = line.find(" (");
  const size_t close = line.rfind(") ");
  ProcessStat stat;
  if (open == std::string::npos || close == std::string::npos ||
      !absl::SimpleAtoi(line.substr(0, open), &stat.pid)) {
    return absl::DataLossError(absl::StrCat("not a line of /proc/PID/stat: ", line));
  }
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(close + 2), ' ', absl::SkipEmpty());
  int64_t user = 0;
  int64_t system = 0;
  int64_t pages = 0;
  uint64_t flags = 0;
  uint64_t pending = 0;
  // Field n of proc(5) is fields[n - 3].
  if (fields.size() < 22 || !absl::SimpleAtoi(fields[1], &stat.parent) ||
      !absl::SimpleAtoi(fields[2], &stat.group) || !absl::SimpleAtoi(fields[3], &stat.session) ||
      !absl::SimpleAtoi(fields[11], &user) || !absl::SimpleAtoi(fields[12], &system) ||
      !absl::SimpleAtoi(fields[21], &pages) || !absl::SimpleAtoi(fields[6], &flags)) {
    return absl::DataLossError(absl::StrCat("not a line of /proc/PID/stat: ", line));
  }
  stat.state = fields[0][0];
  if (fields.size() > 28) {
    static_cast<void>(absl::SimpleAtoi(fields[28], &pending));
  }
  // A SIGKILL that is pending shows the end before the flag does.
  stat.exiting = (flags & kFlagExiting) != 0 || (pending & kSigkillBit) != 0;
  if (stat.exiting && fields.size() > 49) {
    static_cast<void>(absl::SimpleAtoi(fields[49], &stat.exit_code));
  }
  stat.cpu_seconds = static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  stat.resident_bytes = pages * sysconf(_SC_PAGESIZE);
  return stat;
}

absl::StatusOr<ProcessStat> ReadProcessStat(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) {
    return absl::NotFoundError(absl::StrCat("no process ", pid));
  }
  return ParseProcessStat(line);
}

std::vector<pid_t> LiveMembers(pid_t leader) {
  std::vector<pid_t> out;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator it("/proc", error); !error && it != end;
       it.increment(error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(it->path().filename().string(), &pid)) {
      continue;
    }
    const auto stat = ReadProcessStat(pid);
    // By session too: a process that has changed its group is still in the session.
    if (!stat.ok() || (stat->group != leader && stat->session != leader)) {
      continue;
    }
    if (stat->state != 'Z' && stat->state != 'X') {
      out.push_back(pid);
    } else if (stat->parent == getpid() && pid != leader) {
      waitpid(pid, nullptr, WNOHANG);  // an orphan that came to us
    }
  }
  return out;
}

void KillAll(pid_t leader) {
  kill(-leader, SIGKILL);
  for (const pid_t pid : LiveMembers(leader)) {
    kill(pid, SIGKILL);
  }
}

bool GroupIsGone(pid_t leader) {
  // Reading /proc can miss a process that forks meanwhile; kill() never does. For kill() a group
  // still exists while another process must reap its zombies; /proc shows them as zombies. After a
  // SIGKILL to the group no process in it forks any more.
  const bool listed = !LiveMembers(leader).empty();
  if (kill(-leader, 0) != 0 && errno == ESRCH) {
    return !listed;
  }
  return !listed && LiveMembers(leader).empty();
}

}  // namespace hearth::worker
