#include "kernels/draw_normal/draw_normal.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape : CountShape {
  uint64_t first;
  uint64_t end;
  double mean, stddev;
};

constexpr uint64_t kAll = ~uint64_t{0};
constexpr Shape kShapes[] = {
    {{"one", 1}, 3, kAll, 0.0, 0.02},
    {{"inside_a_block", 10007}, 5, kAll, 0.0, 0.02},
    {{"padded", 4096}, 0, 4001, 0.5, 2.0},
    {{"all_padding", 77}, 100, 64, 1.0, 1.0},
    {{"ones", 1001}, 2, 1000, 1.0, 0.0},
    {{"million", 1 << 20}, uint64_t{1} << 33, kAll, 0.0, 1.0},
    {{"perf_64m", int64_t{64} << 20}, 0, kAll, 0.0, 0.02},
};

OpCase MakeCase(const Shape& s) {
  // The same bits on a GPU as on the CPU; core/rng_test.cc compares these with libm.
  OpCase c = NewExactCase("draw_normal", s.name);
  c.buffers = {{"y", {s.count}, Role::kOutput}};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    DrawNormalArgs args;
    args.y = b["y"];
    args.key = {7, RngPurpose::kTest, 0, 0, 11};
    args.first_element = s.first;
    args.end = s.end;
    args.mean = s.mean;
    args.stddev = s.stddev;
    return DrawNormal(exec, args);
  };
  c.double_reference = false;
  return c;
}

}  // namespace

std::vector<OpCase> DrawNormalCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
