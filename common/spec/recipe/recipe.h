// Precision recipes as values: how each operand of the three GEMMs of a linear layer is quantised.
//
//   fprop: y = x wT      dgrad: dx = dy w      wgrad: dw = dyT x
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/formats/block_layout.h"
#include "common/formats/quantization.h"
#include "common/spec/model/dtype_alias.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

using formats::BlockLayout;
using formats::HadamardSigns;
using formats::Rounding;
using formats::Scaling;

// What is quantised for backward: the high-precision tensor, or the copy that forward saved.
enum class Source : uint8_t { kHighPrecision, kForwardCopy };

struct Operand {
  DType dtype = DType::kBF16;
  Scaling scaling = Scaling::kNone;
  // Meaningful only for kBlock: which elements share a scale, and whether they are a square.
  BlockLayout layout = BlockLayout::kMxfp8;
  bool square = false;
  Rounding rounding = Rounding::kNearest;
  // Groups of this many elements along the contracted dimension go through a random Hadamard
  // transform before they are rounded: 16, 32, 64 or 128; 0 = no transform.
  int16_t hadamard = 0;
  HadamardSigns signs = HadamardSigns::kFixed;
  Source source = Source::kHighPrecision;
  // Only with tensor_scale(): that scale is made from the tensor itself, which is then read twice,
  // and not from its magnitude in the step before.
  bool own_tensor_scale = false;

  bool quantised() const { return scaling != Scaling::kNone; }
  // Blocks and the tensor have a scale each.
  bool tensor_scale() const {
    return scaling == Scaling::kBlock && formats::RowOf(layout).tensor_scale;
  }
  // Whether a scale of the tensor is made from the magnitudes of earlier steps.
  bool delayed() const {
    return scaling == Scaling::kTensorDelayed || (tensor_scale() && !own_tensor_scale);
  }
  // Producers can write the quantised values themselves: their one scale is known before they are.
  bool scale_known_before() const { return scaling == Scaling::kTensorDelayed; }
  // Backward makes the copy along columns again from what else is kept; copies of 8 bits are kept.
  bool columns_made_again() const { return DTypeBits(dtype) < 8; }
  // What every extent of a product with such an operand must be a multiple of: FP8 operands are
  // transposed in tiles and multiplied by units that read 16 values at a time, block-scaled ones
  // 32; a Hadamard transform takes whole groups.
  int64_t extent_unit() const {
    const int64_t unit = scaling == Scaling::kNone ? 1 : scaling == Scaling::kBlock ? 32 : 16;
    return std::max<int64_t>(unit, hadamard);
  }
  bool operator==(const Operand&) const = default;
};

struct Gemm {
  Operand a;  // fprop: x    dgrad: dy   wgrad: x
  Operand b;  // fprop: w    dgrad: w    wgrad: dy
  // Hopper only: no periodic promotion of the accumulator to fp32.
  bool fast_accumulation = false;
  DType output = DType::kBF16;
};

// Formats in which parameters and their gradients live.
struct ParameterFormats {
  DType storage = DType::kBF16;  // read by forward and backward, written to model.safetensors
  DType master = DType::kF32;    // updated by the optimizer; equal to `storage` = no separate copy
  DType gradient = DType::kF32;  // accumulated over micro-batches
};

enum class Execution : uint8_t {
  kNone,      // this device cannot run it in this version
  kEmulated,  // quantised as the recipe says, then computed in a wider format: exact except for the
              // order of sums
  kNative,
};

// "none", "emulated", "native".
std::string_view ExecutionName(Execution execution);

