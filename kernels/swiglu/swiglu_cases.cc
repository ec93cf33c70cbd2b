#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/harness/activation_cases.h"
#include "kernels/harness/cases.h"
#include "kernels/swiglu/swiglu.h"

namespace hearth::kernels::harness {
namespace {

struct Shape : MatrixShape {
  double spread;       // standard deviation of the inputs; large values reach the flat ends
  bool quant = false;  // outputs are quantised too
  bool cuda_only = false;
};

constexpr Shape kShapes[] = {
    {{"1x1", 1, 1}, 1.0},
    {{"33x19", 33, 19}, 1.0},
    {{"vectors_37x264", 37, 264}, 1.0},  // whole packs of 8, odd rows, a part of a tile
    {{"tiles_144x640", 144, 640}, 2.0},
    {{"wide_values_7x130", 7, 130}, 30.0},
    {{"quant_33x24", 33, 24}, 1.0, true},
    {{"quant_144x640", 144, 640}, 2.0, true},
    // Few rows: on a GPU a tile has fewer too.
    {{"few_3x2048", 3, 2048}, 1.0},
    {{"few_61x4104", 61, 4104}, 1.0},
    {{"few_quant_64x1024", 64, 1024}, 1.0, true},
    // Generated tokens of hearth-112m and of Qwen2.5-1.5B.
    {{"perf_64x2048", 64, 2048}, 1.0},
    {{"perf_512x2048", 512, 2048}, 1.0},
    {{"perf_64x8960", 64, 8960}, 1.0},
    {{"perf_4096x1536", 4096, 1536}, 1.0},
    {{"perf_36864x2048", 36864, 2048}, 1.0, false, true},
    {{"perf_quant_36864x2048", 36864, 2048}, 1.0, true, true},
};

struct BlockShape : MatrixShape {
  BlockStyle y, d_gate_up;
  bool kept = false;  // forward keeps its input, backward reads that
};

// Whole tiles, and tiles that are cut off by the last row.
constexpr BlockShape kBlockShapes[] = {
    {{"blocks_nvidia_160x128", 160, 128}, kNvidiaInput, kNvidiaGradient},
    {{"blocks_quartet_256x384", 256, 384}, kQuartetInput, kQuartetGradient},
    {{"blocks_kept_nvidia_160x128", 160, 128}, kNvidiaInput, kNvidiaGradient, true},
    {{"blocks_kept_quartet_256x384", 256, 384}, kQuartetInput, kQuartetGradient, true},
    {{"blocks_kept_mxfp8_96x256", 96, 256}, kMxfp8Blocks, kMxfp8Blocks, true},
    {{"perf_blocks_nvidia_36864x2048", 36864, 2048}, kNvidiaInput, kNvidiaGradient},
    {{"perf_blocks_kept_nvidia_36864x2048", 36864, 2048}, kNvidiaInput, kNvidiaGradient, true},
    {{"perf_blocks_quartet_36864x2048", 36864, 2048}, kQuartetInput, kQuartetGradient},
    {{"perf_blocks_mxfp8_36864x2048", 36864, 2048}, kMxfp8Blocks, kMxfp8Blocks},
};

struct KeptShape : MatrixShape {
  double spread;
  bool again = false;    // backward makes y's columns too
  bool swapped = false;  // y's rows in E5M2, the gradient in E4M3
};

constexpr KeptShape kKeptShapes[] = {
    {{"kept_33x32", 33, 32}, 1.0},
    {{"kept_37x288", 37, 288}, 30.0},
    {{"kept_144x640", 144, 640}, 2.0},
    {{"kept_again_144x640", 144, 640}, 2.0, true},
    {{"kept_again_48x96", 48, 96}, 2.0, true},
    // Whole tiles in both directions, several of them.
    {{"kept_again_tiles_256x768", 256, 768}, 2.0, true},
    {{"kept_again_tiles_swapped_128x256", 128, 256}, 2.0, true, true},
    // What steps of hearth-112m and of a model of 1.5B call.
    {{"perf_kept_36864x2048", 36864, 2048}, 1.0},
    {{"perf_kept_again_36864x2048", 36864, 2048}, 1.0, true},
    {{"perf_kept_again_16384x8960", 16384, 8960}, 1.0, true},
};

SwigluBackwardArgs BackwardArgs(const Buffers& b, const ActivationGradient& gradient) {
  SwigluBackwardArgs args;
  args.dy = b["dy"];
  args.gate_up = b["gate_up"];
  args.d_gate_up = gradient.dx;
  args.d_gate_up_quant = gradient.dx_quant;
  args.d_gate_up_blocks = gradient.dx_blocks;
  args.kept = gradient.kept;
  return args;
}

ActivationCalls Calls(double spread) {
  ActivationCalls calls;
  calls.op = "swiglu";
  calls.input = "gate_up";
  calls.gradient = "d_gate_up";
  calls.parts = 2;
  calls.spread = spread;
  calls.forward = [](const Exec& exec, const Buffers& b, const ActivationOutputs& outputs) {
    SwigluForwardArgs args;
    static_cast<ActivationOutputs&>(args) = outputs;
    args.gate_up = b["gate_up"];
    return SwigluForward(exec, args);
  };
  calls.backward = [](const Exec& exec, const Buffers& b, const ActivationGradient& gradient) {
    return SwigluBackward(exec, BackwardArgs(b, gradient));
  };
  return calls;
}

// The calls of a case whose backward makes y's columns too: those that forward made of "y_again".
ActivationCalls CallsWithColumns(double spread, bool perf) {
  ActivationCalls calls = Calls(spread);
  calls.backward = [perf](const Exec& exec, const Buffers& b, const ActivationGradient& gradient) {
    SwigluBackwardArgs args = BackwardArgs(b, gradient);
    if (const QuantView y = b.Quant("y_again_quant"); !y.empty()) {
      args.y_quant.dtype = y.dtype;
      const bool alone = !perf && gradient.dx.data == nullptr;
      args.y_quant.columns = b[alone ? "y_columns_alone" : "y_columns"].data;
      args.y_quant.scale = y.scale;
    }
    return SwigluBackward(exec, args);
  };
  return calls;
}

OpCase PlainCase(const Shape& s) {
  OpCase c = ActivationCase(Calls(s.spread), s, s.quant);
  c.cuda_only = s.cuda_only;
  return c;
}

OpCase BlockCase(const BlockShape& s) {
  return ActivationBlockCase(Calls(1.0), s, s.y, s.d_gate_up, s.kept);
}

OpCase KeptCase(const KeptShape& s) {
  const bool perf = NewCase("", s.name).perf;
  ActivationCalls calls = s.again ? CallsWithColumns(s.spread, perf) : Calls(s.spread);
  if (s.swapped) {
    std::swap(calls.rows_dtype, calls.gradient_dtype);
  }
  OpCase c = ActivationKeptCase(calls, s);
  if (!s.again) {
    return c;
  }
  std::vector<std::string> made = {"y_columns"};
  if (!perf) {
    made.emplace_back("y_columns_alone");
  }
  for (const std::string& columns : made) {
    c.buffers.push_back(Words(columns, static_cast<size_t>(s.rows * s.cols)));
  }
  c.backward_traffic.emplace_back("y_columns");
  c.double_reference = false;  // doubles are not quantised
  c.check = [made, before = c.check](const Buffers& b) {
    std::string error = before ? before(b) : "";
    for (const std::string& columns : made) {
      if (!b.Quant("y_again_quant").empty() &&
          b.Bytes(columns) != b.Bytes("y_again_quant.columns")) {
        error = "backward makes other columns of y than forward";
      }
    }
    return error;
  };
  return c;
}

double Swiglu(const std::vector<double>& v) {
  return v[0] / (1.0 + std::exp(-v[0])) * v[1];
}

}  // namespace

std::vector<OpCase> SwigluCases() {
  std::vector<OpCase> cases =
      CasesOf(kShapes, PlainCase, kBlockShapes, BlockCase, kKeptShapes, KeptCase);
  AddCaseOfEachLayout(cases, [](const BlockStyle& style) {
    return BlockCase({{"160x256", 160, 256}, style, style});
  });
  cases.push_back(ActivationExtremesCase(Calls(1.0), 40, 96, Swiglu));
  return cases;
}

}  // namespace hearth::kernels::harness
