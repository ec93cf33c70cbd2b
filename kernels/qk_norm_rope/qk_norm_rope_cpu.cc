#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/quant.h"
#include "kernels/formats/span.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "qk_norm_rope";

// cos and sin of every position in use. Indexed by position while the positions stay below the
// number of rows, which is the usual case and shares entries between sequences; else by row.
template <typename T>
struct RotationTable {
  const T* cos = nullptr;
  const T* sin = nullptr;
  const int32_t* positions = nullptr;
  bool by_position = false;
  int64_t half = 0;

  const T* CosOf(int64_t row) const { return cos + Index(row) * half; }
  const T* SinOf(int64_t row) const { return sin + Index(row) * half; }
  int64_t Index(int64_t row) const { return by_position ? positions[row] : row; }
};

int64_t TableBytes(DType dtype, int64_t rows, const QkHeads& dims, const RopeConfig& rope) {
  // BF16 is stored only on a GPU, which needs no table.
  if (!rope.enabled || dtype == DType::kBF16) {
    return 0;
  }
  const int64_t half = dims.head_dim / 2;
  return static_cast<int64_t>(AlignUp(DTypeBytes(DType::kF64, half), 64) +
                              AlignUp(DTypeBytes(dtype, 2 * rows * half), 64));
}

template <typename T>
RotationTable<T> BuildTable(const Exec& exec,
                            const QkHeads& dims,
                            const RopeConfig& rope,
                            const TensorView& positions,
                            int64_t rows) {
  RotationTable<T> table;
  if (!rope.enabled) {
    return table;
  }
  const int64_t half = dims.head_dim / 2;
  double* inv_freq = static_cast<double*>(exec.workspace.data);
  T* cos = reinterpret_cast<T*>(static_cast<char*>(exec.workspace.data) +
                                AlignUp(DTypeBytes(DType::kF64, half), 64));
  T* sin = cos + rows * half;
  RopeInverseFrequencies(rope, dims.head_dim, inv_freq);
  const int32_t* values = positions.as<int32_t>();
  const int64_t used = rows == 0 ? 0 : int64_t{*std::max_element(values, values + rows)} + 1;
  table = {cos, sin, values, used <= rows, half};
  ParallelFor(exec, table.by_position ? used : rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t entry = begin; entry < end; ++entry) {
      const double position = static_cast<double>(table.by_position ? entry : values[entry]);
      for (int64_t i = 0; i < half; ++i) {
        cos[entry * half + i] = static_cast<T>(std::cos(position * inv_freq[i]));
        sin[entry * half + i] = static_cast<T>(std::sin(position * inv_freq[i]));
      }
    }
  });
  return table;
}

// (a, b) -> (a cos - b sin, b cos + a sin), by pairs (i, i + half). sign = -1 rotates back.
template <typename T>
HEARTH_INLINE void RotateImpl(
    const T* cos, const T* sin, int64_t half, T sign, const T* in, T* out) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const T a = in[i];
    const T b = in[i + half];
    out[i] = a * cos[i] - sign * b * sin[i];
    out[i + half] = b * cos[i] + sign * a * sin[i];
  }
}
HEARTH_SIMD void Rotate(
    const float* cos, const float* sin, int64_t half, float sign, const float* in, float* out) {
  RotateImpl(cos, sin, half, sign, in, out);
}
HEARTH_SIMD void Rotate(const double* cos,
                        const double* sin,
                        int64_t half,
                        double sign,
                        const double* in,
                        double* out) {
  RotateImpl(cos, sin, half, sign, in, out);
}

// out = in * rstd * weight; returns rstd.
template <typename T>
HEARTH_INLINE T NormImpl(const T* in, const T* weight, int64_t n, T eps, T* out) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    sum += in[i] * in[i];
  }
  const T rstd = T{1} / std::sqrt(sum / static_cast<T>(n) + eps);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = in[i] * rstd * weight[i];
  }
  return rstd;
}
HEARTH_SIMD float NormHead(const float* in, const float* weight, int64_t n, float eps, float* out) {
  return NormImpl(in, weight, n, eps, out);
}
HEARTH_SIMD double NormHead(
    const double* in, const double* weight, int64_t n, double eps, double* out) {
  return NormImpl(in, weight, n, eps, out);
}

