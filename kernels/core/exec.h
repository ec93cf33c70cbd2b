// Where and with what an op runs. Builds without CUDA: the stream is opaque.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/tensor.h"

namespace hearth::kernels {

enum class Device : uint8_t { kCpu, kCuda };

// What the CUDA ops share on one GPU: libraries' handles and plans, properties (kernels/cuda/
// context.h). Opaque here.
class CudaContext;

// Scratch memory owned by the caller, 64-byte aligned, contents undefined before and after a call.
// One workspace serves one op at a time; ops never allocate.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// Passed by reference into every op. CPU ops have finished when they return; CUDA ops are
// asynchronous on `stream`. One Exec is used by one thread at a time.
struct Exec {
  Device device = Device::kCpu;
  int threads = 1;         // CPU: OpenMP and OpenBLAS threads, >= 1. Fixed for a run: GEMM bits
                           // may depend on it, everything else does not.
  void* stream = nullptr;  // CUDA: cudaStream_t
  CudaContext* cuda = nullptr;  // CUDA: of the stream's GPU; not owned
  // CUDA: kernels that can may begin before the kernel before them in the stream has ended
  // (cuda/launch.cuh). For passes of many short kernels, on one stream.
  bool early_start = false;
  // CUDA: products of few rows may run as thin products (thin_gemm/thin_gemm.h), whose sums have
  // another order than the library's. For passes of one token a text that write no weight.
  bool thin_products = false;
  Workspace workspace;
};

// The storage types of an op's floating views:
//   CPU : kF32 or kF64; narrower formats are emulated by the `round_*` arguments
//   CUDA: kF32 or kBF16, called A in the headers, the same for all activations and weights of a
//         call; `round_*` must say the storage type or kF32. Statistics (rstd, lse, mean, nll) are
//         kF32, weight gradients G are kF32 or kBF16 (sums in fp32, rounded once a call). Forms of
//         a tensor that are quantised, block-scaled or kept exist only beside kBF16.

// What a pass that wants it sets Exec::early_start to: true, false if HEARTH_EARLY_START is 0 (to
// compare).
bool EarlyStartAllowed();

// kInvalidArgument if exec.threads < 1; kUnimplemented if `exec` names a GPU.
absl::Status RequireCpu(const Exec& exec, const char* op);
// kFailedPrecondition unless exec has a CudaContext; kUnimplemented in a build without CUDA.
absl::Status RequireCuda(const Exec& exec, const char* op);

// kInvalidArgument, saying asked and had, if exec.workspace is smaller than `bytes` or misaligned.
absl::Status RequireWorkspace(const Exec& exec, size_t bytes, const char* op);

// kInvalidArgument unless `view` is present with exactly this dtype and shape; `name` is the
// argument's name in the text.
absl::Status RequireView(const TensorView& view,
                         DType dtype,
                         std::initializer_list<int64_t> shape,
                         const char* op,
                         const char* name);
// The same for the number of elements only (any shape).
absl::Status RequireCount(
    const TensorView& view, DType dtype, int64_t count, const char* op, const char* name);
// kInvalidArgument unless dtype is kF32, kF64 or kBF16: a storage type of some device.
absl::Status RequireFloating(const TensorView& view, const char* op, const char* name);
// kUnimplemented unless `dtype` is a storage type of exec's device.
absl::Status RequireStorage(const Exec& exec, DType dtype, const char* op);
// kUnimplemented if `wanted`, quantised, block-scaled or kept forms of an op's tensors, is asked of
// a GPU beside tensors stored as anything but kBF16: recipes that quantise store activations and
// weights so, and these forms are most of what there is to compile.
absl::Status RequireFormStorage(const Exec& exec, DType dtype, bool wanted, const char* op);
// S, the type of statistics kept beside tensors stored as `dtype`.
constexpr DType StatisticsType(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}
// kInvalidArgument unless `gradient` has `count` elements of a type that weight gradients may have
// beside tensors stored as `dtype` on some device. RequireStorage tells the device's.
absl::Status RequireGradient(
    const TensorView& gradient, DType dtype, int64_t count, const char* op, const char* name);
// kInvalidArgument: values without a scale, or a format that is not kE4M3 or kE5M2.
absl::Status RequireQuant(const QuantView& quant, const char* op);
// kUnimplemented unless `round` is kF64, kF32, kBF16 or kF16.
absl::Status RequireRound(DType round, const char* op);

}  // namespace hearth::kernels
