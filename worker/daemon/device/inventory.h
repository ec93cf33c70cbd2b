// What this host and its device are, from /proc. Linux only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "hearth/v1/worker.pb.h"
#include "worker/daemon/supervise/child_process.h"

namespace hearth::worker {

struct HostFacts {
  std::string host;          // gethostname, up to the first dot
  std::string cpu_model;     // "unknown CPU" when /proc does not tell
  int64_t memory_bytes = 0;  // installed, or the control group's limit when that is less
  int threads = 1;           // hardware threads that this process may use
};
HostFacts ReadHostFacts();

// "model name" (x86) of /proc/cpuinfo's text, or "".
std::string ParseCpuModel(std::string_view cpuinfo);

// Bytes of `key` ("MemTotal") in /proc/meminfo's text, 0 = absent.
int64_t ParseMeminfo(std::string_view meminfo, std::string_view key);

// kInvalidArgument: not 0..4096.
absl::Status CheckThreads(int threads);

// For --device cpu and --threads (0 = all); gpu_monitor.h has what cuda needs. kInvalidArgument:
// not a device, threads out of range.
absl::StatusOr<v1::DeviceInfo> MakeDeviceInfo(std::string_view device,
                                              int threads,
                                              const HostFacts& facts);

// A number K, the least free one on this host, that no other daemon with the same `run_dir` holds
// while this object lives; the kernel frees it when the process ends, however it ends.
class DaemonIndex {
 public:
  // Locks <run_dir>/<kind>K.lock. kResourceExhausted: all of 0..1023 are taken.
  static absl::StatusOr<DaemonIndex> Claim(const std::string& run_dir, std::string_view kind);
  // Locks <run_dir>/gpu-<uuid>.lock for daemon `index`. kAlreadyExists: another daemon has it.
  static absl::StatusOr<DaemonIndex> ClaimGpu(const std::string& run_dir,
                                              const std::string& uuid,
                                              int index);
  int index() const { return index_; }

 private:
  DaemonIndex(int index, Fd lock) : index_(index), lock_(std::move(lock)) {}
  int index_;
  Fd lock_;
};

// Memory and processor time of a trainer, between two looks.
class UsageSampler {
 public:
  struct Usage {
    int64_t resident_bytes = 0;
    // Share of `threads` processors since the last look at the same process, 0..1.
    double utilization_ratio = 0.0;
    double cpu_seconds_total = 0.0;  // of all processes looked at so far; never falls
  };
  // `pid` 0 = none runs. `elapsed_seconds`: since the last look.
  Usage Look(pid_t pid, double elapsed_seconds, int threads);

 private:
  pid_t pid_ = 0;
  double cpu_seconds_ = 0.0;
  double total_ = 0.0;
};

// Address of this host as seen from `coordinator` ("host:port"): the source address the kernel
// would use. 127.0.0.1 when that cannot be told.
std::string SourceAddressTowards(const std::string& coordinator);

}  // namespace hearth::worker
