#include "worker/trainer/precision/quant_state.h"

#include <cmath>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/precision/per_tensor/on_demand.h"
#include "worker/trainer/precision/plain/plain_operand.h"

namespace hearth::trainer {

using kernels::DType;
using spec::LayerFormat;

namespace {

// FixActivations leaves room for magnitudes of at least 2 to this power times those measured. FP8
// is a floating-point format: room costs precision only where values are far below the largest of
// their tensor.
constexpr int kFixedRoomBits = 2;

}  // namespace

QuantState::QuantState(const spec::PrecisionPlan& precision,
                       const ParameterStore& parameters,
                       const Arena& arena)
    : precision_(precision),
      weights_(spec::QuantisedParameters(parameters.table(), precision)),
      number_(parameters.table().size(), -1) {
  if (weights_.empty()) {
    return;
  }
  const std::vector<spec::Parameter>& table = parameters.table();
  const spec::QuantBuffers& ids = arena.ids().quant;
  const spec::Recipe& recipe = *precision_.recipe;
  sites_ = QuantSites(arena, ids.own, "quant", size(), recipe.amax_history);
  if (const spec::Recipe* fallback = precision_.fallback; fallback != nullptr) {
    fallback_ =
        TensorScales({arena, ids.fallback, "fallback", size(), fallback->amax_history}, *fallback);
  }
  BindCounts(arena);
  ScalingContext context;
  context.precision = &precision_;
  context.sites = sites_;
  context.arena = &arena;
  context.counts = counts_.as<uint64_t>();
  // All quantised weights lie one behind the other in two buffers, so that one launch quantises
  // them all; of divided ones those of a unit.
  const std::vector<int64_t> row_offsets =
      spec::QuantisedUnitOffsets(table, weights_, precision_, parameters.units(), false);
  const std::vector<int64_t> column_offsets =
      spec::QuantisedUnitOffsets(table, weights_, precision_, parameters.units(), true);
  uint8_t* const rows = arena.Bytes(ids.weight_rows);
  uint8_t* const columns = arena.Bytes(ids.weight_columns);
  for (size_t k = 0; k < weights_.size(); ++k) {
    const spec::Parameter& parameter = table[static_cast<size_t>(weights_[k])];
    number_[static_cast<size_t>(weights_[k])] = static_cast<int>(k);
    layers_.push_back(parameter.roles.head ? -1 : parameter.layer);
    // A model that only runs forward has no columns.
    context.weights.push_back({parameters.weight(weights_[k]), rows + row_offsets[k],
                               columns == nullptr ? nullptr : columns + column_offsets[k],
                               &precision_.RecipeOf(parameter.slot)});
  }
  scaling_ = MakeScaling(context);
  quantised_weights_ =
      NewQuantisedWeights(parameters, {weights_, scaling_.get(), amax(2 * size())});
  counted_.underflow = scaling_->underflow();
  counted_.saturation = 1 - scaling_->underflow();
}

void QuantState::BindCounts(const Arena& arena) {
  if (!precision_.stats) {
    return;
  }
  const spec::QuantBuffers& ids = arena.ids().quant;
  counts_ = arena.Typed(ids.counts, DType::kI64);
  counted_amax_ = arena.Typed(ids.counted_amax, DType::kF32);
  counted_.amax = counted_amax_.as<float>();
  counted_.counts = counts_.as<uint64_t>();
  if (uint8_t* const host = arena.Bytes(ids.counted_on_host); host != nullptr) {
    counted_.counts = reinterpret_cast<const uint64_t*>(host + ids.counts_layout.counts);
    counted_.amax = reinterpret_cast<const float*>(host + ids.counts_layout.amax);
  }
}

int QuantState::Find(int parameter) const {
  return parameter < 0 || number_.empty() ? -1 : number_[static_cast<size_t>(parameter)];
}

Operand QuantState::Bind(Role role, int parameter, const OperandBuffers& buffers) const {
  const int k = Find(parameter);
  if (k < 0) {
    return Operand(buffers.plain);
  }
  const int64_t site = static_cast<int64_t>(role) * size() + k;
  // Steps in BF16 and in the fallback record magnitudes too: the scales of the first quantised step
  // after them come from there. The optimizer records those of weights.
  float* const recorded =
      role != Role::kW && ScalesAreOfEarlierSteps() ? sites_.At(site).amax : nullptr;
  Operand::FormTable forms;
  const auto in = [&forms](LayerFormat format) -> auto& {
    return forms[static_cast<size_t>(format)];
  };
  in(LayerFormat::kPlain) = std::make_shared<PlainOperand>(buffers.plain, recorded);
  in(LayerFormat::kOwn) = scaling_->Bind(role, k, buffers);
  if (buffers.fallback_rows != nullptr) {
    in(LayerFormat::kFallback) =
        std::make_shared<OnDemandOperand>(buffers, recorded, fallback_, site);
  }
  return {buffers.plain, std::move(forms), precision_, layers_[static_cast<size_t>(k)]};
}

absl::Status QuantState::BeginCounts(const kernels::Exec& exec) const {
  HEARTH_RETURN_IF_ERROR(empty() ? absl::OkStatus() : quantised_weights_->BeginCounts(exec));
  return kernels::Zero(exec, counts_.data, counts_.bytes());
}

absl::Status QuantState::FinishCounts(const kernels::Exec& exec, bool quantised) const {
  if (empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(quantised_weights_->FinishCounts(exec, quantised));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, counted_amax_.data, amax(), counted_amax_.bytes()));
  if (counted_.counts == counts_.data) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(
      kernels::Copy(exec, const_cast<uint64_t*>(counted_.counts), counts_.data, counts_.bytes()));
  return kernels::Copy(exec, const_cast<float*>(counted_.amax), counted_amax_.data,
                       counted_amax_.bytes());
}

