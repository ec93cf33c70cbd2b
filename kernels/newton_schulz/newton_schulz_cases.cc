#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/formats/gram_form.h"
#include "kernels/harness/cases.h"
#include "kernels/newton_schulz/newton_schulz.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t rows, cols;
  int count;         // matrices; every other one lies the other way round
  const char* row;   // of coefficients
  double low, high;  // bounds of OrthogonalityError of each; 0: none
  bool perf = false;
  NewtonSchulzForm form = NewtonSchulzForm::kByShape;
};

constexpr NewtonSchulzForm kPlain = NewtonSchulzForm::kPlain;
constexpr NewtonSchulzForm kGram = NewtonSchulzForm::kGram;

constexpr Shape kShapes[] = {
    {"1x1", 1, 1, 1, "tuned", 0.0, 0.0},
    {"tuned_33x33", 33, 33, 1, "tuned", 0.0, 0.0},
    {"tuned_24x70", 24, 70, 3, "tuned", 0.0, 0.06},
    {"tuned_24x70_plain", 24, 70, 3, "tuned", 0.0, 0.06, false, kPlain},
    {"standard_70x24", 70, 24, 2, "standard", 0.0, 0.0},
    {"standard_70x24_plain", 70, 24, 2, "standard", 0.0, 0.0, false, kPlain},
    {"tuned_40x48_gram", 40, 48, 2, "tuned", 0.0, 0.0, false, kGram},
    {"standard_1x9", 1, 9, 1, "standard", 0.0, 0.0},
    // Normal values: the smallest singular values of a square are still on their way after five
    // steps. On a GPU in bf16 the error may be 0.005 further off than these bounds of a double.
    {"tuned_512x512", 512, 512, 1, "tuned", 0.13, 0.16},
    {"standard_512x512", 512, 512, 1, "standard", 0.900, 0.908},
    {"tuned_512x2048", 512, 2048, 1, "tuned", 0.0, 0.04},
    {"tuned_512x2048_plain", 512, 2048, 1, "tuned", 0.0, 0.04, false, kPlain},
    // The matrices of hearth-112m (12 layers) and Qwen2.5-1.5B (28 layers), by their shapes; long
    // ones in both forms.
    {"perf_112m_768x768", 768, 768, 24, "tuned", 0.0, 0.0, true},
    {"perf_112m_192x768", 192, 768, 24, "tuned", 0.0, 0.0, true},
    {"perf_112m_192x768_plain", 192, 768, 24, "tuned", 0.0, 0.0, true, kPlain},
    {"perf_112m_768x2048", 768, 2048, 36, "tuned", 0.0, 0.0, true},
    {"perf_112m_768x2048_plain", 768, 2048, 36, "tuned", 0.0, 0.0, true, kPlain},
    {"perf_1.5b_1536x1536", 1536, 1536, 56, "tuned", 0.0, 0.0, true},
    {"perf_1.5b_256x1536", 256, 1536, 56, "tuned", 0.0, 0.0, true},
    {"perf_1.5b_256x1536_plain", 256, 1536, 56, "tuned", 0.0, 0.0, true, kPlain},
    {"perf_1.5b_1536x8960", 1536, 8960, 84, "tuned", 0.0, 0.0, true},
    {"perf_1.5b_1536x8960_plain", 1536, 8960, 84, "tuned", 0.0, 0.0, true, kPlain},
};

// What a GPU's bf16 may add to a bound.
constexpr double kBf16Slack = 0.005;
// Normalised error of bf16 against double that may be: three times what a model of it gives.
constexpr double kBf16Error = 0.02;

bool LiesOtherWay(int i) {
  return i % 2 == 1;
}
std::vector<int64_t> ExtentsOf(const Shape& s, int i) {
  return LiesOtherWay(i) ? std::vector<int64_t>{s.cols, s.rows}
                         : std::vector<int64_t>{s.rows, s.cols};
}

