// The properties of a product by which the library may choose an algorithm.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "kernels/gemm/gemm.h"

namespace hearth::kernels {

struct GemmKey {
  GemmExtents extents;
  DType a = DType::kF32;
  DType b = DType::kF32;
  DType c = DType::kF32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;        // a bf16 bias of a bf16 c, cuBLASLt's epilogue
  bool accumulate = false;  // beta != 0
  bool addend = false;      // beta multiplies another matrix than c
  bool fast = false;
  bool blocks = false;  // block scales, in `layout`
  BlockLayout layout = BlockLayout::kMxfp8;
  bool scalars = false;   // alpha and beta are on the device
  uint32_t align_a = 16;  // bytes, up to 16
  uint32_t align_b = 16;
  uint32_t align_c = 16;
  uint32_t align_bias = 16;
  int64_t batch = 1;
  int64_t stride_a = 0;  // 0 without a batch
  int64_t stride_b = 0;
  int64_t stride_c = 0;

  auto Tied() const {
    const GemmExtents& e = extents;
    return std::tie(e.m, e.n, e.k, e.lda, e.ldb, e.ldc, a, b, c, transpose_a, transpose_b, bias,
                    accumulate, addend, fast, blocks, layout, scalars, align_a, align_b, align_c,
                    align_bias, batch, stride_a, stride_b, stride_c);
  }
  bool operator<(const GemmKey& other) const { return Tied() < other.Tied(); }
};

GemmKey GemmKeyOf(const GemmArgs& args);
// As plan files name it (tuned_plans.h).
std::string GemmKeyText(const GemmKey& key, bool deterministic);
// For errors: the same, and what else a library may refuse of the product: which scales it has and
// how they lie, where alpha and beta are, and the workspace.
std::string ProductText(const GemmArgs& args, bool deterministic, size_t workspace_bytes);

}  // namespace hearth::kernels
