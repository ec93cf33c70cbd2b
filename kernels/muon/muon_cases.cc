#include <array>

#include "common/base/status_macros.h"
#include "kernels/harness/cases.h"
#include "kernels/muon/muon.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t first, second;  // elements of two tensors; the second has no decay
  DType momentum = DType::kF32;
  bool inputs = false;  // the learning rate through StepInputs
  bool skip = false;
  bool perf = false;
};

constexpr Shape kShapes[] = {
    {"1_3", 1, 3},
    {"20011_77", 20011, 77},
    {"inputs_16384_8196", 16384, 8196, DType::kF32, true},
    {"bf16_momentum_9001_8192", 9001, 8192, DType::kBF16, true},
    {"skipped_1001_5", 1001, 5, DType::kF32, false, true},
    {"perf_8m", int64_t{8} << 20, 1, DType::kF32, false, false, true},
};

absl::Status Run(const Shape& s, const Exec& exec, const Buffers& b) {
  const std::array<MuonMomentumTensor, 2> momenta = {{{b["buf0"], b["g0"]}, {b["buf1"], b["g1"]}}};
  MuonMomentumArgs momentum;
  momentum.tensors = momenta;
  momentum.grad_scale = b["grad_scale"].as<float>();
  momentum.skip = b["skip"].as<int32_t>();
  HEARTH_RETURN_IF_ERROR(MuonMomentum(exec, momentum));
  std::array<MuonUpdateTensor, 2> updates;
  updates[0].master = b["p0"];
  updates[0].o = b["g0"];
  updates[0].working = b["w0"];
  updates[0].rate = MuonRate(3, 64);
  updates[0].weight_decay = 0.1;
  updates[0].amax = b["amax"].as<float>();
  updates[1].master = b["p1"];
  updates[1].o = b["g1"];
  updates[1].working = b["w1"];
  updates[1].lr_scale = 0.5;
  MuonUpdateArgs update;
  update.tensors = updates;
  update.lr = 1e-2;
  update.skip = momentum.skip;
  update.inputs = s.inputs ? b["inputs"].as<StepInputs>() : nullptr;
  return MuonUpdate(exec, update);
}

BufferSpec Momentum(const char* name, int64_t count, DType dtype) {
  BufferSpec spec = Statistic(name, {count}, Role::kAccumulate);
  spec.dtype = dtype;
  return spec;
}

OpCase MakeCase(const Shape& s) {
  OpCase c{.op = "muon", .name = s.name, .perf = s.perf};
  // A skipped step must leave even the working copy alone.
  const Role written = s.skip ? Role::kAccumulate : Role::kOutput;
  StepInputs inputs;
  inputs.learning_rate = 0.02;
  c.buffers = {Statistic("p0", {s.first}, Role::kAccumulate),
               Momentum("buf0", s.first, s.momentum),
               WeightGradient("g0", {s.first}),
               {"w0", {s.first}, written},
               Statistic("p1", {s.second}, Role::kAccumulate),
               Momentum("buf1", s.second, s.momentum),
               WeightGradient("g1", {s.second}),
               {"w1", {s.second}, written},
               {"amax", {1}, Role::kAccumulate, {Fill::kUniform, 0.0, 1.0}, DType::kU8},
               {"grad_scale", {1}, Role::kInput, {Fill::kConstant, 0.75, 0.0}, DType::kU8},
               {"skip", {1}, Role::kInput, {Fill::kConstant, s.skip ? 1.0 : 0.0, 0.0}, DType::kI32},
               Struct("inputs", inputs)};
  c.forward = [s](const Exec& exec, const Buffers& b) { return Run(s, exec, b); };
  c.slack = s.skip ? 0.0 : 8.0;
  c.forward_traffic = {"p0", "p0", "buf0", "buf0", "g0", "g0", "g0", "w0"};
  return c;
}

}  // namespace

std::vector<OpCase> MuonCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
