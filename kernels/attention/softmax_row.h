// The softmax of a row of scores on the CPU, for the ops that attend.
#pragma once

#include <cstdint>

namespace hearth::kernels::cpu {

// Keys [first, query] of one row of scores, which begins at key `base`.
struct RowRange {
  int64_t begin;  // first - base
  int64_t end;    // query + 1 - base, > begin
  int64_t width;  // of the row; beyond [begin, end) probabilities are set to 0
};

// In place: scores to probabilities; returns the log of the sum of exponentials. The bits depend on
// the scores of the range alone.
float SoftmaxRow(const RowRange& range, float* s);
double SoftmaxRow(const RowRange& range, double* s);

}  // namespace hearth::kernels::cpu
