#include <cmath>
#include <limits>

#include "kernels/amax/amax.h"
#include "kernels/core/cpu.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kBlock = 65536;

// NaN if any element is.
template <typename T>
HEARTH_INLINE T BlockAmaxImpl(const T* x, int64_t n) {
  T amax = 0;
  int nans = 0;
#pragma omp simd reduction(max : amax) reduction(+ : nans)
  for (int64_t i = 0; i < n; ++i) {
    const T magnitude = std::fabs(x[i]);
    amax = magnitude > amax ? magnitude : amax;
    nans += magnitude != magnitude ? 1 : 0;
  }
  return nans > 0 ? std::numeric_limits<T>::quiet_NaN() : amax;
}
HEARTH_SIMD float BlockAmax(const float* x, int64_t n) {
  return BlockAmaxImpl(x, n);
}
HEARTH_SIMD double BlockAmax(const double* x, int64_t n) {
  return BlockAmaxImpl(x, n);
}

}  // namespace

namespace cpu {

size_t AmaxWorkspaceBytes(const AmaxArgs& args) {
  return static_cast<size_t>(CeilDiv(args.x.numel(), kBlock)) * sizeof(double);
}

absl::Status Amax(const Exec& exec, const AmaxArgs& args) {
  double* blocks = static_cast<double*>(exec.workspace.data);
  DispatchFloating(args.x.dtype, [&]<typename T>() {
    ParallelFor(exec, args.x.numel(), kBlock, [&](int64_t begin, int64_t end) {
      blocks[begin / kBlock] = static_cast<double>(BlockAmax(args.x.as<T>() + begin, end - begin));
    });
    return 0;
  });
  double amax = 0.0;
  for (int64_t block = 0; block < CeilDiv(args.x.numel(), kBlock); ++block) {
    if (std::isnan(blocks[block])) {
      amax = blocks[block];
      break;
    }
    amax = std::max(amax, blocks[block]);
  }
  *args.amax = static_cast<float>(amax);
  return absl::OkStatus();
}

}  // namespace cpu

}  // namespace hearth::kernels
