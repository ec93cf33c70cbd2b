// Views of every parameter and of what belongs to it, in the order of the parameter table.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/optimizer_state.h"
#include "common/spec/parameter_table.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/recipe/numerics.h"

namespace hearth::trainer {

// Owns nothing: arena and table outlive it. On the CPU storage type throughout, narrower formats
// are values rounded to them; on a GPU each buffer has its own format.
class ParameterStore {
 public:
  // `optimizer` null: weights alone (evaluation, sampling).
  ParameterStore(const std::vector<spec::Parameter>& table,
                 const Arena& arena,
                 const Numerics& numerics,
                 const spec::OptimizerRow* optimizer);

  const std::vector<spec::Parameter>& table() const { return table_; }
  int size() const { return static_cast<int>(table_.size()); }

  const kernels::TensorView& weight(int i) const { return weights_[static_cast<size_t>(i)]; }
  // The weight itself where the recipe keeps no separate master.
  const kernels::TensorView& master(int i) const { return masters_[static_cast<size_t>(i)]; }
  const kernels::TensorView& gradient(int i) const { return gradients_[static_cast<size_t>(i)]; }
  // State tensor k of the optimizer's row.
  const kernels::TensorView& state(int k, int i) const {
    return states_[static_cast<size_t>(k)][static_cast<size_t>(i)];
  }
  int state_count() const { return static_cast<int>(states_.size()); }

  // All gradients as one tensor, alignment gaps (zeros) included; empty without an optimizer.
  const kernels::TensorView& flat_gradients() const { return flat_gradients_; }
  const std::vector<kernels::TensorView>& gradients() const { return gradients_; }

  // weight, or an empty view when the model has no such tensor.
  kernels::TensorView FindWeight(spec::Slot slot, int layer, bool is_bias = false) const;
  kernels::TensorView FindGradient(spec::Slot slot, int layer, bool is_bias = false) const;

  // Initial masters and weights as the table says: a function of (seed, parameter, element) alone.
  absl::Status Initialise(const kernels::Exec& exec, uint64_t seed) const;
  // weight = master rounded to the working format.
  absl::Status RefreshWeights(const kernels::Exec& exec) const;
  // Between host memory and a tensor of the run, fp32 on the host side (elements() values, padding
  // included). Waits for the stream.
  absl::Status Write(const kernels::Exec& exec,
                     const kernels::TensorView& tensor,
                     const float* values) const;
  absl::Status Read(const kernels::Exec& exec,
                    const kernels::TensorView& tensor,
                    float* values) const;

 private:
  const std::vector<spec::Parameter>& table_;
  Numerics numerics_;
  std::vector<kernels::TensorView> weights_;
  std::vector<kernels::TensorView> masters_;
  std::vector<kernels::TensorView> gradients_;
  std::vector<std::vector<kernels::TensorView>> states_;
  kernels::TensorView flat_gradients_;
};

}  // namespace hearth::trainer
