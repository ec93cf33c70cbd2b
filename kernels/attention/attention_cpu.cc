#include <omp.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/softmax_row.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/gemm/blas.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "attention";
using cpu::RowRange;
using cpu::SoftmaxRow;

constexpr int64_t kQueryBlock = 64;  // rows of scores computed at once

// Strides and offsets into the fused rows.
struct Geometry {
  explicit Geometry(const AttentionDims& d)
      : dims(d),
        width((d.heads + 2 * d.kv_heads) * d.head_dim),
        out_width(d.heads * d.head_dim),
        group(d.heads / d.kv_heads) {}
  int64_t Query(int64_t h) const { return h * dims.head_dim; }
  int64_t Key(int64_t kv) const { return (dims.heads + kv) * dims.head_dim; }
  int64_t Value(int64_t kv) const { return (dims.heads + dims.kv_heads + kv) * dims.head_dim; }

  AttentionDims dims;
  int64_t width;
  int64_t out_width;
  int64_t group;
};

// First key that `query` sees.
int64_t FirstKey(const int32_t* starts, int64_t query) {
  return starts == nullptr ? 0 : starts[query];
}

// Starts are read as indices: kernels that trust them would read outside the sequence.
absl::Status CheckStarts(const AttentionArgs& args) {
  const int32_t* starts = args.starts.empty() ? nullptr : args.starts.as<int32_t>();
  int64_t documents = 0;
  for (int64_t row = 0; starts != nullptr && row < args.dims.batch * args.dims.sequence; ++row) {
    const int64_t at = row % args.dims.sequence;
    const int64_t start = starts[row];
    if (start < 0 || start > at || (start < at && start != starts[row - 1])) {
      return absl::OutOfRangeError(
          absl::StrCat(kOp, ": row ", row, " cannot have a document that starts at ", start));
    }
    documents += start == at ? 1 : 0;
  }
  if (args.documents > 0 && documents > args.documents) {
    return absl::OutOfRangeError(
        absl::StrCat(kOp, ": ", documents, " documents, at most ", args.documents, " were said"));
  }
  return absl::OkStatus();
}

// In place: scores to probabilities from the saved lse.
template <typename T>
HEARTH_INLINE void ProbabilityRowImpl(const RowRange& range, T lse, T* s) {
  for (int64_t i = 0; i < range.begin; ++i) {
    s[i] = 0;
  }
#pragma omp simd
  for (int64_t i = range.begin; i < range.end; ++i) {
    s[i] = Exp(s[i] - lse);
  }
  for (int64_t i = range.end; i < range.width; ++i) {
    s[i] = 0;
  }
}
HEARTH_SIMD void ProbabilityRow(const RowRange& range, float lse, float* s) {
  ProbabilityRowImpl(range, lse, s);
}
HEARTH_SIMD void ProbabilityRow(const RowRange& range, double lse, double* s) {
  ProbabilityRowImpl(range, lse, s);
}

// In place: dp becomes the gradient of the scores, p * (dp - delta); 0 where p is 0.
template <typename T>
HEARTH_INLINE void ScoreGradientRowImpl(const RowRange& range, const T* p, T delta, T* dp) {
#pragma omp simd
  for (int64_t i = 0; i < range.width; ++i) {
    dp[i] = p[i] * (dp[i] - delta);
  }
}
HEARTH_SIMD void ScoreGradientRow(const RowRange& range, const float* p, float delta, float* dp) {
  ScoreGradientRowImpl(range, p, delta, dp);
}
HEARTH_SIMD void ScoreGradientRow(const RowRange& range,
                                  const double* p,
                                  double delta,
                                  double* dp) {
  ScoreGradientRowImpl(range, p, delta, dp);
}

template <typename T>
HEARTH_INLINE T DotImpl(const T* a, const T* b, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}
HEARTH_SIMD float Dot(const float* a, const float* b, int64_t n) {
  return DotImpl(a, b, n);
}
HEARTH_SIMD double Dot(const double* a, const double* b, int64_t n) {
  return DotImpl(a, b, n);
}

double ScaleOf(double scale, const AttentionDims& dims) {
  return scale != 0.0 ? scale : 1.0 / std::sqrt(static_cast<double>(dims.head_dim));
}

// Query rows [begin, end) of a sequence and the keys [base, end) that any of them sees.
struct Block {
  int64_t begin;
  int64_t end;
  int64_t base;
  int64_t queries() const { return end - begin; }
  int64_t keys() const { return end - base; }
};

Block BlockAt(const int32_t* starts, int64_t begin, int64_t sequence) {
  return {begin, std::min(begin + kQueryBlock, sequence), FirstKey(starts, begin)};
}

