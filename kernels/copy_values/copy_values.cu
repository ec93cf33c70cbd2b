#include "kernels/copy_values/copy_values.h"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "copy_values";
constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // words on their way, of each thread

// A block's words lie together; a warp's loads are neighbours.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    CopyKernel(const Word* __restrict__ x, Word* __restrict__ y, int64_t count) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kAtOnce) + threadIdx.x;
  if (first + (kAtOnce - 1) * kThreads < count) {
    Word words[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      words[k] = x[first + k * kThreads];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      y[first + k * kThreads] = words[k];
    }
    return;
  }
  for (int64_t i = first; i < count; i += kThreads) {
    y[i] = x[i];
  }
}

template <typename Word>
absl::Status Launch(const Exec& exec, const CopyValuesArgs& args, int64_t bytes) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(Word));
  const auto blocks = static_cast<unsigned>(CeilDiv(count, int64_t{kThreads} * kAtOnce));
  CopyKernel<<<blocks, kThreads, 0, StreamOf(exec)>>>(static_cast<const Word*>(args.x.data),
                                                      static_cast<Word*>(args.y.data), count);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace

absl::Status CopyValues(const Exec& exec, const CopyValuesArgs& args) {
  const auto bytes = static_cast<int64_t>(DTypeBytes(args.x.dtype, args.x.numel()));
  if (bytes == 0) {
    return absl::OkStatus();
  }
  if (bytes % 16 == 0 && Aligned16(args.x.data) && Aligned16(args.y.data)) {
    return Launch<uint4>(exec, args, bytes);
  }
  return args.x.dtype == DType::kBF16 ? Launch<uint16_t>(exec, args, bytes)
                                      : Launch<uint32_t>(exec, args, bytes);
}

}  // namespace hearth::kernels::cuda
