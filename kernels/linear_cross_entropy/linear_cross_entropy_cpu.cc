#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/gemm/blas.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "linear_cross_entropy";
constexpr int64_t kChunkBytes = int64_t{32} << 20;
constexpr int64_t kSumBlock = 1024;  // terms summed in T before going into a double

int64_t ChunkTokens(const LinearCrossEntropyArgs& args) {
  const int64_t tokens = args.hidden.rows();
  const int64_t row_bytes = static_cast<int64_t>(DTypeBytes(args.hidden.dtype, args.vocab));
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

// One token's logits to its loss, returned, and in place to the gradient of d_loss * w * nll if
// `gradient`. Weight 0: the gradient is 0 whatever the logits are.
template <typename T>
double LossOfToken(const LinearCrossEntropyArgs& args, int64_t token, bool gradient, T* logits) {
  const int64_t vocab = args.vocab;
  const float weight = args.loss_weight.as<float>()[token];
  if (weight == 0.0F) {
    std::fill_n(logits, vocab, T{0});
    return 0.0;
  }
  RoundSpan(logits, vocab, args.round_logits);
  const int32_t target = args.targets.as<int32_t>()[token];
  const double target_logit = static_cast<double>(logits[target]);
  const Exponentials<T> e = Exponentiate(vocab, logits);
  const double nll = std::log(e.sum) + static_cast<double>(e.max) - target_logit;
  if (gradient) {
    const double scale = args.d_loss * static_cast<double>(weight);
    Multiply(static_cast<T>(scale / e.sum), vocab, logits);
    logits[target] -= static_cast<T>(scale);
    RoundSpan(logits, vocab, args.round_logits);
  }
  return nll;
}

// Tokens [begin, begin + count): logits, losses into nll, then both gradients.
template <typename T>
void RunChunk(const Exec& exec,
              const LinearCrossEntropyArgs& args,
              int64_t begin,
              int64_t count,
              T* logits,
              double* nll) {
  const int64_t hidden = args.hidden.cols();
  const int64_t vocab = args.vocab;
  const T* x = args.hidden.as<T>() + begin * hidden;
  const T* weight = args.weight.as<T>();
  const bool gradient = !args.d_hidden.empty() || !args.d_weight.empty();
  blas::SetThreads(exec.threads);
  blas::Gemm(false, true, count, vocab, hidden, T{1}, x, hidden, weight, hidden, T{0}, logits,
             vocab);
  ParallelFor(exec, count, RowGrain(vocab), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      nll[i] = LossOfToken(args, begin + i, gradient, logits + i * vocab);
    }
  });
  blas::SetThreads(exec.threads);
  if (!args.d_weight.empty()) {
    blas::Gemm(true, false, vocab, hidden, count, T{1}, logits, vocab, x, hidden, T{1},
               args.d_weight.as<T>(), hidden);
  }
  if (!args.d_hidden.empty()) {
    T* dx = args.d_hidden.as<T>() + begin * hidden;
    blas::Gemm(false, false, count, hidden, vocab, T{1}, logits, vocab, weight, hidden, T{0}, dx,
               hidden);
    RoundSpan(dx, count * hidden, args.round_d_hidden);
  }
}

