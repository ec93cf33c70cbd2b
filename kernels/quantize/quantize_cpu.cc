#include <algorithm>
#include <cfloat>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/formats/quant.h"
#include "kernels/quantize/quantize.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "quantize";
constexpr char kScalesOp[] = "update_scales";
constexpr int64_t kMaxScales = 4096;
constexpr int64_t kTranspose = 16;  // rows and columns of transposed outputs are multiples of it

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

absl::Status CanImplement(const QuantizeArgs& args) {
  for (const QuantizeTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireFloating(tensor.x, kOp, "x"));
    HEARTH_RETURN_IF_ERROR(RequireQuant(tensor.quant, kOp));
    if (tensor.x.dtype != args.tensors[0].x.dtype) {
      return absl::InvalidArgumentError(absl::StrCat(
          kOp, ": x is ", DebugString(tensor.x), ", others are ", DebugString(args.tensors[0].x)));
    }
    if (tensor.quant.columns != nullptr &&
        (tensor.x.rows() % kTranspose != 0 || tensor.x.cols() % kTranspose != 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          kOp, ": columns wanted of ", DebugString(tensor.x), ", not multiples of ", kTranspose));
    }
  }
  return absl::OkStatus();
}

size_t QuantizeWorkspaceBytes(const QuantizeArgs&) {
  return 0;
}

absl::Status Quantize(const Exec& exec, const QuantizeArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  if (args.tensors.empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.tensors[0].x.dtype, kOp));
  HEARTH_RUN_ON_CUDA(exec, kOp, Quantize(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
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

absl::Status CanImplement(const UpdateScalesArgs& args) {
  if (args.n < 0 || args.n > kMaxScales || args.history < 0 ||
      static_cast<int64_t>(args.dtypes.size()) != args.n) {
    return absl::InvalidArgumentError(absl::StrCat(kScalesOp, ": ", args.n, " scales with ",
                                                   args.dtypes.size(), " formats, history ",
                                                   args.history));
  }
  if (args.n > 0 &&
      (args.amax == nullptr || args.scale == nullptr || args.scale_inverse == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(kScalesOp, ": amax or scales absent"));
  }
  if (args.history > 0 && (args.cursor == nullptr || (args.n > 0 && args.ring == nullptr))) {
    return absl::InvalidArgumentError(absl::StrCat(kScalesOp, ": history without ring or cursor"));
  }
  for (DType dtype : args.dtypes) {
    if (dtype != DType::kE4M3 && dtype != DType::kE5M2) {
      return absl::InvalidArgumentError(absl::StrCat(kScalesOp, ": a format that is not FP8"));
    }
  }
  return absl::OkStatus();
}

size_t UpdateScalesWorkspaceBytes(const UpdateScalesArgs&) {
  return 0;
}

absl::Status UpdateScales(const Exec& exec, const UpdateScalesArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RUN_ON_CUDA(exec, kScalesOp, UpdateScales(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kScalesOp));
  const bool delayed = args.history > 0;
  if (args.skip != nullptr && *args.skip != 0) {
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

}  // namespace hearth::kernels
