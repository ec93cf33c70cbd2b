#include "kernels/harness/cases.h"
#include "kernels/rmsnorm/rmsnorm.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N, C;
  bool residual;
  bool perf;
};

constexpr Shape kShapes[] = {
    // One column would be degenerate: y is the sign of x, dx cancels to rounding noise.
    {"plain_1x5", 1, 5, false, false},         {"plain_3x7", 3, 7, false, false},
    {"plain_130x65", 130, 65, false, false},   {"residual_67x96", 67, 96, true, false},
    {"residual_5x1000", 5, 1000, true, false}, {"perf_4096x512", 4096, 512, true, true},
};

RmsNormForwardArgs ForwardArgs(const Buffers& b) {
  RmsNormForwardArgs args;
  args.x = b["x"];
  args.residual = b["residual"];
  args.weight = b["weight"];
  args.sum = b["sum"];
  args.y = b["y"];
  args.rstd = b["rstd"];
  return args;
}

RmsNormBackwardArgs BackwardArgs(const Buffers& b) {
  RmsNormBackwardArgs args;
  args.dy = b["dy"];
  args.s = b["sum"].empty() ? b["x"] : b["sum"];
  args.rstd = b["rstd"];
  args.weight = b["weight"];
  args.d_sum = b["d_sum"];
  args.dx = b["dx"];
  args.d_weight = b["d_weight"];
  return args;
}

}  // namespace

std::vector<OpCase> RmsNormCases() {
  std::vector<OpCase> cases;
  for (const Shape& s : kShapes) {
    OpCase c;
    c.op = "rmsnorm";
    c.name = s.name;
    c.buffers = {{"x", {s.N, s.C}},
                 {"weight", {s.C}, Role::kInput, {Fill::kNormal, 1.0, 0.2}},
                 {"y", {s.N, s.C}, Role::kOutput},
                 {"rstd", {s.N}, Role::kOutput},
                 {"dy", {s.N, s.C}},
                 {"dx", {s.N, s.C}, Role::kOutput},
                 {"d_weight", {s.C}, Role::kAccumulate}};
    c.outputs = {{"y", "dy"}};
    c.inputs = {{"x", "dx"}, {"weight", "d_weight"}};
    if (s.residual) {
      c.buffers.push_back({"residual", {s.N, s.C}});
      c.buffers.push_back({"sum", {s.N, s.C}, Role::kOutput});
      c.buffers.push_back({"d_sum", {s.N, s.C}});
      c.outputs.push_back({"sum", "d_sum"});
      c.inputs.push_back({"residual", "dx"});
    }
    c.forward = [](const Exec& exec, const Buffers& b) {
      return RmsNormForward(exec, ForwardArgs(b));
    };
    c.backward = [](const Exec& exec, const Buffers& b) {
      return RmsNormBackward(exec, BackwardArgs(b));
    };
    c.workspace = [](const Buffers& b, int) {
      return RmsNormBackwardWorkspaceBytes(BackwardArgs(b));
    };
    c.reduction = s.C + s.N;
    c.perf = s.perf;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace hearth::kernels::harness
