// Per-head RMS norm of queries and keys (Qwen3), then rotary embedding, on the fused projection.
//   The fused row is [q: Hq*D | k: Hkv*D | v: Hkv*D].
//   Rotation: Hugging Face "rotate_half": element i of the first half pairs with i + D/2.
//   T = kF32 or kF64 (CPU), A (CUDA, core/exec.h), the same for all floating views of a call, but
//   on CUDA rstd is f32 and the weight gradients are G. Bits independent of exec.threads.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

struct RopeConfig {
  bool enabled = true;  // false: learned positions; the op then only norms (or copies)
  double theta = 10000.0;
  RopeScaling scaling;
};

// inv_freq[i], i < head_dim / 2, radians per position, scaling applied. Agrees with
// transformers' ROPE_INIT_FUNCTIONS of the same names.
void RopeInverseFrequencies(const RopeConfig& config, int64_t head_dim, double* inv_freq);

struct QkHeads {
  int64_t heads = 0;     // Hq
  int64_t kv_heads = 0;  // Hkv
  int64_t head_dim = 0;  // D, even if rope is enabled

  constexpr int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }  // of a fused row
};

// What both directions take.
//   qkv       : [N, (Hq + 2 Hkv) D] T, forward's input; backward needs it with QK-norm alone
//   positions : [N] i32, >= 0 (checked on the CPU); required if rope.enabled
//   q_weight, k_weight : [D] T; both present (QK-norm) or both absent
//   rstd      : [N, Hq + Hkv] T, kept for backward; required with QK-norm
// Errors: kInvalidArgument (shape, dtype, odd D with rope); kOutOfRange (position, CPU);
// kUnimplemented (rounding, storage, D > 256 on CUDA).
struct QkNormRopeArgs {
  QkHeads dims;
  RopeConfig rope;
  TensorView qkv;
  TensorView positions;
  TensorView q_weight;
  TensorView k_weight;
  TensorView rstd;
};

// out = rope(norm(qkv)) for the q and k heads, out = qkv for the v heads.
//   out : [N, (Hq + 2 Hkv) D] T; may alias qkv (with QK-norm, backward needs the input: then keep
//         it elsewhere)
// Workspace (CPU): cos and sin of each row, 2 * N * D/2 of T.
struct QkNormRopeForwardArgs : QkNormRopeArgs {
  TensorView out;
  double eps = 1e-6;
  DType round_out = DType::kF32;
};

size_t QkNormRopeForwardWorkspaceBytes(const QkNormRopeForwardArgs& args);
HEARTH_DECLARE_OP(QkNormRopeForward, QkNormRopeForwardArgs);

// d_qkv from d_out; d_q_weight and d_k_weight accumulated into.
//   d_out, d_qkv : [N, (Hq + 2 Hkv) D] T; d_qkv may alias d_out, and may be absent if d_qkv_quant
//                  has values or there are d_qkv_blocks
//   d_qkv_blocks : optional, instead of d_qkv_quant: block-scaled forms of d_qkv, the bits that
//                  BlockQuantize (block_quantize.h) gives of it, in the same pass, with what
//                  BlockQuantize asks of shapes. On CUDA D is 16, 32, 64 or 128 then and all views
//                  are aligned to 16 bytes; NVFP4 in both directions: 3.1 bytes an element (bf16;
//                  with QK-norm 5.1, rstd apart) are the floor
//   d_q_weight, d_k_weight : [D] T; required with QK-norm
// Workspace: forward's plus partial sums of the weight gradients.
struct QkNormRopeBackwardArgs : QkNormRopeArgs {
  TensorView d_out;
  TensorView d_qkv;
  QuantView d_qkv_quant;
  BlockQuantView d_qkv_blocks;
  TensorView d_q_weight;
  TensorView d_k_weight;
  DType round_d_qkv = DType::kF32;
};

size_t QkNormRopeBackwardWorkspaceBytes(const QkNormRopeBackwardArgs& args);
// Whether there is a version with d_qkv_blocks for such heads: on the CPU always.
bool WritesBlocks(const Exec& exec, const QkNormRopeBackwardArgs& args);
HEARTH_DECLARE_OP(QkNormRopeBackward, QkNormRopeBackwardArgs);

namespace cpu {
size_t QkNormRopeBackwardWorkspaceBytes(const QkNormRopeBackwardArgs& args);
size_t QkNormRopeForwardWorkspaceBytes(const QkNormRopeForwardArgs& args);
}  // namespace cpu

}  // namespace hearth::kernels
