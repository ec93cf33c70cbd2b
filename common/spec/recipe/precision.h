// When and where a job runs in the narrow formats of its recipe: which layers, which steps.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "common/spec/model/parameter.h"
#include "common/spec/recipe/recipe.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// What the GEMMs of a layer run in; the narrower, the larger.
enum class LayerFormat : uint8_t {
  kPlain,     // the format of activations
  kFallback,  // PrecisionPlan::fallback
  kOwn,       // PrecisionPlan::recipe
};

// What a step runs in.
struct StepFormat {
  LayerFormat format = LayerFormat::kPlain;
  // Index into PrecisionPlan::remedies of the one whose layers run wider than that; -1: none.
  int remedy = -1;

  // The job's own recipe is in force, whatever layers are without it: quantised weights are read.
  bool own() const { return format == LayerFormat::kOwn; }
  bool operator==(const StepFormat&) const = default;
};

// All of a step in the job's own recipe, or none of it.
inline StepFormat OwnIf(bool own) {
  return {own ? LayerFormat::kOwn : LayerFormat::kPlain, -1};
}

// Layers that run wider while a remedy is in force; none for one that changes other things.
struct LayerRemedy {
  LayerFormat format = LayerFormat::kPlain;
  std::vector<bool> layers;  // by layer; empty: none
};

struct PrecisionPlan {
  // Its operands say how; lives for ever. Null: nothing is quantised.
  const Recipe* recipe = nullptr;
  // The quantised recipe among precision.fallback; lives for ever. Null: none. One scale a tensor,
  // from earlier steps; weights and operands are quantised right before each product.
  const Recipe* fallback = nullptr;
  std::vector<bool> layers;  // by layer: quantised; the others stay in BF16
  // Weights whose forms are BF16 copies (precision.high_precision_linears), and the recipe of their
  // products; null if there are none.
  std::vector<Slot> plain_slots;
  const Recipe* plain_recipe = nullptr;
  bool head = false;  // precision.lm_head
  // Steps up to this one run in BF16. At least 1 with delayed scaling: before the first step there
  // is nothing to take a scale from.
  int64_t warmup_steps = 0;
  // Steps from this one on run in BF16.
  int64_t tail_step = std::numeric_limits<int64_t>::max();
  // What the rows of PrecisionLadder() are.
  std::vector<LayerFormat> ladder;
  std::vector<LayerRemedy> remedies;  // in the order of precision.remedies
  // Quantised passes keep the input of activation functions in 8 bits
  // (precision.narrow_activations).
  bool narrow_activations = false;
  // Underflow and saturation are counted now and then (precision.stats_every).
  bool stats = false;

  bool quantised() const { return recipe != nullptr; }
  // The recipe whose products need a GPU's FP8 units, as their operands have one scale a tensor.
  // Null: none does.
  const Recipe* NeedsFp8Units() const;
  // Whether update `step` (1-based) runs in the narrow formats.
  bool QuantisedStep(int64_t step) const {
    return quantised() && step > warmup_steps && step < tail_step;
  }
  bool QuantisesLayer(int64_t layer) const {
    return layer >= 0 && layer < static_cast<int64_t>(layers.size()) &&
           layers[static_cast<size_t>(layer)];
  }
  bool QuantisesAnyLayer() const;
  // The recipe of the products of a weight that the plan quantises.
  const Recipe& RecipeOf(Slot slot) const;
  // Bytes of an operand's form [lines, extent], whichever weight's it is.
  int64_t LargestForm(Gemm Recipe::*product,
                      Operand Gemm::*operand,
                      int64_t lines,
                      int64_t extent) const;
  // What a step in row `rung` of the ladder runs in while the layers of remedy `remedy` (-1: none)
  // run wider.
  StepFormat Format(int rung, int remedy) const;
  // What the layer runs in; -1: the output projection.
  LayerFormat FormatOf(const StepFormat& step, int layer) const;
  // Every value that Format() has, and that of steps in BF16 if there are any; that one comes
  // first.
  std::vector<StepFormat> Formats() const;
  // Whether the weight's GEMMs are quantised in the steps that are.
  bool Quantises(const Parameter& parameter) const;
};

// Expects a resolved spec. An unquantised recipe gives a plan that quantises nothing.
PrecisionPlan ResolvePrecision(const v1::JobSpec& job_spec, const Recipe& recipe, int layers);

// The same for passes that only read the model: all layers that the recipe quantises, in each pass,
// and nothing else. The output projection stays in the format of activations.
PrecisionPlan ForwardPrecision(const v1::JobSpec& job_spec, const Recipe& recipe, int layers);

// By layer: whether it is one of the set. Indices beyond the model's layers are none.
std::vector<bool> LayersOf(const v1::LayerSet& set, int layers);

// Whether a run in `recipe` can do steps in `fallback`. Both must store parameters and activations
// in the same formats. An unquantised fallback always works. One with delayed scaling (fp8) works
// behind a recipe that has a scale for each tensor as well as for each block (nvfp4, nvfp4_eden),
// because both record the same magnitudes.
bool CanFollow(const Recipe& recipe, const Recipe& fallback);

// In precision.fallback: no other recipe. It stands alone.
inline constexpr std::string_view kNoFallback = "none";
// What precision.fallback may name.
std::vector<std::string_view> FallbackNames();
// Whether the job names a recipe to fall back to.
bool FallsBack(const v1::PrecisionSpec& precision);

// The recipes in which a step of the job may run, in the order in which they are tried: its own,
// then precision.fallback ("none" alone: nothing). Expects a resolved spec with a known recipe.
std::vector<const Recipe*> PrecisionLadder(const v1::JobSpec& job_spec);

// Indices of the weights that the plan quantises, in the order of the table.
std::vector<int> QuantisedParameters(const std::vector<Parameter>& table,
                                     const PrecisionPlan& precision);

// Bytes of the form of a tensor [lines, extent] whose products sum over the extent: its values, and
// for block scales also those (common/formats/block_layout.h), from FormScaleOffset() on. The
// form of an operand that is not quantised is a copy in the operand's format, on every device.
int64_t FormBytes(const Operand& operand, int64_t lines, int64_t extent);
int64_t FormScaleOffset(const Operand& operand, int64_t lines, int64_t extent);

// Byte offset of the quantised form of each of those weights in one buffer, and behind them its
// length; each starts on a 256-byte boundary. `transposed`: the form that dgrad reads, [in, out];
// else fprop's, [out, in].
std::vector<int64_t> QuantisedOffsets(const std::vector<Parameter>& table,
                                      const std::vector<int>& indices,
                                      const PrecisionPlan& precision,
                                      bool transposed);

}  // namespace hearth::spec