RowRange RangeOf(const Block& block, const int32_t* starts, int64_t row) {
  const int64_t query = block.begin + row;
  return {FirstKey(starts, query) - block.base, query + 1 - block.base, block.keys()};
}

template <typename T>
void ForwardHead(const AttentionForwardArgs& args, int64_t b, int64_t h, T* scores) {
  const Geometry g(args.dims);
  const int64_t t_len = g.dims.sequence;
  const int64_t dim = g.dims.head_dim;
  const T* rows = args.qkv.as<T>() + b * t_len * g.width;
  const T* q = rows + g.Query(h);
  const T* k = rows + g.Key(h / g.group);
  const T* v = rows + g.Value(h / g.group);
  T* out = args.out.as<T>() + b * t_len * g.out_width + g.Query(h);
  T* lse = args.lse.empty() ? nullptr : args.lse.as<T>() + (b * g.dims.heads + h) * t_len;
  const int32_t* starts = args.starts.empty() ? nullptr : args.starts.as<int32_t>() + b * t_len;
  const T scale = static_cast<T>(ScaleOf(args.scale, g.dims));
  for (int64_t begin = 0; begin < t_len; begin += kQueryBlock) {
    // Only keys that some query of the block sees are multiplied; SoftmaxRow clears those that a
    // row does not see.
    const Block block = BlockAt(starts, begin, t_len);
    blas::Gemm(false, true, block.queries(), block.keys(), dim, scale, q + begin * g.width, g.width,
               k + block.base * g.width, g.width, T{0}, scores, block.keys());
    for (int64_t row = 0; row < block.queries(); ++row) {
      T* s = scores + row * block.keys();
      const T value = SoftmaxRow(RangeOf(block, starts, row), s);
      RoundSpan(s, block.keys(), args.round);
      if (lse != nullptr) {
        lse[begin + row] = value;
      }
    }
    blas::Gemm(false, false, block.queries(), dim, block.keys(), T{1}, scores, block.keys(),
               v + block.base * g.width, g.width, T{0}, out + begin * g.out_width, g.out_width);
    for (int64_t row = begin; row < block.end; ++row) {
      RoundSpan(out + row * g.out_width, dim, args.round);
    }
  }
}

template <typename T>
absl::Status ForwardImpl(const Exec& exec, const AttentionForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckStarts(args));
  const int64_t heads = args.dims.heads;
  T* workspace = static_cast<T*>(exec.workspace.data);
  // A head is one thread's: BLAS must not start threads within it.
  blas::SetThreads(1);
  ParallelFor(exec, args.dims.batch * heads, 1, [&](int64_t piece, int64_t) {
    T* scores = workspace + omp_get_thread_num() * kQueryBlock * args.dims.sequence;
    ForwardHead(args, piece / heads, piece % heads, scores);
  });
  return absl::OkStatus();
}

// The block's probabilities into p, and the gradient of its scaled scores into ds.
template <typename T>
void ScoreGradients(const AttentionBackwardArgs& args,
                    const Geometry& g,
                    const Block& block,
                    int64_t b,
                    int64_t h,
                    const int32_t* starts,
                    T* p,
                    T* ds) {
  const int64_t t_len = g.dims.sequence;
  const int64_t dim = g.dims.head_dim;
  const T* rows = args.qkv.as<T>() + b * t_len * g.width;
  const T* out = args.out.as<T>() + (b * t_len + block.begin) * g.out_width + g.Query(h);
  const T* d_out = args.d_out.as<T>() + (b * t_len + block.begin) * g.out_width + g.Query(h);
  const T* lse = args.lse.as<T>() + (b * g.dims.heads + h) * t_len + block.begin;
  const T scale = static_cast<T>(ScaleOf(args.scale, g.dims));
  blas::Gemm(false, true, block.queries(), block.keys(), dim, scale,
             rows + block.begin * g.width + g.Query(h), g.width,
             rows + block.base * g.width + g.Key(h / g.group), g.width, T{0}, p, block.keys());
  blas::Gemm(false, true, block.queries(), block.keys(), dim, T{1}, d_out, g.out_width,
             rows + block.base * g.width + g.Value(h / g.group), g.width, T{0}, ds, block.keys());
  for (int64_t row = 0; row < block.queries(); ++row) {
    const RowRange range = RangeOf(block, starts, row);
    T* p_row = p + row * block.keys();
    T* ds_row = ds + row * block.keys();
    // Softmax's backward needs sum(p dp) of the row, which is the product of out and d_out.
    const T delta = Dot(out + row * g.out_width, d_out + row * g.out_width, dim);
    ProbabilityRow(range, lse[row], p_row);
    ScoreGradientRow(range, p_row, delta, ds_row);
    RoundSpan(p_row, block.keys(), args.round);
    RoundSpan(ds_row, block.keys(), args.round);
  }
}

