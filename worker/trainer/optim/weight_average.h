// The running average of the masters (train.ema), which each step moves a little towards them
// (kernels/moving_average). A rank keeps only the average of its own pieces.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/exec.h"
#include "kernels/moving_average/moving_average.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/optim/optimizer.h"

namespace hearth::trainer {

// Bound to the parameters of one arena, which outlives it. Not thread-safe. Allocates nothing after
// it was made.
class WeightAverage {
 public:
  // `decay` as train.ema; 0: nullptr. The table's parameters have the state that
  // spec::AddAverageState adds.
  static std::unique_ptr<WeightAverage> Of(double decay, const ParameterStore& parameters);

  // The average of a new run, which is zeros before: the weights that it begins with.
  absl::Status Start(const kernels::Exec& exec);
  // Behind the optimizer's step; a refused one changes nothing.
  absl::Status Step(const kernels::Exec& exec, const UpdateArgs& update);

 private:
  struct Range {
    kernels::TensorView weights;
    kernels::TensorView average;
  };

  WeightAverage() = default;
  void Add(const Range& piece);
  absl::Status Run(const kernels::Exec& exec, const UpdateArgs& update);

  double decay_ = 0;
  std::vector<Range> ranges_;  // pieces that lie behind one another in both are one
};

}  // namespace hearth::trainer