// In place: d holds the gradient of the norm's output, then of its input. d_weight is added to.
template <typename T>
HEARTH_INLINE void NormBackwardImpl(
    const T* in, const T* weight, T rstd, int64_t n, T* d, T* d_weight) {
  T dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t i = 0; i < n; ++i) {
    dot += d[i] * weight[i] * in[i];
  }
  const T slope = dot * rstd * rstd * rstd / static_cast<T>(n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    d_weight[i] += d[i] * (in[i] * rstd);
    d[i] = d[i] * weight[i] * rstd - in[i] * slope;
  }
}
HEARTH_SIMD void NormHeadBackward(
    const float* in, const float* weight, float rstd, int64_t n, float* d, float* d_weight) {
  NormBackwardImpl(in, weight, rstd, n, d, d_weight);
}
HEARTH_SIMD void NormHeadBackward(
    const double* in, const double* weight, double rstd, int64_t n, double* d, double* d_weight) {
  NormBackwardImpl(in, weight, rstd, n, d, d_weight);
}

template <typename T>
absl::Status ForwardImpl(const Exec& exec, const QkNormRopeForwardArgs& args) {
  const int64_t dim = args.dims.head_dim;
  const int64_t rotated = args.dims.heads + args.dims.kv_heads;
  const int64_t width = args.dims.width();
  const int64_t rows = args.qkv.rows();
  const auto table = BuildTable<T>(exec, args.dims, args.rope, args.positions, rows);
  const bool norm = !args.q_weight.empty();
  ParallelFor(exec, rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* in = args.qkv.as<T>() + row * width;
      T* out = args.out.as<T>() + row * width;
      for (int64_t h = 0; h < rotated; ++h) {
        const T* from = in + h * dim;
        T* to = out + h * dim;
        if (norm) {
          const TensorView& weight = h < args.dims.heads ? args.q_weight : args.k_weight;
          args.rstd.as<T>()[row * rotated + h] =
              NormHead(from, weight.as<T>(), dim, static_cast<T>(args.eps), to);
          from = to;
        }
        if (args.rope.enabled) {
          Rotate(table.CosOf(row), table.SinOf(row), table.half, T{1}, from, to);
        } else if (from != to) {
          std::copy_n(from, dim, to);
        }
      }
      // Values are neither normalised nor rotated.
      if (in != out) {
        std::copy_n(in + rotated * dim, args.dims.kv_heads * dim, out + rotated * dim);
      }
      RoundSpan(out, width, args.round_out);
    }
  });
  return absl::OkStatus();
}

// d_qkv: the row's gradient, computed here. d_weights: null without a norm.
template <typename T>
void BackwardOneRow(const QkNormRopeBackwardArgs& args,
                    const RotationTable<T>& table,
                    int64_t row,
                    T* d_weights,
                    T* d_qkv) {
  const int64_t dim = args.dims.head_dim;
  const int64_t rotated = args.dims.heads + args.dims.kv_heads;
  const int64_t width = args.dims.width();
  const T* d_out = args.d_out.as<T>() + row * width;
  if (d_out != d_qkv) {
    std::copy_n(d_out, width, d_qkv);
  }
  for (int64_t h = 0; h < rotated; ++h) {
    T* d = d_qkv + h * dim;
    if (args.rope.enabled) {
      Rotate(table.CosOf(row), table.SinOf(row), table.half, T{-1}, d, d);
    }
    if (d_weights != nullptr) {
      const bool query = h < args.dims.heads;
      NormHeadBackward(
          args.qkv.as<T>() + row * width + h * dim, (query ? args.q_weight : args.k_weight).as<T>(),
          args.rstd.as<T>()[row * rotated + h], dim, d, query ? d_weights : d_weights + dim);
    }
  }
  RoundSpan(d_qkv, width, args.round_d_qkv);
  QuantizeRow(args.d_qkv_quant, args.d_out.rows(), width, row, 0, d_qkv, width);
}

// Byte offsets of the parts of backward's workspace on the CPU, after the table: per chunk of rows
// the gradients of q_weight and k_weight (with a norm), and one row where there is no d_qkv.
struct BackwardScratch {
  size_t partial = 0;
  size_t row = 0;
  size_t total = 0;
};