// One key/value head with all its query heads, so that its gradients are summed in a fixed order.
template <typename T>
void BackwardHead(const AttentionBackwardArgs& args, int64_t b, int64_t kv, T* p, T* ds) {
  const Geometry g(args.dims);
  const int64_t t_len = g.dims.sequence;
  const int64_t dim = g.dims.head_dim;
  const T* rows = args.qkv.as<T>() + b * t_len * g.width;
  T* d_rows = args.d_qkv.as<T>() + b * t_len * g.width;
  const int32_t* starts = args.starts.empty() ? nullptr : args.starts.as<int32_t>() + b * t_len;
  const T scale = static_cast<T>(ScaleOf(args.scale, g.dims));
  for (int64_t row = 0; row < t_len; ++row) {
    std::fill_n(d_rows + row * g.width + g.Key(kv), dim, T{0});
    std::fill_n(d_rows + row * g.width + g.Value(kv), dim, T{0});
  }
  // Each query head and block of queries adds to the gradients of keys and values (beta 1). A row
  // of queries lies in one block, so its gradient is written once (beta 0).
  for (int64_t h = kv * g.group; h < (kv + 1) * g.group; ++h) {
    const T* d_out = args.d_out.as<T>() + b * t_len * g.out_width + g.Query(h);
    for (int64_t begin = 0; begin < t_len; begin += kQueryBlock) {
      const Block block = BlockAt(starts, begin, t_len);
      ScoreGradients(args, g, block, b, h, starts, p, ds);
      const int64_t query_at = begin * g.width + g.Query(h);
      const int64_t key_at = block.base * g.width + g.Key(kv);
      const int64_t value_at = block.base * g.width + g.Value(kv);
      blas::Gemm(true, false, block.keys(), dim, block.queries(), T{1}, p, block.keys(),
                 d_out + begin * g.out_width, g.out_width, T{1}, d_rows + value_at, g.width);
      blas::Gemm(true, false, block.keys(), dim, block.queries(), scale, ds, block.keys(),
                 rows + query_at, g.width, T{1}, d_rows + key_at, g.width);
      blas::Gemm(false, false, block.queries(), dim, block.keys(), scale, ds, block.keys(),
                 rows + key_at, g.width, T{0}, d_rows + query_at, g.width);
    }
  }
  for (int64_t row = 0; row < t_len; ++row) {
    T* d_row = d_rows + row * g.width;
    RoundSpan(d_row + g.Query(kv * g.group), g.group * dim, args.round);
    RoundSpan(d_row + g.Key(kv), dim, args.round);
    RoundSpan(d_row + g.Value(kv), dim, args.round);
  }
}

template <typename T>
absl::Status BackwardImpl(const Exec& exec, const AttentionBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckStarts(args));
  const int64_t heads = args.dims.kv_heads;
  const int64_t block = kQueryBlock * args.dims.sequence;
  T* workspace = static_cast<T*>(exec.workspace.data);
  blas::SetThreads(1);
  ParallelFor(exec, args.dims.batch * heads, 1, [&](int64_t piece, int64_t) {
    T* p = workspace + int64_t{2} * omp_get_thread_num() * block;
    BackwardHead(args, piece / heads, piece % heads, p, p + block);
  });
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

size_t AttentionForwardWorkspaceBytes(const AttentionForwardArgs& args, int threads) {
  return DTypeBytes(args.qkv.dtype, threads * kQueryBlock * args.dims.sequence);
}

size_t AttentionBackwardWorkspaceBytes(const AttentionBackwardArgs& args, int threads) {
  return DTypeBytes(args.qkv.dtype, int64_t{2} * threads * kQueryBlock * args.dims.sequence);
}

absl::Status AttentionForward(const Exec& exec, const AttentionForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(
      RequireWorkspace(exec, AttentionForwardWorkspaceBytes(args, exec.threads), kOp));
  return DispatchFloating(args.qkv.dtype, [&]<typename T>() { return ForwardImpl<T>(exec, args); });
}

absl::Status AttentionBackward(const Exec& exec, const AttentionBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(
      RequireWorkspace(exec, AttentionBackwardWorkspaceBytes(args, exec.threads), kOp));
  return DispatchFloating(args.qkv.dtype,
                          [&]<typename T>() { return BackwardImpl<T>(exec, args); });
}

}  // namespace cpu

}  // namespace hearth::kernels
