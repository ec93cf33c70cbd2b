#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/harness/cases.h"
#include "kernels/harness/optimizer_state.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t first, second;  // elements of two tensors; the second has no decay and no working copy
  int64_t step;
  DType master = DType::kF32;
  DType moments = DType::kF32;
  bool stochastic = false;
  bool inputs = false;  // learning rate and corrections through StepInputs
  bool skip = false;
  bool perf = false;
  bool cuda_only = false;
  int bits = 0;        // 8 or 4: the first tensor's moments are in blocks
  bool decay = false;  // those start from values, and gradients are 0; else the other way round
  bool own_working = false;  // the first tensor's masters are its working weights
};

// Only timed: a tensor of `count` elements beside a small one.
constexpr Shape Timed(const char* name, int64_t count, DType moments, int bits) {
  return {.name = name,
          .first = count,
          .second = 768,
          .step = 100,
          .moments = moments,
          .inputs = true,
          .perf = true,
          .cuda_only = true,
          .bits = bits};
}
// As optimizer.master: none has them.
constexpr Shape WithoutMasters(const char* name, int64_t count, DType moments, int bits) {
  Shape shape = Timed(name, count, moments, bits);
  shape.master = DType::kBF16;
  shape.stochastic = true;
  shape.own_working = true;
  return shape;
}

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;
// The parameters of hearth-112m and hearth-1.5b.
constexpr int64_t k112M = 112'100'352;
constexpr int64_t k1543M = 1'543'714'304;
constexpr Shape kShapes[] = {
    {"step1_1_3", 1, 3, 1},
    {"step1000_20011_77", 20011, 77, 1000},
    {"inputs_16384_8196", 16384, 8196, 20, kF32, kF32, false, true},
    {"bf16_moments_9001_8192", 9001, 8192, 20, kF32, kBF16, false, true},
    {"bf16_master_8192_5", 8192, 5, 20, kBF16, kF32},
    {"bf16_all_stochastic_17003_11", 17003, 11, 20, kBF16, kBF16, true},
    {"stochastic_inputs_10240_3", 10240, 3, 20, kBF16, kF32, true, true},
    {"skipped_1001_5", 1001, 5, 3, kF32, kF32, false, false, true},
    {"perf_8m", int64_t{8} << 20, 1, 100, kF32, kF32, false, false, false, true},
    {"int8_9013_300", 9013, 300, 20, kF32, kF32, false, true, false, false, false, 8},
    {"int8_decay_8192_5", 8192, 5, 20, kF32, kF32, false, true, false, false, false, 8, true},
    {"int4_9013_300", 9013, 300, 20, kF32, kF32, false, true, false, false, false, 4},
    {"int4_decay_8192_5", 8192, 5, 20, kF32, kF32, false, true, false, false, false, 4, true},
    Timed("perf_112m", k112M, kF32, 0),
    Timed("perf_112m_bf16_moments", k112M, kBF16, 0),
    Timed("perf_112m_int8", k112M, kF32, 8),
    Timed("perf_112m_int4", k112M, kF32, 4),
    WithoutMasters("perf_112m_none", k112M, kF32, 0),
    WithoutMasters("perf_112m_bf16_moments_none", k112M, kBF16, 0),
    WithoutMasters("perf_112m_int8_none", k112M, kF32, 8),
    WithoutMasters("perf_112m_int4_none", k112M, kF32, 4),
    Timed("perf_1543m", k1543M, kF32, 0),
    Timed("perf_1543m_bf16_moments", k1543M, kBF16, 0),
    Timed("perf_1543m_int8", k1543M, kF32, 8),
    Timed("perf_1543m_int4", k1543M, kF32, 4),
    WithoutMasters("perf_1543m_none", k1543M, kF32, 0),
    WithoutMasters("perf_1543m_bf16_moments_none", k1543M, kBF16, 0),
    WithoutMasters("perf_1543m_int8_none", k1543M, kF32, 8),
    WithoutMasters("perf_1543m_int4_none", k1543M, kF32, 4),
};

using formats::StateCodec;

std::pair<StateCodec, StateCodec> CodecsOf(int bits) {
  return bits == 8 ? std::pair(StateCodec::kDynamicSigned8, StateCodec::kDynamicUnsigned8)
                   : std::pair(StateCodec::kDynamicSigned4, StateCodec::kLinearUnsigned4);
}

StepInputs InputsOf(const Shape& s) {
  StepInputs inputs;
  inputs.learning_rate = 0.02;
  inputs.optimizer[kBiasCorrection1] = 0.75;
  inputs.optimizer[kBiasCorrection2] = 0.5;
  inputs.step = s.step + 3;
  return inputs;
}

