#include "worker/trainer/precision/sites.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"

namespace hearth::trainer {

using kernels::DType;

QuantSites::QuantSites(const Arena& arena,
                       const spec::ScaleBuffers& ids,
                       std::string prefix,
                       int64_t weights,
                       int history)
    : prefix_(std::move(prefix)), weights_(weights), history_(history) {
  const auto floats = [&](spec::BufferId id) { return arena.Typed(id, DType::kF32).as<float>(); };
  amax_ = floats(ids.amax);
  carried_ = floats(ids.scale);
  scale_inverse_ = floats(ids.scale_inverse);
  ring_ = floats(ids.ring);
  cursors_ = arena.Typed(ids.cursors, DType::kI64).as<int64_t>();
}

absl::Status FillOnes(const kernels::Exec& exec, float* data, int64_t count) {
  const std::vector<float> ones(static_cast<size_t>(count), 1.0F);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, data, ones.data(), ones.size() * sizeof(float)));
  // `ones` is pageable memory that must outlive the copy.
  return kernels::Synchronize(exec);
}

absl::Status QuantSites::Reset(const kernels::Exec& exec) const {
  const auto bytes = static_cast<size_t>(AmaxBytes());
  HEARTH_RETURN_IF_ERROR(FillOnes(exec, carried_, size()));
  HEARTH_RETURN_IF_ERROR(FillOnes(exec, scale_inverse_, size() * kernels::kScaleInverseStride));
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, amax_, bytes));
  HEARTH_RETURN_IF_ERROR(
      kernels::Zero(exec, ring_, bytes * static_cast<size_t>(std::max(1, history_))));
  return kernels::Zero(exec, cursors_, 2 * sizeof(int64_t));
}

std::vector<QuantStateTensor> QuantSites::Tensors() const {
  const int64_t bytes = AmaxBytes();
  // The names are those of checkpoints, whatever a recipe carries in "scale".
  return {{absl::StrCat(prefix_, ".amax"), amax_, bytes},
          {absl::StrCat(prefix_, ".scale"), carried_, bytes},
          {absl::StrCat(prefix_, ".scale_inverse"), scale_inverse_,
           bytes * kernels::kScaleInverseStride},
          {absl::StrCat(prefix_, ".ring"), ring_, bytes * std::max(1, history_)},
          {absl::StrCat(prefix_, ".cursors"), cursors_, 2 * static_cast<int64_t>(sizeof(int64_t))}};
}

}  // namespace hearth::trainer
