#include "worker/daemon/device/gpu_monitor.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/log/log.h"

namespace hearth::worker {
namespace {

constexpr absl::Duration kStopBound = absl::Seconds(2);

// "3" or "GPU-..." after renumbering by CUDA_VISIBLE_DEVICES.
absl::StatusOr<std::string> VisibleGpu(int number, const std::string& visible) {
  const std::vector<std::string> entries = absl::StrSplit(visible, ',');
  if (visible.empty()) {
    return absl::StrCat(number);
  }
  if (static_cast<size_t>(number) >= entries.size()) {
    return absl::NotFoundError(absl::StrCat("--device cuda:", number, ": CUDA_VISIBLE_DEVICES=",
                                            visible, " shows only ", entries.size(), " GPU(s)"));
  }
  return entries[static_cast<size_t>(number)];
}

// Bytes that no process but `trainer` (0 = none) accounts for.
std::optional<int64_t> MemoryNetOfOthers(const nvml::GpuSample& sample, pid_t trainer) {
  if (!sample.memory_used_bytes.has_value()) {
    return std::nullopt;
  }
  int64_t net = *sample.memory_used_bytes;
  for (const nvml::GpuProcess& process :
       sample.processes.value_or(std::vector<nvml::GpuProcess>())) {
    if (process.pid == trainer) {
      continue;
    }
    // Without the share of one process nobody can tell what the others leave.
    if (!process.used_bytes.has_value()) {
      return std::nullopt;
    }
    net -= *process.used_bytes;
  }
  return std::max<int64_t>(net, 0);
}

}  // namespace

absl::StatusOr<OpenedGpu> OpenGpu(std::string_view device,
                                  const std::string& visible,
                                  const std::string& nvml_library) {
  const absl::string_view text(device.data(), device.size());
  absl::string_view which = text;
  int number = 0;
  const bool is_cuda = absl::ConsumePrefix(&which, "cuda:");
  const bool is_number = is_cuda && absl::SimpleAtoi(which, &number) && number >= 0;
  if (!is_number && (!is_cuda || !absl::StartsWith(which, "GPU-"))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", text, ": expected cpu, cuda:N or cuda:GPU-UUID"));
  }
  std::string chosen(which);
  if (is_number) {
    HEARTH_ASSIGN_OR_RETURN(chosen, VisibleGpu(number, visible));
  }
  OpenedGpu out;
  absl::StatusOr<std::unique_ptr<nvml::Nvml>> library = nvml::Nvml::Open(nvml_library);
  if (!library.ok()) {
    return Annotate(library.status(), absl::StrCat("--device ", text));
  }
  out.nvml = *std::move(library);
  HEARTH_ASSIGN_OR_RETURN(out.gpus, out.nvml->Count());
  absl::StatusOr<std::unique_ptr<nvml::Gpu>> gpu =
      absl::SimpleAtoi(chosen, &number) ? out.nvml->ByIndex(number) : out.nvml->ByUuid(chosen);
  if (!gpu.ok()) {
    return Annotate(gpu.status(), absl::StrCat("--device ", text, " (this host has ", out.gpus,
                                               " GPU(s); nvidia-smi -L lists them)"));
  }
  out.gpu = *std::move(gpu);
  if (out.gpu->info().uuid.empty()) {
    return absl::UnavailableError(absl::StrCat("--device ", text, ": the GPU has no UUID"));
  }
  return out;
}

absl::StatusOr<v1::DeviceInfo> MakeGpuDeviceInfo(const OpenedGpu& gpu,
                                                 int threads,
                                                 const HostFacts& facts) {
  HEARTH_RETURN_IF_ERROR(CheckThreads(threads));
  const nvml::GpuInfo& info = gpu.gpu->info();
  v1::DeviceInfo out;
  out.set_kind("cuda");
  out.set_index(info.index);
  out.set_model(info.name);
  out.set_uuid(info.uuid);
  out.set_pci_bus_id(info.pci_bus_id);
  // The driver's own memory is not available: CUDA's total does not count it either.
  HEARTH_ASSIGN_OR_RETURN(const nvml::GpuSample sample, gpu.gpu->Sample());
  out.set_memory_bytes(info.memory_bytes - sample.memory_reserved_bytes.value_or(0));
  out.set_threads(threads > 0 ? threads : std::max(1, facts.threads / std::max(1, gpu.gpus)));
  if (info.compute_major > 0) {
    out.set_compute_capability(absl::StrCat(info.compute_major, ".", info.compute_minor));
  }
  out.set_driver_version(gpu.nvml->driver_version());
  out.set_cuda_version(nvml::CudaVersionText(gpu.nvml->cuda_version()));
  out.set_power_limit_watts(info.power_limit_watts.value_or(0.0));
  out.set_power_limit_default_watts(info.power_limit_default_watts.value_or(0.0));
  out.set_sm_clock_max_hertz(info.sm_clock_max_hertz.value_or(0.0));
  out.set_memory_clock_max_hertz(info.memory_clock_max_hertz.value_or(0.0));
  out.set_host_memory_bytes(facts.memory_bytes);
  return out;
}

// Owned by the object and by its thread, which may outlive the object when the driver hangs.
struct GpuMonitor::Shared {
  Shared(OpenedGpu opened, Clock& its_clock, Options its_options)
      : gpu(std::move(opened)), clock(its_clock), options(its_options) {}

