// Kept inputs (core/kept_input.h) on the CPU. `element`: of the first value, a multiple of 32, as
// is `count`.
#pragma once

#include <cstdint>

#include "kernels/core/kept_input.h"

namespace hearth::kernels {

// Doubles are rounded to float first.
void KeepSpan(const float* x, int64_t count, int64_t element, const KeptInput& keep);
void KeepSpan(const double* x, int64_t count, int64_t element, const KeptInput& keep);
void LoadKeptSpan(const KeptInput& kept, int64_t element, int64_t count, float* out);
void LoadKeptSpan(const KeptInput& kept, int64_t element, int64_t count, double* out);

}  // namespace hearth::kernels
