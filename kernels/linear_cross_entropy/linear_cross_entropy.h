// The LM head and its loss in one op, chunked over tokens so that the full logits never exist.
//   logits = hidden weightT over the first `vocab` rows of weight; rows from vocab to V_padded are
//   padding: they take no part, and zeros are added to their gradient.
//   "T" is the storage type: kF32 or kF64 on the CPU, A on CUDA (core/exec.h; the logits of a chunk
//   are A too), the same for hidden, weight and d_hidden.
//   CPU: bits depend on exec.threads only through OpenBLAS. CUDA: on the plans (gemm.h) and
//   `chunk`.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// Operands of a head that multiplies in FP8; all of them, or none.
// N, C, V_padded and chunk are multiples of 16. All formats are kE4M3 or kE5M2, and no product has
// two operands of kE5M2 (gemm.h).
struct LinearCrossEntropyQuant {
  // [N, C], its transpose and [V_padded, C], its transpose, as QuantView's: columns[j, i] =
  // rows[i, j]. Rows and columns of one tensor have one format.
  TensorView hidden_rows;
  TensorView hidden_columns;
  TensorView weight_rows;
  TensorView weight_columns;
  // One float each, on the tensors' device: value = quantised * *scale.
  const float* hidden_scale = nullptr;
  const float* weight_scale = nullptr;
  // Format of d_logits. They get the fixed scale MaxFinite(d_logits) / d_loss.
  DType d_logits = DType::kE5M2;

  bool empty() const {
    return hidden_rows.empty() && hidden_columns.empty() && weight_rows.empty() &&
           weight_columns.empty() && hidden_scale == nullptr && weight_scale == nullptr;
  }
};

// loss_sum += sum of w * nll, weight_sum += sum of w, over the call's tokens, in double.
// With d_hidden and d_weight also the gradient of d_loss * (sum of w * nll):
//   d_logits = round_logits(d_loss * w * (softmax - onehot));
//   d_hidden = round_d_hidden(d_logits weight);  d_weight += d_logitsT hidden
//   hidden      : [N, C] T             weight : [V_padded, C] T
//   targets     : [N] i32, 0 <= target < vocab where w != 0 (elsewhere ignored, may be -1 or -100)
//   loss_weight : [N] f32, finite, >= 0
//   d_hidden    : [N, C] T, overwritten, 0 where w == 0; may alias hidden
//   d_weight    : [V_padded, C] T (CPU), G (CUDA); added to if `accumulate`, else overwritten
//                 each optional; both absent = forward only (evaluation)
//   nll         : [N] T (CPU), f32 (CUDA), optional: per token, 0 where w == 0
//   top         : [N] i32, optional, evaluation only: 1 where greedy decoding would take the
//                 target: no logit is larger, and no equal one has a lower index; else, and where
//                 w == 0, 0
//   loss_sum, weight_sum : one double each, on the tensors' device, added to; not null
//   source      : [S] i32, optional, N a multiple of S: the source of each sample, which is a
//                 stretch of N / S tokens
//   source_sums : with `source` [sources, 2] doubles, on the tensors' device, added to: loss_sum
//                 and weight_sum of the samples from each of 0 .. sources - 1; others are left out
//   chunk       : tokens per chunk, 0 = chosen so that a chunk's logits take about 32 MiB (CPU) or
//                 1 GiB (CUDA: each chunk reads and writes d_weight once, so few are better)
//   round_logits: also rounds the logits themselves before the softmax
//   quant       : if present, all three products take FP8 operands: the logits with fast
//                 accumulation; d_logits by their fixed scale, which brings none beyond the format
//                 where w <= 1, since |d_logits| <= d_loss * w (larger w saturate). Then
//                 d_loss > 0, T is not kF64, and of hidden and weight only shape and dtype count.
//                 The CPU reads rows only, and multiplies the decoded values in fp32
// Workspace: one chunk of logits (FP8: and its gradient by rows and columns), nll, partial sums.
// Errors: kInvalidArgument (shape, dtype, workspace); kOutOfRange (target; CUDA cannot tell in
// time: there the loss and the gradients become NaN); kUnimplemented.
struct LinearCrossEntropyArgs {
  TensorView hidden;
  TensorView weight;
  TensorView targets;
  TensorView loss_weight;
  int64_t vocab = 0;
  double d_loss = 1.0;
  TensorView d_hidden;
  TensorView d_weight;
  bool accumulate = true;
  TensorView nll;
  TensorView top;
  double* loss_sum = nullptr;
  double* weight_sum = nullptr;
  TensorView source;
  double* source_sums = nullptr;
  int64_t sources = 0;
  int64_t chunk = 0;
  LinearCrossEntropyQuant quant;
  DType round_logits = DType::kF32;
  DType round_d_hidden = DType::kF32;
};

size_t LinearCrossEntropyWorkspaceBytes(const Exec& exec, const LinearCrossEntropyArgs& args);
// The larger of what both devices need.
size_t LinearCrossEntropyWorkspaceBytes(const LinearCrossEntropyArgs& args);
HEARTH_DECLARE_OP(LinearCrossEntropy, LinearCrossEntropyArgs);

// logits = round_logits(hidden weightT) of a few positions, for sampling.
//   hidden : [n, C] T     weight : [V_padded, C] T     logits : [n, vocab] T, vocab <= V_padded;
//   with bf16 operands (CUDA) also f32
struct LinearLogitsArgs {
  TensorView hidden;
  TensorView weight;
  TensorView logits;
  DType round_logits = DType::kF32;
};

absl::Status CanImplement(const LinearLogitsArgs& args);
// Not required. On CUDA, more workspace lets more algorithms be tried.
size_t LinearLogitsWorkspaceBytes(const LinearLogitsArgs& args);
absl::Status LinearLogits(const Exec& exec, const LinearLogitsArgs& args);

namespace cpu {
size_t LinearCrossEntropyWorkspaceBytes(const LinearCrossEntropyArgs& args);
}  // namespace cpu

}  // namespace hearth::kernels
