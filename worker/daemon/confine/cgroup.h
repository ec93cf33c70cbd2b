// A control group (cgroup v2) that bounds what the trainers of a worker take from their machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/daemon/supervise/child_process.h"

namespace hearth::worker {

// 0 = no limit.
struct CgroupLimits {
  int64_t memory_bytes = 0;
  int64_t processes = 0;  // threads count too
  double cpus = 0;        // processors' worth of time

  bool any() const { return memory_bytes > 0 || processes > 0 || cpus > 0; }
};

// The folder of the cgroup that a process is in, from its /proc/PID/cgroup and the machine's
// /proc/self/mountinfo. kFailedPrecondition: cgroup v2 is not mounted.
absl::StatusOr<std::string> FindCgroup(std::string_view proc_cgroup, std::string_view mountinfo);

// Limits of one worker's trainers. The folder is removed with the object, once it is empty.
class Cgroup {
 public:
  Cgroup() = default;
  ~Cgroup();
  Cgroup(Cgroup&& other) noexcept;
  Cgroup& operator=(Cgroup&& other) noexcept;
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  // Makes BASE/trainers-NAME with these limits, where BASE is the cgroup of this process. For that
  // this process moves to BASE/daemon: only a group without processes may divide what it has.
  // kFailedPrecondition: BASE lacks a controller or is not delegated to us; the text says what to
  // do.
  static absl::StatusOr<Cgroup> Make(const std::string& base,
                                     const std::string& name,
                                     const CgroupLimits& limits);

  // Writing "0" to it moves the writer in; -1 = there is no group.
  int procs_fd() const { return procs_.get(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Fd procs_;
};

}  // namespace hearth::worker
