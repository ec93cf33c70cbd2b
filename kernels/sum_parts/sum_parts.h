// Sum of equal parts: what a reduce-scatter adds up once the peers' parts are here.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

inline constexpr int kMaxSumParts = 16;

// out[i] = parts[0][i] + parts[1][i] + ..., summed in this order in fp32 (kF64: in fp64) and
// rounded once, to nearest even.
//   parts : 1..kMaxSumParts views of one dtype and count: kF32 or kF64 on the CPU, A on CUDA;
//           `out` may be one of them
// Bits depend on nothing but the values and the order of the parts.
// Errors: kInvalidArgument (number of parts, dtypes, counts).
// Traffic: (parts + 1) * count elements.
struct SumPartsArgs {
  absl::Span<const TensorView> parts;
  TensorView out;
};

absl::Status CanImplement(const SumPartsArgs& args);
size_t SumPartsWorkspaceBytes(const SumPartsArgs& args);  // 0
absl::Status SumParts(const Exec& exec, const SumPartsArgs& args);

namespace cuda {
absl::Status SumParts(const Exec& exec, const SumPartsArgs& args);
}  // namespace cuda

}  // namespace hearth::kernels
