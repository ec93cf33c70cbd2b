// Llama 3's scaling of RoPE, for models that learned 64 positions.
#pragma once

#include "hearth/v1/job_spec.pb.h"

namespace hearth {

inline void SetLlama3Rope(v1::ModelSpec& model) {
  v1::RopeScaling& scaling = *model.mutable_rope_scaling();
  scaling.set_type("llama3");
  scaling.set_factor(8);
  scaling.set_low_freq_factor(1);
  scaling.set_high_freq_factor(4);
  scaling.set_original_max_position(64);
}

}  // namespace hearth
