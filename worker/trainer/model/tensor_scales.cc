#include "worker/trainer/model/tensor_scales.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"

namespace hearth::trainer {

using kernels::DType;

TensorScales::TensorScales(const Arena& arena, std::string prefix, int64_t weights, int history)
    : prefix_(std::move(prefix)),
      weights_(weights),
      history_(history),
      dtypes_(static_cast<size_t>(3 * weights), DType::kE4M3) {
  std::fill_n(dtypes_.begin() + weights, weights, DType::kE5M2);
  const auto floats = [&](const char* name, int64_t count) {
    return arena.Typed(absl::StrCat(prefix_, name), DType::kF32, {count}).as<float>();
  };
  amax_ = floats(".amax", sites());
  scale_ = floats(".scale", sites());
  scale_inverse_ = floats(".scale_inverse", sites() * kernels::kScaleInverseStride);
  ring_ = floats(".ring", sites() * std::max(1, history_));
  cursors_ = arena.Typed(absl::StrCat(prefix_, ".cursors"), DType::kI64, {2}).as<int64_t>();
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
