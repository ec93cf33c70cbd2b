#include "kernels/count_codes/count_codes.h"

namespace hearth::kernels {
namespace cpu {

absl::Status CountCodes(const Exec& exec, const CountCodesArgs& args) {
  const uint8_t* x = args.x.as<uint8_t>();
  const int64_t n = args.x.numel();
  const uint8_t largest = LargestCode(args.x.dtype);
  uint64_t zeros = 0;
  uint64_t saturated = 0;
#pragma omp parallel for simd num_threads(exec.threads) reduction(+ : zeros, saturated)
  for (int64_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<uint8_t>(x[i] & 0x7f);
    zeros += magnitude == 0 ? 1 : 0;
    saturated += magnitude >= largest ? 1 : 0;
  }
  args.counts[0] = zeros;
  args.counts[1] = saturated;
  return absl::OkStatus();
}

}  // namespace cpu

}  // namespace hearth::kernels
