#include "kernels/harness/cases.h"
#include "kernels/sum_parts/sum_parts.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t count;
  bool perf;
};

constexpr Shape kShapes[] = {{"odd_20001", 20001, false}, {"perf_8m", int64_t{8} << 20, true}};

}  // namespace

std::vector<OpCase> SumPartsCases() {
  std::vector<OpCase> cases;
  for (const Shape& s : kShapes) {
    OpCase c;
    c.op = "sum_parts";
    c.name = s.name;
    c.buffers = {{"a", {s.count}, Role::kInput, {Fill::kNormal, 0.0, 1.0}},
                 {"b", {s.count}, Role::kInput, {Fill::kNormal, 0.0, 20.0}},
                 {"c", {s.count}, Role::kInput, {Fill::kNormal, 0.0, 1.0}},
                 {"y", {s.count}, Role::kOutput}};
    c.forward = [](const Exec& exec, const Buffers& b) {
      const TensorView parts[] = {b["a"], b["b"], b["c"]};
      return SumParts(exec, {parts, b["y"]});
    };
    c.perf = s.perf;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace hearth::kernels::harness
