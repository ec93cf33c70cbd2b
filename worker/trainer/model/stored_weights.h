// The WeightSource of weights in blocks (weights.store) that this rank has whole. A unit is decoded
// on the pass's own stream, after the launches that read the unit before it, so one slot serves all
// units.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/model/weight_source.h"

namespace hearth::trainer {

// Not thread-safe.
class StoredWeights : public WeightSource {
 public:
  // `parameters` have such weights and outlive this.
  explicit StoredWeights(const ParameterStore& parameters) : parameters_(parameters) {}

  absl::Status Begin(const kernels::Exec& exec) override;
  absl::Status Announce(const kernels::Exec& exec, int unit) override;
  absl::Status Acquire(const kernels::Exec& exec, int unit) override;
  absl::Status Release(const kernels::Exec& exec, int unit) override;

  int units() const { return static_cast<int>(parameters_.units().units.size()); }

 private:
  const ParameterStore& parameters_;
};

}  // namespace hearth::trainer
