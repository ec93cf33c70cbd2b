// What host and device share of the power iteration: an orthonormal basis of a few columns by the
// Cholesky factor L of their Gram matrix, P L^T = Y, in double because that squares what separates
// the columns; and where the iteration starts. C++17.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/formats/codecs.h"
#include "common/formats/hd.h"
#include "common/formats/leading_blocks.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {

struct LeadingBasis {
  double factor[formats::kLeadingRank][formats::kLeadingRank];  // L below the diagonal
  double inverse[formats::kLeadingRank];                        // of its diagonal; dropped: 0
  uint32_t dropped;  // bit k: column k depends on those before it
};

// L of the Gram matrix of the columns. A NaN drops its column.
HEARTH_HD inline void FactorGram(const double (&gram)[formats::kLeadingRank][formats::kLeadingRank],
                                 LeadingBasis& basis) {
  // Less of a column's square than this is noise: its elements are fp32 sums.
  constexpr double kLeastRest = 1e-10;
  basis.dropped = 0;
  for (int j = 0; j < formats::kLeadingRank; ++j) {
    double rest = gram[j][j];
    for (int k = 0; k < j; ++k) {
      double sum = gram[j][k];
      for (int l = 0; l < k; ++l) {
        sum -= basis.factor[j][l] * basis.factor[k][l];
      }
      basis.factor[j][k] = sum * basis.inverse[k];
      rest -= basis.factor[j][k] * basis.factor[j][k];
    }
    const bool kept = rest > kLeastRest * gram[j][j];
    basis.inverse[j] = kept ? 1.0 / sqrt(rest) : 0.0;
    basis.dropped |= kept ? 0U : 1U << j;
  }
}

// A random element of R, in bf16: column `k` of it, whose elements number the columns of matrix
// `index`. Uniform in [-1, 1).
HEARTH_HD inline uint16_t LeadingStart(uint32_t index, int64_t col, int k) {
  const RngKey key = {0, RngPurpose::kLeadingStart, 0, 0, index};
  const uint32_t word =
      RngWord(key, static_cast<uint64_t>(col) * formats::kLeadingRank + static_cast<uint64_t>(k));
  return formats::EncodeBf16(static_cast<float>(word) * 0x1p-31F - 1.0F);
}

// A row of P of the same row of Y.
template <typename T>
HEARTH_HD inline void RowOfBasis(const LeadingBasis& basis,
                                 const T (&y)[formats::kLeadingRank],
                                 float (&p)[formats::kLeadingRank]) {
  double exact[formats::kLeadingRank];
  for (int j = 0; j < formats::kLeadingRank; ++j) {
    double rest = y[j];
    for (int k = 0; k < j; ++k) {
      rest -= basis.factor[j][k] * exact[k];
    }
    exact[j] = basis.inverse[j] == 0.0 ? 0.0 : rest * basis.inverse[j];
    p[j] = static_cast<float>(exact[j]);
  }
}

}  // namespace hearth::kernels
