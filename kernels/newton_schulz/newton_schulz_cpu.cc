#include <cmath>

#include "kernels/core/cpu.h"
#include "kernels/newton_schulz/newton_schulz.h"

namespace hearth::kernels {
namespace {

constexpr double kEpsilon = 1e-7;

template <typename T>
HEARTH_INLINE double RowSquaresImpl(const T* x, int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}
HEARTH_SIMD double RowSquares(const float* x, int64_t n) {
  return RowSquaresImpl(x, n);
}
HEARTH_SIMD double RowSquares(const double* x, int64_t n) {
  return RowSquaresImpl(x, n);
}

// to[j, i] = scale * from[i, j], or to[i, j] without `transpose`; `from` is [rows, cols].
template <typename T>
void CopyMatrix(
    const Exec& exec, const T* from, int64_t rows, int64_t cols, bool transpose, T scale, T* to) {
  ParallelFor(exec, rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        to[transpose ? j * rows + i : i * cols + j] = scale * from[i * cols + j];
      }
    }
  });
}

template <typename T>
void Load(const Exec& exec, const TensorView& matrix, T* x) {
  const int64_t rows = matrix.rows();
  const int64_t cols = matrix.cols();
  const T* from = matrix.as<T>();
  double sum = 0.0;
  for (int64_t i = 0; i < rows; ++i) {
    sum += RowSquares(from + i * cols, cols);
  }
  CopyMatrix(exec, from, rows, cols, rows > cols, static_cast<T>(1.0 / (std::sqrt(sum) + kEpsilon)),
             x);
}

template <typename T>
void Store(const Exec& exec, const TensorView& matrix, const T* x) {
  const bool transpose = matrix.rows() > matrix.cols();
  CopyMatrix(exec, x, transpose ? matrix.cols() : matrix.rows(),
             transpose ? matrix.rows() : matrix.cols(), transpose, T{1}, matrix.as<T>());
}

// visit(matrix, x of its own) for each of the batch.
template <typename Visit>
absl::Status ForEach(const NewtonSchulzBatch& batch, const Visit& visit) {
  return DispatchFloating(batch.matrices[0].dtype, [&]<typename T>() {
    T* x = static_cast<T*>(batch.x);
    for (const TensorView& matrix : batch.matrices) {
      visit(matrix, x);
      x += matrix.numel();
    }
    return absl::OkStatus();
  });
}

}  // namespace

namespace cpu {

absl::Status LoadNewtonSchulz(const Exec& exec, const NewtonSchulzBatch& batch) {
  return ForEach(batch, [&](const TensorView& matrix, auto* x) { Load(exec, matrix, x); });
}

absl::Status StoreNewtonSchulz(const Exec& exec, const NewtonSchulzBatch& batch) {
  return ForEach(batch, [&](const TensorView& matrix, auto* x) { Store(exec, matrix, x); });
}

absl::Status ShiftDiagonal(const Exec& exec, const ShiftDiagonalArgs& args) {
  return DispatchFloating(args.x.dtype, [&]<typename T>() {
    const int64_t m = args.x.rows();
    ParallelFor(exec, args.count * m, RowGrain(m), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* x = args.x.as<T>() + row * m;
        for (int64_t j = 0; j < m; ++j) {
          x[j] *= static_cast<T>(args.scale);
        }
        x[row % m] += static_cast<T>(args.shift);
      }
    });
    return absl::OkStatus();
  });
}

}  // namespace cpu

}  // namespace hearth::kernels
