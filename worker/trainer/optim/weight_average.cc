#include "worker/trainer/optim/weight_average.h"

#include "common/base/status_macros.h"
#include "common/spec/optimizer/average_state.h"

namespace hearth::trainer {
namespace {

int64_t ElementsFrom(const kernels::TensorView& begin, const kernels::TensorView& to) {
  return (to.as<uint8_t>() - begin.as<uint8_t>()) / kernels::DTypeBytes(begin.dtype, 1);
}

}  // namespace

std::unique_ptr<WeightAverage> WeightAverage::Of(double decay,
                                                 const ParameterStore& parameters,
                                                 OffloadLanes* lanes) {
  return decay == 0 ? nullptr
                    : std::unique_ptr<WeightAverage>(new WeightAverage(decay, parameters, lanes));
}

WeightAverage::WeightAverage(double decay, const ParameterStore& parameters, OffloadLanes* lanes)
    : decay_(decay),
      pieces_(parameters,
              lanes,
              {.masters = true, .changes_masters = false, .state = &spec::IsAverageState}) {
  for (const OffloadWindow& window : pieces_.windows()) {
    Ranges& ranges = ranges_.emplace_back();
    for (const StorePiece& piece : window.pieces) {
      HEARTH_CHECK(
          spec::HasAverageState(parameters.table()[static_cast<size_t>(piece.place.parameter)]),
          "every parameter has the state of the average");
      const Range range = {piece.master, piece.states.back()};
      if (pieces_.streams()) {
        ranges.push_back(range);
      } else {
        Add(range, ranges);
      }
    }
  }
}

void WeightAverage::Add(const Range& piece, Ranges& ranges) {
  // One launch for all: what lies between two tensors, zeros for alignment, is averaged too.
  if (!ranges.empty()) {
    Range& last = ranges.back();
    const int64_t first = ElementsFrom(last.average, piece.average);
    if (last.weights.dtype == piece.weights.dtype && first >= last.average.numel() &&
        ElementsFrom(last.weights, piece.weights) == first) {
      last.weights.shape[0] = last.average.shape[0] = first + piece.average.numel();
      return;
    }
  }
  ranges.push_back(piece);
}

absl::Status WeightAverage::Start(const kernels::Exec& exec) {
  return Run(exec, UpdateArgs{});
}

absl::Status WeightAverage::Step(const kernels::Exec& exec, const UpdateArgs& update) {
  return Run(exec, update);
}

absl::Status WeightAverage::Run(const kernels::Exec& exec, const UpdateArgs& update) {
  return pieces_.Run(exec, [&](size_t window) { return Average(exec, update, ranges_[window]); });
}

absl::Status WeightAverage::Average(const kernels::Exec& exec,
                                    const UpdateArgs& update,
                                    const Ranges& ranges) {
  for (const Range& range : ranges) {
    kernels::MovingAverageArgs args;
    args.x = range.weights;
    args.y = range.average;
    args.decay = decay_;
    args.step = 1;  // without inputs: the average becomes the weights
    args.inputs = update.inputs;
    args.skip = update.skip;
    HEARTH_RETURN_IF_ERROR(kernels::MovingAverage(exec, args));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
