// The functions of a model that a job names and kernels compute. C++17, for CUDA files too.
#pragma once

#include <cstdint>

namespace hearth::formats {

// The function of the feed-forward block. The numbers are the order of the names in job files.
enum class Activation : uint8_t {
  kSwiglu,    // silu(gate) * up
  kGelu,      // 0.5 u (1 + erf(u / sqrt 2))
  kGeluTanh,  // its approximation by tanh: also "gelu_new", "gelu_pytorch_tanh"
};

enum class RopeScalingType : uint8_t {
  kNone,
  kLinear,  // positions divided by `factor`
  kLlama3,  // frequency-dependent (Llama 3.1): uses all four numbers below
};

// How the angles of rotary embeddings are stretched to longer contexts.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 8192;  // tokens
};

}  // namespace hearth::formats
