#include "kernels/core/exec.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/system.h"

namespace hearth::kernels {
namespace {

absl::string_view Name(DType dtype) {
  const std::string_view name = DTypeName(dtype);
  return absl::string_view(name.data(), name.size());
}

std::string ShapeString(DType dtype, const int64_t* begin, const int64_t* end) {
  std::string out = absl::StrCat(Name(dtype), "[");
  for (const int64_t* extent = begin; extent != end; ++extent) {
    absl::StrAppend(&out, extent == begin ? "" : ", ", *extent);
  }
  return out + "]";
}

}  // namespace

bool EarlyStartAllowed() {
  const char* given = GetEnv("HEARTH_EARLY_START");
  return given == nullptr || std::string_view(given) != "0";
}

std::string DebugString(const TensorView& view) {
  if (view.empty()) {
    return "absent";
  }
  return ShapeString(view.dtype, view.shape.data(), view.shape.data() + view.rank);
}

absl::Status RequireCpu(const Exec& exec, const char* op) {
  if (exec.device != Device::kCpu) {
    return absl::UnimplementedError(absl::StrCat(op, ": built without a CUDA backend"));
  }
  if (exec.threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": threads is ", exec.threads));
  }
  return absl::OkStatus();
}

absl::Status RequireCuda(const Exec& exec, const char* op) {
#ifdef HEARTH_WITH_CUDA
  return exec.cuda != nullptr ? absl::OkStatus()
                              : absl::FailedPreconditionError(
                                    absl::StrCat(op, ": a CUDA op without a CUDA context"));
#else
  static_cast<void>(exec);
  return absl::UnimplementedError(absl::StrCat(op, ": built without the CUDA backend"));
#endif
}

absl::Status RequireWorkspace(const Exec& exec, size_t bytes, const char* op) {
  if (bytes == 0) {
    return absl::OkStatus();
  }
  if (exec.workspace.data == nullptr || exec.workspace.bytes < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": workspace has ", exec.workspace.bytes, " bytes, needs ", bytes));
  }
  if (reinterpret_cast<uintptr_t>(exec.workspace.data) % 64 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": workspace is not 64-byte aligned"));
  }
  return absl::OkStatus();
}

absl::Status RequireView(const TensorView& view,
                         DType dtype,
                         std::initializer_list<int64_t> shape,
                         const char* op,
                         const char* name) {
  if (!view.empty() && view.dtype == dtype && view.rank == static_cast<int>(shape.size()) &&
      std::equal(shape.begin(), shape.end(), view.shape.begin())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(op, ": ", name, " is ", DebugString(view),
                                                 ", expected ",
                                                 ShapeString(dtype, shape.begin(), shape.end())));
}

absl::Status RequireCount(
    const TensorView& view, DType dtype, int64_t count, const char* op, const char* name) {
  if (!view.empty() && view.dtype == dtype && view.numel() == count) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(op, ": ", name, " is ", DebugString(view),
                                                 ", expected ", count, " elements of ",
                                                 Name(dtype)));
}

absl::Status RequireFloating(const TensorView& view, const char* op, const char* name) {
  if (!view.empty() &&
      (view.dtype == DType::kF32 || view.dtype == DType::kF64 || view.dtype == DType::kBF16)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": ", name, " is ", DebugString(view), ", expected fp32, fp64 or bf16"));
}

absl::Status RequireStorage(const Exec& exec, DType dtype, const char* op) {
  const DType other = exec.device == Device::kCpu ? DType::kF64 : DType::kBF16;
  if (dtype == DType::kF32 || dtype == other) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(op, ": storage as ", Name(dtype), " on ",
                                               exec.device == Device::kCpu ? "a CPU" : "a GPU"));
}

absl::Status RequireFormStorage(const Exec& exec, DType dtype, bool wanted, const char* op) {
  if (!wanted || exec.device == Device::kCpu || dtype == DType::kBF16) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(op, ": quantised or kept forms of ", Name(dtype),
                                               " tensors on a GPU; only bf16 tensors have them"));
}

absl::Status RequireGradient(
    const TensorView& gradient, DType dtype, int64_t count, const char* op, const char* name) {
  const bool narrow = dtype != DType::kF64 && gradient.dtype == DType::kBF16;
  return RequireCount(gradient, narrow ? DType::kBF16 : StatisticsType(dtype), count, op, name);
}

absl::Status RequireQuant(const QuantView& quant, const char* op) {
  if (quant.has_values() && quant.scale == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": quantised output without a scale"));
  }
  if (quant.dtype != DType::kE4M3 && quant.dtype != DType::kE5M2) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": quantised output as ", Name(quant.dtype)));
  }
  return absl::OkStatus();
}

absl::Status RequireRound(DType round, const char* op) {
  if (round == DType::kF32 || round == DType::kF64 || round == DType::kBF16 ||
      round == DType::kF16) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(op, ": cannot round to ", Name(round)));
}

}  // namespace hearth::kernels
