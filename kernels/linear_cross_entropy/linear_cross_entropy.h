// The LM head and its loss in one op, chunked over tokens so that the full logits never exist.
//   logits = hidden weightT over the first `vocab` rows of weight; rows from vocab to V_padded are
//   padding: they take no part and their gradient is not touched.
//   "T" is the storage type, kF32 or kF64, the same for hidden, weight and their gradients.
//   Bits depend on exec.threads only through OpenBLAS.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

// loss_sum += sum of w * nll, weight_sum += sum of w, over the call's tokens, in double.
// With d_hidden and d_weight also the gradient of d_loss * (sum of w * nll):
//   d_logits = round_logits(d_loss * w * (softmax - onehot));
//   d_hidden = round_d_hidden(d_logits weight);  d_weight += d_logitsT hidden
//   hidden      : [N, C] T             weight : [V_padded, C] T
//   targets     : [N] i32, 0 <= target < vocab where w != 0 (elsewhere ignored, may be -1 or -100)
//   loss_weight : [N] f32, finite, >= 0
//   d_hidden    : [N, C] T, overwritten, 0 where w == 0; may alias hidden
//   d_weight    : [V_padded, C] T, accumulated into
//                 each optional; both absent = forward only (evaluation)
//   nll         : [N] T, optional: per token, 0 where w == 0
//   loss_sum, weight_sum : host memory (CPU), one double each, added to; not null
//   chunk       : tokens per chunk, 0 = chosen so that a chunk's logits take about 32 MiB
//   round_logits: also rounds the logits themselves before the softmax
// Workspace: one chunk of logits, and partial sums.
// Errors: kInvalidArgument (shape, dtype, workspace); kOutOfRange (target); kUnimplemented.
struct LinearCrossEntropyArgs {
  TensorView hidden;
  TensorView weight;
  TensorView targets;
  TensorView loss_weight;
  int64_t vocab = 0;
  double d_loss = 1.0;
  TensorView d_hidden;
  TensorView d_weight;
  TensorView nll;
  double* loss_sum = nullptr;
  double* weight_sum = nullptr;
  int64_t chunk = 0;
  DType round_logits = DType::kF32;
  DType round_d_hidden = DType::kF32;
};

absl::Status CanImplement(const LinearCrossEntropyArgs& args);
size_t LinearCrossEntropyWorkspaceBytes(const LinearCrossEntropyArgs& args);
absl::Status LinearCrossEntropy(const Exec& exec, const LinearCrossEntropyArgs& args);

// logits = round_logits(hidden weightT) of a few positions, for sampling.
//   hidden : [n, C] T     weight : [V_padded, C] T     logits : [n, vocab] T, vocab <= V_padded
struct LinearLogitsArgs {
  TensorView hidden;
  TensorView weight;
  TensorView logits;
  DType round_logits = DType::kF32;
};

absl::Status CanImplement(const LinearLogitsArgs& args);
size_t LinearLogitsWorkspaceBytes(const LinearLogitsArgs& args);  // 0
absl::Status LinearLogits(const Exec& exec, const LinearLogitsArgs& args);

}  // namespace hearth::kernels
