#include <algorithm>

#include "kernels/count_codes/count_codes.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "count_codes";
constexpr int kThreads = 256;

__device__ __forceinline__ void CountByte(uint32_t byte,
                                          uint32_t largest,
                                          uint32_t& zeros,
                                          uint32_t& saturated) {
  const uint32_t magnitude = byte & 0x7fU;
  zeros += magnitude == 0 ? 1 : 0;
  saturated += magnitude >= largest ? 1 : 0;
}

// counts are 0 before. Sums of integers: the order of the atomics changes nothing.
__global__ void __launch_bounds__(kThreads) CountKernel(
    const uint8_t* x, int64_t count, bool packs, uint32_t largest, unsigned long long* counts) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t whole = packs ? count / 16 : 0;
  uint32_t zeros = 0;
  uint32_t saturated = 0;
  for (int64_t i = thread; i < whole; i += threads) {
    const uint4 pack = reinterpret_cast<const uint4*>(x)[i];
    const uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        CountByte(words[w] >> (8 * b), largest, zeros, saturated);
      }
    }
  }
  for (int64_t i = whole * 16 + thread; i < count; i += threads) {
    CountByte(x[i], largest, zeros, saturated);
  }
  zeros = __reduce_add_sync(0xffffffffU, zeros);
  saturated = __reduce_add_sync(0xffffffffU, saturated);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(counts, static_cast<unsigned long long>(zeros));
    atomicAdd(counts + 1, static_cast<unsigned long long>(saturated));
  }
}

}  // namespace

absl::Status CountCodes(const Exec& exec, const CountCodesArgs& args) {
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(args.counts, 0, 2 * sizeof(uint64_t), StreamOf(exec)));
  const int64_t count = args.x.numel();
  if (count == 0) {
    return absl::OkStatus();
  }
  const int64_t blocks = std::min<int64_t>(CeilDiv(count, int64_t{kThreads} * 16),
                                           int64_t{8} * exec.cuda->gpu().multiprocessors);
  CountKernel<<<static_cast<unsigned>(blocks), kThreads, 0, StreamOf(exec)>>>(
      args.x.as<uint8_t>(), count, Aligned16(args.x.data), LargestCode(args.x.dtype),
      reinterpret_cast<unsigned long long*>(args.counts));
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace hearth::kernels::cuda