struct Recipe {
  std::string_view name;
  std::string_view comment;
  Gemm fprop;
  Gemm dgrad;
  Gemm wgrad;
  // Residual stream, norms, attention, softmax and what backward saves of them.
  DType activation = DType::kBF16;
  ParameterFormats parameters = {};
  // Steps in the history of absolute maxima; only kTensorDelayed.
  int amax_history = 0;
  // Default of precision.high_precision_layers: those kept in BF16, from the first (0, 1, ...) or
  // from the last (-1, -2, ...), in the order of what they are worth. A model of L layers keeps the
  // first L / 4 of this list.
  std::vector<int> high_precision_layers = {};
  // Default of precision.fallback: names of rows, in order.
  std::vector<std::string_view> fallback = {};
  // How devices run it. kEmulated on GPUs: natively where one has block-scaled units (10.x, 12.x)
  // and they compute right; the trainer tries them, and says which way it went.
  Execution on_cpu = Execution::kEmulated;
  Execution on_cuda = Execution::kNative;

  // Those of all products.
  std::array<const Operand*, 6> operands() const {
    return {&fprop.a, &fprop.b, &dgrad.a, &dgrad.b, &wgrad.a, &wgrad.b};
  }
  // Whether any operand fits.
  template <typename Fits>
  bool Any(Fits fits) const {
    const std::array<const Operand*, 6> all = operands();
    return std::any_of(all.begin(), all.end(), [&fits](const Operand* o) { return fits(*o); });
  }
  bool quantised() const {
    return Any([](const Operand& o) { return o.quantised(); });
  }
  // A tensor's copy along columns has scales of its own, beside those along rows.
  bool column_scales() const {
    return Any([](const Operand& o) { return o.scaling == Scaling::kBlock; });
  }
  // Some products have a quantised operand and one in BF16: those are always emulated, and the
  // quantised one is widened to BF16.
  bool mixes() const {
    const std::array<const Gemm*, 3> products = {&fprop, &dgrad, &wgrad};
    return std::any_of(products.begin(), products.end(),
                       [](const Gemm* gemm) { return gemm->a.quantised() != gemm->b.quantised(); });
  }
  // One scale for a tensor: what the FP8 units of a GPU multiply.
  bool tensor_scaled() const { return quantised() && !column_scales(); }
  // Scales of tensors are made from the magnitudes of earlier steps.
  bool delayed() const {
    return Any([](const Operand& o) { return o.delayed(); });
  }
  // The largest extent_unit() of all operands.
  int64_t extent_unit() const;
};

// All rows, in the order of the help text. Lives for ever.
absl::Span<const Recipe> Recipes();

// nullptr when there is none of that name.
const Recipe* FindRecipe(std::string_view name);
// What steps and layers run in that are not quantised: bf16.
const Recipe& PlainRecipe();
// The first row that scales whole tensors: fp8.
const Recipe& TensorScaledRecipe();

std::vector<std::string_view> RecipeNames();
// Names of the rows that fit, in the table's order.
template <typename Fits>
std::vector<std::string_view> RecipeNames(Fits fits) {
  std::vector<std::string_view> names;
  for (const Recipe& row : Recipes()) {
    if (fits(row)) {
      names.push_back(row.name);
    }
  }
  return names;
}

// The row that the spec names, changed as precision.techniques says; lives for ever. Equal recipes
// are one object. nullptr: no such row.
const Recipe* RecipeFor(const v1::PrecisionSpec& precision);

// The recipe with all operands in the format of activations; lives for ever.
const Recipe& WithPlainOperands(const Recipe& recipe);

// The recipe's parameter formats with gradients.dtype and optimizer.master put in. Expects a
// resolved spec. kInvalidArgument: gradients.dtype is no number format.
absl::StatusOr<ParameterFormats> ResolveFormats(const Recipe& recipe, const v1::JobSpec& job_spec);

// Whether the job updates its BF16 weights themselves (optimizer.master: none).
bool KeepsNoMasters(const v1::JobSpec& job_spec);

// How a device kind ("cpu", "cuda") runs a recipe in this version. An unknown device kind runs
// nothing.
Execution RecipeExecution(const Recipe& recipe, std::string_view device_kind);

// Why not, as a sentence for a violation: "nvfp4 is not implemented on cpu in this version". Empty
// when the device runs it (emulated only if `emulate`).
std::string RecipeRefusal(const Recipe& recipe, std::string_view device_kind, bool emulate);

}  // namespace hearth::spec