template <typename T>
absl::Status Impl(const Exec& exec, const LinearCrossEntropyArgs& args) {
  const int64_t tokens = args.hidden.rows();
  const int64_t chunk = ChunkTokens(args);
  double* nll = static_cast<double*>(exec.workspace.data);
  T* logits = reinterpret_cast<T*>(static_cast<char*>(exec.workspace.data) +
                                   AlignUp(DTypeBytes(DType::kF64, chunk), 64));
  const float* weights = args.loss_weight.as<float>();
  double loss_sum = 0.0;
  double weight_sum = 0.0;
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const int64_t count = std::min(chunk, tokens - begin);
    RunChunk(exec, args, begin, count, logits, nll);
    for (int64_t i = 0; i < count; ++i) {
      loss_sum += static_cast<double>(weights[begin + i]) * nll[i];
      weight_sum += static_cast<double>(weights[begin + i]);
      if (!args.nll.empty()) {
        args.nll.as<T>()[begin + i] = static_cast<T>(nll[i]);
      }
    }
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

absl::Status CanImplement(const LinearCrossEntropyArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.hidden, kOp, "hidden"));
  const DType dtype = args.hidden.dtype;
  const int64_t tokens = args.hidden.rows();
  const int64_t hidden = args.hidden.cols();
  const int64_t padded = args.weight.rows();
  HEARTH_RETURN_IF_ERROR(RequireView(args.weight, dtype, {padded, hidden}, kOp, "weight"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.targets, DType::kI32, tokens, kOp, "targets"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.loss_weight, DType::kF32, tokens, kOp, "loss_weight"));
  if (args.vocab < 1 || args.vocab > padded) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": vocab is ", args.vocab, ", weight has ", padded, " rows"));
  }
  if (!args.d_hidden.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.d_hidden, dtype, tokens * hidden, kOp, "d_hidden"));
  }
  if (!args.d_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireView(args.d_weight, dtype, {padded, hidden}, kOp, "d_weight"));
  }
  if (!args.nll.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.nll, dtype, tokens, kOp, "nll"));
  }
  if (args.loss_sum == nullptr || args.weight_sum == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": loss_sum or weight_sum is null"));
  }
  HEARTH_RETURN_IF_ERROR(RequireRound(args.round_logits, kOp));
  return RequireRound(args.round_d_hidden, kOp);
}

size_t LinearCrossEntropyWorkspaceBytes(const LinearCrossEntropyArgs& args) {
  const int64_t chunk = ChunkTokens(args);
  return AlignUp(DTypeBytes(DType::kF64, chunk), 64) +
         DTypeBytes(args.hidden.dtype, chunk * args.vocab);
}

absl::Status LinearCrossEntropy(const Exec& exec, const LinearCrossEntropyArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(CheckTargets(args));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, LinearCrossEntropyWorkspaceBytes(args), kOp));
  return DispatchFloating(args.hidden.dtype, [&]<typename T>() { return Impl<T>(exec, args); });
}

absl::Status CanImplement(const LinearLogitsArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.hidden, "linear_logits", "hidden"));
  const DType dtype = args.hidden.dtype;
  const int64_t padded = args.weight.rows();
  HEARTH_RETURN_IF_ERROR(
      RequireView(args.weight, dtype, {padded, args.hidden.cols()}, "linear_logits", "weight"));
  HEARTH_RETURN_IF_ERROR(RequireView(args.logits, dtype, {args.hidden.rows(), args.logits.cols()},
                                     "linear_logits", "logits"));
  if (args.logits.cols() > padded) {
    return absl::InvalidArgumentError(absl::StrCat("linear_logits: logits have ",
                                                   args.logits.cols(), " columns, weight has ",
                                                   padded, " rows"));
  }
  return RequireRound(args.round_logits, "linear_logits");
}

size_t LinearLogitsWorkspaceBytes(const LinearLogitsArgs&) {
  return 0;
}

absl::Status LinearLogits(const Exec& exec, const LinearLogitsArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, "linear_logits"));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return DispatchFloating(args.hidden.dtype, [&]<typename T>() {
    const int64_t hidden = args.hidden.cols();
    blas::SetThreads(exec.threads);
    blas::Gemm(false, true, args.hidden.rows(), args.logits.cols(), hidden, T{1},
               args.hidden.as<T>(), hidden, args.weight.as<T>(), hidden, T{0}, args.logits.as<T>(),
               args.logits.cols());
    RoundSpan(args.logits.as<T>(), args.logits.numel(), args.round_logits);
    return absl::OkStatus();
  });
}

}  // namespace hearth::kernels
