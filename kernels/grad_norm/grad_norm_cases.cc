#include <array>

#include "kernels/grad_norm/grad_norm.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t first, second;
  bool perf;
};

constexpr Shape kShapes[] = {
    {"1_1", 1, 1, false},
    {"10000_4097", 10000, 4097, false},
    {"perf_8m", int64_t{8} << 20, 1, true},
};

}  // namespace

std::vector<OpCase> GradNormCases() {
  std::vector<OpCase> cases;
  for (const Shape& s : kShapes) {
    OpCase c;
    c.op = "grad_norm";
    c.name = s.name;
    c.buffers = {{"a", {s.first}}, {"b", {s.second}}, {"sum", {1}, Role::kOutput, {}, DType::kF64}};
    c.forward = [](const Exec& exec, const Buffers& b) {
      const std::array<TensorView, 2> tensors = {b["a"], b["b"]};
      return SumSquares(exec, {tensors, b["sum"].as<double>(), nullptr});
    };
    c.workspace = [](const Buffers& b, int) {
      const std::array<TensorView, 2> tensors = {b["a"], b["b"]};
      return SumSquaresWorkspaceBytes({tensors, nullptr, nullptr});
    };
    // Exact: both runs hold the same numbers, squared and summed in double in the same order up to
    // the width of the vector unit; a relative 2^-40 covers that.
    c.slack = 0x1p-16;
    c.perf = s.perf;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace hearth::kernels::harness
