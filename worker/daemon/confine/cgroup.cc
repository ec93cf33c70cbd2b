#include "worker/daemon/confine/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/io/env.h"

namespace hearth::worker {
namespace {

constexpr int64_t kPeriodUs = 100000;  // in which a group gets its share of the processors

// A limit: the controller that keeps it, its file and what is written there.
struct LimitFile {
  const char* controller;
  const char* file;
  std::string value;  // empty = no limit
};

std::vector<LimitFile> LimitFiles(const CgroupLimits& limits) {
  return {
      {"memory", "memory.max",
       limits.memory_bytes > 0 ? absl::StrCat(limits.memory_bytes) : std::string()},
      {"pids", "pids.max", limits.processes > 0 ? absl::StrCat(limits.processes) : std::string()},
      {"cpu", "cpu.max",
       limits.cpus > 0 ? absl::StrCat(std::llround(limits.cpus * kPeriodUs), " ", kPeriodUs)
                       : std::string()},
  };
}

absl::Status Refuse(const std::string& base, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(
      "limits of trainers (--trainer-memory, --trainer-pids, --trainer-cpus) need a delegated "
      "cgroup v2: ",
      base, base.empty() ? "" : ": ", why));
}

absl::Status Write(const std::string& path, const std::string& text) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write \"", text, "\" to ", path));
  }
  return absl::OkStatus();
}

absl::Status MakeGroup(const std::string& path) {
  return mkdir(path.c_str(), 0755) == 0 || errno == EEXIST
             ? absl::OkStatus()
             : absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
}

// Moves this process out of `base`, and has `base` hand the controllers on.
absl::Status HandOn(const std::string& base, const std::vector<std::string>& controllers) {
  HEARTH_RETURN_IF_ERROR(MakeGroup(base + "/daemon"));
  HEARTH_RETURN_IF_ERROR(Write(base + "/daemon/cgroup.procs", absl::StrCat(getpid())));
  return Write(base + "/cgroup.subtree_control",
               absl::StrCat("+", absl::StrJoin(controllers, " +")));
}

}  // namespace

absl::StatusOr<std::string> FindCgroup(std::string_view proc_cgroup, std::string_view mountinfo) {
  const absl::string_view groups(proc_cgroup.data(), proc_cgroup.size());
  std::string path;
  for (absl::string_view line : absl::StrSplit(groups, '\n')) {
    if (absl::ConsumePrefix(&line, "0::/")) {
      path = std::string(line);
    }
  }
  const absl::string_view mounts(mountinfo.data(), mountinfo.size());
  for (const absl::string_view line : absl::StrSplit(mounts, '\n')) {
    // "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() > 4 && fields.end() - dash > 1 && *(dash + 1) == "cgroup2") {
      return absl::StrCat(fields[4], path.empty() ? "" : "/", path);
    }
  }
  return Refuse("", "it is not mounted");
}

Cgroup::~Cgroup() {
  procs_.Reset();
  if (!path_.empty()) {
    rmdir(path_.c_str());
  }
}

Cgroup::Cgroup(Cgroup&& other) noexcept
    : path_(std::exchange(other.path_, {})), procs_(std::move(other.procs_)) {}

Cgroup& Cgroup::operator=(Cgroup&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(procs_, other.procs_);
  return *this;
}

absl::StatusOr<Cgroup> Cgroup::Make(const std::string& base,
                                    const std::string& name,
                                    const CgroupLimits& limits) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text,
                          Env::Real().ReadFile(base + "/cgroup.controllers"));
  const std::vector<std::string> has =
      absl::StrSplit(absl::StripAsciiWhitespace(text), ' ', absl::SkipEmpty());
  std::vector<std::string> wanted;
  for (const LimitFile& limit : LimitFiles(limits)) {
    if (limit.value.empty()) {
      continue;
    }
    wanted.emplace_back(limit.controller);
    if (std::find(has.begin(), has.end(), limit.controller) == has.end()) {
      return Refuse(base, absl::StrCat("it has no controller ", limit.controller,
                                       " (it has: ", has.empty() ? "none" : absl::StrJoin(has, " "),
                                       "); with systemd, set Delegate=yes in the worker's unit"));
    }
  }
  // Controllers can be handed to children only by a group without processes of its own, so the
  // daemon moves into a child first.
  if (const absl::Status handed = HandOn(base, wanted); !handed.ok()) {
    return Refuse(base, absl::StrCat(std::string(handed.message()),
                                     "; start the worker in a cgroup of its own that is delegated "
                                     "to it (systemd: Delegate=yes)"));
  }
  Cgroup made;
  const std::string path = absl::StrCat(base, "/trainers-", name);
  HEARTH_RETURN_IF_ERROR(MakeGroup(path));
  made.path_ = path;
  for (const LimitFile& limit : LimitFiles(limits)) {
    if (!limit.value.empty()) {
      HEARTH_RETURN_IF_ERROR(Write(absl::StrCat(path, "/", limit.file), limit.value));
    }
  }
  // Opened now: a child that has dropped its rights joins through this descriptor.
  made.procs_ = Fd(open((path + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  if (!made.procs_.valid()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path, "/cgroup.procs"));
  }
  return made;
}

}  // namespace hearth::worker
