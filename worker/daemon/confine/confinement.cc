#include "worker/daemon/confine/confinement.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/base/units.h"
#include "common/io/env.h"
#include "worker/daemon/confine/call_filter.h"
#include "worker/daemon/supervise/child_process.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;

// Folders with the devices that CUDA and the transports of NCCL open.
constexpr const char* kDeviceFolders[] = {"/dev", "/dev/nvidia-caps", "/dev/dri",
                                          "/dev/infiniband"};

bool IsRoot() {
  return geteuid() == 0;
}

// CapEff of this process.
uint64_t EffectiveCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) {
    return 0;
  }
  return uint64_t{data[1].effective} << 32 | data[0].effective;
}

// Leaves the process with `keep` (of the first 32) and no others, in all sets but the bounding one.
int KeepCapabilities(uint32_t keep) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  data[0].effective = keep;
  data[0].permitted = keep;
  return syscall(SYS_capset, &header, data) == 0 ? 0 : errno;
}

// Groups whose members may open a device that others may not.
void AddDeviceGroups(std::vector<gid_t>& groups) {
  for (const char* folder : kDeviceFolders) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      struct stat found {};
      const bool wanted = std::string_view(folder) != "/dev" || absl::StartsWith(name, "nvidia");
      if (wanted && stat(it->path().c_str(), &found) == 0 && S_ISCHR(found.st_mode) &&
          found.st_gid != 0 && (found.st_mode & S_IRGRP) != 0 && (found.st_mode & S_IROTH) == 0) {
        groups.push_back(found.st_gid);
      }
    }
  }
}

// Gives a folder of root's to the account; a link or another's folder stays as it is.
absl::Status GiveFolder(const std::string& path, uid_t uid, gid_t gid) {
  const Fd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found {};
  if (!folder.valid() || fstat(folder.get(), &found) != 0 || found.st_uid != 0) {
    return absl::OkStatus();
  }
  return fchown(folder.get(), uid, gid) == 0
             ? absl::OkStatus()
             : absl::ErrnoToStatus(errno, absl::StrCat("--trainer-user: cannot hand over ", path));
}

// What the trying process could not do; its exit code is the number of the need from 1 on.
struct Need {
  std::string path;
  int mode;
  const char* what;
};

constexpr int kNotConfined = 101;
constexpr int kKeptCapabilities = 102;

[[noreturn]] void TryNeeds(const Confinement& confinement,
                           const std::vector<Need>& needs,
                           bool drops_capabilities,
                           int report) {
  const Confinement::Failure failure = confinement.Enter();
  static_cast<void>(!write(report, &failure, sizeof(failure)));
  if (failure.error != 0) {
    _exit(kNotConfined);
  }
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (drops_capabilities && (syscall(SYS_capget, &header, data) != 0 ||
                             (data[0].permitted | data[1].permitted | data[0].effective) != 0)) {
    _exit(kKeptCapabilities);
  }
  int number = 1;
  for (const Need& need : needs) {
    if (faccessat(AT_FDCWD, need.path.c_str(), need.mode, AT_EACCESS) != 0) {
      _exit(number);
    }
    ++number;
  }
  _exit(0);
}

}  // namespace

absl::Span<const Confinement::Measure> Confinement::Measures() {
  // In the order in which a process takes them: those that need root's rights come first. The
  // filter needs no_new_privs.
  static constexpr Measure kMeasures[] = {
      {"limits", &PrepareLimits, &EnterLimits, &LimitsInForce},
      {"capabilities", &PrepareCapabilities, &EnterCapabilities,
       [](const Confinement& self) {
         return std::string(self.drops_capabilities_ ? "no capabilities" : "");
       }},
      {"account", &PrepareAccount, &EnterAccount,
       [](const Confinement& self) {
         return self.user_.empty() ? std::string() : absl::StrCat("account ", self.user_);
       }},
      {"no_new_privs", nullptr,
       [](const Confinement&) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : errno; },
       [](const Confinement&) { return std::string("no new privileges"); }},
      {"system calls", &PrepareFilter, &EnterFilter,
       [](const Confinement& self) {
         return std::string(self.filter_.empty() ? "" : "system calls filtered");
       }},
  };
  return kMeasures;
}

absl::StatusOr<Confinement> Confinement::Prepare(const ConfinementOptions& options,
                                                 const std::vector<std::string>& programs) {
  Confinement self;
  for (const Measure& measure : Measures()) {
    if (measure.prepare != nullptr) {
      HEARTH_RETURN_IF_ERROR(measure.prepare(self, options));
    }
  }
  HEARTH_RETURN_IF_ERROR(self.Try(options, programs));
  return self;
}

Confinement::Failure Confinement::Enter() const {
  Failure failure;
  int row = 0;
  for (const Measure& measure : Measures()) {
    if (const int error = measure.enter(*this); error != 0) {
      failure.measure = row;
      failure.error = error;
      return failure;
    }
    ++row;
  }
  return failure;
}

