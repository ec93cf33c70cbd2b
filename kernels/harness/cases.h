// All operations, and their tables of cases, which cases.cc joins.
#pragma once

#include <vector>

#include "kernels/harness/harness.h"

// clang-format off
// One row an operation: ROW(op, Op). Folder op/ has op.cc, the door, op_cpu.cc, op.cu for GPUs, and
// op_cases.cc with OpCases(). kernels/CMakeLists.txt reads the rows, too.
#define HEARTH_OPS(ROW)                         \
  ROW(gemm, Gemm)                               \
  ROW(embedding, Embedding)                     \
  ROW(norm, Norm)                               \
  ROW(qk_norm_rope, QkNormRope)                 \
  ROW(swiglu, Swiglu)                           \
  ROW(gated_gemm, GatedGemm)                    \
  ROW(thin_gemm, ThinGemm)                      \
  ROW(gelu, Gelu)                               \
  ROW(attention, Attention)                     \
  ROW(linear_cross_entropy, LinearCrossEntropy) \
  ROW(dropout, Dropout)                         \
  ROW(adamw, AdamW)                             \
  ROW(grad_norm, GradNorm)                      \
  ROW(scale, Scale)                             \
  ROW(copy_values, CopyValues)                  \
  ROW(round, Round)                             \
  ROW(amax, Amax)                               \
  ROW(draw_normal, DrawNormal)                  \
  ROW(quantize, Quantize)                       \
  ROW(block_quantize, BlockQuantize)            \
  ROW(step_gate, StepGate)                      \
  ROW(count_codes, CountCodes)                  \
  ROW(cached_attention, CachedAttention)        \
  ROW(sample_tokens, SampleTokens)              \
  ROW(newton_schulz, NewtonSchulz)              \
  ROW(muon, Muon)                               \
  ROW(muon_leading, MuonLeading)                \
  ROW(moving_average, MovingAverage)            \
  ROW(gradient_parts, GradientParts)            \
  ROW(weight_blocks, WeightBlocks)
// clang-format on

namespace hearth::kernels::harness {

#define HEARTH_DECLARE_CASES(op, Op) std::vector<OpCase> Op##Cases();
HEARTH_OPS(HEARTH_DECLARE_CASES)
#undef HEARTH_DECLARE_CASES

}  // namespace hearth::kernels::harness
