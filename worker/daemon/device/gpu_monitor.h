// The GPU of this worker: found once, sampled each second, judged, and shown in metrics. Sampling
// has a thread of its own, so that a hanging driver stops neither heartbeats nor the supervisor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/nvml/nvml.h"
#include "common/time/clock.h"
#include "hearth/v1/worker.pb.h"
#include "worker/daemon/device/device_check.h"
#include "worker/daemon/device/inventory.h"

namespace hearth::worker {

struct OpenedGpu {
  std::unique_ptr<nvml::Nvml> nvml;  // outlives gpu
  std::unique_ptr<nvml::Gpu> gpu;
  int gpus = 1;  // on this host
};

// Finds the GPU that --device names: "cuda:N", N as nvidia-smi counts, or as CUDA_VISIBLE_DEVICES
// (`visible`, "" = not set) renumbers; or "cuda:GPU-...", a UUID. kInvalidArgument: neither of
// these; kNotFound, kUnavailable: no such GPU, no driver; the text says what to do.
absl::StatusOr<OpenedGpu> OpenGpu(std::string_view device,
                                  const std::string& visible,
                                  const std::string& nvml_library);

// `threads` 0 = an equal share of the host's. kInvalidArgument: threads out of range.
absl::StatusOr<v1::DeviceInfo> MakeGpuDeviceInfo(const OpenedGpu& gpu,
                                                 int threads,
                                                 const HostFacts& facts);

// What the metrics show of the GPU.
struct GpuReading {
  nvml::GpuInfo info;
  std::string driver_version;
  std::string cuda_version;
  nvml::GpuSample sample;  // the last good one
  int64_t xid_errors = 0;  // since the daemon started
  uint64_t last_xid = 0;   // 0 = none since the daemon started
};

// Thread-safe.
class GpuMonitor : public DeviceCheck {
 public:
  struct Options {
    absl::Duration period = absl::Seconds(1);
    // A sample that takes longer means that the driver hangs.
    absl::Duration stall_bound = absl::Seconds(20);
    // How far above the baseline memory may stay after a trainer.
    int64_t memory_slack_bytes = 64 << 20;
  };

  // Takes the first sample itself. `clock` outlives the object.
  GpuMonitor(OpenedGpu gpu, Clock& clock, Options options);
  // Leaves the thread behind if it is stuck in the driver.
  ~GpuMonitor() override;

  // What the last sample found.
  v1::DeviceStatus Status() const;
  GpuReading Reading() const;

  // Why no task should be placed here: the GPU is lost, does not answer, or had an error after
  // which it must be reset. "" = healthy.
  std::string unhealthy_reason() const;

  // The energy counter, read now (the call may take a millisecond). Absent: not supported.
  std::optional<double> EnergyJoules();

  // Waits for a sample taken after `since` (on the clock's Monotonic()), however long it takes.
  void AwaitSample(absl::Duration since);

  std::optional<int64_t> Baseline() override;
  std::optional<std::string> Held(pid_t trainer,
                                  std::optional<int64_t> baseline,
                                  absl::Duration gone) override;

 private:
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace hearth::worker