// ||O O^T - I||_F / sqrt(m) of an O [m, n], or of its transpose where it has more rows.
double OrthogonalityError(const std::vector<double>& o, int64_t rows, int64_t cols) {
  const int64_t m = std::min(rows, cols);
  const int64_t n = std::max(rows, cols);
  std::vector<double> x = o;
  for (int64_t i = 0; rows > cols && i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      x[static_cast<size_t>(j * n + i)] = o[static_cast<size_t>(i * cols + j)];
    }
  }
  double sum = 0.0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = i; j < m; ++j) {
      double product = 0.0;
      for (int64_t k = 0; k < n; ++k) {
        product += x[static_cast<size_t>(i * n + k)] * x[static_cast<size_t>(j * n + k)];
      }
      const double off = product - (i == j ? 1.0 : 0.0);
      sum += (i == j ? 1.0 : 2.0) * off * off;
    }
  }
  return std::sqrt(sum / static_cast<double>(m));
}

std::string CheckErrors(const Shape& s, const Buffers& b) {
  for (int i = 0; i < s.count; ++i) {
    const std::vector<int64_t> extents = ExtentsOf(s, i);
    const double error = OrthogonalityError(b.Values(absl::StrCat("u", i)), extents[0], extents[1]);
    if (!(error >= s.low - kBf16Slack && error <= s.high + kBf16Slack)) {
      return absl::StrCat("u", i, ": orthogonality error ", error, ", must be in [", s.low, ", ",
                          s.high, "] +- ", kBf16Slack);
    }
  }
  return "";
}

std::vector<TensorView> MatricesOf(const Shape& s, const Buffers& b) {
  std::vector<TensorView> matrices;
  for (int i = 0; i < s.count; ++i) {
    matrices.push_back(b[absl::StrCat("u", i)]);
  }
  return matrices;
}

// The operations of a matrix's products.
double FlopsOf(const Shape& s, int64_t rows, int64_t cols) {
  const bool squares = FindNewtonSchulz(s.row)->steps[0].c != 0.0;
  const bool gram = s.form == kGram ||
                    (s.form == NewtonSchulzForm::kByShape && formats::TakesGramForm(rows, cols));
  const auto m = static_cast<double>(rows);
  const auto n = static_cast<double>(cols);
  return gram ? 12.0 * m * m * n + (squares ? 22.0 : 12.0) * m * m * m
              : kNewtonSchulzSteps * (4.0 * m * m * n + (squares ? 2.0 : 0.0) * m * m * m);
}

OpCase MakeCase(const Shape& s) {
  OpCase c{.op = "newton_schulz", .name = s.name, .perf = s.perf, .cuda_only = s.perf};
  for (int i = 0; i < s.count; ++i) {
    // Timed accumulators would hold zeros, and products of zeros are faster.
    BufferSpec spec = WeightGradient(absl::StrCat("u", i), ExtentsOf(s, i),
                                     s.perf ? Role::kInput : Role::kAccumulate);
    spec.fill = {Fill::kNormal, 0.0, 0.25};
    c.buffers.push_back(spec);
  }
  c.forward = [s](const Exec& exec, const Buffers& b) {
    const std::vector<TensorView> matrices = MatricesOf(s, b);
    return NewtonSchulz(exec, {matrices, FindNewtonSchulz(s.row), s.form});
  };
  c.workspace = [s](const Buffers& b, int) {
    const DType dtype = b["u0"].dtype;
    return std::max(
        dtype == DType::kBF16
            ? size_t{0}
            : NewtonSchulzWorkspaceBytes(Device::kCpu, dtype, s.rows, s.cols, s.count, s.form),
        NewtonSchulzWorkspaceBytes(Device::kCuda, dtype, s.rows, s.cols, s.count, s.form));
  };
  if (s.high > 0.0) {
    c.check = [s](const Buffers& b) { return CheckErrors(s, b); };
  }
  // Small singular values, and their errors with them, grow by 3.5 a step.
  c.slack = 512.0;
  c.cuda_slack = kBf16Error * 0x1p24;
  c.bf16_slack = kBf16Error * 0x1p8;
  c.thread_invariant = false;
  c.forward_flops = s.count * FlopsOf(s, std::min(s.rows, s.cols), std::max(s.rows, s.cols));
  return c;
}

}  // namespace

std::vector<OpCase> NewtonSchulzCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
