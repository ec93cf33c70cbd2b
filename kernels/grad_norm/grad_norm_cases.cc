#include <array>

#include "kernels/grad_norm/grad_norm.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t first, second;
  double spread = 1.0;  // standard deviation of the elements
  bool cuda_only = false;
};

constexpr Shape kShapes[] = {
    {"1_1", 1, 1},
    {"10000_4097", 10000, 4097},
    {"40960_20000", 40960, 20000},
    // Squares that fp32 cannot hold.
    {"tiny_5000_4096", 5000, 4096, 1e-22},
    {"huge_5000_4096", 5000, 4096, 1e25},
    {"perf_8m", int64_t{8} << 20, 1, 1.0},
    {"perf_112m", 112'100'352, 768, 1.0, true},
    {"perf_1543m", 1'543'714'304, 1536, 1.0, true},
};

OpCase MakeCase(const Shape& s) {
  OpCase c = NewCase("grad_norm", s.name);
  c.cuda_only = s.cuda_only;
  c.buffers = {WeightGradient("a", {s.first}, Role::kInput),
               WeightGradient("b", {s.second}, Role::kInput),
               {"sum", {1}, Role::kOutput, {}, DType::kF64},
               {"nonfinite", {1}, Role::kOutput, {}, DType::kI64}};
  c.buffers[0].fill = c.buffers[1].fill = {Fill::kNormal, 0.0, s.spread};
  c.forward = [](const Exec& exec, const Buffers& b) {
    const std::array<TensorView, 2> tensors = {b["a"], b["b"]};
    return SumSquares(exec, {tensors, b["sum"].as<double>(), b["nonfinite"].as<int64_t>()});
  };
  c.workspace = [](const Buffers& b, int) {
    const std::array<TensorView, 2> tensors = {b["a"], b["b"]};
    return SumSquaresWorkspaceBytes({tensors, nullptr, nullptr});
  };
  // The same numbers, squared and summed in double in the same order up to the width of the
  // vector unit: a relative 2^-40. On CUDA eight squares at a time are summed in fp32: 2^-21.
  c.slack = 0x1p-16;
  c.cuda_slack = 8.0;
  c.bf16_slack = 0.0;
  c.forward_traffic = {"a", "b"};
  return c;
}

}  // namespace

std::vector<OpCase> GradNormCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
