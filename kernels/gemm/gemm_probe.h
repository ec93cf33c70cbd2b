// What this GPU's matrix units and cuBLASLt really do: one small product per pair of formats.
#pragma once

#include <string>
#include <vector>

#include "common/formats/gpu_units.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

struct GemmProbe {
  std::string name;  // "bf16", "fp8 e4m3 x e4m3", "mxfp8", ...
  bool ok = false;
  std::string status;               // "ok", or the library's error, or how far off the result is
  double max_relative_error = 0.0;  // ProbeError (probe_case.h), if it ran
};

// One row for each of ProbeCases() (probe_case.h): bf16, f32, the three products of a layer in FP8
// with one scale a tensor ("fp8 e4m3 x e4m3", "fp8 e5m2 x e4m3", "fp8 gradient"), and for mxfp8
// (one scale per 32, UE8M0), nvfp4 (one per 16, UE4M3), both given to cuBLASLt as they are, and fp8
// as mxfp8 with unit scales: a product into bf16, and one onto fp32 as the gradient of a weight is
// summed. On a GPU without block-scaled units those say what the library answered.
// Allocates and waits for the stream. Empty on the CPU and in a build without CUDA.
std::vector<GemmProbe> ProbeGemms(const Exec& exec);

// Which block-scaled products exec's context computes natively from now on, and why. Compute
// capability 10.x and 12.x are tried by real products against the reference: a format is emulated
// if any of its products fails or is wrong, and `why` says so. Before this call everything is
// emulated. On 12.x plain FP8 goes the block-scaled way too, if it is right. `allow_native` =
// false: emulate everything. A choice for each layout of blocks, then one for plain FP8. Allocates
// and waits for the stream; before any graph is recorded. Empty on the CPU.
struct BlockGemmChoice {
  formats::UnitProducts products;
  bool native = false;
  std::string why;
};
std::vector<BlockGemmChoice> ChooseBlockGemms(const Exec& exec, bool allow_native);

}  // namespace hearth::kernels
