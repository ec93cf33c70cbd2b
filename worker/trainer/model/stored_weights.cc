#include "worker/trainer/model/stored_weights.h"

#include "common/base/status_macros.h"

namespace hearth::trainer {

absl::Status StoredWeights::Begin(const kernels::Exec& /*exec*/) {
  return absl::OkStatus();
}

absl::Status StoredWeights::Announce(const kernels::Exec& exec, int unit) {
  for (const int i : parameters_.units().units[static_cast<size_t>(unit)].parameters) {
    HEARTH_RETURN_IF_ERROR(parameters_.Decode(exec, i));
  }
  return absl::OkStatus();
}

absl::Status StoredWeights::Acquire(const kernels::Exec& /*exec*/, int /*unit*/) {
  return absl::OkStatus();
}

absl::Status StoredWeights::Release(const kernels::Exec& /*exec*/, int /*unit*/) {
  return absl::OkStatus();
}

}  // namespace hearth::trainer
