// Which matrices the Newton-Schulz iteration takes in the Gram form, whose steps share products
// (kernels/newton_schulz). Plans count with it too.
#pragma once

#include <cstdint>

namespace hearth::formats {

// Whether a matrix of m x n does, m <= n. Its operations are fewer where n > 1.5 m.
constexpr bool TakesGramForm(int64_t m, int64_t n) {
  return n > 2 * m;
}

}  // namespace hearth::formats
