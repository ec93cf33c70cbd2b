#include "worker/trainer/device/rank_device.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/io/available_memory.h"
#include "common/spec/gpus/gpus.h"
#include "kernels/cuda/device.h"

namespace hearth::trainer {
namespace {

constexpr char kTooSmallMark[] = "hearth/device_too_small";
constexpr int64_t kNoLimit = int64_t{1} << 60;

// A line of /proc/meminfo, in bytes; nothing: there is no such line.
std::optional<int64_t> MemInfoBytes(std::string_view line) {
  std::ifstream meminfo("/proc/meminfo");
  std::string text;
  while (std::getline(meminfo, text)) {
    std::istringstream words(text);
    std::string key;
    int64_t kibibytes = 0;
    if (words >> key >> kibibytes && key == line) {
      return kibibytes * 1024;
    }
  }
  return std::nullopt;
}

// HEARTH_MEMORY_BYTES; nothing: it is not set, or is no number of bytes.
std::optional<int64_t> GivenBytes() {
  int64_t given = 0;
  const char* const text = GetEnv("HEARTH_MEMORY_BYTES");
  return text != nullptr && absl::SimpleAtoi(text, &given) && given > 0
             ? std::optional<int64_t>(given)
             : std::nullopt;
}

int64_t CappedGpuBytes(int64_t bytes, int world_size) {
  const std::optional<int64_t> given = GivenBytes();
  return given.has_value() ? std::min(bytes, spec::PlannableBytes("cuda", *given, world_size))
                           : bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::CudaContext>> OpenGpu(
    std::string_view device, bool deterministic, const std::optional<TunedPlanPaths>& plans) {
  kernels::CudaOptions options;
  const absl::string_view name(device.data(), device.size());
  if (name != "cuda" &&
      (!absl::StartsWith(name, "cuda:") || !absl::SimpleAtoi(name.substr(5), &options.ordinal))) {
    return absl::InvalidArgumentError(
        absl::StrCat("device \"", name, "\": must be cpu, cuda or cuda:N"));
  }
  options.deterministic = deterministic;
  TunedPlanPaths files;
  if (plans.has_value()) {
    files = *plans;
  } else {
    HEARTH_ASSIGN_OR_RETURN(files, FindTunedPlanPaths());
  }
  options.plan_cache = files.own;
  options.shipped_plans = files.shipped;
  options.tuning_seconds = files.tuning_seconds;
  return kernels::CudaContext::Open(options);
}

absl::StatusOr<int64_t> GpuMemoryBytes(kernels::CudaContext& context, int world_size) {
  int64_t free = 0;
  int64_t total = 0;
  HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(context, free, total));
  return CappedGpuBytes(spec::PlannableBytesNow(total, free, world_size), world_size);
}

absl::StatusOr<int64_t> WholeMemoryBytes(kernels::CudaContext* context, int world_size) {
  if (context == nullptr) {
    if (const std::optional<int64_t> given = GivenBytes(); given.has_value()) {
      return *given;
    }
    return MemInfoBytes("MemTotal:").value_or(kNoLimit) + MemInfoBytes("SwapTotal:").value_or(0);
  }
  int64_t free = 0;
  int64_t total = 0;
  HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(*context, free, total));
  return CappedGpuBytes(spec::PlannableBytes("cuda", total, world_size), world_size);
}

int64_t HostMemoryBytes(Env& env, int world_size) {
  return AvailableMemory(env) / std::clamp(world_size, 1, std::max(1, kernels::GpuCount()));
}

absl::Status DeviceTooSmallError(const std::string& text) {
  absl::Status status = absl::ResourceExhaustedError(text);
  status.SetPayload(kTooSmallMark, absl::Cord());
  return status;
}

bool IsDeviceTooSmall(const absl::Status& status) {
  return status.GetPayload(kTooSmallMark).has_value();
}

int64_t CpuMemoryBytes(int ranks) {
  if (const std::optional<int64_t> given = GivenBytes(); given.has_value()) {
    return *given;
  }
  const std::optional<int64_t> available = MemInfoBytes("MemAvailable:");
  // All ranks of a job may run on this machine, so each plans with its share.
  return available.has_value() ? *available / 2 / std::max(1, ranks) : int64_t{1} << 30;
}

}  // namespace hearth::trainer
