#include "kernels/draw_normal/draw_normal.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t count;
  uint64_t first;
  uint64_t end;
  double mean, stddev;
  bool perf;
};

constexpr uint64_t kAll = ~uint64_t{0};
constexpr Shape kShapes[] = {
    {"one", 1, 3, kAll, 0.0, 0.02, false},
    {"inside_a_block", 10007, 5, kAll, 0.0, 0.02, false},
    {"padded", 4096, 0, 4001, 0.5, 2.0, false},
    {"all_padding", 77, 100, 64, 1.0, 1.0, false},
    {"ones", 1001, 2, 1000, 1.0, 0.0, false},
    {"million", 1 << 20, uint64_t{1} << 33, kAll, 0.0, 1.0, false},
    {"perf_64m", int64_t{64} << 20, 0, kAll, 0.0, 0.02, true},
};

OpCase MakeCase(const Shape& s) {
  OpCase c{.op = "draw_normal", .name = s.name, .perf = s.perf};
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
  // The same bits on a GPU as on the CPU; core/rng_test.cc compares these with libm.
  c.slack = 0.0;
  c.double_reference = false;
  return c;
}

}  // namespace

std::vector<OpCase> DrawNormalCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
