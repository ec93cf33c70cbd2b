#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/swiglu/swiglu.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "swiglu";

template <typename T>
HEARTH_INLINE void ForwardRowImpl(const T* gate, const T* up, int64_t n, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    y[i] = gate[i] * Sigmoid(gate[i]) * up[i];
  }
}
HEARTH_SIMD void ForwardRow(const float* gate, const float* up, int64_t n, float* y) {
  ForwardRowImpl(gate, up, n, y);
}
HEARTH_SIMD void ForwardRow(const double* gate, const double* up, int64_t n, double* y) {
  ForwardRowImpl(gate, up, n, y);
}

template <typename T>
HEARTH_INLINE void BackwardRowImpl(
    const T* dy, const T* gate, const T* up, int64_t n, T* d_gate, T* d_up) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T g = gate[i];
    const T u = up[i];
    const T sigmoid = Sigmoid(g);
    d_gate[i] = dy[i] * u * sigmoid * (T{1} + g * (T{1} - sigmoid));
    d_up[i] = dy[i] * g * sigmoid;
  }
}
HEARTH_SIMD void BackwardRow(
    const float* dy, const float* gate, const float* up, int64_t n, float* d_gate, float* d_up) {
  BackwardRowImpl(dy, gate, up, n, d_gate, d_up);
}
HEARTH_SIMD void BackwardRow(const double* dy,
                             const double* gate,
                             const double* up,
                             int64_t n,
                             double* d_gate,
                             double* d_up) {
  BackwardRowImpl(dy, gate, up, n, d_gate, d_up);
}

template <typename T>
absl::Status ForwardImpl(const Exec& exec, const SwigluForwardArgs& args) {
  const int64_t ffn = args.y.cols();
  ParallelFor(exec, args.y.rows(), RowGrain(ffn), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* gate = args.gate_up.as<T>() + row * 2 * ffn;
      T* y = args.y.as<T>() + row * ffn;
      ForwardRow(gate, gate + ffn, ffn, y);
      RoundSpan(y, ffn, args.round_y);
    }
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status BackwardImpl(const Exec& exec, const SwigluBackwardArgs& args) {
  const int64_t ffn = args.dy.cols();
  ParallelFor(exec, args.dy.rows(), RowGrain(ffn), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* gate = args.gate_up.as<T>() + row * 2 * ffn;
      T* d_gate = args.d_gate_up.as<T>() + row * 2 * ffn;
      BackwardRow(args.dy.as<T>() + row * ffn, gate, gate + ffn, ffn, d_gate, d_gate + ffn);
      RoundSpan(d_gate, 2 * ffn, args.round_d_gate_up);
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status CanImplement(const SwigluForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.y, kOp, "y"));
  HEARTH_RETURN_IF_ERROR(
      RequireView(args.gate_up, args.y.dtype, {args.y.rows(), 2 * args.y.cols()}, kOp, "gate_up"));
  HEARTH_RETURN_IF_ERROR(RequireNoQuant(args.y_quant, kOp));
  return RequireRound(args.round_y, kOp);
}

size_t SwigluForwardWorkspaceBytes(const SwigluForwardArgs&) {
  return 0;
}

absl::Status SwigluForward(const Exec& exec, const SwigluForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return DispatchFloating(args.y.dtype, [&]<typename T>() { return ForwardImpl<T>(exec, args); });
}

absl::Status CanImplement(const SwigluBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.dy, kOp, "dy"));
  const int64_t rows = args.dy.rows();
  const int64_t ffn = args.dy.cols();
  HEARTH_RETURN_IF_ERROR(RequireView(args.gate_up, args.dy.dtype, {rows, 2 * ffn}, kOp, "gate_up"));
  HEARTH_RETURN_IF_ERROR(
      RequireView(args.d_gate_up, args.dy.dtype, {rows, 2 * ffn}, kOp, "d_gate_up"));
  return RequireRound(args.round_d_gate_up, kOp);
}

size_t SwigluBackwardWorkspaceBytes(const SwigluBackwardArgs&) {
  return 0;
}

absl::Status SwigluBackward(const Exec& exec, const SwigluBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return DispatchFloating(args.dy.dtype, [&]<typename T>() { return BackwardImpl<T>(exec, args); });
}

}  // namespace hearth::kernels
