#include "kernels/cuda/util.cuh"
#include "kernels/dropout/dropout.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "dropout";
constexpr int kThreads = 256;
constexpr int kPerThread = 8;  // two Philox blocks

// Eight consecutive elements a thread; the tail and misaligned views element by element, with the
// same words. No __restrict__: y may alias x.
template <typename A>
__global__ void __launch_bounds__(kThreads) DropoutKernel(const A* x,
                                                          const A* residual,
                                                          A* y,
                                                          int64_t count,
                                                          uint64_t first_block,
                                                          RngKey key,
                                                          const StepInputs* position,
                                                          float p,
                                                          float scale,
                                                          bool vectors) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (i >= count) {
    return;
  }
  if (position != nullptr) {
    key.step = static_cast<uint32_t>(position->step);
    key.micro_batch = position->micro_batch;
  }
  const bool whole = vectors && i + kPerThread <= count;
  float in[kPerThread] = {};
  float add[kPerThread] = {};
  if (whole) {
    LoadFloats<kPerThread>(x + i, in);
    if (residual != nullptr) {
      LoadFloats<kPerThread>(residual + i, add);
    }
  } else {
    for (int k = 0; k < kPerThread && i + k < count; ++k) {
      in[k] = ToFloat(x[i + k]);
      add[k] = residual != nullptr ? ToFloat(residual[i + k]) : 0.0F;
    }
  }
  // A Philox block has the words of four elements, whatever the thread: the mask is a function of
  // the element's number alone.
  float out[kPerThread];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto words = RngBlock(key, first_block + static_cast<uint64_t>(i) / 4 + half);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int k = half * 4 + w;
      const bool keep = static_cast<float>(words[w] >> 8) * 0x1p-24F >= p;
      const float kept = keep ? in[k] * scale : 0.0F;
      out[k] = residual != nullptr ? add[k] + kept : kept;
    }
  }
  if (whole) {
    StoreFloats<kPerThread>(y + i, out);
  } else {
    for (int k = 0; k < kPerThread && i + k < count; ++k) {
      y[i + k] = FromFloat<A>(out[k]);
    }
  }
}

template <typename A>
absl::Status Launch(const Exec& exec, const DropoutArgs& args) {
  const int64_t count = args.x.numel();
  if (count == 0) {
    return absl::OkStatus();
  }
  const auto blocks = static_cast<unsigned>(CeilDiv(count, int64_t{kThreads} * kPerThread));
  const bool vectors =
      Aligned16(args.x.data) && Aligned16(args.y.data) && Aligned16(args.residual.data);
  DropoutKernel<A><<<blocks, kThreads, 0, StreamOf(exec)>>>(
      args.x.as<A>(), args.residual.as<A>(), args.y.as<A>(), count, args.first_element / 4,
      args.key, args.position, static_cast<float>(args.p), static_cast<float>(1.0 / (1.0 - args.p)),
      vectors);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace

absl::Status DropoutForward(const Exec& exec, const DropoutArgs& args) {
  return args.x.dtype == DType::kBF16 ? Launch<Bf16>(exec, args) : Launch<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
