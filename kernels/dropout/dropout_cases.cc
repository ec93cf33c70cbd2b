#include "kernels/dropout/dropout.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape : CountShape {
  double p;
  bool residual;
  bool cuda_only = false;
};

constexpr Shape kShapes[] = {
    {{"half_1", 1}, 0.5, false},
    {{"tenth_10007", 10007}, 0.1, false},
    {{"residual_777", 777}, 0.3, true},
    {{"tenth_33x768", int64_t{33} * 768}, 0.1, true},
    {{"perf_4096x512", int64_t{4096} * 512}, 0.1, true},
    {{"perf_36864x768", int64_t{36864} * 768}, 0.1, true, true},
};

DropoutArgs ArgsOf(const Shape& s, const TensorView& x, const TensorView& y) {
  DropoutArgs args;
  args.x = x;
  args.y = y;
  args.p = s.p;
  args.key = {7, RngPurpose::kDropout, 3, 5, 11};
  args.first_element = 64;
  return args;
}

OpCase MakeCase(const Shape& s) {
  OpCase c = NewCase("dropout", s.name);
  c.cuda_only = s.cuda_only;
  c.buffers = {{"x", {s.count}},
               {"y", {s.count}, Role::kOutput},
               {"dy", {s.count}},
               {"dx", {s.count}, Role::kOutput}};
  c.outputs = {{"y", "dy"}};
  c.inputs = {{"x", "dx"}};
  if (s.residual) {
    c.buffers.push_back({"residual", {s.count}});
  }
  c.forward = [s](const Exec& exec, const Buffers& b) {
    DropoutArgs args = ArgsOf(s, b["x"], b["y"]);
    args.residual = b["residual"];
    return DropoutForward(exec, args);
  };
  c.backward = [s](const Exec& exec, const Buffers& b) {
    return DropoutBackward(exec, ArgsOf(s, b["dy"], b["dx"]));
  };
  c.forward_traffic = {"x", "residual", "y"};
  c.backward_traffic = {"dy", "dx"};
  return c;
}

}  // namespace

std::vector<OpCase> DropoutCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
