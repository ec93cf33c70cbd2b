#include <cmath>

#include "kernels/cuda/util.cuh"
#include "kernels/moving_average/moving_average.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "moving_average";
constexpr int kThreads = 256;
constexpr int kPerThread = 8;

struct Rate {
  float part;       // 1 - decay
  float log_decay;  // < 0
  int64_t step;     // without inputs
  const StepInputs* inputs;
  const int32_t* skip;
};

// A recorded graph reads step and verdict from the device, so that it fits every step.
__device__ __forceinline__ float RateNow(const Rate& rate) {
  // (1 - decay) / (1 - decay^step), which is 1 at the first step: the zeros that the average began
  // with never count. By expm1, as 1 - decay^step cancels where decay is close to 1.
  const int64_t step = rate.inputs != nullptr ? rate.inputs->step : rate.step;
  return __fdiv_rn(rate.part, -expm1f(__fmul_rn(static_cast<float>(step), rate.log_decay)));
}

template <typename X>
__global__ void __launch_bounds__(kThreads) AverageKernel(
    const X* __restrict__ x, float* __restrict__ y, Rate rate, int64_t count, bool packs) {
  if (rate.skip != nullptr && *rate.skip != 0) {
    return;
  }
  const float part = RateNow(rate);
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (packs && i + kPerThread <= count) {
    float now[kPerThread];
    float mean[kPerThread];
    LoadFloats(x + i, now);
    LoadFloats(y + i, mean);
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      mean[k] = __fmaf_rn(part, __fsub_rn(now[k], mean[k]), mean[k]);
    }
    StoreFloats(y + i, mean);
    return;
  }
  for (int64_t k = i; k < count && k < i + kPerThread; ++k) {
    y[k] = __fmaf_rn(part, __fsub_rn(ToFloat(x[k]), y[k]), y[k]);
  }
}

template <typename X>
absl::Status Launch(const Exec& exec, const MovingAverageArgs& args) {
  const int64_t count = args.y.numel();
  if (count == 0) {
    return absl::OkStatus();
  }
  const Rate rate = {static_cast<float>(1.0 - args.decay), static_cast<float>(std::log(args.decay)),
                     args.step, args.inputs, args.skip};
  const auto blocks = static_cast<unsigned>(CeilDiv(count, int64_t{kThreads} * kPerThread));
  AverageKernel<X>
      <<<blocks, kThreads, 0, StreamOf(exec)>>>(args.x.as<X>(), args.y.as<float>(), rate, count,
                                                Aligned16(args.x.data) && Aligned16(args.y.data));
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace

absl::Status MovingAverage(const Exec& exec, const MovingAverageArgs& args) {
  return args.x.dtype == DType::kBF16 ? Launch<Bf16>(exec, args) : Launch<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
