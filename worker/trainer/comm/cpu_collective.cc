#include "worker/trainer/comm/cpu_collective.h"

#include "common/base/status_macros.h"
#include "worker/trainer/comm/tensor_checks.h"

namespace hearth::trainer {
namespace {

template <typename T>
absl::Span<T> Elements(const kernels::TensorView& data) {
  return absl::Span<T>(data.as<T>(), static_cast<size_t>(data.numel()));
}

}  // namespace

absl::Status CpuCollective::AllReduceSum(const kernels::Exec& exec,
                                         const kernels::TensorView& data) {
  constexpr char kOp[] = "all-reduce";
  HEARTH_RETURN_IF_ERROR(kernels::RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(RequireSummable(exec, data, kOp));
  return data.dtype == kernels::DType::kF64 ? AllReduceSum(Elements<double>(data))
                                            : AllReduceSum(Elements<float>(data));
}

absl::Status CpuCollective::AllReduceMax(const kernels::Exec& exec,
                                         const kernels::TensorView& data) {
  constexpr char kOp[] = "all-reduce (max)";
  HEARTH_RETURN_IF_ERROR(kernels::RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(RequireMaximum(data, kOp));
  return AllReduceMax(Elements<int32_t>(data));
}

absl::Status CpuCollective::ReduceScatterSum(const kernels::Exec& exec,
                                             const kernels::TensorView& data) {
  HEARTH_RETURN_IF_ERROR(RequirePieces(data, world_size(), "reduce-scatter"));
  return AllReduceSum(exec, data);
}

absl::Status CpuCollective::AllGather(const kernels::Exec& exec, const kernels::TensorView& data) {
  constexpr char kOp[] = "all-gather";
  HEARTH_RETURN_IF_ERROR(kernels::RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(RequirePieces(data, world_size(), kOp));
  if (data.numel() == 0) {
    return absl::OkStatus();
  }
  return AllGatherBytes(absl::Span<uint8_t>(data.as<uint8_t>(), data.bytes()));
}

absl::Status CpuCollective::AllToAll(const kernels::Exec& exec,
                                     const kernels::TensorView& send,
                                     const kernels::TensorView& receive) {
  constexpr char kOp[] = "all-to-all";
  HEARTH_RETURN_IF_ERROR(kernels::RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(RequireExchange(send, receive, world_size(), kOp));
  if (send.numel() == 0) {
    return absl::OkStatus();
  }
  return AllToAllBytes(absl::Span<uint8_t>(send.as<uint8_t>(), send.bytes()),
                       absl::Span<uint8_t>(receive.as<uint8_t>(), receive.bytes()));
}

}  // namespace hearth::trainer
