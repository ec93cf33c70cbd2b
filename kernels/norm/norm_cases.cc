#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/harness/block_forms.h"
#include "kernels/harness/cases.h"
#include "kernels/norm/norm.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N, C;
  bool residual;
  bool perf;
  bool quant = false;  // outputs are quantised too
  bool cuda_only = false;
  bool bias = true;  // LayerNorm's
};

constexpr Shape kRmsShapes[] = {
    // One column would be degenerate: y is the sign of x, dx cancels to rounding noise.
    {"plain_1x5", 1, 5, false, false},
    {"plain_3x7", 3, 7, false, false},
    {"plain_130x65", 130, 65, false, false},
    {"residual_67x96", 67, 96, true, false},
    {"residual_5x1000", 5, 1000, true, false},
    // Generated tokens of hearth-112m and of Qwen2.5-1.5B.
    {"perf_64x768", 64, 768, true, true},
    {"perf_512x768", 512, 768, true, true},
    {"perf_64x1536", 64, 1536, true, true},
    {"perf_4096x512", 4096, 512, true, true},
    {"residual_201x768", 201, 768, true, false},
    {"residual_37x1536", 37, 1536, true, false},
    {"plain_19x8200", 19, 8200, false, false},
    {"quant_35x72", 35, 72, true, false, true},
    {"quant_144x768", 144, 768, true, false, true},
    {"quant_plain_48x1600", 48, 1600, false, false, true},
    // On a GPU: no whole packs; 4 packs a thread; a row in 4 warps, tiles of 16 rows; in 8 warps.
    {"quant_17x30", 17, 30, true, false, true},
    {"quant_144x896", 144, 896, true, false, true},
    {"quant_48x2064", 48, 2064, true, false, true},
    {"residual_3x8192", 3, 8192, true, false},
    // Rows as long as the packs of their warps: one, two and three packs a thread, and two warps.
    {"quant_plain_48x256", 48, 256, false, false, true},
    {"quant_80x512", 80, 512, true, false, true},
    {"quant_144x1536", 144, 1536, true, false, true},
    // Several tiles a block, of 64 rows and then of 32.
    {"quant_36160x64", 36160, 64, true, false, true, true},
    {"perf_quant_32768x896", 32768, 896, true, true, true, true},
    {"perf_36864x768", 36864, 768, true, true, false, true},
    {"perf_quant_36864x768", 36864, 768, true, true, true, true},
    {"perf_quant_16384x1536", 16384, 1536, true, true, true, true},
};

constexpr Shape kLayerShapes[] = {
    {"plain_3x7", 3, 7, false, false},
    {"plain_nobias_130x65", 130, 65, false, false, false, false, false},
    {"residual_67x96", 67, 96, true, false},
    {"residual_201x768", 201, 768, true, false},
    {"plain_19x8200", 19, 8200, false, false},
    {"quant_35x72", 35, 72, true, false, true},
    {"quant_144x768", 144, 768, true, false, true},
    // On a GPU: several tiles a block, of 64 rows and then of 32; a row in two warps.
    {"quant_36160x64", 36160, 64, true, false, true, true},
    {"quant_48x1600", 48, 1600, true, false, true},
    {"perf_4096x512", 4096, 512, true, true},
    {"perf_36864x768", 36864, 768, true, true, false, true},
    {"perf_quant_36864x768", 36864, 768, true, true, true, true},
};

struct BlockShape {
  const char* name;
  int64_t N, C;
  double spread;  // of the weights; with large ones most blocks saturate
  BlockStyle y, dx;
  bool residual;
  bool perf = false;
  bool cuda_only = false;
};

// For rows that are no multiple of 128 columns.
constexpr BlockStyle kQuartetGradient32 = {BlockLayout::kNvfp4,   DType::kE2M1, Rounding::kEden,
                                           Rounding::kEden,       32,           32,
                                           HadamardSigns::kSeeded};

