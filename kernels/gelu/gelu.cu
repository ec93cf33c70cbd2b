#include "kernels/cuda/pointwise.cuh"
#include "kernels/gelu/gelu.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "gelu";
constexpr float kSqrtHalf = 0.70710678118654752440F;
constexpr float kInvSqrtTwoPi = 0.39894228040143267794F;
// tanh(k (u + c u^3)) = 2 sigmoid(2 k (u + c u^3)) - 1.
constexpr float kTwiceK = 2.0F * 0.79788456080286535588F;
constexpr float kCubic = 0.044715F;

template <typename A>
__device__ __forceinline__ float Value(float u, bool erf) {
  if (erf) {
    return 0.5F * u * (1.0F + erff(u * kSqrtHalf));
  }
  return u * SigmoidFor<A>(kTwiceK * (u + kCubic * u * u * u));
}

template <typename A>
__device__ __forceinline__ float Slope(float u, bool erf) {
  if (erf) {
    const float square = -0.5F * u * u;
    const float pdf = kInvSqrtTwoPi * (sizeof(A) == 2 ? __expf(square) : expf(square));
    return 0.5F * (1.0F + erff(u * kSqrtHalf)) + u * pdf;
  }
  const float s = SigmoidFor<A>(kTwiceK * (u + kCubic * u * u * u));
  return s + u * s * (1.0F - s) * kTwiceK * (1.0F + 3.0F * kCubic * u * u);
}

template <typename A>
struct ForwardOp {
  static constexpr bool kBias = true;
  static constexpr int kInputs = 1;
  static constexpr int kOutputs = 1;
  static constexpr int kBatch = 2;
  static constexpr int kBlocks = 4;
  const A* x;
  const A* bias;
  int64_t cols;
  bool erf;

  __device__ __forceinline__ const A* Input(int, int64_t row, int64_t col) const {
    return x + row * cols + col;
  }
  __device__ __forceinline__ void Apply(const float (&in)[1], float b, float (&out)[1]) const {
    out[0] = Value<A>(in[0] + b, erf);
  }
};

template <typename A>
struct BackwardOp {
  static constexpr bool kBias = true;
  static constexpr int kInputs = 2;  // x, dy
  static constexpr int kOutputs = 1;
  static constexpr int kBatch = sizeof(A) == 2 ? 2 : 1;
  static constexpr int kBlocks = 3;
  const A* x;
  const A* bias;
  const A* dy;
  int64_t cols;
  bool erf;

  __device__ __forceinline__ const A* Input(int i, int64_t row, int64_t col) const {
    return (i == 0 ? x : dy) + row * cols + col;
  }
  __device__ __forceinline__ void Apply(const float (&in)[2], float b, float (&out)[1]) const {
    out[0] = in[1] * Slope<A>(in[0] + b, erf);
  }
};

template <typename A>
absl::Status Forward(const Exec& exec, const GeluForwardArgs& args) {
  const int64_t cols = args.x.cols();
  const ForwardOp<A> op{args.x.as<A>(), args.bias.as<A>(), cols, args.kind == GeluKind::kErf};
  return Pointwise<A>(exec, kOp, op, Aligned16(args.x.data), args.y, args.y_quant, args.x.rows(),
                      cols);
}

template <typename A>
absl::Status Backward(const Exec& exec, const GeluBackwardArgs& args) {
  const int64_t cols = args.x.cols();
  const BackwardOp<A> op{args.x.as<A>(), args.bias.as<A>(), args.dy.as<A>(), cols,
                         args.kind == GeluKind::kErf};
  return Pointwise<A>(exec, kOp, op, Aligned16(args.x.data) && Aligned16(args.dy.data), args.dx,
                      args.dx_quant, args.x.rows(), cols);
}

}  // namespace

absl::Status GeluForward(const Exec& exec, const GeluForwardArgs& args) {
  return args.x.dtype == DType::kBF16 ? Forward<Bf16>(exec, args) : Forward<float>(exec, args);
}

absl::Status GeluBackward(const Exec& exec, const GeluBackwardArgs& args) {
  return args.x.dtype == DType::kBF16 ? Backward<Bf16>(exec, args) : Backward<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
