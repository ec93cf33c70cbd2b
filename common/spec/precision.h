// When and where a job runs in the narrow formats of its recipe: which layers, which steps.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/spec/parameter_table.h"
#include "common/spec/recipe.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

struct PrecisionPlan {
  // Its operands say how; lives for ever. Null: nothing is quantised.
  const Recipe* recipe = nullptr;
  // The recipe's GEMM operands have one scale a tensor (fp8, fp8_current).
  bool per_tensor = false;
  // They have one a block (mxfp8, nvfp4, nvfp4_eden).
  bool block = false;
  // Scales of tensors come from earlier steps: their maxima are recorded.
  bool delayed = false;
  int history = 0;  // steps in the ring of largest magnitudes; delayed alone
  // Layers [first_layer, end_layer) are quantised, the others stay in BF16.
  int first_layer = 0;
  int end_layer = 0;
  bool head = false;  // precision.lm_head: fp8
  // Steps up to this one run in BF16. At least 1 with delayed scaling: before the first step there
  // is nothing to take a scale from.
  int64_t warmup_steps = 0;
  // Steps from this one on run in BF16.
  int64_t tail_step = std::numeric_limits<int64_t>::max();
  // While the remedy that keeps more layers in BF16 is in force only these of them are quantised;
  // the same layers if the job has no such remedy.
  int inner_first_layer = 0;
  int inner_end_layer = 0;
  // Any step may have to run in BF16: it is a row of precision.fallback.
  bool plain_fallback = false;
  // Quantised passes keep the input of activation functions in 8 bits (precision.narrow_activations).
  bool narrow_activations = false;
  // Underflow and saturation are counted now and then (precision.stats_every).
  bool stats = false;

  bool quantised() const { return per_tensor || block; }
  // Whether update `step` (1-based) runs in the narrow formats.
  bool QuantisedStep(int64_t step) const {
    return quantised() && step > warmup_steps && step < tail_step;
  }
  // Whether any linear layer runs in BF16 at some time, so that room for it must be planned.
  bool HasPlainPhase(int layers) const {
    return !quantised() || warmup_steps > 0 || tail_step != std::numeric_limits<int64_t>::max() ||
           first_layer > 0 || end_layer < layers || plain_fallback || HasInner();
  }
  bool HasInner() const { return inner_first_layer > first_layer || inner_end_layer < end_layer; }
  // Whether the weight's GEMMs are quantised in the steps that are.
  bool Quantises(const Parameter& parameter) const;
};

// Expects a resolved spec. An unquantised recipe gives a plan that quantises nothing.
PrecisionPlan ResolvePrecision(const v1::JobSpec& job_spec, const Recipe& recipe, int layers);

// Whether a run in `recipe` can do steps in `fallback`: what it needs besides is there. In this
// version: an unquantised recipe with the same formats of parameters and activations.
bool CanFollow(const Recipe& recipe, const Recipe& fallback);

// The recipes in which a step of the job may run, in the order in which they are tried: its own,
// then precision.fallback ("none" alone: nothing). Expects a resolved spec with a known recipe.
std::vector<const Recipe*> PrecisionLadder(const v1::JobSpec& job_spec);

// Indices of the weights that the plan quantises, in the order of the table.
std::vector<int> QuantisedParameters(const std::vector<Parameter>& table,
                                     const PrecisionPlan& precision);

// Bytes of the quantised form of a tensor [lines, extent] whose products sum over the extent: its
// values, and for block scales also those, in cuBLASLt's order (kernels/core/block_quant.h), from
// FormScaleOffset() on.
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
