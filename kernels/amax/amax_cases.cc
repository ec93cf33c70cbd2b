#include "kernels/amax/amax.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

constexpr CountShape kShapes[] = {{"1", 1}, {"70001", 70001}, {"perf_8m", int64_t{8} << 20}};

OpCase MakeCase(const CountShape& s) {
  OpCase c = NewExactCase("amax", s.name);
  // kU8 stands for a buffer that is f32 whatever the storage type.
  c.buffers = {{"x", {s.count}}, {"amax", {1}, Role::kOutput, {}, DType::kU8}};
  c.forward = [](const Exec& exec, const Buffers& b) {
    return Amax(exec, {b["x"], b["amax"].as<float>()});
  };
  c.workspace = [](const Buffers& b, int) { return AmaxWorkspaceBytes({b["x"], nullptr}); };
  return c;
}

}  // namespace

std::vector<OpCase> AmaxCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