BackwardScratch ScratchOf(const QkNormRopeBackwardArgs& args) {
  const int64_t rows = args.d_out.rows();
  const int64_t chunks = CeilDiv(rows, kReduceRows);
  const DType dtype = args.d_out.dtype;
  BackwardScratch scratch;
  if (dtype == DType::kBF16) {
    return scratch;
  }
  scratch.partial = static_cast<size_t>(TableBytes(dtype, rows, args.dims, args.rope));
  scratch.row = scratch.partial;
  if (!args.q_weight.empty()) {
    scratch.row += AlignUp(DTypeBytes(dtype, chunks * 2 * args.dims.head_dim), 64);
  }
  scratch.total = scratch.row;
  if (args.d_qkv.empty() && args.d_qkv_blocks.empty()) {
    scratch.total += DTypeBytes(dtype, chunks * args.d_out.cols());
  }
  return scratch;
}

template <typename T>
absl::Status BackwardImpl(const Exec& exec, const QkNormRopeBackwardArgs& args) {
  const int64_t dim = args.dims.head_dim;
  const int64_t rows = args.d_out.rows();
  const auto table = BuildTable<T>(exec, args.dims, args.rope, args.positions, rows);
  const bool norm = !args.q_weight.empty();
  const int64_t width = args.d_out.cols();
  const BackwardScratch scratch = ScratchOf(args);
  char* base = static_cast<char*>(exec.workspace.data);
  T* partial = reinterpret_cast<T*>(base + scratch.partial);
  T* spare_rows = reinterpret_cast<T*>(base + scratch.row);
  ParallelFor(exec, rows, kReduceRows, [&](int64_t begin, int64_t end) {
    T* chunk = norm ? partial + begin / kReduceRows * 2 * dim : nullptr;
    if (norm) {
      std::fill_n(chunk, 2 * dim, T{0});
    }
    for (int64_t row = begin; row < end; ++row) {
      T* d_qkv = args.d_qkv.empty() ? spare_rows + begin / kReduceRows * width
                                    : args.d_qkv.as<T>() + row * width;
      BackwardOneRow(args, table, row, chunk, d_qkv);
    }
  });
  if (norm) {
    for (int64_t chunk = 0; chunk < CeilDiv(rows, kReduceRows); ++chunk) {
      AddChunks(partial + chunk * 2 * dim, 1, dim, args.d_q_weight.as<T>());
      AddChunks(partial + chunk * 2 * dim + dim, 1, dim, args.d_k_weight.as<T>());
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPositions(const RopeConfig& rope, const TensorView& positions) {
  const int32_t* values = positions.as<int32_t>();
  if (rope.enabled &&
      std::any_of(values, values + positions.numel(), [](int32_t p) { return p < 0; })) {
    return absl::OutOfRangeError(absl::StrCat(kOp, ": a position is negative"));
  }
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

size_t QkNormRopeForwardWorkspaceBytes(const QkNormRopeForwardArgs& args) {
  return static_cast<size_t>(TableBytes(args.qkv.dtype, args.qkv.rows(), args.dims, args.rope));
}

absl::Status QkNormRopeForward(const Exec& exec, const QkNormRopeForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckPositions(args.rope, args.positions));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, cpu::QkNormRopeForwardWorkspaceBytes(args), kOp));
  return DispatchFloating(args.qkv.dtype, [&]<typename T>() { return ForwardImpl<T>(exec, args); });
}

size_t QkNormRopeBackwardWorkspaceBytes(const QkNormRopeBackwardArgs& args) {
  return ScratchOf(args).total;
}

absl::Status QkNormRopeBackward(const Exec& exec, const QkNormRopeBackwardArgs& args) {
  const DType dtype = args.d_out.dtype;
  HEARTH_RETURN_IF_ERROR(CheckPositions(args.rope, args.positions));
  if (!args.q_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(
        RequireCount(args.d_q_weight, dtype, args.dims.head_dim, kOp, "d_q_weight"));
  }
  const auto compute = [&](const TensorView& d_qkv) {
    QkNormRopeBackwardArgs plain = args;
    plain.d_qkv = d_qkv;
    return DispatchFloating(dtype, [&]<typename T>() { return BackwardImpl<T>(exec, plain); });
  };
  return ComputeWithBlocks(exec, args.d_qkv, args.d_qkv_blocks, dtype, args.d_out.rows(),
                           args.d_out.cols(), compute);
}

}  // namespace cpu

}  // namespace hearth::kernels
