#include "kernels/formats/row_difference.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/formats.h"

namespace hearth::kernels {

namespace {

std::vector<float> Decoded(const std::vector<uint16_t>& codes) {
  std::vector<float> values(codes.size());
  std::transform(codes.begin(), codes.end(), values.begin(), DecodeBf16);
  return values;
}

}  // namespace

double LargestRowDifference(const std::vector<uint16_t>& got,
                            const std::vector<uint16_t>& want,
                            int64_t cols) {
  return LargestRowDifference(Decoded(got), Decoded(want), cols);
}

double LargestRowDifference(const std::vector<float>& got,
                            const std::vector<float>& want,
                            int64_t cols) {
  const size_t width = static_cast<size_t>(cols);
  const size_t rows = want.size() / width;
  std::vector<double> errors(rows);
  std::vector<double> norms(rows);
  double squares = 0;
  for (size_t row = 0; row < rows; ++row) {
    double error = 0;
    double norm = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      const double value = double{want[i]};
      const double difference = double{got[i]} - value;
      error += difference * difference;
      norm += value * value;
    }
    errors[row] = std::sqrt(error);
    norms[row] = std::sqrt(norm);
    squares += norm;
  }
  const double typical = std::sqrt(squares / static_cast<double>(std::max<size_t>(rows, 1)));
  double largest = 0;
  for (size_t row = 0; row < rows; ++row) {
    const double scale = norms[row] + typical;
    const double relative = scale > 0 ? errors[row] / scale : errors[row] > 0 ? HUGE_VAL : 0;
    if (!std::isfinite(errors[row]) || !std::isfinite(scale)) {
      return HUGE_VAL;
    }
    largest = std::max(largest, relative);
  }
  return largest;
}

}  // namespace hearth::kernels
