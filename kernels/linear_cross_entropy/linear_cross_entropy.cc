#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_cross_entropy/cuda_layout.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "linear_cross_entropy";

// Weight gradients and statistics follow from the storage type of the activations.
absl::Status CheckOutputs(const LinearCrossEntropyArgs& args) {
  const DType dtype = args.hidden.dtype;
  const bool wide = dtype == DType::kF64;
  if (!args.d_hidden.empty()) {
    HEARTH_RETURN_IF_ERROR(
        RequireCount(args.d_hidden, dtype, args.hidden.numel(), kOp, "d_hidden"));
  }
  if (!args.d_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireFloating(args.d_weight, kOp, "d_weight"));
    const DType given =
        wide ? DType::kF64 : (args.d_weight.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32);
    HEARTH_RETURN_IF_ERROR(RequireView(args.d_weight, given,
                                       {args.weight.rows(), args.weight.cols()}, kOp, "d_weight"));
  }
  if (!args.nll.empty()) {
    HEARTH_RETURN_IF_ERROR(
        RequireCount(args.nll, wide ? dtype : DType::kF32, args.hidden.rows(), kOp, "nll"));
  }
  if (args.top.empty()) {
    return absl::OkStatus();
  }
  if (!args.d_hidden.empty() || !args.d_weight.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": top goes without gradients"));
  }
  return RequireCount(args.top, DType::kI32, args.hidden.rows(), kOp, "top");
}

absl::Status CheckQuant(const LinearCrossEntropyArgs& args) {
  const LinearCrossEntropyQuant& quant = args.quant;
  const int64_t tokens = args.hidden.rows();
  const int64_t channels = args.hidden.cols();
  const int64_t padded = args.weight.rows();
  const DType hidden = quant.hidden_rows.dtype;
  const DType weight = quant.weight_rows.dtype;
  for (const DType dtype : {hidden, weight, quant.d_logits}) {
    if (dtype != DType::kE4M3 && dtype != DType::kE5M2) {
      return absl::InvalidArgumentError(absl::StrCat(kOp, ": an FP8 head in no FP8 format"));
    }
  }
  // The logits are hidden x weight, and d_logits meets either of them.
  const int e5m2 = (hidden == DType::kE5M2 ? 1 : 0) + (weight == DType::kE5M2 ? 1 : 0) +
                   (quant.d_logits == DType::kE5M2 ? 1 : 0);
  if (e5m2 > 1) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": an FP8 head with E5M2 on both sides"));
  }
  HEARTH_RETURN_IF_ERROR(
      RequireView(quant.hidden_rows, hidden, {tokens, channels}, kOp, "quant.hidden_rows"));
  HEARTH_RETURN_IF_ERROR(
      RequireView(quant.hidden_columns, hidden, {channels, tokens}, kOp, "quant.hidden_columns"));
  HEARTH_RETURN_IF_ERROR(
      RequireView(quant.weight_rows, weight, {padded, channels}, kOp, "quant.weight_rows"));
  HEARTH_RETURN_IF_ERROR(
      RequireView(quant.weight_columns, weight, {channels, padded}, kOp, "quant.weight_columns"));
  if (quant.hidden_scale == nullptr || quant.weight_scale == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": FP8 operands without scales"));
  }
  if (args.hidden.dtype != DType::kF32 && args.hidden.dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": with FP8 operands, hidden must be fp32 or bf16"));
  }
  if ((tokens | channels | padded | args.chunk) % 16 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": an FP8 head needs multiples of 16: tokens ", tokens, ", channels ",
                     channels, ", padded vocabulary ", padded, ", chunk ", args.chunk));
  }
  if (!(args.d_loss > 0.0) || !std::isfinite(args.d_loss)) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": d_loss is ", args.d_loss));
  }
  return absl::OkStatus();
}

absl::Status CheckSources(const LinearCrossEntropyArgs& args) {
  if (args.source.empty()) {
    return absl::OkStatus();
  }
  const int64_t samples = args.source.numel();
  HEARTH_RETURN_IF_ERROR(RequireCount(args.source, DType::kI32, samples, kOp, "source"));
  if (args.hidden.rows() % samples != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": ", args.hidden.rows(), " tokens are no whole samples of ", samples, " sources"));
  }
  return args.source_sums != nullptr && args.sources >= 1
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat(kOp, ": source without source_sums"));
}

