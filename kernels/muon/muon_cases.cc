#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/harness/cases.h"
#include "kernels/harness/optimizer_state.h"
#include "kernels/muon/muon.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t first, second;  // elements of two tensors; the second has no decay
  DType momentum = DType::kF32;
  bool inputs = false;  // learning rate and step through StepInputs
  bool skip = false;
  bool perf = false;
  bool blocks = false;  // the first momentum is in int8 blocks
  DType master = DType::kF32;
  bool stochastic = false;
  uint64_t first_element = 64;  // of the second tensor
};

constexpr Shape kShapes[] = {
    {"1_3", 1, 3},
    {"20011_77", 20011, 77},
    {"inputs_16384_8196", 16384, 8196, DType::kF32, true},
    {"bf16_momentum_9001_8192", 9001, 8192, DType::kBF16, true},
    {"skipped_1001_5", 1001, 5, DType::kF32, false, true},
    {"perf_8m", int64_t{8} << 20, 1, DType::kF32, false, false, true},
    {"int8_9013_300", 9013, 300, DType::kF32, true, false, false, true},
    {"int8_8192_5", 8192, 5, DType::kF32, false, false, false, true},
    {"int8_skipped_700_5", 700, 5, DType::kF32, false, true, false, true},
    {"bf16_master_8192_5", 8192, 5, DType::kF32, false, false, false, false, DType::kBF16},
    {"stochastic_17003_11", 17003, 11, DType::kF32, false, false, false, false, DType::kBF16, true},
    {"stochastic_inputs_10240_515", 10240, 515, DType::kBF16, true, false, false, false,
     DType::kBF16, true, 66},
    {"int8_stochastic_9000_4099", 9000, 4099, DType::kF32, true, false, false, true, DType::kBF16,
     true, 257},
    {"perf_8m_bf16", int64_t{8} << 20, 1, DType::kBF16, false, false, true},
    {"perf_8m_int8", int64_t{8} << 20, 1, DType::kF32, false, false, true, true},
    {"perf_8m_int8_stochastic", int64_t{8} << 20, 1, DType::kF32, true, false, true, true,
     DType::kBF16, true},
};

constexpr formats::StateCodec kCodec = formats::StateCodec::kLinearSigned8;

absl::Status Run(const Shape& s, const Exec& exec, const Buffers& b) {
  std::array<MuonMomentumTensor, 2> momenta = {{{b["buf0"], b["g0"]}, {b["buf1"], b["g1"]}}};
  if (s.blocks) {
    momenta[0].momentum = TensorView(b["buf0"].data, DType::kU8, {s.first});
    momenta[0].blocks = {kCodec, b["scales"].as<float>()};
  }
  MuonMomentumArgs momentum;
  momentum.tensors = momenta;
  momentum.mu = s.blocks ? 0.5 : 0.95;  // as MakeCase says
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
  updates[0].index = 17;
  updates[1].master = b["p1"];
  updates[1].o = b["g1"];
  updates[1].working = b["w1"];
  updates[1].lr_scale = 0.5;
  updates[1].index = 18;
  updates[1].first_element = s.first_element;
  MuonUpdateArgs update;
  update.tensors = updates;
  update.lr = 1e-2;
  update.step = 20;
  update.skip = momentum.skip;
  update.inputs = s.inputs ? b["inputs"].as<StepInputs>() : nullptr;
  update.stochastic_rounding = s.stochastic;
  update.seed = 0x1234567890;
  return MuonUpdate(exec, update);
}

OpCase MakeCase(const Shape& s) {
  OpCase c{.op = "muon", .name = s.name, .perf = s.perf};
  // A skipped step must leave even the working copy alone.
  const Role written = s.skip ? Role::kAccumulate : Role::kOutput;
  StepInputs inputs;
  inputs.learning_rate = 0.02;
  inputs.step = 23;
  c.buffers = {OptimizerState("p0", s.first, s.master),
               WeightGradient("g0", {s.first}),
               {"w0", {s.first}, written},
               OptimizerState("p1", s.second, s.master),
               OptimizerState("buf1", s.second, s.momentum),
               WeightGradient("g1", {s.second}),
               {"w1", {s.second}, written},
               {"amax", {1}, Role::kAccumulate, {Fill::kUniform, 0.0, 1.0}, DType::kU8},
               {"grad_scale", {1}, Role::kInput, {Fill::kConstant, 0.75, 0.0}, DType::kU8},
               {"skip", {1}, Role::kInput, {Fill::kConstant, s.skip ? 1.0 : 0.0, 0.0}, DType::kI32},
               Struct("inputs", inputs)};
  if (s.blocks) {
    // Halves of integers.
    const auto value = [](int64_t i) {
      return static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 2.0F;
    };
    AddStateBlocks(kCodec, s.first, s.perf ? nullptr : std::function<float(int64_t)>(value), "buf0",
                   "scales", c);
    // With integers and mu = 1/2 the new momentum has one rounding at most on every device, so that
    // codes are equal bit for bit.
    c.buffers[1].fill = {Fill::kIndex, -100, 100};
  } else {
    c.buffers.push_back(OptimizerState("buf0", s.first, s.momentum));
  }
  c.forward = [s](const Exec& exec, const Buffers& b) { return Run(s, exec, b); };
  c.slack = s.skip ? 0.0 : 8.0;
  c.forward_traffic = {"p0", "p0", "buf0", "buf0", "g0", "g0", "g0", "w0"};
  if (s.blocks) {
    c.forward_traffic.insert(c.forward_traffic.end(), {"scales", "scales"});
  }
  return c;
}

}  // namespace

std::vector<OpCase> MuonCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
