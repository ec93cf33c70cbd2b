// Overloads of cblas_?gemm, for ops that multiply strided blocks inside their own loops. Inside an
// OpenMP region OpenBLAS runs on the calling thread alone.
#pragma once

#include <cblas.h>

#include <cstdint>

namespace hearth::kernels::blas {

// Threads of the products that this thread starts next, outside OpenMP regions. OpenBLAS follows
// the calling thread's OpenMP setting; its process-wide count is raised too where it was lower.
void SetThreads(int threads);

// c[m, n] = alpha * op(a) * op(b) + beta * c, row-major with leading dimensions in elements.
// NOLINTNEXTLINE(readability-function-size): the parameters are those of BLAS
inline void Gemm(bool transpose_a,
                 bool transpose_b,
                 int64_t m,
                 int64_t n,
                 int64_t k,
                 float alpha,
                 const float* a,
                 int64_t lda,
                 const float* b,
                 int64_t ldb,
                 float beta,
                 float* c,
                 int64_t ldc) {
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(m),
              static_cast<blasint>(n), static_cast<blasint>(k), alpha, a, static_cast<blasint>(lda),
              b, static_cast<blasint>(ldb), beta, c, static_cast<blasint>(ldc));
}

// NOLINTNEXTLINE(readability-function-size): the parameters are those of BLAS
inline void Gemm(bool transpose_a,
                 bool transpose_b,
                 int64_t m,
                 int64_t n,
                 int64_t k,
                 double alpha,
                 const double* a,
                 int64_t lda,
                 const double* b,
                 int64_t ldb,
                 double beta,
                 double* c,
                 int64_t ldc) {
  cblas_dgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(m),
              static_cast<blasint>(n), static_cast<blasint>(k), alpha, a, static_cast<blasint>(lda),
              b, static_cast<blasint>(ldb), beta, c, static_cast<blasint>(ldc));
}

}  // namespace hearth::kernels::blas
