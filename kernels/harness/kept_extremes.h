// For cases of ops that keep an input in 8 bits (core/kept_input.h), of inputs with zeros,
// subnormals, the largest values, infinities and NaN (Fill::kExtremes).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {

// The names and shapes of the input x [rows, cols] and of the output y [rows, cols / parts].
struct KeptExtremes {
  std::string x, y;
  int64_t rows, cols, parts;
  std::function<double(const std::vector<double>&)> want;
};

// Adds x, "kept" and y to `c`, and a check: kept holds the bits that the CPU makes of x, on any
// device, and each y is near want(values) of the `parts` kept values that it is made of, at its
// column in each part. It is NaN where one of them is; where one is infinite, or their product
// beyond 2^120, anything will do.
void AddKeptExtremes(OpCase& c, const KeptExtremes& e);

}  // namespace hearth::kernels::harness