// On a GPU: whole strips of 128 rows and a part of one; a part of a tile; one to eight blocks of a
// cluster, with one tile each or more; rows in 1 to 8 warps; backward several strips a cluster, of
// one block and of eight.
constexpr BlockShape kRmsBlockShapes[] = {
    {"blocks_nvidia_32x32", 32, 32, 0.2, kNvidiaInput, kNvidiaGradient, false},
    {"blocks_nvidia_160x768", 160, 768, 0.2, kNvidiaInput, kNvidiaGradient, true},
    {"blocks_nvidia_large_96x160", 96, 160, 300.0, kNvidiaInput, kNvidiaGradient, true},
    {"blocks_quartet_256x1056", 256, 1056, 0.2, kQuartetInput, kQuartetGradient32, true},
    {"blocks_quartet_384x1280", 384, 1280, 0.2, kQuartetInput, kQuartetGradient, false},
    {"blocks_mxfp8_352x1600", 352, 1600, 0.2, kMxfp8Blocks, kMxfp8Gradient, true},
    {"blocks_mxfp8_large_64x96", 64, 96, 1e30, kMxfp8Blocks, kMxfp8Gradient, false},
    {"blocks_nvidia_64x4096", 64, 4096, 0.2, kNvidiaInput, kNvidiaGradient, true},
    {"blocks_mxfp8_160x8192", 160, 8192, 0.2, kMxfp8Blocks, kMxfp8Gradient, false},
    {"blocks_nvidia_67616x64", 67616, 64, 0.2, kNvidiaInput, kNvidiaGradient, true, false, true},
    {"blocks_mxfp8_8224x1024", 8224, 1024, 0.2, kMxfp8Blocks, kMxfp8Gradient, true, false, true},
    {"perf_blocks_nvidia_8192x768", 8192, 768, 0.2, kNvidiaInput, kNvidiaGradient, true, true},
    {"perf_blocks_nvidia_36864x768", 36864, 768, 0.2, kNvidiaInput, kNvidiaGradient, true, true},
    {"perf_blocks_quartet_36864x768", 36864, 768, 0.2, kQuartetInput, kQuartetGradient, true, true},
    {"perf_blocks_mxfp8_36864x768", 36864, 768, 0.2, kMxfp8Blocks, kMxfp8Gradient, true, true},
    {"perf_blocks_nvidia_16384x4096", 16384, 4096, 0.2, kNvidiaInput, kNvidiaGradient, true, true},
};

constexpr BlockShape kLayerBlockShapes[] = {
    {"blocks_nvidia_160x768", 160, 768, 0.2, kNvidiaInput, kNvidiaGradient, true},
    {"blocks_quartet_128x288", 128, 288, 0.2, kQuartetInput, kNvidiaGradient, false},
    {"blocks_quartet_256x384", 256, 384, 0.2, kQuartetInput, kQuartetGradient, true},
    {"blocks_mxfp8_96x1600", 96, 1600, 0.2, kMxfp8Blocks, kMxfp8Gradient, true},
    {"blocks_nvidia_large_64x2080", 64, 2080, 300.0, kNvidiaInput, kNvidiaGradient, false},
    {"blocks_nvidia_8224x768", 8224, 768, 0.2, kNvidiaInput, kNvidiaGradient, true, false, true},
    {"perf_blocks_nvidia_36864x768", 36864, 768, 0.2, kNvidiaInput, kNvidiaGradient, true, true},
    {"perf_blocks_mxfp8_36864x768", 36864, 768, 0.2, kMxfp8Blocks, kMxfp8Gradient, true, true},
};

// What the cases of one norm call.
struct Rms {
  using ForwardArgs = RmsNormForwardArgs;
  using BackwardArgs = RmsNormBackwardArgs;
  static constexpr bool kCentred = false;
  static constexpr char kOp[] = "rmsnorm";
  static constexpr auto& kForward = RmsNormForward;
  static constexpr auto& kBackward = RmsNormBackward;
  static constexpr auto& kWorkspace = RmsNormBackwardWorkspaceBytes;
};
struct Layer {
  using ForwardArgs = LayerNormForwardArgs;
  using BackwardArgs = LayerNormBackwardArgs;
  static constexpr bool kCentred = true;
  static constexpr char kOp[] = "layernorm";
  static constexpr auto& kForward = LayerNormForward;
  static constexpr auto& kBackward = LayerNormBackward;
  static constexpr auto& kWorkspace = LayerNormBackwardWorkspaceBytes;
};

