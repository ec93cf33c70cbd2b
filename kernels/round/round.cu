#include "absl/strings/str_cat.h"
#include "kernels/cuda/any_dtype.cuh"
#include "kernels/round/round.h"

namespace hearth::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 8;

// y = x, rounded to `to` on the way. No __restrict__: y may alias x, element by element.
__global__ void __launch_bounds__(kThreads) ConvertKernel(
    const void* x, DType x_dtype, void* y, DType y_dtype, DType to, int64_t count, bool packs) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (packs && i + kPerThread <= count) {
    float v[kPerThread];
    LoadAny8(x, x_dtype, i, v);
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      v[k] = RoundAny(v[k], to);
    }
    StoreAny8(y, y_dtype, i, v);
    return;
  }
  for (int64_t k = i; k < count && k < i + kPerThread; ++k) {
    StoreAny(y, y_dtype, k, RoundAny(LoadAny(x, x_dtype, k), to));
  }
}

absl::Status Convert(
    const Exec& exec, const TensorView& x, const TensorView& y, DType to, const char* op) {
  if (!IsAnyDType(x.dtype) || !IsAnyDType(y.dtype)) {
    return absl::UnimplementedError(
        absl::StrCat(op, ": from ", DebugString(x), " to ", DebugString(y), " on a GPU"));
  }
  const int64_t count = x.numel();
  if (count == 0) {
    return absl::OkStatus();
  }
  const auto blocks = static_cast<unsigned>(CeilDiv(count, int64_t{kThreads} * kPerThread));
  ConvertKernel<<<blocks, kThreads, 0, StreamOf(exec)>>>(
      x.data, x.dtype, y.data, y.dtype, to, count, Aligned16(x.data) && Aligned16(y.data));
  return HEARTH_CUDA_LAUNCHED(op);
}

}  // namespace

absl::Status RoundTo(const Exec& exec, const RoundToArgs& args) {
  return Convert(exec, args.x, args.y, args.to, "round");
}

absl::Status Widen(const Exec& exec, const WidenArgs& args) {
  return Convert(exec, args.x, args.y, DType::kF32, "widen");
}

}  // namespace hearth::kernels::cuda
