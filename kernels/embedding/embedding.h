// Token embedding, plus learned positions where there are any.
//   T = kF32 or kF64, the same for all floating views of a call.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

// out[i] = round_out(table[tokens[i]] + position_table[positions[i]])
//   tokens         : [N] i32, 0 <= token < V
//   positions      : [N] i32, 0 <= position < P; present exactly if position_table is
//   table          : [V, C] T        position_table : [P, C] T, optional
//   out            : [N, C] T, no aliasing
// Errors: kInvalidArgument (shape, dtype); kOutOfRange (a token or position outside its table; out
// is then unspecified).
struct EmbeddingForwardArgs {
  TensorView tokens;
  TensorView positions;
  TensorView table;
  TensorView position_table;
  TensorView out;
  DType round_out = DType::kF32;
};

absl::Status CanImplement(const EmbeddingForwardArgs& args);
size_t EmbeddingForwardWorkspaceBytes(const EmbeddingForwardArgs& args);  // 0
absl::Status EmbeddingForward(const Exec& exec, const EmbeddingForwardArgs& args);

// d_table[tokens[i]] += d_out[i]; d_position_table[positions[i]] += d_out[i], in order of i: the
// bits are independent of exec.threads.
//   d_out : [N, C] T    d_table : [V, C] T    d_position_table : [P, C] T, optional
// Either gradient may be absent (frozen).
struct EmbeddingBackwardArgs {
  TensorView d_out;
  TensorView tokens;
  TensorView positions;
  TensorView d_table;
  TensorView d_position_table;
};

absl::Status CanImplement(const EmbeddingBackwardArgs& args);
size_t EmbeddingBackwardWorkspaceBytes(const EmbeddingBackwardArgs& args);  // 0
absl::Status EmbeddingBackward(const Exec& exec, const EmbeddingBackwardArgs& args);

}  // namespace hearth::kernels
