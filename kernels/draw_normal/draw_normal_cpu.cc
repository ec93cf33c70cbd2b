#include <algorithm>

#include "kernels/core/cpu.h"
#include "kernels/draw_normal/draw_normal.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kGrain = 65536;

template <typename T>
absl::Status Impl(const Exec& exec, const DrawNormalArgs& args) {
  const int64_t count = args.y.numel();
  const uint64_t first = args.first_element;
  const int64_t drawn = args.end <= first ? 0
                                          : static_cast<int64_t>(std::min<uint64_t>(
                                                args.end - first, static_cast<uint64_t>(count)));
  ParallelFor(exec, count, kGrain, [&, y = args.y.as<T>()](int64_t begin, int64_t end) {
    const int64_t middle = std::clamp(drawn, begin, end);
    if (args.stddev == 0.0) {
      std::fill(y + begin, y + middle, static_cast<T>(args.mean));
    } else {
      kernels::FillNormal(args.key, first + static_cast<uint64_t>(begin), args.mean, args.stddev,
                          y + begin, middle - begin);
    }
    std::fill(y + middle, y + end, T{0});
  });
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

absl::Status DrawNormal(const Exec& exec, const DrawNormalArgs& args) {
  return DispatchFloating(args.y.dtype, [&]<typename T>() { return Impl<T>(exec, args); });
}

}  // namespace cpu

}  // namespace hearth::kernels
