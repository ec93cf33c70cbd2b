// ClipFactor (grad_norm.h) for both devices.
#pragma once

#include <cfloat>

#include "common/formats/hd.h"

namespace hearth::kernels {

HEARTH_HD inline bool IsFinite(double x) {
  return x >= -DBL_MAX && x <= DBL_MAX;
}

HEARTH_HD inline float ClipFactorOf(double norm, double max_norm) {
  // A norm that is not finite clips nothing: such a step is refused (JudgeState).
  if (max_norm <= 0.0 || !IsFinite(norm)) {
    return 1.0F;
  }
  // As PyTorch's clip_grad_norm_.
  const double factor = max_norm / (norm + 1e-6);
  return static_cast<float>(factor < 1.0 ? factor : 1.0);
}

}  // namespace hearth::kernels
