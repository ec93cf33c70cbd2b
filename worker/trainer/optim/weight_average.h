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
#include "worker/trainer/optim/streamed_pieces.h"

namespace hearth::trainer {

// Bound to the parameters of one arena, which outlives it. Not thread-safe. Allocates nothing after
// it was made.
class WeightAverage {
 public:
  // `decay` as train.ema; 0: nullptr. The table's parameters have the state that
  // spec::AddAverageState adds. `lanes` outlives it; null: nothing is in the host's memory.
  static std::unique_ptr<WeightAverage> Of(double decay,
                                           const ParameterStore& parameters,
                                           OffloadLanes* lanes = nullptr);

  // The average of a new run, which is zeros before: the weights that it begins with.
  absl::Status Start(const kernels::Exec& exec);
  // Behind the optimizer's step; a refused one changes nothing.
  absl::Status Step(const kernels::Exec& exec, const UpdateArgs& update);

 private:
  struct Range {
    kernels::TensorView weights;
    kernels::TensorView average;
  };

  using Ranges = std::vector<Range>;

  WeightAverage(double decay, const ParameterStore& parameters, OffloadLanes* lanes);
  static void Add(const Range& piece, Ranges& ranges);
  absl::Status Run(const kernels::Exec& exec, const UpdateArgs& update);
  absl::Status Average(const kernels::Exec& exec, const UpdateArgs& update, const Ranges& ranges);

  const double decay_;
  const StreamedPieces pieces_;
  // By window. Without offload pieces that lie behind one another in both are one; in a slot, other
  // views lie between them.
  std::vector<Ranges> ranges_;
};

}  // namespace hearth::trainer
