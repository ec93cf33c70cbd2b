#include "kernels/harness/kept_extremes.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/formats/kept.h"

namespace hearth::kernels::harness {
namespace {

// Empty, or what is wrong with output i, `got`, of the kept `values`.
std::string CheckOne(const KeptExtremes& e,
                     const std::vector<double>& values,
                     int64_t i,
                     double got) {
  double product = 1.0;
  for (const double v : values) {
    product *= std::max(std::abs(v), 1.0);
    if (std::isnan(v)) {
      return std::isnan(got) ? "" : absl::StrCat(e.y, "[", i, "] is ", got, " of a NaN");
    }
  }
  if (product > 0x1p120) {
    return "";
  }
  const double want = e.want(values);
  return std::abs(got - want) <= 0x1p-5 * std::abs(want) + 0x1p-8 * product
             ? ""
             : absl::StrCat(e.y, "[", i, "] is ", got, ", not ", want);
}

std::string Check(const KeptExtremes& e, const Buffers& b) {
  const std::vector<double> x = b.Values(e.x);
  const std::vector<float> single(x.begin(), x.end());
  const int64_t count = e.rows * e.cols;
  std::string made(static_cast<size_t>(KeptBytes(e.rows, e.cols)), '\0');
  const KeptInput kept = KeptAt(made.data(), e.rows, e.cols);
  KeepSpan(single.data(), count, 0, kept);
  if (b.storage() != DType::kF64 && b.Bytes("kept").substr(0, made.size()) != made) {
    return "the kept input is not the CPU's";
  }
  std::vector<double> values(static_cast<size_t>(count));
  LoadKeptSpan(kept, 0, count, values.data());
  const std::vector<double> y = b.Values(e.y);
  const int64_t width = e.cols / e.parts;
  std::vector<double> of(static_cast<size_t>(e.parts));
  for (int64_t i = 0; i < e.rows * width; ++i) {
    for (int64_t part = 0; part < e.parts; ++part) {
      const int64_t at = i / width * e.cols + part * width + i % width;
      of[static_cast<size_t>(part)] = values[static_cast<size_t>(at)];
    }
    std::string error = CheckOne(e, of, i, y[static_cast<size_t>(i)]);
    if (!error.empty()) {
      return error;
    }
  }
  return "";
}

}  // namespace

void AddKeptExtremes(OpCase& c, const KeptExtremes& e) {
  c.buffers.push_back({e.x, {e.rows, e.cols}, Role::kInput, {Fill::kExtremes}});
  c.buffers.push_back(KeptWords("kept", e.rows, e.cols));
  c.buffers.push_back({e.y, {e.rows, e.cols / e.parts}, Role::kOutput});
  c.double_reference = false;
  c.check = [e](const Buffers& b) { return Check(e, b); };
}

}  // namespace hearth::kernels::harness
