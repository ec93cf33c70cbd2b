// The quantised outputs of a CPU op (QuantView, core/tensor.h), row by row as it computes them.
#pragma once

#include <cstdint>

#include "kernels/core/tensor.h"

namespace hearth::kernels {

// Writes what `quant` wants of v[0, count), which is row `row`, columns [col, col + count) of the
// op's [rows, cols] output, already rounded to the plain format; T is float or double, doubles are
// rounded to float first. Nothing for an empty quant. Several threads may call it at once for
// different elements of one output; the result does not depend on their order.
template <typename T>
void QuantizeRow(const QuantView& quant,
                 int64_t rows,
                 int64_t cols,
                 int64_t row,
                 int64_t col,
                 const T* v,
                 int64_t count);

}  // namespace hearth::kernels
