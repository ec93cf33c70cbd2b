// A recipe row in the terms of the kernels: the format of each kind of value.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/formats/gpu_units.h"
#include "common/spec/recipe/recipe.h"
#include "kernels/core/formats.h"

namespace hearth::trainer {

// On the CPU storage is wide (fp32, or fp64 for gradient checks) and a narrower format is emulated
// by rounding every value that real storage would round; a format equal to the storage means no
// rounding. On a GPU these are the formats of the buffers themselves. Quantised operands are not
// part of this: the producers of operands make them (precision/operand.h).
struct Numerics {
  kernels::DType storage = kernels::DType::kF32;  // CPU: of every floating buffer
  kernels::DType weight = kernels::DType::kF32;   // working weights
  kernels::DType activation =
      kernels::DType::kF32;  // residual stream, norms, attention and what backward saves
  kernels::DType fprop = kernels::DType::kF32;  // output of y = x wT
  kernels::DType dgrad = kernels::DType::kF32;  // output of dx = dy w
  kernels::DType head = kernels::DType::kF32;   // logits and their gradient

  // Accumulated gradients that the parameter table has in `format`.
  kernels::DType Gradient(spec::DType format) const {
    return format == spec::DType::kF32 ? storage : format;
  }
};

// The products of a quantised recipe's operands that block-scaled units may compute. None: operands
// have several layouts, or some are in BF16, and products are emulated.
std::optional<formats::UnitProducts> UnitProductsOf(const spec::Recipe& recipe);

// `gradients`: the formats of the table (spec::GradientFormats). kUnimplemented: a format that
// cannot be accumulated in; an unscaled operand that is not as its producer writes it. The text
// names the recipe and the operand.
absl::StatusOr<Numerics> MakeNumerics(const spec::Recipe& recipe,
                                      absl::Span<const spec::DType> gradients,
                                      kernels::DType storage);

}  // namespace hearth::trainer