absl::Status QuantState::Reset(const kernels::Exec& exec) const {
  if (empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(sites_.Reset(exec));
  HEARTH_RETURN_IF_ERROR(fallback_sites().empty() ? absl::OkStatus()
                                                  : fallback_sites().Reset(exec));
  return scaling_->Reset(exec);
}

absl::Status QuantState::BeginMicroBatch(const kernels::Exec& exec) const {
  // Delayed scales are made of the whole step's magnitudes, which go on over its micro-batches.
  if (empty() || ScalesAreOfEarlierSteps()) {
    return absl::OkStatus();
  }
  return kernels::Zero(exec, amax(), static_cast<size_t>(2 * size()) * sizeof(float));
}

void QuantState::BindStep(uint64_t seed, const kernels::StepInputs* position) {
  if (!empty()) {
    scaling_->BindStep(seed, position);
  }
}

absl::Status QuantState::BeginStep(const kernels::Exec& exec) const {
  return empty() ? absl::OkStatus() : quantised_weights_->BeginStep(exec);
}

absl::Status QuantState::Arrived(const kernels::Exec& exec,
                                 const Pass& pass,
                                 int unit,
                                 bool forward) const {
  return empty() ? absl::OkStatus() : quantised_weights_->Arrived(exec, pass, unit, forward);
}

absl::Status QuantState::ShareAmax(const kernels::Exec& exec, int64_t first, int64_t count) const {
  return fallback_sites().empty()
             ? absl::OkStatus()
             : kernels::Copy(exec, fallback_sites().At(first).amax, amax(first),
                             static_cast<size_t>(count) * sizeof(float));
}

absl::Status QuantState::UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const {
  if (empty()) {
    return absl::OkStatus();
  }
  // Before the own scales are updated, which clears what was measured.
  HEARTH_RETURN_IF_ERROR(ShareAmax(exec, 0, 2 * size()));
  HEARTH_RETURN_IF_ERROR(scaling_->UpdateActivations(exec, skip));
  return fallback_sites().empty() ? absl::OkStatus() : fallback_.UpdateActivations(exec, skip);
}

absl::Status QuantState::UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const {
  if (empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(ShareAmax(exec, 2 * size(), size()));
  HEARTH_RETURN_IF_ERROR(scaling_->UpdateWeights(exec, skip));
  return fallback_sites().empty() ? absl::OkStatus() : fallback_.UpdateWeights(exec, skip);
}

absl::Status QuantState::FixActivations(const kernels::Exec& exec) const {
  if (empty()) {
    return absl::OkStatus();
  }
  std::vector<float> largest(static_cast<size_t>(2 * size()));
  const size_t bytes = largest.size() * sizeof(float);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, largest.data(), amax(), bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  for (float& value : largest) {
    if (std::isfinite(value) && value > 0) {
      value = std::ldexp(1.0F, std::ilogb(value) + 1 + kFixedRoomBits);
    }
  }
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, amax(), largest.data(), bytes));
  // `largest` must outlive the copy.
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  return scaling_->UpdateActivations(exec, nullptr);
}

float* QuantState::WeightAmaxOf(int parameter) const {
  const int k = Find(parameter);
  return k < 0 ? nullptr : amax(2 * size() + k);
}

absl::Status QuantState::ForgetWeightAmax(const kernels::Exec& exec) const {
  return empty() ? absl::OkStatus() : quantised_weights_->Forget(exec);
}

absl::Status QuantState::MeasureWeights(const kernels::Exec& exec) const {
  return empty() ? absl::OkStatus() : quantised_weights_->Measure(exec);
}

absl::Status QuantState::MeasureUnit(const kernels::Exec& exec, int unit) const {
  return empty() ? absl::OkStatus() : quantised_weights_->MeasureUnit(exec, unit);
}

absl::Status QuantState::StartWeights(const kernels::Exec& exec) const {
  HEARTH_RETURN_IF_ERROR(MeasureWeights(exec));
  return ScaleWeights(exec);
}

absl::Status QuantState::ScaleWeights(const kernels::Exec& exec) const {
  HEARTH_RETURN_IF_ERROR(UpdateWeights(exec, nullptr));
  return QuantizeWeights(exec, nullptr, nullptr);
}

absl::Status QuantState::QuantizeWeights(const kernels::Exec& exec,
                                         const int32_t* skip,
                                         uint64_t* counter) const {
  return empty() ? absl::OkStatus() : quantised_weights_->Quantize(exec, skip, counter);
}

// Bits of floats that are not negative order as integers do.
kernels::TensorView QuantState::ActivationAmax() const {
  return {static_cast<void*>(amax()), DType::kI32, {2 * size()}};
}

kernels::TensorView QuantState::WeightAmax() const {
  return {static_cast<void*>(amax(2 * size())), DType::kI32, {size()}};
}

std::vector<QuantStateTensor> QuantState::Tensors() const {
  if (empty()) {
    return {};
  }
  std::vector<QuantStateTensor> tensors = sites_.Tensors();
  if (!fallback_sites().empty()) {
    for (QuantStateTensor& tensor : fallback_sites().Tensors()) {
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

}  // namespace hearth::trainer
