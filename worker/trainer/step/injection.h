// Faults in the numbers of a step, for tests and for users who want to see the guard at work: what
// is spoiled are the tensors themselves, not the verdict (fault points trainer.nan_gradient and
// trainer.loss_spike).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "worker/trainer/data/loader.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

// Whether this attempt (from 0) at the step is to have a spoiled gradient, or spoiled targets.
bool SpoilsGradient(int64_t step, int attempt);
bool SpoilsTargets(int64_t step, int attempt);

// Other tokens in place of the first `count` targets: the loss is that of guesses.
void SpoilTargets(int64_t count, int64_t vocab, const BatchBuffers& batch);

// Makes the first element of the token embedding's gradient a NaN when that is complete on this
// rank, before the ranks sum it; else does as `inner`, which may be null. Both outlive it. Not for
// launches that are recorded.
class GradientSpoiler : public PassHook {
 public:
  GradientSpoiler(const Engine& engine, PassHook* inner) : engine_(engine), inner_(inner) {}
  absl::Status BeforeForward(const kernels::Exec& exec, int32_t moment) override;
  absl::Status BeforeBackward(const kernels::Exec& exec, int32_t moment) override;
  absl::Status AfterBackward(const kernels::Exec& exec, int32_t moment) override;

 private:
  const Engine& engine_;
  PassHook* const inner_;
};

}  // namespace hearth::trainer
