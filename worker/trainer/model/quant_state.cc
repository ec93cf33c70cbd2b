#include "worker/trainer/model/quant_state.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/recipe/numerics.h"

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
  scales_ = TensorScales(arena, "quant", n, precision_.history);
  if (arena.Has("quant.column_scale_inverse")) {
    column_scale_inverse_ =
        floats("quant.column_scale_inverse", 3 * n * kernels::kScaleInverseStride);
  }
  if (precision_.fallback != nullptr) {
    fallback_ = TensorScales(arena, "fallback", n, precision_.fallback->amax_history);
  }
  const std::vector<int64_t> row_offsets =
      spec::QuantisedOffsets(table, weights_, precision_, false);
  const std::vector<int64_t> column_offsets =
      spec::QuantisedOffsets(table, weights_, precision_, true);
  auto* rows = static_cast<uint8_t*>(arena.Bytes("quant.weight_rows", row_offsets.back()));
  auto* columns = static_cast<uint8_t*>(arena.Bytes("quant.weight_columns", column_offsets.back()));
  for (size_t k = 0; k < weights_.size(); ++k) {
    number_[static_cast<size_t>(weights_[k])] = static_cast<int>(k);
    AddWeight(table[static_cast<size_t>(weights_[k])], parameters.weight(weights_[k]),
              static_cast<int>(k), rows + row_offsets[k], columns + column_offsets[k]);
  }
  for (const int i : weights_) {
    const spec::Parameter& parameter = table[static_cast<size_t>(i)];
    layers_.push_back(parameter.roles.head ? -1 : parameter.layer);
  }
  if (precision_.stats) {
    counts_ = static_cast<uint64_t*>(arena.Bytes("quant.counts", CountBytes()));
    counted_amax_ = floats("quant.counted_amax", 3 * n);
    counted_.amax = counted_amax_;
    counted_.counts = counts_;
    if (precision_.block) {
      std::swap(counted_.underflow, counted_.saturation);
    }
  }
  if (precision_.stats && arena.Has("staging.counts")) {
    auto* host = static_cast<uint64_t*>(
        arena.Bytes("staging.counts", CountBytes() + 3 * n * static_cast<int64_t>(sizeof(float))));
    counted_.amax = reinterpret_cast<const float*>(host + 6 * n);
    counted_.counts = host;
  }
}

void QuantState::AddWeight(const spec::Parameter& parameter,
                           const kernels::TensorView& weight,
                           int k,
                           uint8_t* rows,
                           uint8_t* columns) {
  const int64_t out = parameter.shape[0];
  const int64_t in = parameter.shape[1];
  const int64_t site = 2 * size() + k;
  const spec::Recipe& recipe = *precision_.recipe;
  rows_.push_back(Product(recipe.fprop.b, site, false, rows, out, in));
  columns_.push_back(Product(recipe.dgrad.b, site, true, columns, in, out));
  kernels::QuantizeTensor tensor;
  tensor.x = weight;
  tensor.quant.amax = W(k).amax;
  measured_.push_back(tensor);
  if (precision_.block) {
    AddBlockWeight(weight, k, rows, columns);
    return;
  }
  tensor.quant.amax = nullptr;
  tensor.quant.scale = W(k).scale;
  tensor.quant.rows = rows;
  tensor.quant.columns = columns;
  quantized_.push_back(tensor);
}

void QuantState::AddBlockWeight(const kernels::TensorView& weight,
                                int k,
                                uint8_t* rows,
                                uint8_t* columns) {
  const spec::Recipe& recipe = *precision_.recipe;
  const int64_t site = 2 * size() + k;
  const int64_t out = weight.rows();
  const int64_t in = weight.cols();
  kernels::BlockQuantizeTensor tensor;
  tensor.x = weight;
  tensor.quant.dtype = StorageType(recipe.fprop.b.dtype);
  tensor.quant.square = recipe.fprop.b.block_rows > 1;
  tensor.quant.key.tensor = static_cast<uint32_t>(site);
  tensor.quant.rotation = static_cast<uint32_t>(k);
  const kernels::BlockForm column_form = Form(recipe.dgrad.b, site, true, columns, in, out);
  if (recipe.dgrad.b.signs == spec::Signs::kPerStep) {
    tensor.quant.columns = column_form;
    each_step_.push_back(tensor);
    tensor.quant.columns = {};
  } else {
    tensor.quant.columns = column_form;
  }
  tensor.quant.rows = Form(recipe.fprop.b, site, false, rows, out, in);
  blocks_.push_back(tensor);
}

kernels::BlockForm QuantState::Form(const spec::Operand& operand,
                                    int64_t index,
                                    bool columns,
                                    void* data,
                                    int64_t lines,
                                    int64_t extent) const {
  kernels::BlockForm form;
  form.values = data;
  form.scales = static_cast<uint8_t*>(data) + spec::FormScaleOffset(operand, lines, extent);
  if (precision_.delayed) {
    form.amax = At(index).scale;
    form.tensor_scale = TensorScale(index, columns);
  }
  switch (operand.select) {
    case spec::Select::kPlain:
      form.rounding = operand.rounding == spec::Rounding::kStochastic
                          ? kernels::BlockRounding::kStochastic
                          : kernels::BlockRounding::kNearest;
      break;
    case spec::Select::kFourOverSix:
      form.rounding = kernels::BlockRounding::kFourOverSix;
      break;
    case spec::Select::kMsEden:
      form.rounding = kernels::BlockRounding::kEden;
      break;
  }
  switch (operand.transform) {
    case spec::Transform::kNone:
      break;
    case spec::Transform::kRht16:
      form.hadamard = 16;
      break;
    case spec::Transform::kRht128:
      form.hadamard = 128;
      break;
  }
  form.signs = operand.signs == spec::Signs::kPerStep ? kernels::HadamardSigns::kSeeded
                                                      : kernels::HadamardSigns::kFixed;
  return form;
}

