#include <algorithm>

#include "kernels/cuda/any_dtype.cuh"
#include "kernels/sum_parts/sum_parts.h"

namespace hearth::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 8;

struct Parts {
  const void* data[kMaxSumParts];
  int count;
};

// No __restrict__: `out` may be a part, element by element.
__global__ void __launch_bounds__(kThreads)
    SumPartsKernel(Parts parts, void* out, DType dtype, int64_t count, bool packs) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (packs && i + kPerThread <= count) {
    float sum[kPerThread];
    LoadAny8(parts.data[0], dtype, i, sum);
    for (int p = 1; p < parts.count; ++p) {
      float v[kPerThread];
      LoadAny8(parts.data[p], dtype, i, v);
#pragma unroll
      for (int k = 0; k < kPerThread; ++k) {
        sum[k] += v[k];
      }
    }
    StoreAny8(out, dtype, i, sum);
    return;
  }
  for (int64_t k = i; k < count && k < i + kPerThread; ++k) {
    float sum = LoadAny(parts.data[0], dtype, k);
    for (int p = 1; p < parts.count; ++p) {
      sum += LoadAny(parts.data[p], dtype, k);
    }
    StoreAny(out, dtype, k, sum);
  }
}

}  // namespace

absl::Status SumParts(const Exec& exec, const SumPartsArgs& args) {
  const int64_t count = args.out.numel();
  if (count == 0) {
    return absl::OkStatus();
  }
  Parts parts = {};
  parts.count = static_cast<int>(args.parts.size());
  bool packs = Aligned16(args.out.data);
  for (size_t p = 0; p < args.parts.size(); ++p) {
    parts.data[p] = args.parts[p].data;
    packs = packs && Aligned16(args.parts[p].data);
  }
  const auto blocks = static_cast<unsigned>(CeilDiv(count, int64_t{kThreads} * kPerThread));
  SumPartsKernel<<<blocks, kThreads, 0, StreamOf(exec)>>>(parts, args.out.data, args.out.dtype,
                                                          count, packs);
  return HEARTH_CUDA_LAUNCHED("sum_parts");
}

}  // namespace hearth::kernels::cuda
