#include "kernels/cuda/pointwise.cuh"
#include "kernels/swiglu/arithmetic.cuh"
#include "kernels/swiglu/swiglu.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "swiglu";

template <typename A, KeptUse kUse>
struct ForwardOp {
  static constexpr bool kBias = false;
  static constexpr KeptUse kKept = kUse;
  static constexpr int kExtra = 0;
  static constexpr int kKeptInputs = 2;
  static constexpr int kInputs = 2;  // gate, up
  static constexpr int kOutputs = 1;
  static constexpr int kBatch = sizeof(A) == 2 ? 2 : 1;
  static constexpr int kBlocks = 4;
  static constexpr bool kQuantisedAlone = kUse == KeptUse::kWrite;
  const A* gate_up;
  int64_t cols;
  KeptInput kept;
  const A* bias = nullptr;

  __device__ __forceinline__ const A* Input(int i, int64_t row, int64_t col) const {
    return gate_up + (row * 2 + i) * cols + col;
  }
  __device__ __forceinline__ void Apply(const float (&in)[2], float, float (&out)[1]) const {
    out[0] = SwigluOf<A>(in[0], in[1]);
  }
};

template <typename A, KeptUse kUse, bool kAgain>
struct BackwardOp {
  static constexpr bool kBias = false;
  static constexpr KeptUse kKept = kUse;
  static constexpr int kExtra = kAgain ? 1 : 0;
  static constexpr int kKeptInputs = 2;
  static constexpr int kInputs = 3;  // gate, up, dy
  static constexpr int kOutputs = 2;
  static constexpr int kBatch = sizeof(A) == 2 ? 2 : 1;
  static constexpr int kBlocks = 4;
  static constexpr bool kQuantisedAlone = kAgain;
  const A* gate_up;
  const A* dy;
  int64_t cols;
  KeptInput kept;
  QuantView extra;  // of y
  const A* bias = nullptr;

  __device__ __forceinline__ const A* Input(int i, int64_t row, int64_t col) const {
    return i < 2 ? gate_up + (row * 2 + i) * cols + col : dy + row * cols + col;
  }
  __device__ __forceinline__ void Apply(const float (&in)[3],
                                        float,
                                        float (&out)[2 + kExtra]) const {
    const float2 gradient = SwigluGradient<A>(in[0], in[1], in[2]);
    out[0] = gradient.x;
    out[1] = gradient.y;
    if constexpr (kAgain) {
      out[2] = SwigluOf<A>(in[0], in[1]);
    }
  }
};

template <typename A>
absl::Status Forward(const Exec& exec, const SwigluForwardArgs& args) {
  const int64_t cols = args.gate_up.cols() / 2;
  return WithKept<A>(args.keep, args.kept, [&](auto use, const KeptInput& kept) {
    const ForwardOp<A, decltype(use)::value> op{args.gate_up.as<A>(), cols, kept};
    return Pointwise<A>(exec, kOp, op, Aligned16(args.gate_up.data), args.y, args.y_quant,
                        args.y_blocks, args.gate_up.rows(), cols);
  });
}

template <typename A>
absl::Status Backward(const Exec& exec, const SwigluBackwardArgs& args) {
  const int64_t cols = args.dy.cols();
  const auto run = [&](const auto& op) {
    return Pointwise<A>(exec, kOp, op, Aligned16(args.gate_up.data) && Aligned16(args.dy.data),
                        args.d_gate_up, args.d_gate_up_quant, args.d_gate_up_blocks, args.dy.rows(),
                        cols);
  };
  const A* gate_up = args.gate_up.as<A>();
  const A* dy = args.dy.as<A>();
  if constexpr (kHasForms<A>) {
    if (!args.y_quant.empty()) {
      return run(BackwardOp<A, KeptUse::kRead, true>{gate_up, dy, cols, args.kept, args.y_quant});
    }
  }
  return WithKept<A>(args.kept, [&](auto use, const KeptInput& kept) {
    return run(BackwardOp<A, decltype(use)::value, false>{gate_up, dy, cols, kept});
  });
}

}  // namespace

absl::Status SwigluForward(const Exec& exec, const SwigluForwardArgs& args) {
  return args.gate_up.dtype == DType::kBF16 ? Forward<Bf16>(exec, args)
                                            : Forward<float>(exec, args);
}

absl::Status SwigluBackward(const Exec& exec, const SwigluBackwardArgs& args) {
  return args.dy.dtype == DType::kBF16 ? Backward<Bf16>(exec, args) : Backward<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
