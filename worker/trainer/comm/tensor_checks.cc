#include "worker/trainer/comm/tensor_checks.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

using kernels::DType;

absl::Status RequireData(const kernels::TensorView& data, const char* op) {
  if (data.empty() && data.numel() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": no tensor is given"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RequireSummable(const kernels::Exec& exec,
                             const kernels::TensorView& data,
                             const char* op) {
  HEARTH_RETURN_IF_ERROR(RequireData(data, op));
  const bool on_gpu = exec.device == kernels::Device::kCuda;
  if (data.dtype == DType::kF32 || data.dtype == DType::kF64 ||
      (on_gpu && data.dtype == DType::kBF16)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": ", kernels::DebugString(data), " cannot be summed on a ",
                   on_gpu ? "GPU: it takes f32, f64 and bf16" : "CPU: it takes f32 and f64"));
}

absl::Status RequireMaximum(const kernels::TensorView& data, const char* op) {
  HEARTH_RETURN_IF_ERROR(RequireData(data, op));
  if (data.dtype == DType::kI32) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": ", kernels::DebugString(data), " is not i32"));
}

absl::Status RequirePieces(const kernels::TensorView& data, int world_size, const char* op) {
  HEARTH_RETURN_IF_ERROR(RequireData(data, op));
  const int64_t piece = data.numel() / world_size;
  if (data.numel() % world_size == 0 && piece * kernels::DTypeBits(data.dtype) % 8 == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(op, ": ", kernels::DebugString(data),
                                                 " does not divide into ", world_size, " pieces"));
}

absl::Status RequireExchange(const kernels::TensorView& send,
                             const kernels::TensorView& receive,
                             int world_size,
                             const char* op) {
  HEARTH_RETURN_IF_ERROR(RequirePieces(send, world_size, op));
  HEARTH_RETURN_IF_ERROR(RequirePieces(receive, world_size, op));
  if (send.dtype == receive.dtype && send.numel() == receive.numel()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(op, ": ", kernels::DebugString(send),
                                                 " is sent and ", kernels::DebugString(receive),
                                                 " received"));
}

}  // namespace hearth::trainer
