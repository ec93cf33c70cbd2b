#include "kernels/sample_tokens/sample_tokens.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "sample_tokens";
constexpr int64_t kMostTokens = int64_t{1} << 20;

absl::Status OutOfRange(const char* name, double value, const char* range) {
  return absl::InvalidArgumentError(absl::StrCat(name, " ", value, " is not in ", range));
}

}  // namespace

absl::Status CheckSamplingRule(const SamplingRule& rule) {
  // Written so that NaN is refused.
  if (!(rule.temperature >= 0.0 && rule.temperature <= 1e6)) {
    return OutOfRange("temperature", rule.temperature, "[0, 1e6]");
  }
  if (rule.temperature > 0.0 && rule.temperature < 1e-6) {
    return OutOfRange("temperature", rule.temperature, "[1e-6, 1e6]; 0 draws the likeliest token");
  }
  if (rule.top_k < 0) {
    return OutOfRange("top_k", static_cast<double>(rule.top_k), "[0, vocabulary]; 0 = all");
  }
  if (!(rule.top_p > 0.0 && rule.top_p <= 1.0)) {
    return OutOfRange("top_p", rule.top_p, "(0, 1]");
  }
  if (!(rule.min_p >= 0.0 && rule.min_p <= 1.0)) {
    return OutOfRange("min_p", rule.min_p, "[0, 1]");
  }
  if (!(rule.repetition_penalty >= 1e-3 && rule.repetition_penalty <= 1e3)) {
    return OutOfRange("repetition_penalty", rule.repetition_penalty, "[1e-3, 1e3]");
  }
  return absl::OkStatus();
}

int64_t VocabOf(const SampleTokensArgs& args) {
  return args.vocab > 0 ? args.vocab : args.logits.cols();
}

absl::Status CanImplement(const SampleTokensArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckSamplingRule(args.rule));
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.logits, kOp, "logits"));
  const int64_t rows = args.logits.rows();
  const int64_t vocab = VocabOf(args);
  if (rows < 1 || vocab > args.logits.cols() || args.logits.cols() > kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": vocab ", vocab, ", logits are ",
                                                   DebugString(args.logits), ", at most ",
                                                   kMostTokens, " columns"));
  }
  const struct {
    const TensorView& view;
    const char* name;
  } state[] = {{args.streams, "streams"},
               {args.tokens, "tokens"},
               {args.positions, "positions"},
               {args.remaining, "remaining"},
               {args.drawn, "drawn"}};
  for (const auto& [view, name] : state) {
    HEARTH_RETURN_IF_ERROR(RequireCount(view, DType::kI32, rows, kOp, name));
  }
  if (!args.seen.empty() || args.rule.repetition_penalty != 1.0) {
    HEARTH_RETURN_IF_ERROR(
        RequireCount(args.seen, DType::kI32, rows * ((vocab + 31) / 32), kOp, "seen"));
  }
  return args.log_prob.empty() ? absl::OkStatus()
                               : RequireCount(args.log_prob, StatisticsType(args.logits.dtype),
                                              rows, kOp, "log_prob");
}

size_t SampleTokensWorkspaceBytes(const SampleTokensArgs& args, int threads) {
  return static_cast<size_t>(int64_t{2} * threads * VocabOf(args)) * sizeof(float);
}

absl::Status SampleTokens(const Exec& exec, const SampleTokensArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.logits.dtype, kOp));
  if (exec.device == Device::kCpu) {
    HEARTH_RETURN_IF_ERROR(
        RequireWorkspace(exec, SampleTokensWorkspaceBytes(args, exec.threads), kOp));
  }
  return RunOnDevice<cpu::SampleTokens, cuda::SampleTokens>(exec, kOp, args);
}

}  // namespace hearth::kernels
