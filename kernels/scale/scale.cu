#include "kernels/cuda/util.cuh"
#include "kernels/scale/scale.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "scale";
constexpr int kThreads = 256;
constexpr int kPerThread = 8;

// y is not read if beta is 0. No __restrict__: y may alias x.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    ScaleKernel(const A* x, A* y, float alpha, float beta, int64_t count, bool packs) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (packs && i + kPerThread <= count) {
    float v[kPerThread];
    float old[kPerThread] = {};
    LoadFloats(x + i, v);
    if (beta != 0.0F) {
      LoadFloats(y + i, old);
    }
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      v[k] = beta != 0.0F ? alpha * v[k] + beta * old[k] : alpha * v[k];
    }
    StoreFloats(y + i, v);
    return;
  }
  for (int64_t k = i; k < count && k < i + kPerThread; ++k) {
    const float v = alpha * ToFloat(x[k]);
    y[k] = FromFloat<A>(beta != 0.0F ? v + beta * ToFloat(y[k]) : v);
  }
}

template <typename A>
absl::Status Launch(const Exec& exec, const ScaleArgs& args) {
  const int64_t count = args.x.numel();
  if (count == 0) {
    return absl::OkStatus();
  }
  const auto blocks = static_cast<unsigned>(CeilDiv(count, int64_t{kThreads} * kPerThread));
  ScaleKernel<A><<<blocks, kThreads, 0, StreamOf(exec)>>>(
      args.x.as<A>(), args.y.as<A>(), static_cast<float>(args.alpha), static_cast<float>(args.beta),
      count, Aligned16(args.x.data) && Aligned16(args.y.data));
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace

absl::Status Scale(const Exec& exec, const ScaleArgs& args) {
  return args.x.dtype == DType::kBF16 ? Launch<Bf16>(exec, args) : Launch<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
