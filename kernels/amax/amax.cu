#include <algorithm>

#include "kernels/amax/amax.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/quant_tile.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "amax";
constexpr int kThreads = 256;
constexpr int kPacks = 4;  // loads in flight

// *amax is 0 before.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    AmaxKernel(const A* x, int64_t count, bool packs, float* amax) {
  __shared__ uint32_t scratch[32];
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t whole = packs ? count / 8 : 0;
  uint32_t bits = 0;
  for (int64_t i = thread; i < whole; i += threads * kPacks) {
    Raw8<A> raw[kPacks] = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (i + k * threads < whole) {
        raw[k] = LoadRaw8(x + (i + k * threads) * 8);
      }
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float v[8];
      Unpack(raw[k], v);
      bits = RaiseMagnitude(bits, v);
    }
  }
  for (int64_t i = whole * 8 + thread; i < count; i += threads) {
    bits = RaiseMagnitude(bits, ToFloat(x[i]));
  }
  RaiseAmaxOfBlock(amax, bits, scratch);
}

template <typename A>
absl::Status Launch(const Exec& exec, const AmaxArgs& args) {
  HEARTH_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(args.amax, 0, sizeof(float), StreamOf(exec)));
  const int64_t count = args.x.numel();
  if (count == 0) {
    return absl::OkStatus();
  }
  const int64_t blocks = std::min<int64_t>(CeilDiv(count, int64_t{kThreads} * kPacks * 8),
                                           int64_t{8} * exec.cuda->gpu().multiprocessors);
  AmaxKernel<A><<<static_cast<unsigned>(blocks), kThreads, 0, StreamOf(exec)>>>(
      args.x.as<A>(), count, Aligned16(args.x.data), args.amax);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace

absl::Status Amax(const Exec& exec, const AmaxArgs& args) {
  return args.x.dtype == DType::kBF16 ? Launch<Bf16>(exec, args) : Launch<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
