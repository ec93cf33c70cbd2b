#include "kernels/harness/cases.h"
#include "kernels/layernorm/layernorm.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N, C;
  bool residual;
  bool bias;
  bool perf;
};

constexpr Shape kShapes[] = {
    {"plain_3x7", 3, 7, false, true, false},
    {"plain_nobias_130x65", 130, 65, false, false, false},
    {"residual_67x96", 67, 96, true, true, false},
    {"perf_4096x512", 4096, 512, true, true, true},
};

LayerNormForwardArgs ForwardArgs(const Buffers& b) {
  LayerNormForwardArgs args;
  args.x = b["x"];
  args.residual = b["residual"];
  args.weight = b["weight"];
  args.bias = b["bias"];
  args.sum = b["sum"];
  args.y = b["y"];
  args.mean = b["mean"];
  args.rstd = b["rstd"];
  return args;
}

LayerNormBackwardArgs BackwardArgs(const Buffers& b) {
  LayerNormBackwardArgs args;
  args.dy = b["dy"];
  args.s = b["sum"].empty() ? b["x"] : b["sum"];
  args.mean = b["mean"];
  args.rstd = b["rstd"];
  args.weight = b["weight"];
  args.d_sum = b["d_sum"];
  args.dx = b["dx"];
  args.d_weight = b["d_weight"];
  args.d_bias = b["d_bias"];
  return args;
}

}  // namespace

std::vector<OpCase> LayerNormCases() {
  std::vector<OpCase> cases;
  for (const Shape& s : kShapes) {
    OpCase c;
    c.op = "layernorm";
    c.name = s.name;
    c.buffers = {{"x", {s.N, s.C}, Role::kInput, {Fill::kNormal, 0.5, 1.0}},
                 {"weight", {s.C}, Role::kInput, {Fill::kNormal, 1.0, 0.2}},
                 {"y", {s.N, s.C}, Role::kOutput},
                 {"mean", {s.N}, Role::kOutput},
                 {"rstd", {s.N}, Role::kOutput},
                 {"dy", {s.N, s.C}},
                 {"dx", {s.N, s.C}, Role::kOutput},
                 {"d_weight", {s.C}, Role::kAccumulate}};
    c.outputs = {{"y", "dy"}};
    c.inputs = {{"x", "dx"}, {"weight", "d_weight"}};
    if (s.bias) {
      c.buffers.push_back({"bias", {s.C}});
      c.buffers.push_back({"d_bias", {s.C}, Role::kAccumulate});
      c.inputs.push_back({"bias", "d_bias"});
    }
    if (s.residual) {
      c.buffers.push_back({"residual", {s.N, s.C}});
      c.buffers.push_back({"sum", {s.N, s.C}, Role::kOutput});
      c.buffers.push_back({"d_sum", {s.N, s.C}});
      c.outputs.push_back({"sum", "d_sum"});
      c.inputs.push_back({"residual", "dx"});
    }
    c.forward = [](const Exec& exec, const Buffers& b) {
      return LayerNormForward(exec, ForwardArgs(b));
    };
    c.backward = [](const Exec& exec, const Buffers& b) {
      return LayerNormBackward(exec, BackwardArgs(b));
    };
    c.workspace = [](const Buffers& b, int) {
      return LayerNormBackwardWorkspaceBytes(BackwardArgs(b));
    };
    c.reduction = s.C + s.N;
    c.perf = s.perf;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace hearth::kernels::harness
