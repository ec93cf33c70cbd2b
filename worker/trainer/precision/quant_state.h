// What a run's recipe quantises: its sites, their magnitudes and scales, and the operands of every
// linear layer.
//
//   step:  forward, backward record the largest magnitudes of x and dy  ->  UpdateActivations
//          optimizer writes weights and their largest magnitudes        ->  UpdateWeights
//   Scales from earlier steps: what a step quantises with comes from the steps before it.
//
// Whole weights are quantised once, after the update. Divided ones are where a pass reads them only
// for a while (WeightSource): each unit is quantised when it arrives, from the same values with the
// same scales, and its forms share memory with those of other units as the weights do.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/recipe/precision.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/precision/operand.h"
#include "worker/trainer/precision/per_tensor/tensor_scales.h"
#include "worker/trainer/precision/quantised_weights.h"
#include "worker/trainer/precision/scaling.h"
#include "worker/trainer/precision/sites.h"

namespace hearth::trainer {

class ParameterStore;
struct Pass;

// Sites are numbered by the quantised weights in the order of the parameter table. Not movable:
// operands point into it.
class QuantState {
 public:
  // Nothing is quantised, and every call does nothing.
  QuantState() = default;
  // Parameters and arena outlive it.
  QuantState(const spec::PrecisionPlan& precision,
             const ParameterStore& parameters,
             const Arena& arena);
  QuantState(const QuantState&) = delete;
  QuantState& operator=(const QuantState&) = delete;

  bool empty() const { return scaling_ == nullptr; }
  int64_t size() const { return static_cast<int64_t>(weights_.size()); }
  // Parameter of a number.
  int parameter(int k) const { return weights_[static_cast<size_t>(k)]; }
  bool Quantises(int parameter) const { return Find(parameter) >= 0; }
  // An operand of the parameter's products, in every precision of the job; only plain where the
  // parameter is not quantised.
  Operand Bind(Role role, int parameter, const OperandBuffers& buffers) const;
  // Whether scales come from earlier steps. Then a run without saved ones begins with a plain step,
  // and ranks share the magnitudes they record.
  bool ScalesAreOfEarlierSteps() const { return !empty() && precision_.recipe->delayed(); }

  // Scales 1, nothing recorded.
  absl::Status Reset(const kernels::Exec& exec) const;
  // Before each micro-batch: a tensor's own scale is measured from nothing.
  absl::Status BeginMicroBatch(const kernels::Exec& exec) const;
  // The same as Scaling::BindStep and BeginStep.
  void BindStep(uint64_t seed, const kernels::StepInputs* position);
  absl::Status BeginStep(const kernels::Exec& exec) const;
  // A unit of divided weights is in its place; `forward`: for the forward part of the pass.
  absl::Status Arrived(const kernels::Exec& exec, const Pass& pass, int unit, bool forward) const;
  // After a step; `skip` as in quantize.h. The weights' magnitudes are those the optimizer wrote.
  absl::Status UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const;
  absl::Status UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const;
  // For a model that only runs forward: fixes the scales of x, from the magnitudes recorded since
  // Reset. Each magnitude is raised to the power of two that is four to eight times as large: that
  // leaves room for larger values, and scales do not depend on how a measured sum was rounded.
  // Values above that saturate. Waits.
  absl::Status FixActivations(const kernels::Exec& exec) const;
  // Before the optimizer writes them.
  absl::Status ForgetWeightAmax(const kernels::Exec& exec) const;
  // Where it writes a parameter's, one float on the tensors' device; null: nowhere.
  float* WeightAmaxOf(int parameter) const;
  // Measures the weights' magnitudes from the weights themselves, at the start of a run. Where
  // weights are divided, only this rank's part: the maximum over the ranks (WeightAmax) counts.
  absl::Status MeasureWeights(const kernels::Exec& exec) const;
  // The same for the weights of a unit, which are in their place; adds to what was measured.
  absl::Status MeasureUnit(const kernels::Exec& exec, int unit) const;
  // ScaleWeights scales and quantises them by what was measured. StartWeights also measures them
  // first.
  absl::Status ScaleWeights(const kernels::Exec& exec) const;
  absl::Status StartWeights(const kernels::Exec& exec) const;
  // Divided weights are quantised in Arrived instead: nothing is done to them here.
  absl::Status QuantizeWeights(const kernels::Exec& exec,
                               const int32_t* skip,
                               uint64_t* counter) const;
  // Call it before the passes of a step that counts: it clears the counts.
  absl::Status BeginCounts(const kernels::Exec& exec) const;
  // Call it after the last pass of a step that counts and before its update. `quantised`: whether
  // the weights are quantised. Completes counts and magnitudes of all sites and puts them where the
  // host reads them (Counted()).
  absl::Status FinishCounts(const kernels::Exec& exec, bool quantised) const;
  // What a step has counted, to be read once the device is there. For all 3 n sites (X, Dy, W): the
  // largest magnitude, the number of elements that are zero, and the number at the format's
  // maximum. With block scales: those that became zero, and those that saturated, in the form by
  // rows; weights are not counted. Both are 0 if the site was not quantised.
  struct Counts {
    const float* amax = nullptr;
    const uint64_t* counts = nullptr;  // [3 n][2]
    // Which of the two numbers is which: CountCodes and BlockForm::counts differ.
    size_t underflow = 0;
    size_t saturation = 1;
  };
  Counts Counted() const { return counted_; }

  // Magnitudes of x and dy, and of the weights, as integers (kI32) that order as they do: for a
  // maximum over ranks. With a sharded optimizer each rank has recorded that of its pieces.
  kernels::TensorView ActivationAmax() const;
  kernels::TensorView WeightAmax() const;
  // What an exact resume needs.
  std::vector<QuantStateTensor> Tensors() const;

 private:
  // The number of a parameter, -1 if it is not quantised.
  int Find(int parameter) const;
  void BindCounts(const Arena& arena);
  // The fallback's scales are of the same magnitudes, which an update uses up.
  absl::Status ShareAmax(const kernels::Exec& exec, int64_t first, int64_t count) const;
  const QuantSites& fallback_sites() const { return fallback_.sites(); }
  float* amax(int64_t site = 0) const { return sites_.At(site).amax; }

  spec::PrecisionPlan precision_;
  std::vector<int> weights_;
  std::vector<int> number_;  // by parameter
  std::vector<int> layers_;  // by number; -1: the output projection
  QuantSites sites_;
  TensorScales fallback_;       // of PrecisionPlan::fallback, from the same magnitudes; empty: none
  kernels::TensorView counts_;  // [3n][2]
  kernels::TensorView counted_amax_;  // [3n]
  Counts counted_;                    // the same, or the host's copies of them
  // Null: nothing is quantised.
  std::unique_ptr<Scaling> scaling_;
  std::unique_ptr<QuantisedWeights> quantised_weights_;
};

}  // namespace hearth::trainer