ProductOperand QuantState::Product(const spec::Operand& operand,
                                   int64_t index,
                                   bool columns,
                                   void* data,
                                   int64_t lines,
                                   int64_t extent) const {
  ProductOperand product;
  product.values = kernels::TensorView(data, StorageType(operand.dtype), {lines, extent});
  if (operand.scaling == spec::Scaling::kBlock) {
    product.block_scales =
        static_cast<const uint8_t*>(data) + spec::FormScaleOffset(operand, lines, extent);
  }
  if (operand.scaling != spec::Scaling::kBlock || precision_.delayed) {
    product.scale = TensorScale(index, columns);
  }
  return product;
}

int QuantState::Find(int parameter) const {
  return parameter < 0 || number_.empty() ? -1 : number_[static_cast<size_t>(parameter)];
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
  for (int k = 0; quantised && !precision_.block && k < static_cast<int>(size()); ++k) {
    HEARTH_RETURN_IF_ERROR(Count(exec, 2 * size() + k, WeightRows(k).values));
  }
  HEARTH_RETURN_IF_ERROR(MeasureWeights(exec));
  const auto amax_bytes = static_cast<size_t>(3 * size()) * sizeof(float);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, counted_amax_, amax(), amax_bytes));
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
  HEARTH_RETURN_IF_ERROR(scales_.Reset(exec));
  HEARTH_RETURN_IF_ERROR(fallback_.empty() ? absl::OkStatus() : fallback_.Reset(exec));
  return column_scale_inverse_ == nullptr
             ? absl::OkStatus()
             : FillOnes(exec, column_scale_inverse_, 3 * size() * kernels::kScaleInverseStride);
}

absl::Status QuantState::BeginMicroBatch(const kernels::Exec& exec) const {
  if (empty() || precision_.delayed) {
    return absl::OkStatus();
  }
  return kernels::Zero(exec, amax(), static_cast<size_t>(2 * size()) * sizeof(float));
}

absl::Status QuantState::UpdateOne(const kernels::Exec& exec, int64_t index) const {
  return scales_.UpdateOne(exec, index);
}

void QuantState::BindStep(uint64_t seed, const kernels::StepInputs* position) {
  for (kernels::BlockQuantizeTensor& tensor : each_step_) {
    tensor.quant.key.seed = seed;
    tensor.quant.position = position;
  }
}

absl::Status QuantState::BeginStep(const kernels::Exec& exec) const {
  if (each_step_.empty()) {
    return absl::OkStatus();
  }
  kernels::BlockQuantizeArgs args;
  args.tensors = each_step_;
  return kernels::BlockQuantize(exec, args);
}

absl::Status QuantState::ShareAmax(const kernels::Exec& exec, int64_t first, int64_t count) const {
  return fallback_.empty() ? absl::OkStatus()
                           : kernels::Copy(exec, fallback_.At(first).amax, amax(first),
                                           static_cast<size_t>(count) * sizeof(float));
}

absl::Status QuantState::UpdateBlockAmax(const kernels::Exec& exec,
                                         int64_t first,
                                         int64_t count,
                                         const int32_t* skip) const {
  kernels::UpdateBlockAmaxArgs args;
  args.n = count;
  args.measured = amax(first);
  args.amax = At(first).scale;
  args.margin = kBlockMargin;
  args.skip = skip;
  return kernels::UpdateBlockAmax(exec, args);
}

absl::Status QuantState::UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const {
  if (empty() || !precision_.delayed) {
    return absl::OkStatus();
  }
  if (precision_.per_tensor) {
    return scales_.UpdateActivations(exec, skip);
  }
  HEARTH_RETURN_IF_ERROR(ShareAmax(exec, 0, 2 * size()));
  HEARTH_RETURN_IF_ERROR(UpdateBlockAmax(exec, 0, 2 * size(), skip));
  return fallback_.empty() ? absl::OkStatus() : fallback_.UpdateActivations(exec, skip);
}

absl::Status QuantState::UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const {
  if (empty() || (precision_.block && !precision_.delayed)) {
    return absl::OkStatus();
  }
  if (precision_.per_tensor) {
    return scales_.UpdateWeights(exec, skip);
  }
  HEARTH_RETURN_IF_ERROR(ShareAmax(exec, 2 * size(), size()));
  HEARTH_RETURN_IF_ERROR(UpdateBlockAmax(exec, 2 * size(), size(), skip));
  return fallback_.empty() ? absl::OkStatus() : fallback_.UpdateWeights(exec, skip);
}

absl::Status QuantState::ForgetWeightAmax(const kernels::Exec& exec) const {
  return empty()
             ? absl::OkStatus()
             : kernels::Zero(exec, amax(2 * size()), static_cast<size_t>(size()) * sizeof(float));
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
  if (precision_.block) {
    kernels::BlockQuantizeArgs args;
    args.tensors = blocks_;
    args.skip = skip;
    args.counter = counter;
    return kernels::BlockQuantize(exec, args);
  }
  kernels::QuantizeArgs args;
  args.tensors = quantized_;
  args.skip = skip;
  args.counter = counter;
  return kernels::Quantize(exec, args);
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
  std::vector<QuantStateTensor> tensors = scales_.Tensors();
  if (!fallback_.empty()) {
    for (QuantStateTensor& tensor : fallback_.Tensors()) {
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

}  // namespace hearth::trainer
