// How far two matrices are apart, row by row.
#pragma once

#include <cstdint>
#include <vector>

namespace hearth::kernels {

// The largest over rows of ||got - want|| / (||want|| + the root mean square of all ||want||), so
// that rows of almost nothing count little and one wrong tile among thousands counts whole.
// Infinite if anything is not finite. Both [rows, cols], cols > 0; the second version takes codes
// of bf16.
double LargestRowDifference(const std::vector<float>& got,
                            const std::vector<float>& want,
                            int64_t cols);
double LargestRowDifference(const std::vector<uint16_t>& got,
                            const std::vector<uint16_t>& want,
                            int64_t cols);

}  // namespace hearth::kernels