// Logits as a product of rows; vocabulary's padding left out.
GemmArgs LogitsProduct(const LinearLogitsArgs& args) {
  GemmArgs gemm;
  gemm.a = args.hidden;
  gemm.b =
      TensorView(args.weight.data, args.weight.dtype, {args.logits.cols(), args.weight.cols()});
  gemm.c = args.logits;
  gemm.transpose_b = true;
  gemm.round_c = args.round_logits;
  return gemm;
}

}  // namespace

absl::Status CanImplement(const LinearCrossEntropyArgs& args) {
  const int64_t tokens = args.hidden.rows();
  const int64_t padded = args.weight.rows();
  if (args.quant.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireFloating(args.hidden, kOp, "hidden"));
    HEARTH_RETURN_IF_ERROR(
        RequireView(args.weight, args.hidden.dtype, {padded, args.hidden.cols()}, kOp, "weight"));
  } else {
    HEARTH_RETURN_IF_ERROR(CheckQuant(args));
  }
  HEARTH_RETURN_IF_ERROR(RequireCount(args.targets, DType::kI32, tokens, kOp, "targets"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.loss_weight, DType::kF32, tokens, kOp, "loss_weight"));
  if (args.vocab < 1 || args.vocab > padded) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": vocab is ", args.vocab, ", weight has ", padded, " rows"));
  }
  HEARTH_RETURN_IF_ERROR(CheckOutputs(args));
  HEARTH_RETURN_IF_ERROR(CheckSources(args));
  if (args.loss_sum == nullptr || args.weight_sum == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": loss_sum or weight_sum is null"));
  }
  HEARTH_RETURN_IF_ERROR(RequireRound(args.round_logits, kOp));
  return RequireRound(args.round_d_hidden, kOp);
}

size_t LinearCrossEntropyWorkspaceBytes(const Exec& exec, const LinearCrossEntropyArgs& args) {
  return exec.device == Device::kCuda ? cuda::HeadLayoutOf(args).bytes
                                      : cpu::LinearCrossEntropyWorkspaceBytes(args);
}

size_t LinearCrossEntropyWorkspaceBytes(const LinearCrossEntropyArgs& args) {
  const size_t on_cpu =
      args.hidden.dtype == DType::kBF16 ? 0 : cpu::LinearCrossEntropyWorkspaceBytes(args);
  return args.hidden.dtype == DType::kF64 ? on_cpu
                                          : std::max(on_cpu, cuda::HeadLayoutOf(args).bytes);
}

absl::Status LinearCrossEntropy(const Exec& exec, const LinearCrossEntropyArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.hidden.dtype, kOp));
  if (!args.d_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.d_weight.dtype, kOp));
  }
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, LinearCrossEntropyWorkspaceBytes(exec, args), kOp));
  return RunOnDevice<cpu::LinearCrossEntropy, cuda::LinearCrossEntropy>(exec, kOp, args);
}

absl::Status CanImplement(const LinearLogitsArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.hidden, "linear_logits", "hidden"));
  const DType dtype = args.hidden.dtype;
  const int64_t padded = args.weight.rows();
  HEARTH_RETURN_IF_ERROR(
      RequireView(args.weight, dtype, {padded, args.hidden.cols()}, "linear_logits", "weight"));
  HEARTH_RETURN_IF_ERROR(RequireView(args.logits, args.logits.dtype,
                                     {args.hidden.rows(), args.logits.cols()}, "linear_logits",
                                     "logits"));
  if (args.logits.cols() > padded) {
    return absl::InvalidArgumentError(absl::StrCat("linear_logits: logits have ",
                                                   args.logits.cols(), " columns, weight has ",
                                                   padded, " rows"));
  }
  return CanImplement(LogitsProduct(args));
}

size_t LinearLogitsWorkspaceBytes(const LinearLogitsArgs& args) {
  return GemmWorkspaceBytes(LogitsProduct(args));
}

absl::Status LinearLogits(const Exec& exec, const LinearLogitsArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return Gemm(exec, LogitsProduct(args));
}

}  // namespace hearth::kernels
