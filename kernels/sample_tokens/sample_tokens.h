// Draws the next token of each sequence from its logits, and moves the sequences on.
//
// The filters are those of transformers' generate(), in its order:
//   1. repetition penalty : l > 0 ? l / penalty : l * penalty, for each token seen in the sequence
//   2. temperature        : s = l / temperature; 0: the token with the largest l, and nothing below
//   3. top_k              : those at least as likely as the k-th
//   4. top_p              : those that less than top_p is more likely than, of what 3 left
//   5. min_p              : those with at least min_p times the largest probability
// Then one of what is left, in proportion to its probability. Tokens that are equally likely are
// kept or dropped together. A logit that is NaN counts as -infinity. Where the largest is infinite,
// of either sign, the first token with it is drawn: token 0 where all are NaN.
//
// Everything but log_prob is computed in fp32 with fixed bits, probabilities summed as integers
// (2^29 = the largest), so that a GPU draws what the CPU draws, for any number of threads.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

struct SamplingRule {
  double temperature = 1.0;         // >= 0; 0 = the most likely token
  int64_t top_k = 0;                // >= 0; 0 = all
  double top_p = 1.0;               // (0, 1]; 1 = all
  double min_p = 0.0;               // [0, 1]; 0 = all
  double repetition_penalty = 1.0;  // > 0; 1 = none, larger avoids what was seen
  uint64_t seed = 1;
};

// kInvalidArgument naming the setting, its value and its range.
absl::Status CheckSamplingRule(const SamplingRule& rule);

//   logits    : [B, V] T (kF32 or kF64 on the CPU, A on CUDA), V <= 2^20; the first `vocab` of a
//               row count (0: all)
//   streams   : [B] i32, >= 0: numbers of the texts. A draw is a function of seed, stream, the
//               position drawn for, and the logits
//   seen      : [B, ceil(vocab / 32)] i32, optional: bit t % 32 of word t / 32 is set if token t is
//               in the sequence; required if repetition_penalty is not 1. The drawn token is added
//   tokens    : [B] i32: the last token; becomes the drawn one
//   positions : [B] i32, >= 0: where the last token stands; becomes the drawn one's, if the
//               sequence goes on
//   remaining : [B] i32: tokens that the sequence may still get; one less after, 0 if the drawn one
//               is end_token (-1: none is). A row with 0 stays as it is
//   drawn     : [B] i32, the drawn tokens; -1 for rows that stay
//   log_prob  : [B] T (CPU), f32 (CUDA), optional: of the drawn token by the logits as they are,
//               without penalty, temperature and filters; 0 for rows that stay
// Workspace: two rows of distances a thread (CPU).
// Errors: kInvalidArgument (shape, dtype, rule); kUnimplemented (storage).
struct SampleTokensArgs {
  TensorView logits;
  TensorView streams;
  TensorView seen;
  TensorView tokens;
  TensorView positions;
  TensorView remaining;
  TensorView drawn;
  TensorView log_prob;
  SamplingRule rule;
  int64_t vocab = 0;
  int32_t end_token = -1;
};

int64_t VocabOf(const SampleTokensArgs& args);
size_t SampleTokensWorkspaceBytes(const SampleTokensArgs& args, int threads);  // for either device
HEARTH_DECLARE_OP(SampleTokens, SampleTokensArgs);

}  // namespace hearth::kernels