template <typename Norm>
typename Norm::ForwardArgs ForwardArgs(const Buffers& b) {
  typename Norm::ForwardArgs args;
  args.x = b["x"];
  args.residual = b["residual"];
  args.weight = b["weight"];
  args.sum = b["sum"];
  args.y = b["y"];
  args.rstd = b["rstd"];
  if constexpr (Norm::kCentred) {
    args.bias = b["bias"];
    args.mean = b["mean"];
  }
  return args;
}

template <typename Norm>
typename Norm::BackwardArgs BackwardArgs(const Buffers& b) {
  typename Norm::BackwardArgs args;
  args.dy = b["dy"];
  args.s = b["sum"].empty() ? b["x"] : b["sum"];
  args.rstd = b["rstd"];
  args.weight = b["weight"];
  args.d_sum = b["d_sum"];
  args.dx = b["dx"];
  args.d_weight = b["d_weight"];
  if constexpr (Norm::kCentred) {
    args.mean = b["mean"];
    args.d_bias = b["d_bias"];
  }
  return args;
}

void AddResidual(OpCase& c, int64_t rows, int64_t cols) {
  c.buffers.push_back({"residual", {rows, cols}});
  c.buffers.push_back({"sum", {rows, cols}, Role::kOutput});
  c.buffers.push_back({"d_sum", {rows, cols}});
}

// How forward and backward of a plain case run: forward with quantised forms a second time, without
// a plain output.
template <typename Norm>
void SetPlainCalls(OpCase& c) {
  c.forward = [](const Exec& exec, const Buffers& b) {
    auto args = ForwardArgs<Norm>(b);
    args.y_quant = b.Quant("y_quant");
    HEARTH_RETURN_IF_ERROR(Norm::kForward(exec, args));
    args.y = TensorView();
    args.y_quant = b.Quant("y_alone");
    return args.y_quant.empty() ? absl::OkStatus() : Norm::kForward(exec, args);
  };
  c.backward = [](const Exec& exec, const Buffers& b) {
    auto args = BackwardArgs<Norm>(b);
    args.dx_quant = b.Quant("dx_quant");
    return Norm::kBackward(exec, args);
  };
  c.workspace = [](const Buffers& b, int) { return Norm::kWorkspace(BackwardArgs<Norm>(b)); };
}

template <typename Norm>
OpCase PlainCase(const Shape& s) {
  OpCase c{.op = Norm::kOp, .name = s.name, .perf = s.perf, .cuda_only = s.cuda_only};
  c.buffers = {{"x", {s.N, s.C}},
               {"weight", {s.C}, Role::kInput, {Fill::kNormal, 1.0, 0.2}},
               {"y", {s.N, s.C}, Role::kOutput},
               Statistic("rstd", {s.N}),
               {"dy", {s.N, s.C}},
               {"dx", {s.N, s.C}, Role::kOutput},
               WeightGradient("d_weight", {s.C})};
  if (s.quant) {
    // The second copy of y is made without a plain output.
    AddQuantised(c, "y", {s.N, s.C}, DType::kE4M3, !s.perf);
    AddQuantised(c, "dx", {s.N, s.C}, DType::kE5M2, false);
  }
  c.outputs = {{"y", "dy"}};
  c.inputs = {{"x", "dx"}, {"weight", "d_weight"}};
  c.forward_traffic = {"x", "residual", "sum", "y", "y_quant", "rstd"};
  c.backward_traffic = {"dy", s.residual ? "sum" : "x", "rstd", "d_sum", "dx", "dx_quant"};
  if (Norm::kCentred) {
    c.buffers[0].fill = {Fill::kNormal, 0.5, 1.0};
    c.buffers.push_back(Statistic("mean", {s.N}));
    c.forward_traffic.push_back("mean");
    c.backward_traffic.push_back("mean");
  }
  if (Norm::kCentred && s.bias) {
    c.buffers.push_back({"bias", {s.C}});
    c.buffers.push_back(WeightGradient("d_bias", {s.C}));
    c.inputs.push_back({"bias", "d_bias"});
  }
  if (s.residual) {
    AddResidual(c, s.N, s.C);
    c.outputs.push_back({"sum", "d_sum"});
    c.inputs.push_back({"residual", "dx"});
  }
  SetPlainCalls<Norm>(c);
  c.reduction = s.C + s.N;
  return c;
}

