#include <cmath>

#include "kernels/gelu/gelu.h"
#include "kernels/harness/activation_cases.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape : MatrixShape {
  Activation kind;
  bool bias;
  bool quant = false;  // outputs are quantised too
  bool cuda_only = false;
};

constexpr Shape kShapes[] = {
    {{"erf_33x19", 33, 19}, Activation::kGelu, false},
    {{"erf_bias_7x130", 7, 130}, Activation::kGelu, true},
    {{"tanh_33x19", 33, 19}, Activation::kGeluTanh, false},
    {{"tanh_bias_1x1", 1, 1}, Activation::kGeluTanh, true},
    {{"erf_bias_37x264", 37, 264}, Activation::kGelu, true},
    {{"tanh_144x640", 144, 640}, Activation::kGeluTanh, false},
    {{"perf_erf_4096x1536", 4096, 1536}, Activation::kGelu, true},
    {{"quant_erf_33x24", 33, 24}, Activation::kGelu, true, true},
    {{"quant_tanh_144x640", 144, 640}, Activation::kGeluTanh, false, true},
    {{"perf_tanh_4096x1536", 4096, 1536}, Activation::kGeluTanh, true},
    {{"perf_tanh_36864x3072", 36864, 3072}, Activation::kGeluTanh, true, false, true},
    {{"perf_erf_36864x3072", 36864, 3072}, Activation::kGelu, true, false, true},
    {{"perf_quant_tanh_36864x3072", 36864, 3072}, Activation::kGeluTanh, true, true, true},
};

ActivationCalls Calls(Activation kind, bool bias, int64_t F) {
  ActivationCalls calls;
  calls.op = "gelu";
  calls.input = "x";
  calls.gradient = "dx";
  calls.spread = 2.0;
  if (bias) {
    calls.parameters = {{"bias", {F}}};
  }
  calls.forward = [kind](const Exec& exec, const Buffers& b, const ActivationOutputs& outputs) {
    GeluForwardArgs args;
    static_cast<ActivationOutputs&>(args) = outputs;
    args.x = b["x"];
    args.bias = b["bias"];
    args.kind = kind;
    return GeluForward(exec, args);
  };
  calls.backward = [kind](const Exec& exec, const Buffers& b, const ActivationGradient& gradient) {
    GeluBackwardArgs args;
    args.dy = b["dy"];
    args.x = b["x"];
    args.bias = b["bias"];
    args.kind = kind;
    args.dx = gradient.dx;
    args.dx_quant = gradient.dx_quant;
    args.dx_blocks = gradient.dx_blocks;
    args.kept = gradient.kept;
    return GeluBackward(exec, args);
  };
  return calls;
}

struct BlockShape : MatrixShape {
  Activation kind;
  BlockStyle y, dx;
  bool kept = false;  // forward keeps its input, backward reads that
};

// Whole tiles, and tiles that are cut off by the last row and column.
constexpr BlockShape kBlockShapes[] = {
    {{"blocks_nvidia_erf_160x288", 160, 288}, Activation::kGelu, kNvidiaInput, kNvidiaGradient},
    {{"blocks_quartet_tanh_128x256", 128, 256},
     Activation::kGeluTanh,
     kQuartetInput,
     kQuartetGradient},
    {{"blocks_kept_nvidia_erf_160x288", 160, 288},
     Activation::kGelu,
     kNvidiaInput,
     kNvidiaGradient,
     true},
    {{"perf_blocks_nvidia_tanh_36864x3072", 36864, 3072},
     Activation::kGeluTanh,
     kNvidiaInput,
     kNvidiaGradient},
};

struct KeptShape : MatrixShape {
  Activation kind;
};

constexpr KeptShape kKeptShapes[] = {
    {{"kept_erf_33x32", 33, 32}, Activation::kGelu},
    {{"kept_tanh_144x640", 144, 640}, Activation::kGeluTanh},
};

OpCase PlainCase(const Shape& s) {
  OpCase c = ActivationCase(Calls(s.kind, s.bias, s.cols), s, s.quant);
  c.cuda_only = s.cuda_only;
  c.slack = 16.0;
  return c;
}

OpCase BlockCase(const BlockShape& s) {
  return ActivationBlockCase(Calls(s.kind, true, s.cols), s, s.y, s.dx, s.kept);
}

OpCase KeptCase(const KeptShape& s) {
  OpCase c = ActivationKeptCase(Calls(s.kind, true, s.cols), s);
  c.slack = 16.0;
  return c;
}

double Erf(const std::vector<double>& v) {
  return 0.5 * v[0] * (1.0 + std::erf(v[0] * std::sqrt(0.5)));
}

}  // namespace

std::vector<OpCase> GeluCases() {
  std::vector<OpCase> cases =
      CasesOf(kShapes, PlainCase, kBlockShapes, BlockCase, kKeptShapes, KeptCase);
  AddCaseOfEachLayout(cases, [](const BlockStyle& style) {
    return BlockCase({{"tanh_32x96", 32, 96}, Activation::kGeluTanh, style, style});
  });
  cases.push_back(ActivationExtremesCase(Calls(Activation::kGelu, false, 96), 40, 96, Erf));
  return cases;
}

}  // namespace hearth::kernels::harness
