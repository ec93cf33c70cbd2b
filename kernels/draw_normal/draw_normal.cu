#include "kernels/core/normal_pair.h"
#include "kernels/cuda/util.cuh"
#include "kernels/draw_normal/draw_normal.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "draw_normal";
constexpr int kThreads = 256;
constexpr int kPerThread = 4;  // a Philox block

// A thread has the elements of one block that are in [first, first + count).
template <typename A>
__global__ void __launch_bounds__(kThreads) DrawKernel(
    A* y, uint64_t first, uint64_t count, uint64_t end, RngKey key, double mean, double stddev) {
  const uint64_t block =
      first / kPerThread + static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const uint64_t begin = block * kPerThread;
  if (begin >= first + count) {
    return;
  }
  double normals[kPerThread] = {};
  if (stddev != 0.0 && begin < end) {
    const auto words = RngBlock(key, block);
#pragma unroll
    for (int k = 0; k < kPerThread; k += 2) {
      const NormalPair pair = MakeNormalPair(words[k], words[k + 1]);
      normals[k] = pair.first;
      normals[k + 1] = pair.second;
    }
  }
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const uint64_t element = begin + k;
    if (element >= first && element < first + count) {
      const double value = element < end ? Ieee::Add(mean, Ieee::Mul(stddev, normals[k])) : 0.0;
      y[element - first] = FromFloat<A>(__double2float_rn(value));
    }
  }
}

template <typename A>
absl::Status Launch(const Exec& exec, const DrawNormalArgs& args) {
  const int64_t count = args.y.numel();
  if (count == 0) {
    return absl::OkStatus();
  }
  // One block more where the first element is inside of one.
  const auto blocks =
      static_cast<unsigned>(CeilDiv(count + kPerThread - 1, int64_t{kThreads} * kPerThread));
  DrawKernel<A><<<blocks, kThreads, 0, StreamOf(exec)>>>(args.y.as<A>(), args.first_element,
                                                         static_cast<uint64_t>(count), args.end,
                                                         args.key, args.mean, args.stddev);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace

absl::Status DrawNormal(const Exec& exec, const DrawNormalArgs& args) {
  return args.y.dtype == DType::kBF16 ? Launch<Bf16>(exec, args) : Launch<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
