#include "worker/trainer/model/stored_weights.h"

namespace hearth::trainer {

absl::Status StoredWeights::Begin(const kernels::Exec& /*exec*/) {
  return absl::OkStatus();
}

absl::Status StoredWeights::Announce(const kernels::Exec& exec, int unit) {
  return parameters_.Unpack(exec, unit);
}

absl::Status StoredWeights::Acquire(const kernels::Exec& /*exec*/, int /*unit*/) {
  return absl::OkStatus();
}

absl::Status StoredWeights::Release(const kernels::Exec& /*exec*/, int /*unit*/) {
  return absl::OkStatus();
}

}  // namespace hearth::trainer
