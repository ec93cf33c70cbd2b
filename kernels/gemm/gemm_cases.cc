#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/gemm/gemm.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t M, N, K;
  bool bias;
  bool perf;
};

constexpr Shape kLinear[] = {
    {"linear_1x1x1", 1, 1, 1, true, false},
    {"linear_7x13x5", 7, 13, 5, false, false},
    {"linear_65x33x129_bias", 65, 33, 129, true, false},
    {"linear_perf_2048x1536x512", 2048, 1536, 512, true, true},
};

// A linear layer: y = x wT + bias; dx = dy w, dw += dyT x, dbias += column sums of dy.
OpCase LinearCase(const Shape& s) {
  OpCase c;
  c.op = "gemm";
  c.name = s.name;
  c.buffers = {{"x", {s.M, s.K}},
               {"w", {s.N, s.K}},
               {"dy", {s.M, s.N}},
               {"y", {s.M, s.N}, Role::kOutput},
               {"dx", {s.M, s.K}, Role::kOutput},
               {"dw", {s.N, s.K}, Role::kAccumulate}};
  c.outputs = {{"y", "dy"}};
  c.inputs = {{"x", "dx"}, {"w", "dw"}};
  if (s.bias) {
    c.buffers.push_back({"bias", {s.N}});
    c.buffers.push_back({"dbias", {s.N}, Role::kAccumulate});
    c.inputs.push_back({"bias", "dbias"});
  }
  c.forward = [](const Exec& exec, const Buffers& b) {
    GemmArgs args;
    args.a = b["x"];
    args.b = b["w"];
    args.c = b["y"];
    args.bias = b["bias"];
    args.transpose_b = true;
    return Gemm(exec, args);
  };
  c.backward = [](const Exec& exec, const Buffers& b) {
    GemmArgs dx;
    dx.a = b["dy"];
    dx.b = b["w"];
    dx.c = b["dx"];
    HEARTH_RETURN_IF_ERROR(Gemm(exec, dx));
    GemmArgs dw;
    dw.a = b["dy"];
    dw.b = b["x"];
    dw.c = b["dw"];
    dw.transpose_a = true;
    dw.beta = 1.0;
    HEARTH_RETURN_IF_ERROR(Gemm(exec, dw));
    return b["dbias"].empty() ? absl::OkStatus() : ColumnSum(exec, {b["dy"], b["dbias"], 1.0});
  };
  c.workspace = [](const Buffers& b, int) {
    return ColumnSumWorkspaceBytes({b["dy"], b["dy"], 1.0});
  };
  c.reduction = s.K + s.M + s.N;
  c.thread_invariant = false;
  c.perf = s.perf;
  c.forward_flops = 2.0 * static_cast<double>(s.M * s.N * s.K);
  c.backward_flops = 2.0 * c.forward_flops;
  return c;
}

// c = 0.5 op(a) op(b) - 2 c, all four transpositions.
OpCase TransposeCase(bool transpose_a, bool transpose_b) {
  constexpr int64_t M = 9, N = 17, K = 21;
  OpCase c;
  c.op = "gemm";
  c.name = absl::StrCat("alpha_beta_", transpose_a ? "t" : "n", transpose_b ? "t" : "n");
  c.buffers = {{"a", transpose_a ? std::vector<int64_t>{K, M} : std::vector<int64_t>{M, K}},
               {"b", transpose_b ? std::vector<int64_t>{N, K} : std::vector<int64_t>{K, N}},
               {"c", {M, N}, Role::kAccumulate}};
  c.forward = [transpose_a, transpose_b](const Exec& exec, const Buffers& b) {
    GemmArgs args;
    args.a = b["a"];
    args.b = b["b"];
    args.c = b["c"];
    args.transpose_a = transpose_a;
    args.transpose_b = transpose_b;
    args.alpha = 0.5;
    args.beta = -2.0;
    return Gemm(exec, args);
  };
  c.reduction = K;
  c.thread_invariant = false;
  return c;
}

// Column sums alone: their bits must not depend on threads.
OpCase ColumnSumCase() {
  OpCase c;
  c.op = "gemm";
  c.name = "column_sum_201x37";
  c.buffers = {{"x", {201, 37}}, {"out", {37}, Role::kOutput}};
  c.forward = [](const Exec& exec, const Buffers& b) {
    return ColumnSum(exec, {b["x"], b["out"], 0.0});
  };
  c.workspace = [](const Buffers& b, int) {
    return ColumnSumWorkspaceBytes({b["x"], b["out"], 0.0});
  };
  c.reduction = 201;
  return c;
}

}  // namespace

std::vector<OpCase> GemmCases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : kLinear) {
    cases.push_back(LinearCase(shape));
  }
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      cases.push_back(TransposeCase(transpose_a, transpose_b));
    }
  }
  cases.push_back(ColumnSumCase());
  return cases;
}

}  // namespace hearth::kernels::harness
