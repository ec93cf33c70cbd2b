#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/formats/reduce_formats.h"
#include "kernels/core/rng.h"
#include "kernels/gradient_parts/gradient_parts.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

using formats::kReduceBlock;

struct Shape {
  const char* name;
  int64_t parts, length;  // of codes
  int64_t filled;         // of parts * length
  bool extremes = false;
};

constexpr Shape kShapes[] = {
    {"one_1x1024", 1, 1024, 1024},
    {"three_3x1024", 3, 1024, 3072},
    {"padded_4x2048", 4, 2048, 7808},
    {"extremes_2x2048", 2, 2048, 4096, true},
    {"perf_4x4m", 4, int64_t{4} << 20, int64_t{16} << 20},
};

// Blocks of each kind that a scale has to follow, as floats.
std::string Extremes(int64_t count) {
  constexpr uint32_t kSpecials[] = {0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000,
                                    0x3F800000, 0xC3E00000, 0x43E00001, 0x7F7FFFFF, 0xFF7FFFFF};
  std::vector<uint32_t> bits(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = RngWord({3, RngPurpose::kTest, 0, 0, 0}, static_cast<uint64_t>(i));
    uint32_t& at = bits[static_cast<size_t>(i)];
    switch (i / kReduceBlock % 8) {
      case 0:  // zeros of both signs
        at = word & 0x80000000U;
        break;
      case 1:  // subnormals
        at = word & 0x807FFFFFU;
        break;
      case 2:  // the largest, and among them ones that vanish
        at = word % 2 == 0 ? 0x7F7FFFFFU : word;
        break;
      case 3:  // nothing finite
        at = word % 2 == 0 ? 0x7F800000U | (word & 0x80000000U) : 0xFFC00001U;
        break;
      case 4:  // powers of two: ties, and blocks whose largest is 448 times a power of two
        at = i % kReduceBlock == 0 ? 0x43E00000U : (word & 0x80600000U) | ((110 + word % 28) << 23);
        break;
      case 5:
        at = kSpecials[word % 10];
        break;
      default:  // every exponent, infinities and NaN too
        at = word;
    }
    // Elsewhere few are not finite, so that sums show what becomes of the others.
    const bool finite = (at & 0x7F800000U) != 0x7F800000U;
    at = finite || i % 5 == 0 || i / kReduceBlock % 8 == 3 ? at : at & 0xBFFFFFFFU;
  }
  return std::string(reinterpret_cast<const char*>(bits.data()), bits.size() * sizeof(bits[0]));
}

// What is wrong with the code of x under `scale`; `decoded` is its value.
bool IsCodeOf(double x, uint8_t code, double decoded, double scale) {
  if (!std::isfinite(x)) {
    return code == 0x7F;
  }
  return std::fabs(decoded - x) <= std::max(std::fabs(x) / 16, std::ldexp(scale, -10)) &&
         std::signbit(decoded) == std::signbit(x);
}

bool IsScaleOf(double largest, double scale) {
  const double least = largest / 448;
  const double off = std::ldexp(1.0, -22);  // the quotient is computed in fp32
  const bool smallest = scale == std::ldexp(1.0, -127) && least <= scale;
  return smallest || (scale >= least * (1 - off) && scale < 2 * least * (1 + off));
}

// Codes, scales and sums against what double makes of the same values.
std::string Check(const Shape& s, const Buffers& b) {
  std::vector<double> x = b.Values("x");
  x.resize(static_cast<size_t>(s.parts * s.length));  // zeros behind what is filled
  const std::string codes = b.Bytes("codes");
  const std::string scales = b.Bytes("scales");
  std::vector<double> sums(static_cast<size_t>(s.length));
  std::vector<double> magnitudes(sums.size());
  for (size_t block = 0; block < scales.size(); ++block) {
    const double scale = DecodeE8m0(static_cast<uint8_t>(scales[block]));
    double largest = 0;
    for (size_t i = block * kReduceBlock; i < (block + 1) * kReduceBlock; ++i) {
      largest = std::isfinite(x[i]) ? std::max(largest, std::fabs(x[i])) : largest;
      const auto code = static_cast<uint8_t>(codes[i]);
      const double decoded = double{DecodeE4m3(code)} * scale;
      if (!IsCodeOf(x[i], code, decoded, scale)) {
        return absl::StrCat("x[", i, "] = ", x[i], " has code ", int{code}, " under ", scale);
      }
      // The largest floats are rounded up to 2^128, which is infinite in fp32.
      const double summand = static_cast<float>(decoded);
      sums[i % sums.size()] += summand;
      magnitudes[i % sums.size()] += std::fabs(summand);
    }
    if (!IsScaleOf(largest, scale)) {
      return absl::StrCat("block ", block, ": ", scale, " is not the scale of ", largest);
    }
  }
  const std::vector<double> y = b.Values("y");
  constexpr double kLargestBf16 = 3.3895e38;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double bound =
        std::ldexp(std::fabs(sums[i]), -8) + std::ldexp(1.0, -134) + std::ldexp(magnitudes[i], -22);
    const bool equal = std::isnan(sums[i]) ? std::isnan(y[i])
                       : std::fabs(sums[i]) + bound > kLargestBf16
                           ? std::fabs(y[i]) > 0.99 * kLargestBf16
                           : std::fabs(y[i] - sums[i]) <= bound;
    if (!equal) {
      return absl::StrCat("y[", i, "] is ", y[i], ", the sum ", sums[i]);
    }
  }
  return "";
}

OpCase MakeCase(const Shape& s) {
  OpCase c = NewExactCase("gradient_parts", s.name);
  const int64_t count = s.parts * s.length;
  c.buffers = {{"x", {s.filled}, Role::kInput, {Fill::kNormal, 0.0, 1e-4}},
               Words("codes", static_cast<size_t>(count)),
               Words("scales", static_cast<size_t>(count / kReduceBlock)),
               {"y", {s.length}, Role::kOutput}};
  if (s.extremes) {
    c.buffers[0].dtype = DType::kU8;  // the same floats on every device
    c.buffers[0].contents = Extremes(s.filled);
  }
  c.forward = [s](const Exec& exec, const Buffers& b) -> absl::Status {
    const TensorView codes(b["codes"].data, DType::kE4M3, {s.parts, s.length});
    const TensorView scales(b["scales"].data, DType::kE8M0, {s.parts, s.length / kReduceBlock});
    HEARTH_RETURN_IF_ERROR(EncodeParts(exec, {b["x"], codes, scales}));
    return SumParts(exec, {codes, scales, b["y"]});
  };
  c.forward_traffic = {"x", "codes", "codes", "scales", "scales", "y"};
  if (!c.perf) {
    c.check = [s](const Buffers& b) { return Check(s, b); };
  }
  c.double_reference = false;
  return c;
}

}  // namespace

std::vector<OpCase> GradientPartsCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