  const OpenedGpu gpu;
  Clock& clock;
  const Options options;

  absl::Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool finished ABSL_GUARDED_BY(mu) = false;
  bool hurry ABSL_GUARDED_BY(mu) = false;  // a caller waits for a sample
  nvml::GpuSample sample ABSL_GUARDED_BY(mu);
  absl::Status status ABSL_GUARDED_BY(mu);  // of the last attempt
  // When the last complete attempt began, and the one under way (infinite future = none).
  absl::Duration sampled ABSL_GUARDED_BY(mu) = -absl::InfiniteDuration();
  absl::Duration began ABSL_GUARDED_BY(mu) = absl::InfiniteDuration();
  int64_t xid_errors ABSL_GUARDED_BY(mu) = 0;
  uint64_t last_xid ABSL_GUARDED_BY(mu) = 0;
  uint64_t fatal_xid ABSL_GUARDED_BY(mu) = 0;

  // On the thread, or before it starts.
  void TakeSample() {
    {
      absl::MutexLock lock(&mu);
      began = clock.Monotonic();
      hurry = false;
    }
    // Without the lock: the driver may hang, and `began` then shows for how long.
    absl::StatusOr<nvml::GpuSample> next = gpu.gpu->Sample();
    absl::MutexLock lock(&mu);
    sampled = std::exchange(began, absl::InfiniteDuration());
    if (next.ok() != status.ok()) {
      HEARTH_LOG_WARNING(
          "{}", next.ok() ? "the GPU answers again" : std::string(next.status().message()));
    }
    status = next.status();
    if (!next.ok()) {
      return;
    }
    for (const uint64_t xid : next->xids) {
      HEARTH_LOG_ERROR("GPU {}: XID {}{}", gpu.gpu->info().uuid, xid,
                       nvml::IsFatalXid(xid) ? ": it must be reset" : "");
      ++xid_errors;
      last_xid = xid;
      fatal_xid = nvml::IsFatalXid(xid) ? xid : fatal_xid;
    }
    sample = *std::move(next);
  }

  std::string Unhealthy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const absl::Duration stalled = clock.Monotonic() - began;
    if (stalled > options.stall_bound) {
      return absl::StrCat("GPU ", gpu.gpu->info().uuid, " has not answered for ",
                          absl::FormatDuration(absl::Trunc(stalled, absl::Seconds(1))),
                          ": the driver hangs; restart the machine");
    }
    if (!status.ok()) {
      return std::string(status.message());
    }
    return fatal_xid == 0 ? ""
                          : absl::StrCat("GPU ", gpu.gpu->info().uuid, " had XID ", fatal_xid,
                                         ": reset it (nvidia-smi --gpu-reset) or restart the "
                                         "machine, then restart this worker");
  }
};

GpuMonitor::GpuMonitor(OpenedGpu gpu, Clock& clock, Options options)
    : shared_(std::make_shared<Shared>(std::move(gpu), clock, options)) {
  shared_->TakeSample();
  thread_ = std::thread([shared = shared_] { Run(shared); });
}

GpuMonitor::~GpuMonitor() {
  Shared& s = *shared_;
  bool finished = false;
  {
    absl::MutexLock lock(&s.mu);
    s.stopping = true;
    s.mu.AwaitWithTimeout(absl::Condition(&s.finished), kStopBound);
    finished = s.finished;
  }
  if (finished) {
    thread_.join();
  } else {
    HEARTH_LOG_ERROR("the thread that samples the GPU is stuck in the driver");
    thread_.detach();
  }
}