std::string_view Confinement::MeasureName(const Failure& failure) {
  return failure.measure < 0 ? "" : Measures()[static_cast<size_t>(failure.measure)].name;
}

std::vector<std::string> Confinement::InForce() const {
  std::vector<std::string> texts;
  for (const Measure& measure : Measures()) {
    if (std::string text = measure.in_force(*this); !text.empty()) {
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

absl::Status Confinement::PrepareLimits(Confinement& self, const ConfinementOptions& options) {
  if (!options.limits.any()) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string groups, Env::Real().ReadFile("/proc/self/cgroup"));
  HEARTH_ASSIGN_OR_RETURN(const std::string mounts, Env::Real().ReadFile("/proc/self/mountinfo"));
  HEARTH_ASSIGN_OR_RETURN(const std::string base, FindCgroup(groups, mounts));
  HEARTH_ASSIGN_OR_RETURN(self.cgroup_, Cgroup::Make(base, options.name, options.limits));
  self.limits_ = options.limits;
  return absl::OkStatus();
}

int Confinement::EnterLimits(const Confinement& self) {
  // 0 stands for the process that writes.
  const int group = self.cgroup_.procs_fd();
  return group < 0 || write(group, "0", 1) == 1 ? 0 : errno;
}

std::string Confinement::LimitsInForce(const Confinement& self) {
  std::vector<std::string> parts;
  if (self.limits_.memory_bytes > 0) {
    parts.push_back(absl::StrCat(FormatBytes(self.limits_.memory_bytes), " of memory"));
  }
  if (self.limits_.processes > 0) {
    parts.push_back(absl::StrCat(self.limits_.processes, " processes and threads"));
  }
  if (self.limits_.cpus > 0) {
    parts.push_back(absl::StrCat(self.limits_.cpus, " CPUs"));
  }
  return parts.empty() ? std::string() : absl::StrCat("at most ", absl::StrJoin(parts, ", "));
}

absl::Status Confinement::PrepareCapabilities(Confinement& self,
                                              const ConfinementOptions& /*options*/) {
  self.drops_capabilities_ = true;
  // Without this capability the bounding set stays, and no_new_privs makes it idle.
  self.drops_bounding_ = (EffectiveCapabilities() >> CAP_SETPCAP & 1) != 0;
  absl::StatusOr<std::string> last = Env::Real().ReadFile("/proc/sys/kernel/cap_last_cap");
  if (!last.ok() || !absl::SimpleAtoi(*last, &self.last_capability_)) {
    self.last_capability_ = CAP_LAST_CAP;
  }
  return absl::OkStatus();
}

int Confinement::EnterCapabilities(const Confinement& self) {
  if (!self.drops_capabilities_) {
    return 0;
  }
  if (self.drops_bounding_) {
    // What CAP_IPC_LOCK gave a trainer of root's: networks pin as much memory as they need. It may
    // be refused, and trainers then have the limit of the account.
    const rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &unlimited);
    for (int capability = 0; capability <= self.last_capability_; ++capability) {
      if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
        return errno;
      }
    }
  }
  // EINVAL: a kernel before 4.3 has no ambient set.
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL) {
    return errno;
  }
  // The kernel takes these two when the process leaves root's account.
  const bool changes_account = !self.user_.empty();
  return KeepCapabilities(changes_account ? 1u << CAP_SETUID | 1u << CAP_SETGID : 0);
}

absl::Status Confinement::FindAccount(const std::string& user) {
  std::string buffer(16 << 10, '\0');
  passwd entry{};
  passwd* found = nullptr;
  const int error = getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("--trainer-user ", user, ": no such account",
                     error == 0 ? "" : absl::StrCat(" (", ErrnoText(error), ")")));
  }
  if (entry.pw_uid == 0) {
    return absl::InvalidArgumentError(
        "--trainer-user: trainers of root's account are not confined");
  }
  uid_ = entry.pw_uid;
  gid_ = entry.pw_gid;
  int count = 256;
  groups_.resize(static_cast<size_t>(count));
  if (getgrouplist(user.c_str(), gid_, groups_.data(), &count) < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--trainer-user ", user, ": is in more than 256 groups"));
  }
  groups_.resize(static_cast<size_t>(count));
  environment_ = {absl::StrCat("HOME=", entry.pw_dir), absl::StrCat("USER=", user),
                  absl::StrCat("LOGNAME=", user)};
  user_ = user;
  return absl::OkStatus();
}

