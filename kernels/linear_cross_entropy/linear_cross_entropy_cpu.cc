#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/gemm/blas.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "linear_cross_entropy";
constexpr int64_t kChunkBytes = int64_t{32} << 20;
constexpr int64_t kSumBlock = 1024;  // terms summed in T before going into a double

int64_t ChunkTokens(const LinearCrossEntropyArgs& args) {
  const int64_t tokens = args.hidden.rows();
  const int64_t row_bytes = DTypeBytes(args.hidden.dtype, args.vocab);
  const int64_t chosen = args.chunk > 0
                             ? args.chunk
                             : std::max<int64_t>(64, kChunkBytes / std::max<int64_t>(1, row_bytes));
  return std::min(std::max<int64_t>(1, tokens), chosen);
}

// In place: logits to exp(logit - max). Returns max and the sum of exponentials.
template <typename T>
struct Exponentials {
  T max;
  double sum;
};

template <typename T>
HEARTH_INLINE Exponentials<T> ExponentiateImpl(int64_t n, T* s) {
  T max = s[0];
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < n; ++i) {
    max = s[i] > max ? s[i] : max;
  }
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = std::min(n, begin + kSumBlock);
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; ++i) {
      s[i] = Exp(s[i] - max);
      sum += s[i];
    }
    total += static_cast<double>(sum);
  }
  return {max, total};
}
HEARTH_SIMD Exponentials<float> Exponentiate(int64_t n, float* s) {
  return ExponentiateImpl(n, s);
}
HEARTH_SIMD Exponentials<double> Exponentiate(int64_t n, double* s) {
  return ExponentiateImpl(n, s);
}

template <typename T>
HEARTH_INLINE void MultiplyImpl(T factor, int64_t n, T* s) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    s[i] *= factor;
  }
}
HEARTH_SIMD void Multiply(float factor, int64_t n, float* s) {
  MultiplyImpl(factor, n, s);
}
HEARTH_SIMD void Multiply(double factor, int64_t n, double* s) {
  MultiplyImpl(factor, n, s);
}

// Whether greedy decoding would take the target.
template <typename T>
bool IsTop(const T* logits, int64_t vocab, int32_t target) {
  const T own = logits[target];
  for (int64_t i = 0; i < vocab; ++i) {
    // Also true where a logit is NaN.
    if (!(logits[i] < own) && !(logits[i] == own && i >= target)) {
      return false;
    }
  }
  return true;
}

// One token's logits to its loss, returned, and in place to the gradient of d_loss * w * nll if
// `gradient`. Weight 0: the gradient is 0 whatever the logits are.
template <typename T>
double LossOfToken(const LinearCrossEntropyArgs& args, int64_t token, bool gradient, T* logits) {
  const int64_t vocab = args.vocab;
  const float weight = args.loss_weight.as<float>()[token];
  int32_t* const top = args.top.empty() ? nullptr : args.top.as<int32_t>() + token;
  if (weight == 0.0F) {
    std::fill_n(logits, vocab, T{0});
    if (top != nullptr) {
      *top = 0;
    }
    return 0.0;
  }
  RoundSpan(logits, vocab, args.round_logits);
  const int32_t target = args.targets.as<int32_t>()[token];
  if (top != nullptr) {
    *top = IsTop(logits, vocab, target) ? 1 : 0;
  }
  const double target_logit = static_cast<double>(logits[target]);
  const Exponentials<T> e = Exponentiate(vocab, logits);
  const double nll = std::log(e.sum) + static_cast<double>(e.max) - target_logit;
  if (gradient) {
    // The exponentials become (softmax - onehot) times the scale in their place.
    const double scale = args.d_loss * static_cast<double>(weight);
    Multiply(static_cast<T>(scale / e.sum), vocab, logits);
    logits[target] -= static_cast<T>(scale);
    RoundSpan(logits, vocab, args.round_logits);
  }
  return nll;
}

