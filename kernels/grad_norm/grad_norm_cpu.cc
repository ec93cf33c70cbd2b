#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/core/cpu.h"
#include "kernels/grad_norm/grad_norm.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "grad_norm";
constexpr int64_t kBlock = 4096;

template <typename T>
HEARTH_INLINE double BlockSumImpl(const T* x, int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    sum += value * value;
  }
  return sum;
}
HEARTH_SIMD double BlockSum(const float* x, int64_t n) {
  return BlockSumImpl(x, n);
}
HEARTH_SIMD double BlockSum(const double* x, int64_t n) {
  return BlockSumImpl(x, n);
}

int64_t Blocks(const SumSquaresArgs& args) {
  int64_t blocks = 0;
  for (const TensorView& tensor : args.tensors) {
    blocks += CeilDiv(tensor.numel(), kBlock);
  }
  return blocks;
}

template <typename T>
void SumTensor(const Exec& exec, const TensorView& tensor, double* sums, int64_t* nonfinite) {
  const T* x = tensor.as<T>();
  ParallelFor(exec, tensor.numel(), kBlock, [&](int64_t begin, int64_t end) {
    const int64_t block = begin / kBlock;
    sums[block] = BlockSum(x + begin, end - begin);
    // The squares of finite floats cannot overflow a double: only such a block can hold any.
    nonfinite[block] = std::isfinite(sums[block]) ? 0 : std::count_if(x + begin, x + end, [](T v) {
      return !std::isfinite(v);
    });
  });
}

}  // namespace

namespace cpu {

size_t SumSquaresWorkspaceBytes(const SumSquaresArgs& args) {
  return static_cast<size_t>(Blocks(args)) * (sizeof(double) + sizeof(int64_t));
}

absl::Status SumSquares(const Exec& exec, const SumSquaresArgs& args) {
  for (const TensorView& tensor : args.tensors) {
    if (tensor.dtype == DType::kBF16) {
      return absl::UnimplementedError(absl::StrCat(kOp, ": bf16 tensors on the CPU"));
    }
  }
  const int64_t blocks = Blocks(args);
  double* sums = static_cast<double*>(exec.workspace.data);
  int64_t* nonfinite = reinterpret_cast<int64_t*>(sums + blocks);
  int64_t at = 0;
  for (const TensorView& tensor : args.tensors) {
    DispatchFloating(tensor.dtype, [&]<typename T>() {
      SumTensor<T>(exec, tensor, sums + at, nonfinite + at);
      return 0;
    });
    at += CeilDiv(tensor.numel(), kBlock);
  }
  double total = 0.0;
  int64_t count = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    total += sums[block];
    count += nonfinite[block];
  }
  *args.sum_squares = total;
  if (args.nonfinite != nullptr) {
    *args.nonfinite = count;
  }
  return absl::OkStatus();
}

}  // namespace cpu

}  // namespace hearth::kernels
