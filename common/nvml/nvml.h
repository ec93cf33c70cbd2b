// NVIDIA's management library, loaded at run time: what GPUs this machine has and how they are.
// Nothing here needs CUDA, a header of NVIDIA's or a driver at build time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth::nvml {

// Facts that do not change while the driver is loaded. What the driver does not tell is absent.
struct GpuInfo {
  int index = 0;           // as nvidia-smi counts: by PCI bus id
  std::string name;        // "NVIDIA H200"
  std::string uuid;        // "GPU-8e4a..."
  std::string pci_bus_id;  // "00000000:1B:00.0"
  int compute_major = 0;   // 9 in "9.0"; 0 = not known
  int compute_minor = 0;
  int64_t memory_bytes = 0;
  std::optional<double> power_limit_watts;          // in force when the GPU was opened
  std::optional<double> power_limit_default_watts;  // the factory's
  std::optional<double> sm_clock_max_hertz;
  std::optional<double> memory_clock_max_hertz;
  std::optional<int> pcie_generation_max;  // of GPU and slot together
  std::optional<int> pcie_width_max;       // lanes
  std::optional<bool> persistence;         // the driver stays loaded while nobody uses the GPU
  std::optional<bool> mig;                 // split into instances, which Hearth does not use
};

struct GpuProcess {
  pid_t pid = 0;                      // in the namespace of the driver: of no use in a container
  std::optional<int64_t> used_bytes;  // absent where the driver does not tell
};

// Rows of the memory that were replaced by spare ones.
struct RemappedRows {
  int64_t correctable = 0;    // because of errors that ECC corrected
  int64_t uncorrectable = 0;  // because of errors that it could not correct
  bool pending = false;       // one more is replaced at the next reset
  bool failed = false;        // there was no spare row left: replace the GPU
};

// The present state of a GPU. Absent = the GPU or the driver does not report it.
struct GpuSample {
  std::optional<int64_t> memory_total_bytes;
  // By processes; without the reserved part if that is known.
  std::optional<int64_t> memory_used_bytes;
  std::optional<int64_t> memory_reserved_bytes;  // by driver and firmware
  std::optional<double> power_watts;             // mean over about the last second
  std::optional<double> power_limit_watts;       // in force
  std::optional<double> energy_joules;           // since the driver was loaded
  std::optional<double> utilization_ratio;       // time in which a kernel ran, 0..1
  std::optional<double> memory_utilization_ratio;
  std::optional<double> temperature_celsius;
  std::optional<double> memory_temperature_celsius;
  std::optional<double> sm_clock_hertz;
  std::optional<double> memory_clock_hertz;
  std::optional<uint64_t> throttle_reasons;     // bits; see ThrottleReasonNames
  std::optional<int64_t> ecc_errors;            // uncorrectable, since the driver was loaded
  std::optional<int64_t> ecc_corrected_errors;  // since the driver was loaded
  std::optional<RemappedRows> remapped_rows;    // since the GPU was made
  std::optional<int64_t> pcie_replays;          // packets sent again, since the driver was loaded
  std::optional<int64_t> pcie_sent_bytes;       // by the GPU; the counter may restart at 0
  std::optional<int64_t> pcie_received_bytes;
  std::optional<int> pcie_generation;  // of the link now: idle GPUs lower it
  std::optional<int> pcie_width;       // lanes now
  // Compute and graphics processes, each once. Absent where the driver does not list them; a
  // container sees an empty list, or processes by numbers that mean nothing inside it.
  std::optional<std::vector<GpuProcess>> processes;
  std::vector<uint64_t> xids;  // XID errors since the sample before (by this object), oldest first
};

// Names of the set bits in the order of the bits, "unknown_0x..." for one that has none here.
std::vector<std::string> ThrottleReasonNames(uint64_t reasons);
// Names of the bits that cost speed, that is all but "gpu_idle".
std::vector<std::string> SlowdownNames(uint64_t reasons);
// All names that ThrottleReasonNames knows.
std::vector<std::string> AllThrottleReasons();

// True when the GPU cannot work until it is reset or the machine restarts.
bool IsFatalXid(uint64_t xid);

// One GPU. Thread-safe. Calls may take milliseconds, and may never return when the driver hangs.
class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual const GpuInfo& info() const = 0;
  // kUnavailable: the GPU is lost or must be reset; the text says so.
  virtual absl::StatusOr<GpuSample> Sample() = 0;
  // Only the energy counter. Absent: not supported, or an error.
  virtual std::optional<double> EnergyJoules() = 0;
};

// $HEARTH_NVML_LIBRARY, else "libnvidia-ml.so.1", which the loader looks for.
std::string DefaultLibrary();

// The library, loaded and initialised. Thread-safe. Outlives its Gpu objects.
class Nvml {
 public:
  // kNotFound: there is no such library here (no driver); kUnavailable: it exists but does not work
  // (the text is NVML's own), for example because the kernel module is not loaded or has another
  // version; kUnimplemented: it lacks a function that we need.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);
  virtual ~Nvml() = default;

  virtual const std::string& driver_version() const = 0;  // "580.82.07"
  virtual int cuda_version() const = 0;                   // 13000 for 13.0; 0 = not known
  virtual absl::StatusOr<int> Count() = 0;
  // kNotFound: no such GPU.
  virtual absl::StatusOr<std::unique_ptr<Gpu>> ByIndex(int index) = 0;
  virtual absl::StatusOr<std::unique_ptr<Gpu>> ByUuid(const std::string& uuid) = 0;
};

// "13.0" of 13000, "" of 0.
std::string CudaVersionText(int cuda_version);

}  // namespace hearth::nvml
