// The newest weights whole, for what reads them between steps: checkpoints and texts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/model/parameter_store.h"

namespace hearth::trainer {

// A rank's copy of divided weights, or of those in blocks as passes read them, in host memory,
// which holds each of them once. It takes only as much of the machine's memory as has been written.
// Not thread-safe.
class WholeWeights {
 public:
  // `parameters` have weights that come in units, and outlive this.
  explicit WholeWeights(const ParameterStore& parameters);

  // As ParameterStore::weight, in host memory: what Take copied last, in the storage format. A
  // weight that comes in no unit is the one in its place.
  const kernels::TensorView& weight(int i) const { return weights_[static_cast<size_t>(i)]; }
  // Copies the weights of a unit, which is in its slot. On a GPU done when the stream gets there.
  absl::Status Take(const kernels::Exec& exec, int unit) const;

 private:
  const ParameterStore& parameters_;
  std::unique_ptr<uint8_t[]> memory_;
  kernels::TensorView flat_;
  std::vector<kernels::TensorView> weights_;
};

}  // namespace hearth::trainer
