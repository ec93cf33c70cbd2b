#include "kernels/harness/cases.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace hearth::kernels::harness {
namespace {

constexpr double kLossScale = 0.37;

struct Shape {
  const char* name;
  int64_t N, C, V, V_padded, chunk;
  bool perf;
};

constexpr Shape kShapes[] = {
    {"1x1x1", 1, 1, 1, 1, 0, false},
    {"19x8x13", 19, 8, 13, 13, 0, false},
    {"padded_chunked_37x12x50", 37, 12, 50, 64, 8, false},
    {"long_rows_6x16x2500", 6, 16, 2500, 2560, 4, false},
    {"perf_2048x512x32000", 2048, 512, 32000, 32000, 0, true},
};

// Without gradients: those views stay empty.
LinearCrossEntropyArgs EvalArgs(const Shape& s, const Buffers& b) {
  LinearCrossEntropyArgs args;
  args.hidden = b["hidden"];
  args.weight = b["weight"];
  args.targets = b["targets"];
  args.loss_weight = b["loss_weight"];
  args.vocab = s.V;
  args.d_loss = kLossScale;
  args.nll = b["nll"];
  args.loss_sum = b["loss_sum"].as<double>();
  args.weight_sum = b["weight_sum"].as<double>();
  args.chunk = s.chunk;
  return args;
}

LinearCrossEntropyArgs TrainArgs(const Shape& s, const Buffers& b) {
  LinearCrossEntropyArgs args = EvalArgs(s, b);
  args.d_hidden = b["d_hidden"];
  args.d_weight = b["d_weight"];
  return args;
}

OpCase MakeCase(const Shape& s) {
  const Fill zero = {Fill::kConstant, 0.0, 0.0};
  OpCase c;
  c.op = "linear_cross_entropy";
  c.name = s.name;
  c.buffers = {
      {"hidden", {s.N, s.C}},
      {"weight", {s.V_padded, s.C}},
      {"targets", {s.N}, Role::kInput, {Fill::kIndex, 0, static_cast<double>(s.V)}, DType::kI32},
      {"loss_weight", {s.N}, Role::kInput, {Fill::kWeights, 0, 0}, DType::kU8},
      {"nll", {s.N}, Role::kOutput},
      {"loss_sum", {1}, Role::kAccumulate, zero, DType::kF64},
      {"weight_sum", {1}, Role::kAccumulate, zero, DType::kF64},
      {"loss_scale", {1}, Role::kInput, {Fill::kConstant, kLossScale, 0}, DType::kF64},
      {"d_hidden", {s.N, s.C}, Role::kOutput},
      {"d_weight", {s.V_padded, s.C}, Role::kAccumulate}};
  c.outputs = {{"loss_sum", "loss_scale"}};
  c.inputs = {{"hidden", "d_hidden"}, {"weight", "d_weight"}};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return LinearCrossEntropy(exec, EvalArgs(s, b));
  };
  c.backward = [s](const Exec& exec, const Buffers& b) {
    return LinearCrossEntropy(exec, TrainArgs(s, b));
  };
  c.workspace = [s](const Buffers& b, int) {
    return LinearCrossEntropyWorkspaceBytes(TrainArgs(s, b));
  };
  c.reduction = s.C + s.V;
  c.thread_invariant = false;
  c.perf = s.perf;
  c.forward_flops = 2.0 * static_cast<double>(s.N * s.C * s.V);
  c.backward_flops = 3.0 * c.forward_flops;  // the logits again, then two products
  return c;
}

OpCase LogitsCase() {
  OpCase c;
  c.op = "linear_cross_entropy";
  c.name = "logits_3x12x50";
  c.buffers = {{"hidden", {3, 12}}, {"weight", {64, 12}}, {"logits", {3, 50}, Role::kOutput}};
  c.forward = [](const Exec& exec, const Buffers& b) {
    LinearLogitsArgs args;
    args.hidden = b["hidden"];
    args.weight = b["weight"];
    args.logits = b["logits"];
    return LinearLogits(exec, args);
  };
  c.reduction = 12;
  c.thread_invariant = false;
  return c;
}

}  // namespace

std::vector<OpCase> LinearCrossEntropyCases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : kShapes) {
    cases.push_back(MakeCase(shape));
  }
  cases.push_back(LogitsCase());
  return cases;
}

}  // namespace hearth::kernels::harness
