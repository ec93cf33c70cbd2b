#include "kernels/harness/cases.h"
#include "kernels/round/round.h"

namespace hearth::kernels::harness {
namespace {

struct Shape : CountShape {
  DType to;
};

constexpr Shape kShapes[] = {
    {{"bf16_20001", 20001}, DType::kBF16}, {{"f16_333", 333}, DType::kF16},
    {{"e4m3_333", 333}, DType::kE4M3},     {{"e5m2_333", 333}, DType::kE5M2},
    {{"f32_10", 10}, DType::kF32},         {{"perf_bf16_8m", int64_t{8} << 20}, DType::kBF16},
};

OpCase MakeCase(const Shape& s) {
  OpCase c = NewExactCase("round", s.name);
  c.buffers = {{"x", {s.count}, Role::kInput, {Fill::kNormal, 0.0, 20.0}},
               {"y", {s.count}, Role::kOutput}};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return RoundTo(exec, {b["x"], b["y"], s.to});
  };
  return c;
}

}  // namespace

std::vector<OpCase> RoundCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
