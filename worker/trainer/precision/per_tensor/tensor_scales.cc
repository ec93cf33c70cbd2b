#include "worker/trainer/precision/per_tensor/tensor_scales.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/recipe/numerics.h"

namespace hearth::trainer {

using kernels::DType;

TensorScales::TensorScales(const Arena& arena,
                           const spec::ScaleBuffers& ids,
                           std::string prefix,
                           int64_t weights,
                           const spec::Recipe& recipe)
    : prefix_(std::move(prefix)), weights_(weights), history_(recipe.amax_history) {
  // One scale serves both forms of a tensor, and so does one format: tables_test.cc.
  for (const spec::Operand* operand : {&recipe.fprop.a, &recipe.dgrad.a, &recipe.fprop.b}) {
    dtypes_.insert(dtypes_.end(), static_cast<size_t>(weights), operand->dtype);
  }
  const auto floats = [&](spec::BufferId id) { return arena.Typed(id, DType::kF32).as<float>(); };
  amax_ = floats(ids.amax);
  scale_ = floats(ids.scale);
  scale_inverse_ = floats(ids.scale_inverse);
  ring_ = floats(ids.ring);
  cursors_ = arena.Typed(ids.cursors, DType::kI64).as<int64_t>();
}

kernels::QuantView TensorScales::View(int64_t index, void* rows, void* columns) const {
  kernels::QuantView quant;
  quant.dtype = dtypes_[static_cast<size_t>(index)];
  quant.rows = rows;
  quant.columns = columns;
  quant.scale = quant.has_values() ? scale_ + index : nullptr;
  return quant;
}

ProductOperand TensorScales::Product(int64_t index,
                                     void* data,
                                     int64_t lines,
                                     int64_t extent) const {
  ProductOperand product;
  product.values = kernels::TensorView(data, dtypes_[static_cast<size_t>(index)], {lines, extent});
  product.scale = At(index).scale_inverse;
  return product;
}

absl::Status FillOnes(const kernels::Exec& exec, float* data, int64_t count) {
  const std::vector<float> ones(static_cast<size_t>(count), 1.0F);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, data, ones.data(), ones.size() * sizeof(float)));
  // `ones` is pageable memory that must outlive the copy.
  return kernels::Synchronize(exec);
}

absl::Status TensorScales::Reset(const kernels::Exec& exec) const {
  const auto bytes = static_cast<size_t>(AmaxBytes());
  HEARTH_RETURN_IF_ERROR(FillOnes(exec, scale_, sites()));
  HEARTH_RETURN_IF_ERROR(FillOnes(exec, scale_inverse_, sites() * kernels::kScaleInverseStride));
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, amax_, bytes));
  HEARTH_RETURN_IF_ERROR(
      kernels::Zero(exec, ring_, bytes * static_cast<size_t>(std::max(1, history_))));
  return kernels::Zero(exec, cursors_, 2 * sizeof(int64_t));
}

absl::Status TensorScales::Update(
    const kernels::Exec& exec, int64_t first, int64_t count, int group, const int32_t* skip) const {
  kernels::UpdateScalesArgs args;
  args.n = count;
  args.history = history_;
  args.amax = amax_ + first;
  args.ring = history_ > 0 ? ring_ + first * history_ : nullptr;
  args.scale = scale_ + first;
  args.scale_inverse = scale_inverse_ + first * kernels::kScaleInverseStride;
  args.dtypes =
      absl::MakeConstSpan(dtypes_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  args.cursor = history_ > 0 ? cursors_ + group : nullptr;
  args.skip = skip;
  return kernels::UpdateScales(exec, args);
}

absl::Status TensorScales::UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const {
  return Update(exec, 0, 2 * weights_, 0, skip);
}

absl::Status TensorScales::UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const {
  return Update(exec, 2 * weights_, weights_, 1, skip);
}

absl::Status TensorScales::UpdateOne(const kernels::Exec& exec, int64_t index) const {
  kernels::UpdateScalesArgs args;
  args.n = 1;
  args.amax = amax_ + index;
  args.scale = scale_ + index;
  args.scale_inverse = scale_inverse_ + index * kernels::kScaleInverseStride;
  args.dtypes = absl::MakeConstSpan(dtypes_).subspan(static_cast<size_t>(index), 1);
  return kernels::UpdateScales(exec, args);
}

std::vector<QuantStateTensor> TensorScales::Tensors() const {
  const int64_t bytes = AmaxBytes();
  return {{absl::StrCat(prefix_, ".amax"), amax_, bytes},
          {absl::StrCat(prefix_, ".scale"), scale_, bytes},
          {absl::StrCat(prefix_, ".scale_inverse"), scale_inverse_,
           bytes * kernels::kScaleInverseStride},
          {absl::StrCat(prefix_, ".ring"), ring_, bytes * std::max(1, history_)},
          {absl::StrCat(prefix_, ".cursors"), cursors_, 2 * static_cast<int64_t>(sizeof(int64_t))}};
}

}  // namespace hearth::trainer
