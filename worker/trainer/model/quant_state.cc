#include "worker/trainer/model/quant_state.h"

#include <algorithm>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/model/parameter_store.h"

namespace hearth::trainer {

using kernels::DType;

QuantState::QuantState(const spec::PrecisionPlan& precision,
                       const ParameterStore& parameters,
                       const Arena& arena)
    : precision_(precision),
      weights_(spec::QuantisedParameters(parameters.table(), precision)),
      number_(parameters.table().size(), -1) {
  const std::vector<spec::Parameter>& table = parameters.table();
  if (weights_.empty()) {
    return;
  }
  const int64_t n = size();
  const auto floats = [&](const char* name, int64_t count) {
    return arena.Typed(name, DType::kF32, {count}).as<float>();
  };
  amax_ = floats("quant.amax", 3 * n);
  scale_ = floats("quant.scale", 3 * n);
  scale_inverse_ = floats("quant.scale_inverse", 3 * n * kernels::kScaleInverseStride);
  ring_ = floats("quant.ring", 3 * n * std::max(1, precision_.history));
  cursors_ = arena.Typed("quant.cursors", DType::kI64, {2}).as<int64_t>();
  const std::vector<int64_t> offsets = spec::QuantisedOffsets(table, weights_);
  auto* rows = static_cast<uint8_t*>(arena.Bytes("quant.weight_rows", offsets.back()));
  auto* columns = static_cast<uint8_t*>(arena.Bytes("quant.weight_columns", offsets.back()));
  for (size_t k = 0; k < weights_.size(); ++k) {
    const spec::Parameter& parameter = table[static_cast<size_t>(weights_[k])];
    const int64_t out = parameter.shape[0];
    const int64_t in = parameter.shape[1];
    number_[static_cast<size_t>(weights_[k])] = static_cast<int>(k);
    rows_.emplace_back(static_cast<void*>(rows + offsets[k]), DType::kE4M3,
                       std::initializer_list<int64_t>{out, in});
    columns_.emplace_back(static_cast<void*>(columns + offsets[k]), DType::kE4M3,
                          std::initializer_list<int64_t>{in, out});
    kernels::QuantizeTensor tensor;
    tensor.x = parameters.weight(weights_[k]);
    tensor.quant.amax = W(static_cast<int>(k)).amax;
    measured_.push_back(tensor);
    tensor.quant.amax = nullptr;
    tensor.quant.scale = W(static_cast<int>(k)).scale;
    tensor.quant.rows = rows_.back().data;
    tensor.quant.columns = columns_.back().data;
    quantized_.push_back(tensor);
  }
  for (const int i : weights_) {
    const spec::Parameter& parameter = table[static_cast<size_t>(i)];
    outer_.push_back(!parameter.roles.head && (parameter.layer < precision_.inner_first_layer ||
                                               parameter.layer >= precision_.inner_end_layer));
  }
  if (precision_.stats) {
    counts_ = static_cast<uint64_t*>(arena.Bytes("quant.counts", CountBytes()));
    counted_amax_ = floats("quant.counted_amax", 3 * n);
    counted_ = {counted_amax_, counts_};
  }
  if (precision_.stats && arena.Has("staging.counts")) {
    auto* host = static_cast<uint64_t*>(
        arena.Bytes("staging.counts", CountBytes() + 3 * n * static_cast<int64_t>(sizeof(float))));
    counted_ = {reinterpret_cast<const float*>(host + 6 * n), host};
  }
  dtypes_.assign(static_cast<size_t>(3 * n), DType::kE4M3);
  std::fill_n(dtypes_.begin() + n, n, DType::kE5M2);
}

int QuantState::Find(int parameter) const {
  return parameter < 0 || number_.empty() ? -1 : number_[static_cast<size_t>(parameter)];
}

bool QuantState::Outer(int64_t index) const {
  return outer_[static_cast<size_t>(index % size())];
}

absl::Status QuantState::Count(const kernels::Exec& exec,
                               int64_t index,
                               const kernels::TensorView& values) const {
  kernels::CountCodesArgs args;
  args.x = values;
  args.counts = counts_ + 2 * index;
  return kernels::CountCodes(exec, args);
}

absl::Status QuantState::BeginCounts(const kernels::Exec& exec) const {
  return kernels::Zero(exec, counts_, static_cast<size_t>(CountBytes()));
}

absl::Status QuantState::FinishCounts(const kernels::Exec& exec, bool quantised) const {
  for (int k = 0; quantised && k < static_cast<int>(size()); ++k) {
    HEARTH_RETURN_IF_ERROR(Count(exec, 2 * size() + k, WeightRows(k)));
  }
  HEARTH_RETURN_IF_ERROR(MeasureWeights(exec));
  const auto amax_bytes = static_cast<size_t>(3 * size()) * sizeof(float);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, counted_amax_, amax_, amax_bytes));
  if (counted_.counts == counts_) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, const_cast<uint64_t*>(counted_.counts), counts_,
                                       static_cast<size_t>(CountBytes())));
  return kernels::Copy(exec, const_cast<float*>(counted_.amax), counted_amax_, amax_bytes);
}

