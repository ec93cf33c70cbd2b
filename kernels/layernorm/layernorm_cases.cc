#include "common/base/status_macros.h"
#include "kernels/harness/block_forms.h"
#include "kernels/harness/cases.h"
#include "kernels/layernorm/layernorm.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N, C;
  bool residual;
  bool bias;
  bool perf;
  bool quant = false;  // outputs are quantised too
  bool cuda_only = false;
};

constexpr Shape kShapes[] = {
    {"plain_3x7", 3, 7, false, true, false},
    {"plain_nobias_130x65", 130, 65, false, false, false},
    {"residual_67x96", 67, 96, true, true, false},
    {"residual_201x768", 201, 768, true, true, false},
    {"plain_19x8200", 19, 8200, false, true, false},
    {"quant_35x72", 35, 72, true, true, false, true},
    {"quant_144x768", 144, 768, true, true, false, true},
    // On a GPU: several tiles a block, of 64 rows and then of 32; a row in two warps.
    {"quant_36160x64", 36160, 64, true, true, false, true, true},
    {"quant_48x1600", 48, 1600, true, true, false, true},
    {"perf_4096x512", 4096, 512, true, true, true},
    {"perf_36864x768", 36864, 768, true, true, true, false, true},
    {"perf_quant_36864x768", 36864, 768, true, true, true, true, true},
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

// On a GPU: whole strips of 128 rows and a part of one; a part of a tile; one to eight blocks of a
// cluster, with one tile each or more; rows in 1 to 8 warps; backward several strips a cluster.
constexpr BlockShape kBlockShapes[] = {
    {"blocks_nvidia_160x768", 160, 768, 0.2, kNvidiaInput, kNvidiaGradient, true},
    {"blocks_quartet_128x288", 128, 288, 0.2, kQuartetInput, kNvidiaGradient, false},
    {"blocks_quartet_256x384", 256, 384, 0.2, kQuartetInput, kQuartetGradient, true},
    {"blocks_mxfp8_96x1600", 96, 1600, 0.2, kMxfp8Blocks, kMxfp8Gradient, true},
    {"blocks_nvidia_large_64x2080", 64, 2080, 300.0, kNvidiaInput, kNvidiaGradient, false},
    {"blocks_nvidia_8224x768", 8224, 768, 0.2, kNvidiaInput, kNvidiaGradient, true, false, true},
    {"perf_blocks_nvidia_36864x768", 36864, 768, 0.2, kNvidiaInput, kNvidiaGradient, true, true},
    {"perf_blocks_mxfp8_36864x768", 36864, 768, 0.2, kMxfp8Blocks, kMxfp8Gradient, true, true},
};

LayerNormForwardArgs ForwardArgs(const Buffers& b) {
  LayerNormForwardArgs args;
  args.x = b["x"];
  args.residual = b["residual"];
  args.weight = b["weight"];
  args.bias = b["bias"];
  args.sum = b["sum"];
  args.y = b["y"];
  args.mean = b["mean"];
  args.rstd = b["rstd"];
  return args;
}

LayerNormBackwardArgs BackwardArgs(const Buffers& b) {
  LayerNormBackwardArgs args;
  args.dy = b["dy"];
  args.s = b["sum"].empty() ? b["x"] : b["sum"];
  args.mean = b["mean"];
  args.rstd = b["rstd"];
  args.weight = b["weight"];
  args.d_sum = b["d_sum"];
  args.dx = b["dx"];
  args.d_weight = b["d_weight"];
  args.d_bias = b["d_bias"];
  return args;
}

OpCase PlainCase(const Shape& s) {
  OpCase c;
  c.op = "layernorm";
  c.name = s.name;
  c.buffers = {{"x", {s.N, s.C}, Role::kInput, {Fill::kNormal, 0.5, 1.0}},
               {"weight", {s.C}, Role::kInput, {Fill::kNormal, 1.0, 0.2}},
               {"y", {s.N, s.C}, Role::kOutput},
               Statistic("mean", {s.N}),
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
  if (s.bias) {
    c.buffers.push_back({"bias", {s.C}});
    c.buffers.push_back(WeightGradient("d_bias", {s.C}));
    c.inputs.push_back({"bias", "d_bias"});
  }
  if (s.residual) {
    c.buffers.push_back({"residual", {s.N, s.C}});
    c.buffers.push_back({"sum", {s.N, s.C}, Role::kOutput});
    c.buffers.push_back({"d_sum", {s.N, s.C}});
    c.outputs.push_back({"sum", "d_sum"});
    c.inputs.push_back({"residual", "dx"});
  }
  c.forward = [](const Exec& exec, const Buffers& b) {
    LayerNormForwardArgs args = ForwardArgs(b);
    args.y_quant = b.Quant("y_quant");
    HEARTH_RETURN_IF_ERROR(LayerNormForward(exec, args));
    args.y = TensorView();
    args.y_quant = b.Quant("y_alone");
    return args.y_quant.empty() ? absl::OkStatus() : LayerNormForward(exec, args);
  };
  c.backward = [](const Exec& exec, const Buffers& b) {
    LayerNormBackwardArgs args = BackwardArgs(b);
    args.dx_quant = b.Quant("dx_quant");
    return LayerNormBackward(exec, args);
  };
  c.workspace = [](const Buffers& b, int) {
    return LayerNormBackwardWorkspaceBytes(BackwardArgs(b));
  };
  c.reduction = s.C + s.N;
  c.perf = s.perf;
  c.cuda_only = s.cuda_only;
  c.forward_traffic = {"x", "residual", "sum", "y", "y_quant", "mean", "rstd"};
  c.backward_traffic = {"dy", s.residual ? "sum" : "x", "mean", "rstd", "d_sum", "dx", "dx_quant"};
  return c;
}

// Of one of RunWithBlocks' calls. dx is written in each of them; the gradients of parameters beside
// all of the plain output and its forms, and without forms to buffers of their own.
LayerNormBackwardArgs BlockBackwardArgs(const Buffers& b,
                                        const TensorView& dx,
                                        const BlockQuantView& blocks) {
  LayerNormBackwardArgs args = BackwardArgs(b);
  args.dx = dx.empty() ? b["dx"] : dx;
  args.dx_blocks = blocks;
  const bool timed = b["dx.without"].empty();
  if (blocks.empty()) {
    args.d_weight = b["d_weight.without"];
    args.d_bias = b["d_bias.without"];
  } else if (dx.empty() && !timed) {
    args.d_weight = TensorView();
    args.d_bias = TensorView();
  }
  return args;
}

OpCase BlockCase(const BlockShape& s) {
  OpCase c;
  c.op = "layernorm";
  c.name = s.name;
  c.perf = s.perf;
  c.cuda_only = s.perf || s.cuda_only;
  c.buffers = {{"x", {s.N, s.C}},
               {"weight", {s.C}, Role::kInput, {Fill::kNormal, 1.0, s.spread}},
               {"y", {s.N, s.C}, Role::kOutput},
               {"bias", {s.C}},
               Statistic("mean", {s.N}),
               Statistic("rstd", {s.N}),
               {"dy", {s.N, s.C}},
               {"dx", {s.N, s.C}, Role::kOutput}};
  if (s.residual) {
    c.buffers.push_back({"residual", {s.N, s.C}});
    c.buffers.push_back({"sum", {s.N, s.C}, Role::kOutput});
    c.buffers.push_back({"d_sum", {s.N, s.C}});
  }
  AddBlockForms(c, "y", s.N, s.C, s.y);
  AddBlockForms(c, "dx", s.N, s.C, s.dx);
  AddGradientTwice(c, "d_weight", s.C);
  AddGradientTwice(c, "d_bias", s.C);
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "y", s.y, [&](const TensorView& y, const BlockQuantView& blocks) {
      LayerNormForwardArgs args = ForwardArgs(b);
      args.y = y;
      args.y_blocks = blocks;
      return LayerNormForward(exec, args);
    });
  };
  c.backward = [s](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "dx", s.dx,
                         [&](const TensorView& dx, const BlockQuantView& blocks) {
                           return LayerNormBackward(exec, BlockBackwardArgs(b, dx, blocks));
                         });
  };
  c.workspace = [](const Buffers& b, int) {
    return LayerNormBackwardWorkspaceBytes(BackwardArgs(b));
  };
  c.reduction = s.C;
  c.forward_traffic = {"x",
                       "residual",
                       "sum",
                       "mean",
                       "rstd",
                       "y.alone.rows.values",
                       "y.alone.rows.scales",
                       "y.alone.columns.values",
                       "y.alone.columns.scales"};
  c.backward_traffic = {"dy",
                        s.residual ? "sum" : "x",
                        "d_sum",
                        "dx",
                        "mean",
                        "rstd",
                        "dx.alone.rows.values",
                        "dx.alone.rows.scales",
                        "dx.alone.columns.values",
                        "dx.alone.columns.scales"};
  return c;
}

}  // namespace

std::vector<OpCase> LayerNormCases() {
  std::vector<OpCase> cases;
  for (const Shape& s : kShapes) {
    cases.push_back(PlainCase(s));
  }
  for (const BlockShape& s : kBlockShapes) {
    cases.push_back(BlockCase(s));
  }
  return cases;
}

}  // namespace hearth::kernels::harness