absl::Status Confinement::PrepareAccount(Confinement& self, const ConfinementOptions& options) {
  if (options.user.empty()) {
    return absl::OkStatus();
  }
  constexpr uint64_t kNeeded = uint64_t{1} << CAP_SETUID | uint64_t{1} << CAP_SETGID;
  if (!IsRoot() || (EffectiveCapabilities() & kNeeded) != kNeeded) {
    return absl::FailedPreconditionError(
        absl::StrCat("--trainer-user ", options.user,
                     ": only a worker that root runs can start trainers under another account"));
  }
  HEARTH_RETURN_IF_ERROR(self.FindAccount(options.user));
  if (options.gpu) {
    AddDeviceGroups(self.groups_);
  }
  std::sort(self.groups_.begin(), self.groups_.end());
  self.groups_.erase(std::unique(self.groups_.begin(), self.groups_.end()), self.groups_.end());
  self.trainer_home_ = absl::StrCat(options.home, "/trainers/", options.user);
  self.environment_.push_back(absl::StrCat("HEARTH_HOME=", self.trainer_home_));
  return self.HandOver(options);
}

absl::Status Confinement::HandOver(const ConfinementOptions& options) {
  HEARTH_RETURN_IF_ERROR(Annotate(Env::Real().CreateDirs(trainer_home_), "--trainer-user"));
  HEARTH_RETURN_IF_ERROR(GiveFolder(trainer_home_, uid_, gid_));
  HEARTH_RETURN_IF_ERROR(GiveFolder(options.checkpoint_root, uid_, gid_));
  // The jobs in it, to which trainers add the folders of their epochs. What is in those stays: it
  // is read, and the worker removes it.
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          Env::Real().ListDir(options.checkpoint_root));
  for (const std::string& name : names) {
    if (ValidateJobId(name).ok()) {
      HEARTH_RETURN_IF_ERROR(
          GiveFolder(absl::StrCat(options.checkpoint_root, "/", name), uid_, gid_));
    }
  }
  return absl::OkStatus();
}

int Confinement::EnterAccount(const Confinement& self) {
  if (self.user_.empty()) {
    return 0;
  }
  // The system calls themselves: the C library's functions would stop all threads of a process that
  // has one, and take locks.
  if (syscall(SYS_setgroups, self.groups_.size(), self.groups_.data()) != 0 ||
      syscall(SYS_setresgid, self.gid_, self.gid_, self.gid_) != 0 ||
      syscall(SYS_setresuid, self.uid_, self.uid_, self.uid_) != 0) {
    return errno;
  }
  return 0;
}

absl::Status Confinement::PrepareFilter(Confinement& self, const ConfinementOptions& options) {
  if (options.filter_calls) {
    HEARTH_ASSIGN_OR_RETURN(self.filter_, MakeCallFilter());
  }
  return absl::OkStatus();
}

int Confinement::EnterFilter(const Confinement& self) {
  if (self.filter_.empty()) {
    return 0;
  }
  const sock_fprog program = {static_cast<decltype(sock_fprog::len)>(self.filter_.size()),
                              const_cast<sock_filter*>(self.filter_.data())};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? 0 : errno;
}

absl::Status Confinement::Try(const ConfinementOptions& options,
                              const std::vector<std::string>& programs) {
  std::vector<Need> needs;
  for (const std::string& program : programs) {
    needs.push_back({program, X_OK, "run"});
  }
  needs.push_back({options.checkpoint_root, R_OK | W_OK | X_OK, "write checkpoints to"});
  if (!trainer_home_.empty()) {
    needs.push_back({trainer_home_, R_OK | W_OK | X_OK, "write to"});
  }
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  const Fd read_end(fds[0]);
  const Fd write_end(fds[1]);
  // Tried in a child, because what is dropped cannot be taken back. Better refused at the daemon's
  // start than in the first job.
  const pid_t pid = fork();
  if (pid < 0) {
    return absl::ErrnoToStatus(errno, "fork");
  }
  if (pid == 0) {
    TryNeeds(*this, needs, drops_capabilities_, write_end.get());
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kNotConfined;
  const std::string who = user_.empty() ? std::string("trainers") : absl::StrCat("account ", user_);
  if (code == 0) {
    return absl::OkStatus();
  }
  Failure failure;
  if (code == kNotConfined) {
    static_cast<void>(!read(read_end.get(), &failure, sizeof(failure)));
    return absl::FailedPreconditionError(
        absl::StrCat("trainers cannot be confined: ", std::string(MeasureName(failure)), ": ",
                     ErrnoText(failure.error),
                     MeasureName(failure) == "system calls" ? " (--no-trainer-filter)" : ""));
  }
  if (code == kKeptCapabilities) {
    return absl::FailedPreconditionError("trainers cannot be confined: they keep capabilities");
  }
  const Need& need = needs[static_cast<size_t>(code) - 1];
  return absl::PermissionDeniedError(absl::StrCat(
      who, " cannot ", need.what, " ", need.path,
      ": trainers run without capabilities, so the folder and all above it must let ",
      user_.empty() ? "this worker's account" : user_, " in; change their owner or mode, or give ",
      need.path == options.checkpoint_root ? "--checkpoint-root" : "--trainer-user",
      " something else"));
}

}  // namespace hearth::worker
