#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/kept.h"
#include "kernels/formats/quant.h"
#include "kernels/formats/span.h"
#include "kernels/swiglu/swiglu.h"

namespace hearth::kernels {
namespace {

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

// Values at a time where there is no plain output to compute them into, or the input was kept.
constexpr int64_t kPiece = 512;

// Gate and up of `n` values of a row from column `col` on: in place, or from the kept input.
template <typename T>
class GateUp {
 public:
  GateUp(const TensorView& gate_up, const KeptInput& kept) : view_(gate_up), kept_(kept) {}

  void Load(int64_t row, int64_t col, int64_t n) {
    const int64_t ffn = view_.cols() / 2;
    for (int64_t part = 0; part < 2; ++part) {
      const int64_t element = (row * 2 + part) * ffn + col;
      if (kept_.empty()) {
        at_[part] = view_.as<T>() + element;
      } else {
        LoadKeptSpan(kept_, element, n, pieces_[part]);
        at_[part] = pieces_[part];
      }
    }
  }
  const T* gate() const { return at_[0]; }
  const T* up() const { return at_[1]; }

 private:
  const TensorView& view_;
  const KeptInput& kept_;
  const T* at_[2] = {nullptr, nullptr};
  T pieces_[2][kPiece];
};

template <typename T>
absl::Status ForwardImpl(const Exec& exec, const SwigluForwardArgs& args) {
  const int64_t ffn = args.gate_up.cols() / 2;
  const int64_t rows = args.gate_up.rows();
  ParallelFor(exec, rows, RowGrain(ffn), [&](int64_t begin, int64_t end) {
    T piece[kPiece];
    GateUp<T> in(args.gate_up, args.kept);
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t col = 0; col < ffn; col += kPiece) {
        const int64_t n = std::min(kPiece, ffn - col);
        T* y = args.y.empty() ? piece : args.y.as<T>() + row * ffn + col;
        in.Load(row, col, n);
        if (!args.keep.empty()) {
          KeepSpan(in.gate(), n, row * 2 * ffn + col, args.keep);
          KeepSpan(in.up(), n, (row * 2 + 1) * ffn + col, args.keep);
        }
        ForwardRow(in.gate(), in.up(), n, y);
        RoundSpan(y, n, args.round_y);
        QuantizeRow(args.y_quant, rows, ffn, row, col, y, n);
      }
    }
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status BackwardImpl(const Exec& exec, const SwigluBackwardArgs& args) {
  const int64_t ffn = args.dy.cols();
  const int64_t rows = args.dy.rows();
  ParallelFor(exec, rows, RowGrain(ffn), [&](int64_t begin, int64_t end) {
    T pieces[2][kPiece];
    T y[kPiece];
    GateUp<T> in(args.gate_up, args.kept);
    for (int64_t row = begin; row < end; ++row) {
      const T* dy = args.dy.as<T>() + row * ffn;
      for (int64_t col = 0; col < ffn; col += kPiece) {
        const int64_t n = std::min(kPiece, ffn - col);
        T* d[2] = {pieces[0], pieces[1]};  // of gate, of up
        if (!args.d_gate_up.empty()) {
          d[0] = args.d_gate_up.as<T>() + row * 2 * ffn + col;
          d[1] = d[0] + ffn;
        }
        in.Load(row, col, n);
        BackwardRow(dy + col, in.gate(), in.up(), n, d[0], d[1]);
        for (int64_t part = 0; part < 2; ++part) {
          RoundSpan(d[part], n, args.round_d_gate_up);
          QuantizeRow(args.d_gate_up_quant, rows, 2 * ffn, row, part * ffn + col, d[part], n);
        }
        if (!args.y_quant.empty()) {
          ForwardRow(in.gate(), in.up(), n, y);
          RoundSpan(y, n, args.round_y);
          QuantizeRow(args.y_quant, rows, ffn, row, col, y, n);
        }
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

absl::Status SwigluForward(const Exec& exec, const SwigluForwardArgs& args) {
  const DType dtype = args.gate_up.dtype;
  const auto compute = [&](const TensorView& y) {
    SwigluForwardArgs plain = args;
    plain.y = y;
    return DispatchFloating(dtype, [&]<typename T>() { return ForwardImpl<T>(exec, plain); });
  };
  return ComputeWithBlocks(exec, args.y, args.y_blocks, dtype, args.gate_up.rows(),
                           args.gate_up.cols() / 2, compute);
}

absl::Status SwigluBackward(const Exec& exec, const SwigluBackwardArgs& args) {
  const auto compute = [&](const TensorView& d_gate_up) {
    SwigluBackwardArgs plain = args;
    plain.d_gate_up = d_gate_up;
    return DispatchFloating(args.dy.dtype,
                            [&]<typename T>() { return BackwardImpl<T>(exec, plain); });
  };
  return ComputeWithBlocks(exec, args.d_gate_up, args.d_gate_up_blocks, args.dy.dtype,
                           args.dy.rows(), 2 * args.dy.cols(), compute);
}

}  // namespace cpu

}  // namespace hearth::kernels
