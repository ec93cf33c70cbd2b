#include "worker/trainer/precision/quantised_weights.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/model/pass.h"

namespace hearth::trainer {
namespace {

class InPlaceWeights : public QuantisedWeights {
 public:
  InPlaceWeights(const ParameterStore& parameters, const QuantisedWeightsParts& parts)
      : QuantisedWeights(parts) {
    for (size_t k = 0; k < size(); ++k) {
      own_.push_back(Measured(parameters.weight(parts.parameters[k]), k));
    }
  }

  absl::Status BeginStep(const kernels::Exec& exec) const override {
    return scaling_.BeginStep(exec, all());
  }
  absl::Status Quantize(const kernels::Exec& exec,
                        const int32_t* skip,
                        uint64_t* counter) const override {
    return scaling_.QuantizeWeights(exec, all(), skip, counter);
  }
  absl::Status Arrived(const kernels::Exec&, const Pass&, int, bool) const override {
    return absl::OkStatus();
  }
  absl::Status MeasureUnit(const kernels::Exec&, int) const override { return absl::OkStatus(); }
  absl::Status BeginCounts(const kernels::Exec&) const override { return absl::OkStatus(); }
  absl::Status FinishCounts(const kernels::Exec& exec, bool quantised) const override {
    HEARTH_RETURN_IF_ERROR(quantised ? scaling_.CountWeights(exec, all()) : absl::OkStatus());
    return Measure(exec);
  }

 private:
  WeightRange all() const { return {0, size()}; }
};

class ArrivingWeights : public QuantisedWeights {
 public:
  ArrivingWeights(const ParameterStore& parameters, const QuantisedWeightsParts& parts)
      : QuantisedWeights(parts), units_(parameters.units().units.size()) {
    const spec::WeightUnits& units = parameters.units();
    for (size_t k = 0; k < size(); ++k) {
      const int i = parts.parameters[k];
      arrived_.push_back(Measured(parameters.weight(i), k));
      const auto block = static_cast<size_t>(parameters.table()[static_cast<size_t>(i)].block);
      WeightRange& range = units_[static_cast<size_t>(units.of_block[block])];
      range.first = range.count == 0 ? k : range.first;
      ++range.count;
      HEARTH_CHECK(range.first + range.count == k + 1, "the table has a unit's weights together");
    }
    for (const StorePiece& piece : parameters.pieces()) {
      const auto found =
          std::lower_bound(parts.parameters.begin(), parts.parameters.end(), piece.place.parameter);
      // Weights in blocks are measured when they are decoded.
      if (found != parts.parameters.end() && *found == piece.place.parameter &&
          piece.blocks.empty()) {
        own_.push_back(
            Measured(piece.weight, static_cast<size_t>(found - parts.parameters.begin())));
      }
    }
  }

  // Each unit is, when it arrives.
  absl::Status BeginStep(const kernels::Exec&) const override { return absl::OkStatus(); }
  absl::Status Quantize(const kernels::Exec&, const int32_t*, uint64_t*) const override {
    return absl::OkStatus();
  }
  absl::Status Arrived(const kernels::Exec& exec,
                       const Pass& pass,
                       int unit,
                       bool forward) const override {
    const WeightRange& weights = units_[static_cast<size_t>(unit)];
    if (weights.count == 0) {
      return absl::OkStatus();
    }
    const bool quantised = pass.format.own();
    if (quantised) {
      HEARTH_RETURN_IF_ERROR(
          scaling_.QuantizeWeights(exec, weights, nullptr, pass.weight_quantizations));
      HEARTH_RETURN_IF_ERROR(scaling_.BeginStep(exec, weights));
    }
    // Once a pass: units come again in backward.
    if (!pass.count || !forward) {
      return absl::OkStatus();
    }
    HEARTH_RETURN_IF_ERROR(quantised ? scaling_.CountWeights(exec, weights) : absl::OkStatus());
    return Raise(exec, ArrivedIn(weights));
  }
  absl::Status MeasureUnit(const kernels::Exec& exec, int unit) const override {
    const WeightRange& weights = units_[static_cast<size_t>(unit)];
    return weights.count == 0 ? absl::OkStatus() : Raise(exec, ArrivedIn(weights));
  }
  // Units that arrive raise the magnitudes of their weights.
  absl::Status BeginCounts(const kernels::Exec& exec) const override { return Forget(exec); }
  absl::Status FinishCounts(const kernels::Exec&, bool) const override { return absl::OkStatus(); }

 private:
  absl::Span<const kernels::QuantizeTensor> ArrivedIn(const WeightRange& weights) const {
    return absl::MakeConstSpan(arrived_).subspan(weights.first, weights.count);
  }

  std::vector<WeightRange> units_;
  std::vector<kernels::QuantizeTensor> arrived_;  // by number, in the slot of its unit
};

}  // namespace

kernels::QuantizeTensor QuantisedWeights::Measured(const kernels::TensorView& x, size_t k) const {
  kernels::QuantizeTensor tensor;
  tensor.x = x;
  tensor.quant.amax = amax_ + k;
  return tensor;
}

absl::Status QuantisedWeights::Raise(const kernels::Exec& exec,
                                     absl::Span<const kernels::QuantizeTensor> tensors) {
  kernels::QuantizeArgs args;
  args.tensors = tensors;
  return kernels::Quantize(exec, args);
}

absl::Status QuantisedWeights::Forget(const kernels::Exec& exec) const {
  return kernels::Zero(exec, amax_, size_ * sizeof(float));
}

absl::Status QuantisedWeights::Measure(const kernels::Exec& exec) const {
  HEARTH_RETURN_IF_ERROR(Forget(exec));
  return Raise(exec, own_);
}

std::unique_ptr<QuantisedWeights> NewQuantisedWeights(const ParameterStore& parameters,
                                                      const QuantisedWeightsParts& parts) {
  if (parameters.units().empty()) {
    return std::make_unique<InPlaceWeights>(parameters, parts);
  }
  return std::make_unique<ArrivingWeights>(parameters, parts);
}

}  // namespace hearth::trainer
