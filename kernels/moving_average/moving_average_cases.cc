#include "kernels/harness/cases.h"
#include "kernels/moving_average/moving_average.h"

namespace hearth::kernels::harness {
namespace {

struct Shape : CountShape {
  double decay;
  int64_t step;
  DType x = DType::kF32;  // kF32: as wide as y
  bool inputs = false;    // the step through StepInputs
  bool skip = false;
};

constexpr Shape kShapes[] = {
    {{"first_1001", 1001}, 0.999, 1},
    {{"step7_20000", 20000}, 0.9, 7},
    {{"late_4096", 4096}, 0.9999, 1'000'000},
    {{"inputs_8195", 8195}, 0.999, 300, DType::kF32, true},
    {{"bf16_5003", 5003}, 0.99, 12, DType::kBF16, true},
    {{"skipped_77", 77}, 0.9, 3, DType::kF32, false, true},
    {{"perf_8m", int64_t{8} << 20}, 0.999, 100, DType::kF32, true},
};

OpCase MakeCase(const Shape& s) {
  OpCase c = NewCase("moving_average", s.name);
  StepInputs inputs;
  inputs.step = s.step;
  BufferSpec x = Statistic("x", {s.count}, Role::kInput);
  if (s.x == DType::kBF16) {
    x.dtype = s.x;
  }
  c.buffers = {x,
               Statistic("y", {s.count}, Role::kAccumulate),
               {"skip", {1}, Role::kInput, {Fill::kConstant, s.skip ? 1.0 : 0.0, 0.0}, DType::kI32},
               Struct("inputs", inputs)};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    MovingAverageArgs args;
    args.x = b["x"];
    args.y = b["y"];
    args.decay = s.decay;
    args.step = s.inputs ? 1 : s.step;
    args.inputs = s.inputs ? b["inputs"].as<StepInputs>() : nullptr;
    args.skip = b["skip"].as<int32_t>();
    return MovingAverage(exec, args);
  };
  c.slack = s.skip ? 0.0 : 8.0;
  c.forward_traffic = {"x", "y", "y"};
  return c;
}

}  // namespace

std::vector<OpCase> MovingAverageCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
