// Token embedding, plus learned positions where there are any.
//   T = kF32 or kF64 (CPU), A (CUDA, core/exec.h), the same for all floating views of a call but
//   the gradients, which are G on CUDA.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// out[i] = round_out(table[tokens[i]] + position_table[positions[i]])
//   tokens         : [N] i32, 0 <= token < V
//   positions      : [N] i32, 0 <= position < P; present exactly if position_table is
//   table          : [V, C] T        position_table : [P, C] T, optional
//   out            : [N, C] T, no aliasing
// Errors: kInvalidArgument (shape, dtype); kUnimplemented (storage); on the CPU kOutOfRange (a
// token or position outside its table; out is then unspecified). A GPU cannot report that: it takes
// the table's nearest row, here and in backward; what feeds it must have checked.
struct EmbeddingForwardArgs {
  TensorView tokens;
  TensorView positions;
  TensorView table;
  TensorView position_table;
  TensorView out;
  DType round_out = DType::kF32;
};

HEARTH_DECLARE_OP(EmbeddingForward, EmbeddingForwardArgs);

// d_table[tokens[i]] += d_out[i]; d_position_table[positions[i]] += d_out[i], in order of i: the
// bits are independent of exec.threads. CUDA: the rows of a token are summed in fp32 in a fixed
// order, then added to its row of the table.
//   d_out : [N, C] T    d_table : [V, C] T or G    d_position_table : [P, C] T or G, optional
// N < 2^31. Either gradient may be absent (frozen).
// Workspace (CUDA alone): the sorted pairs and the sums of long runs of one token.
// Errors: as in forward.
struct EmbeddingBackwardArgs {
  TensorView d_out;
  TensorView tokens;
  TensorView positions;
  TensorView d_table;
  TensorView d_position_table;
};

size_t EmbeddingBackwardWorkspaceBytes(const EmbeddingBackwardArgs& args);
HEARTH_DECLARE_OP(EmbeddingBackward, EmbeddingBackwardArgs);

}  // namespace hearth::kernels
