#include "kernels/cuda/pointwise.cuh"
#include "kernels/cuda/sigmoid.cuh"
#include "kernels/gelu/gelu.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "gelu";
constexpr float kSqrtHalf = 0.70710678118654752440F;
constexpr float kInvSqrtTwoPi = 0.39894228040143267794F;
// tanh(k (u + c u^3)) = 2 sigmoid(2 k (u + c u^3)) - 1.
constexpr float kTwiceK = 2.0F * 0.79788456080286535588F;
constexpr float kCubic = 0.044715F;

// The normal distribution at u, and e^(-u^2 / 2). For bf16 by Abramowitz and Stegun 7.1.26 on the
// side of the tail: absolute error below 3e-7, relative below 2^-9 for u > -5.
struct Normal {
  float below;
  float exponential;
};
__device__ __forceinline__ Normal FastNormal(float u) {
  const float t = __fdividef(1.0F, fmaf(0.3275911F * kSqrtHalf, fabsf(u), 1.0F));
  const float e = __expf(-0.5F * u * u);
  float sum = fmaf(t, 0.5F * 1.061405429F, 0.5F * -1.453152027F);
  sum = fmaf(t, sum, 0.5F * 1.421413741F);
  sum = fmaf(t, sum, 0.5F * -0.284496736F);
  sum = fmaf(t, sum, 0.5F * 0.254829592F);
  const float tail = t * sum * e;
  return {u < 0.0F ? tail : 1.0F - tail, e};
}

template <typename A, bool kErf>
__device__ __forceinline__ float Value(float u) {
  if constexpr (kErf) {
    if constexpr (sizeof(A) == 2) {
      return u * FastNormal(u).below;
    }
    return 0.5F * u * (1.0F + erff(u * kSqrtHalf));
  }
  return u * SigmoidFor<A>(kTwiceK * (u + kCubic * u * u * u));
}

template <typename A, bool kErf>
__device__ __forceinline__ float Slope(float u) {
  if constexpr (kErf) {
    if constexpr (sizeof(A) == 2) {
      const Normal normal = FastNormal(u);
      return fmaf(u * kInvSqrtTwoPi, normal.exponential, normal.below);
    }
    return 0.5F * (1.0F + erff(u * kSqrtHalf)) + u * (kInvSqrtTwoPi * expf(-0.5F * u * u));
  }
  const float s = SigmoidFor<A>(kTwiceK * (u + kCubic * u * u * u));
  return s + u * s * (1.0F - s) * kTwiceK * (1.0F + 3.0F * kCubic * u * u);
}

template <typename A, bool kErf, KeptUse kUse>
struct ForwardOp {
  static constexpr bool kBias = true;
  static constexpr KeptUse kKept = kUse;
  static constexpr int kExtra = 0;
  static constexpr int kKeptInputs = 1;
  static constexpr int kInputs = 1;
  static constexpr int kOutputs = 1;
  static constexpr int kBatch = 2;
  static constexpr int kBlocks = 4;
  static constexpr bool kQuantisedAlone = false;
  const A* x;
  const A* bias;
  int64_t cols;
  KeptInput kept;

  __device__ __forceinline__ const A* Input(int, int64_t row, int64_t col) const {
    return x + row * cols + col;
  }
  __device__ __forceinline__ void Apply(const float (&in)[1], float b, float (&out)[1]) const {
    out[0] = Value<A, kErf>(in[0] + b);
  }
};

template <typename A, bool kErf, KeptUse kUse>
struct BackwardOp {
  static constexpr bool kBias = true;
  static constexpr KeptUse kKept = kUse;
  static constexpr int kExtra = 0;
  static constexpr int kKeptInputs = 1;
  static constexpr int kInputs = 2;  // x, dy
  static constexpr int kOutputs = 1;
  static constexpr int kBatch = sizeof(A) == 2 ? 2 : 1;
  static constexpr int kBlocks = 4;
  static constexpr bool kQuantisedAlone = false;
  const A* x;
  const A* bias;
  const A* dy;
  int64_t cols;
  KeptInput kept;

  __device__ __forceinline__ const A* Input(int i, int64_t row, int64_t col) const {
    return (i == 0 ? x : dy) + row * cols + col;
  }
  __device__ __forceinline__ void Apply(const float (&in)[2], float b, float (&out)[1]) const {
    out[0] = in[1] * Slope<A, kErf>(in[0] + b);
  }
};

template <typename A, bool kErf>
absl::Status Forward(const Exec& exec, const GeluForwardArgs& args) {
  const int64_t cols = args.x.cols();
  return WithKept<A>(args.keep, args.kept, [&](auto use, const KeptInput& kept) {
    const ForwardOp<A, kErf, decltype(use)::value> op{args.x.as<A>(), args.bias.as<A>(), cols,
                                                      kept};
    return Pointwise<A>(exec, kOp, op, Aligned16(args.x.data), args.y, args.y_quant, args.y_blocks,
                        args.x.rows(), cols);
  });
}
template <typename A>
absl::Status Forward(const Exec& exec, const GeluForwardArgs& args) {
  return args.kind == Activation::kGelu ? Forward<A, true>(exec, args)
                                        : Forward<A, false>(exec, args);
}

template <typename A, bool kErf>
absl::Status Backward(const Exec& exec, const GeluBackwardArgs& args) {
  const int64_t cols = args.x.cols();
  return WithKept<A>(args.kept, [&](auto use, const KeptInput& kept) {
    const BackwardOp<A, kErf, decltype(use)::value> op{args.x.as<A>(), args.bias.as<A>(),
                                                       args.dy.as<A>(), cols, kept};
    return Pointwise<A>(exec, kOp, op, Aligned16(args.x.data) && Aligned16(args.dy.data), args.dx,
                        args.dx_quant, args.dx_blocks, args.x.rows(), cols);
  });
}
template <typename A>
absl::Status Backward(const Exec& exec, const GeluBackwardArgs& args) {
  return args.kind == Activation::kGelu ? Backward<A, true>(exec, args)
                                        : Backward<A, false>(exec, args);
}

}  // namespace

absl::Status GeluForward(const Exec& exec, const GeluForwardArgs& args) {
  return args.x.dtype == DType::kBF16 ? Forward<Bf16>(exec, args) : Forward<float>(exec, args);
}

absl::Status GeluBackward(const Exec& exec, const GeluBackwardArgs& args) {
  return args.x.dtype == DType::kBF16 ? Backward<Bf16>(exec, args) : Backward<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
