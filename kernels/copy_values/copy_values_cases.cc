#include "kernels/copy_values/copy_values.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

// One element; an odd number; a block of four words a thread, whole and in part; many blocks.
constexpr CountShape kShapes[] = {
    {"one", 1},          {"odd_1001", 1001},      {"block_8192", 8192},
    {"part_4104", 4104}, {"blocks_40008", 40008}, {"perf_8m", int64_t{8} << 20},
};

OpCase MakeCase(const CountShape& s) {
  OpCase c = NewCase("copy_values", s.name);
  c.buffers = {{"x", {s.count}}, {"y", {s.count}, Role::kOutput}};
  c.forward = [](const Exec& exec, const Buffers& b) { return CopyValues(exec, {b["x"], b["y"]}); };
  c.slack = 0;
  return c;
}

}  // namespace

std::vector<OpCase> CopyValuesCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