// Adds a token's loss to the sums of the source that its sample is from.
void AddToSource(const LinearCrossEntropyArgs& args, int64_t token, double nll) {
  if (args.source.empty()) {
    return;
  }
  const int64_t length = args.hidden.rows() / args.source.numel();
  const int64_t source = args.source.as<int32_t>()[token / length];
  if (source < 0 || source >= args.sources) {
    return;
  }
  const auto weight = static_cast<double>(args.loss_weight.as<float>()[token]);
  args.source_sums[2 * source] += weight * nll;
  args.source_sums[2 * source + 1] += weight;
}

// Offsets in bytes into the workspace.
struct Layout {
  int64_t chunk = 0;
  size_t nll = 0;     // f64 [chunk]
  size_t logits = 0;  // T [chunk, vocab]
  size_t hidden = 0;  // f32 [chunk, C], decoded
  size_t weight = 0;  // f32 [vocab, C], decoded
  size_t bytes = 0;
};

Layout LayoutOf(const LinearCrossEntropyArgs& args) {
  Layout layout;
  layout.chunk = ChunkTokens(args);
  const auto take = [&](DType dtype, int64_t count) {
    const size_t at = layout.bytes;
    layout.bytes += AlignUp(DTypeBytes(dtype, count), 64);
    return at;
  };
  const int64_t channels = args.quant.empty() ? 0 : args.hidden.cols();
  layout.nll = take(DType::kF64, layout.chunk);
  layout.logits = take(args.hidden.dtype, layout.chunk * args.vocab);
  layout.hidden = take(DType::kF32, layout.chunk * channels);
  layout.weight = take(DType::kF32, args.vocab * channels);
  return layout;
}

// What the products of a chunk read, and what their results are multiplied by.
template <typename T>
struct Operands {
  const T* hidden = nullptr;  // of the chunk
  const T* weight = nullptr;
  T logits_alpha = 1;
  T d_weight_alpha = 1;
  T d_hidden_alpha = 1;
  double d_logits_scale = 0.0;  // 0: d_logits are not quantised
};

// Tokens [begin, begin + count): logits, losses into nll, then both gradients.
template <typename T>
void RunChunk(const Exec& exec,
              const LinearCrossEntropyArgs& args,
              const Operands<T>& operands,
              int64_t begin,
              int64_t count,
              T* logits,
              double* nll) {
  const int64_t hidden = args.hidden.cols();
  const int64_t vocab = args.vocab;
  const bool gradient = !args.d_hidden.empty() || !args.d_weight.empty();
  blas::SetThreads(exec.threads);
  blas::Gemm(false, true, count, vocab, hidden, operands.logits_alpha, operands.hidden, hidden,
             operands.weight, hidden, T{0}, logits, vocab);
  ParallelFor(exec, count, RowGrain(vocab), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      nll[i] = LossOfToken(args, begin + i, gradient, logits + i * vocab);
      if (gradient && operands.d_logits_scale > 0.0) {
        Multiply(static_cast<T>(operands.d_logits_scale), vocab, logits + i * vocab);
        RoundSpan(logits + i * vocab, vocab, args.quant.d_logits);
      }
    }
  });
  blas::SetThreads(exec.threads);
  if (!args.d_weight.empty()) {
    const T beta = args.accumulate || begin > 0 ? T{1} : T{0};
    blas::Gemm(true, false, vocab, hidden, count, operands.d_weight_alpha, logits, vocab,
               operands.hidden, hidden, beta, args.d_weight.as<T>(), hidden);
  }
  if (!args.d_hidden.empty()) {
    T* dx = args.d_hidden.as<T>() + begin * hidden;
    blas::Gemm(false, false, count, hidden, vocab, operands.d_hidden_alpha, logits, vocab,
               operands.weight, hidden, T{0}, dx, hidden);
    RoundSpan(dx, count * hidden, args.round_d_hidden);
  }
}

// FP8 rows to floats.
void Decode(const Exec& exec, const TensorView& x, int64_t begin, int64_t rows, float* out) {
  const int64_t cols = x.cols();
  ParallelFor(exec, rows, RowGrain(cols), [&](int64_t first, int64_t last) {
    DecodeSpan(x.as<uint8_t>() + (begin + first) * cols, (last - first) * cols, x.dtype,
               out + first * cols);
  });
}