void GpuMonitor::Run(const std::shared_ptr<Shared>& shared) {
  prctl(PR_SET_NAME, "gpu");
  Shared& s = *shared;
  const auto due = [&s] {
    s.mu.AssertHeld();
    return s.stopping || s.hurry;
  };
  while (true) {
    {
      absl::MutexLock lock(&s.mu);
      s.clock.AwaitWithTimeout(s.mu, absl::Condition(&due),
                               s.sampled + s.options.period - s.clock.Monotonic());
      if (s.stopping) {
        s.finished = true;
        return;
      }
    }
    s.TakeSample();
  }
}

v1::DeviceStatus GpuMonitor::Status() const {
  Shared& s = *shared_;
  absl::MutexLock lock(&s.mu);
  const nvml::GpuSample& sample = s.sample;
  v1::DeviceStatus out;
  out.set_memory_used_bytes(sample.memory_used_bytes.value_or(0));
  out.set_memory_reserved_bytes(sample.memory_reserved_bytes.value_or(0));
  out.set_power_watts(sample.power_watts.value_or(0.0));
  out.set_power_limit_watts(sample.power_limit_watts.value_or(0.0));
  out.set_energy_joules(sample.energy_joules.value_or(0.0));
  out.set_utilization_ratio(sample.utilization_ratio.value_or(0.0));
  out.set_memory_utilization_ratio(sample.memory_utilization_ratio.value_or(0.0));
  out.set_temperature_celsius(sample.temperature_celsius.value_or(0.0));
  out.set_sm_clock_hertz(sample.sm_clock_hertz.value_or(0.0));
  out.set_memory_clock_hertz(sample.memory_clock_hertz.value_or(0.0));
  for (std::string& name : nvml::ThrottleReasonNames(sample.throttle_reasons.value_or(0))) {
    out.add_throttle_reasons(std::move(name));
  }
  out.set_ecc_errors(sample.ecc_errors.value_or(0));
  out.set_xid_errors(s.xid_errors);
  out.set_last_xid(static_cast<int32_t>(s.last_xid));
  return out;
}

GpuReading GpuMonitor::Reading() const {
  Shared& s = *shared_;
  absl::MutexLock lock(&s.mu);
  return {s.gpu.gpu->info(),
          s.gpu.nvml->driver_version(),
          nvml::CudaVersionText(s.gpu.nvml->cuda_version()),
          s.sample,
          s.xid_errors,
          s.last_xid};
}

std::string GpuMonitor::unhealthy_reason() const {
  absl::MutexLock lock(&shared_->mu);
  return shared_->Unhealthy();
}

std::optional<double> GpuMonitor::EnergyJoules() {
  return shared_->gpu.gpu->EnergyJoules();
}

void GpuMonitor::AwaitSample(absl::Duration since) {
  Shared& s = *shared_;
  const auto taken = [&s, since] {
    s.mu.AssertHeld();
    return s.sampled >= since;
  };
  absl::MutexLock lock(&s.mu);
  s.hurry = true;
  s.mu.Await(absl::Condition(&taken));
}

std::optional<int64_t> GpuMonitor::Baseline() {
  absl::MutexLock lock(&shared_->mu);
  return MemoryNetOfOthers(shared_->sample, 0);
}

std::optional<std::string> GpuMonitor::Held(pid_t trainer,
                                            std::optional<int64_t> baseline,
                                            absl::Duration gone) {
  Shared& s = *shared_;
  absl::MutexLock lock(&s.mu);
  s.hurry = true;  // unless all is well, the next question needs a newer one
  // A sample from before its end says nothing about what it left.
  if (s.sampled < gone) {
    return std::nullopt;
  }
  const std::string uuid = s.gpu.gpu->info().uuid;
  if (!s.status.ok()) {
    return std::string(s.status.message());
  }
  for (const nvml::GpuProcess& process :
       s.sample.processes.value_or(std::vector<nvml::GpuProcess>())) {
    if (process.pid == trainer) {
      return absl::StrCat("GPU ", uuid, " still lists process ", trainer);
    }
  }
  const std::optional<int64_t> net = MemoryNetOfOthers(s.sample, trainer);
  if (baseline.has_value() && net.has_value() && *net > *baseline + s.options.memory_slack_bytes) {
    return absl::StrCat("GPU ", uuid, " has ", FormatBytes(*net - *baseline),
                        " more memory in use than before the task");
  }
  s.hurry = false;
  return "";
}

}  // namespace hearth::worker
