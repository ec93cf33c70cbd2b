#include "kernels/harness/cases.h"
#include "kernels/scale/scale.h"

namespace hearth::kernels::harness {
namespace {

struct Shape : CountShape {
  double alpha, beta;
  Role role;  // of y: an output when beta is 0
  double slack;
};

constexpr Shape kShapes[] = {
    {{"copy_1001", 1001}, 1.0, 0.0, Role::kOutput, 0.0},
    {{"scale_77", 77}, 0.3, 0.0, Role::kOutput, 8.0},
    {{"accumulate_20000", 20000}, 0.5, 1.0, Role::kAccumulate, 8.0},
    {{"perf_8m", int64_t{8} << 20}, 0.5, 1.0, Role::kAccumulate, 8.0},
};

OpCase MakeCase(const Shape& s) {
  OpCase c = NewCase("scale", s.name);
  c.buffers = {{"x", {s.count}}, {"y", {s.count}, s.role}};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    ScaleArgs args;
    args.x = b["x"];
    args.y = b["y"];
    args.alpha = s.alpha;
    args.beta = s.beta;
    return Scale(exec, args);
  };
  c.slack = s.slack;
  return c;
}

}  // namespace

std::vector<OpCase> ScaleCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