template <typename T>
absl::Status Impl(const Exec& exec, const LinearCrossEntropyArgs& args) {
  const int64_t tokens = args.hidden.rows();
  const int64_t channels = args.hidden.cols();
  const Layout layout = LayoutOf(args);
  char* workspace = static_cast<char*>(exec.workspace.data);
  double* nll = reinterpret_cast<double*>(workspace + layout.nll);
  T* logits = reinterpret_cast<T*>(workspace + layout.logits);
  float* decoded_hidden = reinterpret_cast<float*>(workspace + layout.hidden);
  float* decoded_weight = reinterpret_cast<float*>(workspace + layout.weight);
  Operands<T> operands;
  operands.weight = args.weight.as<T>();
  if (!args.quant.empty()) {
    const double hidden_scale = double{*args.quant.hidden_scale};
    const double weight_scale = double{*args.quant.weight_scale};
    Decode(exec, args.quant.weight_rows, 0, args.vocab, decoded_weight);
    operands.weight = reinterpret_cast<const T*>(decoded_weight);
    operands.hidden = reinterpret_cast<const T*>(decoded_hidden);
    operands.logits_alpha = static_cast<T>(hidden_scale * weight_scale);
    const auto largest = static_cast<double>(MaxFinite(args.quant.d_logits));
    operands.d_weight_alpha = static_cast<T>(args.d_loss / largest * hidden_scale);
    operands.d_hidden_alpha = static_cast<T>(args.d_loss / largest * weight_scale);
    operands.d_logits_scale = largest / args.d_loss;
  }
  const float* weights = args.loss_weight.as<float>();
  double loss_sum = 0.0;
  double weight_sum = 0.0;
  for (int64_t begin = 0; begin < tokens; begin += layout.chunk) {
    const int64_t count = std::min(layout.chunk, tokens - begin);
    if (args.quant.empty()) {
      operands.hidden = args.hidden.as<T>() + begin * channels;
    } else {
      Decode(exec, args.quant.hidden_rows, begin, count, decoded_hidden);
    }
    RunChunk(exec, args, operands, begin, count, logits, nll);
    for (int64_t i = 0; i < count; ++i) {
      loss_sum += static_cast<double>(weights[begin + i]) * nll[i];
      weight_sum += static_cast<double>(weights[begin + i]);
      AddToSource(args, begin + i, nll[i]);
      if (!args.nll.empty()) {
        args.nll.as<T>()[begin + i] = static_cast<T>(nll[i]);
      }
    }
  }
  // The products have written the vocabulary's rows alone; the padding's gradient is zero.
  if (!args.d_weight.empty() && !args.accumulate) {
    std::fill(args.d_weight.as<T>() + args.vocab * channels,
              args.d_weight.as<T>() + args.d_weight.numel(), T{0});
  }
  *args.loss_sum += loss_sum;
  *args.weight_sum += weight_sum;
  return absl::OkStatus();
}

absl::Status CheckTargets(const LinearCrossEntropyArgs& args) {
  const int32_t* targets = args.targets.as<int32_t>();
  const float* weights = args.loss_weight.as<float>();
  for (int64_t i = 0; i < args.hidden.rows(); ++i) {
    if (weights[i] != 0.0F && (targets[i] < 0 || targets[i] >= args.vocab)) {
      return absl::OutOfRangeError(
          absl::StrCat(kOp, ": targets[", i, "] = ", targets[i], ", vocabulary has ", args.vocab));
    }
  }
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

size_t LinearCrossEntropyWorkspaceBytes(const LinearCrossEntropyArgs& args) {
  return LayoutOf(args).bytes;
}

absl::Status LinearCrossEntropy(const Exec& exec, const LinearCrossEntropyArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckTargets(args));
  return DispatchFloating(args.hidden.dtype, [&]<typename T>() { return Impl<T>(exec, args); });
}

}  // namespace cpu

}  // namespace hearth::kernels
