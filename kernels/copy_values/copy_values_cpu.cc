#include <algorithm>

#include "kernels/copy_values/copy_values.h"
#include "kernels/core/cpu.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kGrain = 16384;

}  // namespace

namespace cpu {

absl::Status CopyValues(const Exec& exec, const CopyValuesArgs& args) {
  return DispatchFloating(args.x.dtype, [&]<typename T>() {
    ParallelFor(exec, args.x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      std::copy(args.x.as<T>() + begin, args.x.as<T>() + end, args.y.as<T>() + begin);
    });
    return absl::OkStatus();
  });
}

}  // namespace cpu

}  // namespace hearth::kernels