// The buffers of one of RunWithBlocks' calls. dx is written in each of them; the gradients of
// parameters beside all of the plain output and its forms, and without forms to buffers of their
// own.
template <typename Norm>
typename Norm::BackwardArgs BlockBackwardArgs(const Buffers& b,
                                              const TensorView& dx,
                                              const BlockQuantView& blocks) {
  auto args = BackwardArgs<Norm>(b);
  args.dx = dx.empty() ? b["dx"] : dx;
  args.dx_blocks = blocks;
  const bool timed = b["dx.without"].empty();
  const bool without = blocks.empty();
  const bool alone = !without && dx.empty() && !timed;
  if (without || alone) {
    args.d_weight = without ? b["d_weight.without"] : TensorView();
    if constexpr (Norm::kCentred) {
      args.d_bias = without ? b["d_bias.without"] : TensorView();
    }
  }
  return args;
}

// How forward and backward of a block case run.
template <typename Norm>
void SetBlockCalls(OpCase& c, const BlockShape& s) {
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "y", s.y, [&](const TensorView& y, const BlockQuantView& blocks) {
      auto args = ForwardArgs<Norm>(b);
      args.y = y;
      args.y_blocks = blocks;
      return Norm::kForward(exec, args);
    });
  };
  c.backward = [s](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "dx", s.dx,
                         [&](const TensorView& dx, const BlockQuantView& blocks) {
                           return Norm::kBackward(exec, BlockBackwardArgs<Norm>(b, dx, blocks));
                         });
  };
  c.workspace = [](const Buffers& b, int) { return Norm::kWorkspace(BackwardArgs<Norm>(b)); };
}

template <typename Norm>
OpCase BlockCase(const BlockShape& s) {
  OpCase c{.op = Norm::kOp, .name = s.name, .perf = s.perf};
  c.cuda_only = s.perf || s.cuda_only;
  c.buffers = {{"x", {s.N, s.C}},
               {"weight", {s.C}, Role::kInput, {Fill::kNormal, 1.0, s.spread}},
               {"y", {s.N, s.C}, Role::kOutput},
               Statistic("rstd", {s.N}),
               {"dy", {s.N, s.C}},
               {"dx", {s.N, s.C}, Role::kOutput}};
  if (s.residual) {
    AddResidual(c, s.N, s.C);
  }
  AddBlockForms(c, "y", s.N, s.C, s.y);
  AddBlockForms(c, "dx", s.N, s.C, s.dx);
  AddGradientTwice(c, "d_weight", s.C);
  c.forward_traffic = {"x", "residual", "sum", "rstd"};
  c.backward_traffic = {"dy", s.residual ? "sum" : "x", "d_sum", "dx", "rstd"};
  if (Norm::kCentred) {
    c.buffers.push_back({"bias", {s.C}});
    c.buffers.push_back(Statistic("mean", {s.N}));
    AddGradientTwice(c, "d_bias", s.C);
    c.forward_traffic.push_back("mean");
    c.backward_traffic.push_back("mean");
  }
  c.forward_traffic = WithForms(std::move(c.forward_traffic), "y");
  c.backward_traffic = WithForms(std::move(c.backward_traffic), "dx");
  SetBlockCalls<Norm>(c, s);
  c.reduction = s.C;
  return c;
}

}  // namespace

std::vector<OpCase> NormCases() {
  std::vector<OpCase> cases =
      CasesOf(kRmsShapes, PlainCase<Rms>, kRmsBlockShapes, BlockCase<Rms>, kLayerShapes,
              PlainCase<Layer>, kLayerBlockShapes, BlockCase<Layer>);
  for (OpCase (*make)(const BlockShape& s) : {&BlockCase<Rms>, &BlockCase<Layer>}) {
    AddCaseOfEachLayout(cases, [make](const BlockStyle& style) {
      return make({"160x864", 160, 864, 0.2, style, style, true});
    });
  }
  return cases;
}

}  // namespace hearth::kernels::harness