absl::Status Run(const Shape& s, const Exec& exec, const Buffers& b) {
  std::array<AdamWTensor, 2> tensors;
  tensors[0].master = b["p0"];
  tensors[0].m = b["m0"];
  tensors[0].v = b["v0"];
  if (s.bits > 0) {
    const auto [m_codec, v_codec] = CodecsOf(s.bits);
    tensors[0].m = TensorView(b["m0"].data, DType::kU8, {CodeBytes(m_codec, s.first)});
    tensors[0].v = TensorView(b["v0"].data, DType::kU8, {CodeBytes(v_codec, s.first)});
    tensors[0].m_blocks = {m_codec, b["m_scales"].as<float>()};
    tensors[0].v_blocks = {v_codec, b["v_scales"].as<float>()};
  }
  tensors[0].grad = b["g0"];
  tensors[0].working = s.own_working ? b["p0"] : b["w0"];
  tensors[0].amax = b["amax"].as<float>();
  tensors[0].weight_decay = 0.1;
  tensors[0].index = 17;
  tensors[1].master = b["p1"];
  tensors[1].m = b["m1"];
  tensors[1].v = b["v1"];
  tensors[1].grad = b["g1"];
  tensors[1].lr_scale = 0.5;
  tensors[1].index = 18;
  tensors[1].first_element = 64;
  AdamWArgs args;
  args.tensors = tensors;
  args.lr = 1e-2;
  args.step = s.step;
  if (s.bits > 0) {
    args.beta1 = 0.5;   // products of these have one rounding at most on every device,
    args.beta2 = 0.75;  // so that codes are equal bit for bit
  }
  args.grad_scale = b["grad_scale"].as<float>();
  args.skip = b["skip"].as<int32_t>();
  args.inputs = s.inputs ? b["inputs"].as<StepInputs>() : nullptr;
  args.stochastic_rounding = s.stochastic;
  args.seed = 0x1234567890;
  return AdamWStep(exec, args);
}

// A moment of the first tensor in blocks: values of all decades, every third of m negative.
void AddMoment(const Shape& s, StateCodec codec, const std::string& name, OpCase& c) {
  const auto value = [&s, &name](int64_t i) {
    const float sign = name == "m" && i % 3 == 0 ? -1.0F : 1.0F;
    const float mantissa = 1.0F + static_cast<float>(i * 37 % 101) / 128.0F;
    return s.decay ? sign * std::ldexp(mantissa, -static_cast<int>(i % 20)) : 0.0F;
  };
  AddStateBlocks(codec, s.first, s.perf ? nullptr : std::function<float(int64_t)>(value),
                 name + "0", name + "_scales", c);
}

OpCase MakeCase(const Shape& s) {
  OpCase c{.op = "adamw", .name = s.name, .perf = s.perf, .cuda_only = s.cuda_only};
  const Fill positive = {Fill::kUniform, 0.0, 1.0};
  const Fill skip = {Fill::kConstant, s.skip ? 1.0 : 0.0, 0.0};
  // A skipped step must leave even the working copy alone.
  const Role written = s.skip ? Role::kAccumulate : Role::kOutput;
  c.buffers = {OptimizerState("p0", s.first, s.master),
               OptimizerState("m0", s.first, s.moments),
               OptimizerState("v0", s.first, s.moments, positive),
               WeightGradient("g0", {s.first}, Role::kInput),
               {"w0", {s.first}, written},
               OptimizerState("p1", s.second, s.master),
               OptimizerState("m1", s.second, s.moments),
               OptimizerState("v1", s.second, s.moments, positive),
               WeightGradient("g1", {s.second}, Role::kInput),
               {"amax", {1}, Role::kAccumulate, positive, DType::kU8},
               {"grad_scale", {1}, Role::kInput, {Fill::kConstant, 0.75, 0.0}, DType::kU8},
               {"skip", {1}, Role::kInput, skip, DType::kI32},
               Struct("inputs", InputsOf(s))};
  if (s.bits > 0) {
    // The plain moments of the first tensor make room for blocks.
    c.buffers.erase(c.buffers.begin() + 1, c.buffers.begin() + 3);
    AddMoment(s, CodecsOf(s.bits).first, "m", c);
    AddMoment(s, CodecsOf(s.bits).second, "v", c);
    c.buffers[1].fill =
        s.decay ? Fill{Fill::kConstant, 0.0, 0.0} : Fill{Fill::kIndex, -30000, 30000};
  }
  c.forward = [s](const Exec& exec, const Buffers& b) { return Run(s, exec, b); };
  c.slack = s.skip ? 0.0 : 8.0;
  c.forward_traffic = {"p0", "p0", "m0", "m0", "v0", "v0", "g0"};
  if (s.own_working) {
    std::erase_if(c.buffers, [](const BufferSpec& spec) { return spec.name == "w0"; });
  } else {
    c.forward_traffic.push_back("w0");
  }
  for (int i = 0; s.bits > 0 && i < 2; ++i) {
    c.forward_traffic.insert(c.forward_traffic.end(), {"m_scales", "v_scales"});
  }
  return c;
}

}  // namespace

std::vector<OpCase> AdamWCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
