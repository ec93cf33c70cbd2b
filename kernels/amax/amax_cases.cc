#include "kernels/amax/amax.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t count;
  bool perf;
};

constexpr Shape kShapes[] = {
    {"1", 1, false}, {"70001", 70001, false}, {"perf_8m", int64_t{8} << 20, true}};

OpCase MakeCase(const Shape& s) {
  OpCase c{.op = "amax", .name = s.name, .perf = s.perf};
  // kU8 stands for a buffer that is f32 whatever the storage type.
  c.buffers = {{"x", {s.count}}, {"amax", {1}, Role::kOutput, {}, DType::kU8}};
  c.forward = [](const Exec& exec, const Buffers& b) {
    return Amax(exec, {b["x"], b["amax"].as<float>()});
  };
  c.workspace = [](const Buffers& b, int) { return AmaxWorkspaceBytes({b["x"], nullptr}); };
  c.slack = 0.0;
  return c;
}

}  // namespace

std::vector<OpCase> AmaxCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
