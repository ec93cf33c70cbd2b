// When a run's weights are quantised, measured and counted: weights in place all at once, after the
// update; weights that come in units (divided, or in blocks) unit by unit, as they arrive
// (WeightSource).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "kernels/quantize/quantize.h"
#include "worker/trainer/precision/scaling.h"

namespace hearth::trainer {

class ParameterStore;
struct Pass;

// What the weights' part of a QuantState is made from. Scaling and memory outlive it.
struct QuantisedWeightsParts {
  std::vector<int> parameters;  // the quantised weights by number, in the order of the table
  const Scaling* scaling = nullptr;
  float* amax = nullptr;  // [n], their magnitudes by number
};

// Operations are in the order of exec's stream. `skip` and `counter` as in
// kernels/quantize/quantize.h.
class QuantisedWeights {
 public:
  QuantisedWeights(const QuantisedWeights&) = delete;
  QuantisedWeights& operator=(const QuantisedWeights&) = delete;
  virtual ~QuantisedWeights() = default;

  // The same as Scaling::BeginStep, for all weights.
  virtual absl::Status BeginStep(const kernels::Exec& exec) const = 0;
  // The update has written the weights: quantises them.
  virtual absl::Status Quantize(const kernels::Exec& exec,
                                const int32_t* skip,
                                uint64_t* counter) const = 0;
  // A unit is in its place; `forward`: for the forward part of the pass.
  virtual absl::Status Arrived(const kernels::Exec& exec,
                               const Pass& pass,
                               int unit,
                               bool forward) const = 0;
  // Called before and after the passes of a step that counts (precision.stats_every).
  // `quantised`: whether the step's weights are quantised.
  virtual absl::Status BeginCounts(const kernels::Exec& exec) const = 0;
  virtual absl::Status FinishCounts(const kernels::Exec& exec, bool quantised) const = 0;

  // Forgets the recorded magnitudes.
  absl::Status Forget(const kernels::Exec& exec) const;
  // Records the magnitudes of what this rank has of the weights, and forgets those before.
  absl::Status Measure(const kernels::Exec& exec) const;
  // The same for the weights of a unit, which is in its place; adds to what was recorded.
  virtual absl::Status MeasureUnit(const kernels::Exec& exec, int unit) const = 0;

 protected:
  explicit QuantisedWeights(const QuantisedWeightsParts& parts)
      : scaling_(*parts.scaling), size_(parts.parameters.size()), amax_(parts.amax) {}
  size_t size() const { return size_; }
  // Raises the magnitude of weight `k` by that of `x`, which is all of it or a part.
  kernels::QuantizeTensor Measured(const kernels::TensorView& x, size_t k) const;
  static absl::Status Raise(const kernels::Exec& exec,
                            absl::Span<const kernels::QuantizeTensor> tensors);

  const Scaling& scaling_;
  std::vector<kernels::QuantizeTensor> own_;  // what this rank has between passes

 private:
  const size_t size_;
  float* const amax_;
};

// The implementation for the way in which the store keeps weights.
std::unique_ptr<QuantisedWeights> NewQuantisedWeights(const ParameterStore& parameters,
                                                      const QuantisedWeightsParts& parts);

}  // namespace hearth::trainer
