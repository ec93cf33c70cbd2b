#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/core/cpu.h"
#include "kernels/formats/quant.h"
#include "kernels/quantize/quantize.h"

namespace hearth::kernels {
namespace {

template <typename T>
void QuantizeOne(const Exec& exec, const QuantizeTensor& tensor) {
  const int64_t rows = tensor.x.rows();
  const int64_t cols = tensor.x.cols();
  ParallelFor(exec, rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      QuantizeRow(tensor.quant, rows, cols, row, 0, tensor.x.as<T>() + row * cols, cols);
    }
  });
}

// A magnitude that is of no use leaves the scale alone, as in TransformerEngine.
float NextScale(float amax, DType dtype, float scale) {
  if (!(amax > 0.0F) || std::isinf(amax)) {
    return scale;
  }
  return std::min(MaxFinite(dtype) / amax, FLT_MAX);
}

float LargerOrNan(float a, float b) {
  return a > b || std::isnan(a) ? a : b;
}

}  // namespace

namespace cpu {

absl::Status Quantize(const Exec& exec, const QuantizeArgs& args) {
  if (args.skip != nullptr && *args.skip != 0) {
    return absl::OkStatus();
  }
  for (const QuantizeTensor& tensor : args.tensors) {
    DispatchFloating(tensor.x.dtype, [&]<typename T>() {
      QuantizeOne<T>(exec, tensor);
      return 0;
    });
    if (args.counter != nullptr && tensor.quant.has_values() && tensor.x.numel() > 0) {
      ++*args.counter;
    }
  }
  return absl::OkStatus();
}

absl::Status UpdateScales(const Exec&, const UpdateScalesArgs& args) {
  const bool delayed = args.history > 0;
  if (args.skip != nullptr && *args.skip != 0) {
    // The magnitudes of a refused step must not reach the history.
    if (delayed) {
      std::fill_n(args.amax, args.n, 0.0F);
    }
    return absl::OkStatus();
  }
  for (int64_t i = 0; i < args.n; ++i) {
    float amax = args.amax[i];
    if (delayed) {
      args.ring[*args.cursor % args.history * args.n + i] = amax;
      for (int64_t slot = 0; slot < args.history; ++slot) {
        amax = LargerOrNan(args.ring[slot * args.n + i], amax);
      }
      args.amax[i] = 0.0F;
    }
    args.scale[i] = NextScale(amax, args.dtypes[static_cast<size_t>(i)], args.scale[i]);
    args.scale_inverse[i * kScaleInverseStride] = 1.0F / args.scale[i];
  }
  if (delayed) {
    ++*args.cursor;
  }
  return absl::OkStatus();
}

}  // namespace cpu

}  // namespace hearth::kernels