absl::Status QuantState::Reset(const kernels::Exec& exec) const {
  if (empty()) {
    return absl::OkStatus();
  }
  const auto bytes = static_cast<size_t>(3 * size()) * sizeof(float);
  const std::vector<float> ones(static_cast<size_t>(3 * size() * kernels::kScaleInverseStride),
                                1.0F);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, scale_, ones.data(), bytes));
  HEARTH_RETURN_IF_ERROR(
      kernels::Copy(exec, scale_inverse_, ones.data(), ones.size() * sizeof(float)));
  // `ones` is pageable memory that must outlive the copies.
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, amax_, bytes));
  HEARTH_RETURN_IF_ERROR(
      kernels::Zero(exec, ring_, bytes * static_cast<size_t>(std::max(1, precision_.history))));
  return kernels::Zero(exec, cursors_, 2 * sizeof(int64_t));
}

absl::Status QuantState::BeginMicroBatch(const kernels::Exec& exec) const {
  if (empty() || precision_.delayed) {
    return absl::OkStatus();
  }
  return kernels::Zero(exec, amax_, static_cast<size_t>(2 * size()) * sizeof(float));
}

absl::Status QuantState::UpdateOne(const kernels::Exec& exec, int64_t index) const {
  kernels::UpdateScalesArgs args;
  args.n = 1;
  args.amax = amax_ + index;
  args.scale = scale_ + index;
  args.scale_inverse = scale_inverse_ + index * kernels::kScaleInverseStride;
  args.dtypes = absl::MakeConstSpan(dtypes_).subspan(static_cast<size_t>(index), 1);
  return kernels::UpdateScales(exec, args);
}

absl::Status QuantState::UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const {
  if (empty() || !precision_.delayed) {
    return absl::OkStatus();
  }
  kernels::UpdateScalesArgs args;
  args.n = 2 * size();
  args.history = precision_.history;
  args.amax = amax_;
  args.ring = ring_;
  args.scale = scale_;
  args.scale_inverse = scale_inverse_;
  args.dtypes = absl::MakeConstSpan(dtypes_).subspan(0, static_cast<size_t>(args.n));
  args.cursor = cursors_;
  args.skip = skip;
  return kernels::UpdateScales(exec, args);
}

absl::Status QuantState::UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const {
  if (empty()) {
    return absl::OkStatus();
  }
  kernels::UpdateScalesArgs args;
  args.n = size();
  args.history = precision_.history;
  args.amax = amax_ + 2 * size();
  args.ring = precision_.delayed ? ring_ + 2 * size() * precision_.history : nullptr;
  args.scale = scale_ + 2 * size();
  args.scale_inverse = scale_inverse_ + 2 * size() * kernels::kScaleInverseStride;
  args.dtypes = absl::MakeConstSpan(dtypes_).subspan(static_cast<size_t>(2 * size()));
  args.cursor = precision_.delayed ? cursors_ + 1 : nullptr;
  args.skip = skip;
  return kernels::UpdateScales(exec, args);
}

absl::Status QuantState::ForgetWeightAmax(const kernels::Exec& exec) const {
  return empty()
             ? absl::OkStatus()
             : kernels::Zero(exec, amax_ + 2 * size(), static_cast<size_t>(size()) * sizeof(float));
}

absl::Status QuantState::MeasureWeights(const kernels::Exec& exec) const {
  if (empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(ForgetWeightAmax(exec));
  kernels::QuantizeArgs args;
  args.tensors = measured_;
  return kernels::Quantize(exec, args);
}

absl::Status QuantState::StartWeights(const kernels::Exec& exec) const {
  HEARTH_RETURN_IF_ERROR(MeasureWeights(exec));
  HEARTH_RETURN_IF_ERROR(UpdateWeights(exec, nullptr));
  return QuantizeWeights(exec, nullptr, nullptr);
}

absl::Status QuantState::QuantizeWeights(const kernels::Exec& exec,
                                         const int32_t* skip,
                                         uint64_t* counter) const {
  if (empty()) {
    return absl::OkStatus();
  }
  kernels::QuantizeArgs args;
  args.tensors = quantized_;
  args.skip = skip;
  args.counter = counter;
  return kernels::Quantize(exec, args);
}

// Bits of floats that are not negative order as integers do.
kernels::TensorView QuantState::ActivationAmax() const {
  return {static_cast<void*>(amax_), DType::kI32, {2 * size()}};
}

kernels::TensorView QuantState::WeightAmax() const {
  return {static_cast<void*>(amax_ + 2 * size()), DType::kI32, {size()}};
}

std::vector<QuantStateTensor> QuantState::Tensors() const {
  if (empty()) {
    return {};
  }
  const auto bytes = 3 * size() * static_cast<int64_t>(sizeof(float));
  return {{"quant.amax", amax_, bytes},
          {"quant.scale", scale_, bytes},
          {"quant.scale_inverse", scale_inverse_, bytes * kernels::kScaleInverseStride},
          {"quant.ring", ring_, bytes * std::max(1, precision_.history)},
          {"quant.cursors", cursors_, 2 * static_cast<int64_t>(sizeof(int64_t))}};
}

}  // namespace hearth::trainer
