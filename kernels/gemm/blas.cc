#include "kernels/gemm/blas.h"

#include <omp.h>

namespace hearth::kernels::blas {

void SetThreads(int threads) {
  omp_set_num_threads(threads);
  if (threads > 1 && openblas_get_num_threads() != threads) {
    openblas_set_num_threads(threads);
  }
}

}  // namespace hearth::kernels::blas
