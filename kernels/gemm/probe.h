// What this GPU's matrix units and cuBLASLt really do: one small product per pair of formats.
#pragma once

#include <string>
#include <vector>

#include "kernels/core/exec.h"

namespace hearth::kernels {

struct GemmProbe {
  std::string name;  // "bf16", "fp8 e4m3 x e4m3", "mxfp8", ...
  bool ok = false;
  std::string status;               // "ok", or the library's error, or how far off the result is
  double max_relative_error = 0.0;  // max |got - reference| / max |reference|; if it ran
};

// Rows: bf16, f32, fp8 e4m3 x e4m3, fp8 e5m2 x e4m3, mxfp8 (one scale per 32, UE8M0), nvfp4 (one
// per 16, UE4M3). The reference is computed on the CPU in double from the decoded operands.
// Allocates and waits for the stream. Empty on the CPU and in a build without CUDA.
std::vector<GemmProbe> ProbeGemms(const Exec& exec);

}  // namespace hearth::kernels
