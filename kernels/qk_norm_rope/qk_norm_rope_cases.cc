#include <algorithm>

#include "kernels/harness/block_forms.h"
#include "kernels/harness/cases.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N;
  QkHeads dims;
  bool norm;
  bool rope;
  RopeScalingType scaling;
  double max_position;  // positions are i mod this; above N: drawn from [0, this)
  bool perf;
  bool quant = false;  // d_qkv is quantised too
  bool cuda_only = false;
};

// What a step of hearth-112m has, timed.
constexpr Shape PerfShape(const char* name, bool norm, bool quant = false, bool cuda_only = false) {
  return {name, 36864, {12, 3, 64}, norm,     true, RopeScalingType::kNone,
          2048, true,  quant,       cuda_only};
}

constexpr Shape kShapes[] = {
    {"rope_5x1x2", 5, {1, 1, 2}, false, true, RopeScalingType::kNone, 5, false},
    {"rope_gqa_66x6x2x10", 66, {6, 2, 10}, false, true, RopeScalingType::kNone, 33, false},
    {"rope_linear_20x2x1x8", 20, {2, 1, 8}, false, true, RopeScalingType::kLinear, 20, false},
    {"rope_llama3_20x2x1x64", 20, {2, 1, 64}, false, true, RopeScalingType::kLlama3, 40000, false},
    {"norm_rope_70x4x2x16", 70, {4, 2, 16}, true, true, RopeScalingType::kNone, 35, false},
    {"norm_only_9x2x2x7", 9, {2, 2, 7}, true, false, RopeScalingType::kNone, 9, false},
    // Groups of lanes: whole, with idle lanes, a head wider than a tile's 128 columns.
    {"norm_rope_150x3x1x64", 150, {3, 1, 64}, true, true, RopeScalingType::kNone, 75, false},
    {"norm_rope_40x2x1x80", 40, {2, 1, 80}, true, true, RopeScalingType::kNone, 20, false},
    {"norm_rope_33x1x1x256", 33, {1, 1, 256}, true, true, RopeScalingType::kNone, 33, false},
    {"rope_140x5x1x32", 140, {5, 1, 32}, false, true, RopeScalingType::kNone, 70, false},
    {"rope_long_24x2x2x128", 24, {2, 2, 128}, false, true, RopeScalingType::kNone, 1000000, false},
    {"quant_norm_rope_48x3x1x64",
     48,
     {3, 1, 64},
     true,
     true,
     RopeScalingType::kNone,
     48,
     false,
     true},
    {"quant_rope_35x5x1x24", 35, {5, 1, 24}, false, true, RopeScalingType::kNone, 35, false, true},
    // Generated tokens of hearth-112m and of Qwen2.5-1.5B.
    {"perf_64x12x3x64", 64, {12, 3, 64}, false, true, RopeScalingType::kNone, 2048, true},
    {"perf_512x12x3x64", 512, {12, 3, 64}, false, true, RopeScalingType::kNone, 2048, true},
    {"perf_64x12x2x128", 64, {12, 2, 128}, false, true, RopeScalingType::kNone, 2048, true},
    {"perf_4096x8x4x64", 4096, {8, 4, 64}, true, true, RopeScalingType::kNone, 512, true},
    PerfShape("perf_36864x12x3x64", false, false, true),
    PerfShape("perf_norm_quant_36864x12x3x64", true, true, true),
};

struct BlockShape {
  Shape shape;
  BlockStyle style;
};

constexpr RopeScalingType kNoScaling = RopeScalingType::kNone;

// Whole tiles of 128 x 128 and tiles cut off by the last row, by the last head and by both.
constexpr BlockShape kBlockShapes[] = {
    {{"blocks_nvidia_160x3x1x64", 160, {3, 1, 64}, true, true, kNoScaling, 80, false},
     kNvidiaGradient},
    {{"blocks_nvidia_128x2x1x128", 128, {2, 1, 128}, false, true, kNoScaling, 64, false},
     kNvidiaGradient},
    {{"blocks_quartet_256x4x2x16", 256, {4, 2, 16}, true, true, kNoScaling, 256, false},
     kQuartetGradient},
    {{"blocks_quartet_128x5x3x128", 128, {5, 3, 128}, true, true, kNoScaling, 128, false},
     kQuartetGradient},
    {{"blocks_mxfp8_288x3x3x64", 288, {3, 3, 64}, true, false, kNoScaling, 96, false},
     kMxfp8Blocks},
    {{"blocks_mxfp8_64x2x1x64", 64, {2, 1, 64}, false, false, kNoScaling, 64, false}, kMxfp8Blocks},
    {PerfShape("perf_blocks_nvidia_36864x12x3x64", false), kNvidiaGradient},
    {PerfShape("perf_blocks_norm_nvidia_36864x12x3x64", true), kNvidiaGradient},
    {PerfShape("perf_blocks_norm_mxfp8_36864x12x3x64", true), kMxfp8Blocks},
};

RopeConfig ConfigOf(const Shape& s) {
  RopeConfig rope;
  rope.enabled = s.rope;
  rope.scaling.type = s.scaling;
  rope.scaling.factor = s.scaling == RopeScalingType::kNone ? 1.0 : 8.0;
  rope.theta = s.scaling == RopeScalingType::kLlama3 ? 500000.0 : 10000.0;
  return rope;
}

// What both directions take.
template <typename Args>
Args ArgsOf(const Shape& s, const Buffers& b) {
  Args args;
  args.dims = s.dims;
  args.rope = ConfigOf(s);
  args.qkv = b["qkv"];
  args.positions = b["positions"];
  args.q_weight = b["q_weight"];
  args.k_weight = b["k_weight"];
  args.rstd = b["rstd"];
  return args;
}

QkNormRopeForwardArgs ForwardArgs(const Shape& s, const Buffers& b) {
  auto args = ArgsOf<QkNormRopeForwardArgs>(s, b);
  args.out = b["out"];
  return args;
}

QkNormRopeBackwardArgs BackwardArgs(const Shape& s, const Buffers& b) {
  auto args = ArgsOf<QkNormRopeBackwardArgs>(s, b);
  args.d_out = b["d_out"];
  args.d_qkv = b["d_qkv"];
  args.d_q_weight = b["d_q_weight"];
  args.d_k_weight = b["d_k_weight"];
  return args;
}

OpCase MakeCase(const Shape& s) {
  const int64_t width = (s.dims.heads + 2 * s.dims.kv_heads) * s.dims.head_dim;
  const int64_t D = s.dims.head_dim;
  const Fill positions = s.max_position > static_cast<double>(s.N)
                             ? Fill{Fill::kIndex, 0, s.max_position}
                             : Fill{Fill::kRamp, s.max_position, 0};
  OpCase c{.op = "qk_norm_rope", .name = s.name, .perf = s.perf, .cuda_only = s.cuda_only};
  c.buffers = {{"qkv", {s.N, width}},
               {"positions", {s.N}, Role::kInput, positions, DType::kI32},
               {"out", {s.N, width}, Role::kOutput},
               {"d_out", {s.N, width}},
               {"d_qkv", {s.N, width}, Role::kOutput}};
  c.outputs = {{"out", "d_out"}};
  c.inputs = {{"qkv", "d_qkv"}};
  if (s.norm) {
    const Fill near_one = {Fill::kNormal, 1.0, 0.2};
    c.buffers.push_back({"q_weight", {D}, Role::kInput, near_one});
    c.buffers.push_back({"k_weight", {D}, Role::kInput, near_one});
    c.buffers.push_back(Statistic("rstd", {s.N, s.dims.heads + s.dims.kv_heads}));
    c.buffers.push_back(WeightGradient("d_q_weight", {D}));
    c.buffers.push_back(WeightGradient("d_k_weight", {D}));
    c.inputs.push_back({"q_weight", "d_q_weight"});
    c.inputs.push_back({"k_weight", "d_k_weight"});
  }
  if (s.quant) {
    AddQuantised(c, "d_qkv", {s.N, width}, DType::kE5M2, false);
  }
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return QkNormRopeForward(exec, ForwardArgs(s, b));
  };
  c.backward = [s](const Exec& exec, const Buffers& b) {
    QkNormRopeBackwardArgs args = BackwardArgs(s, b);
    args.d_qkv_quant = b.Quant("d_qkv_quant");
    return QkNormRopeBackward(exec, args);
  };
  c.workspace = [s](const Buffers& b, int) {
    return std::max(QkNormRopeForwardWorkspaceBytes(ForwardArgs(s, b)),
                    QkNormRopeBackwardWorkspaceBytes(BackwardArgs(s, b)));
  };
  c.reduction = D + s.N;
  c.forward_traffic = {"qkv", "out", "rstd"};
  c.backward_traffic = {"d_out", "d_qkv", "d_qkv_quant", "rstd"};
  if (s.norm) {
    c.backward_traffic.push_back("qkv");
  }
  return c;
}

OpCase BlockCase(const BlockShape& block) {
  const Shape& s = block.shape;
  const BlockStyle& style = block.style;
  OpCase c = MakeCase(s);
  c.cuda_only = s.perf;
  c.outputs.clear();
  c.inputs.clear();
  AddBlockForms(c, "d_qkv", s.N, (s.dims.heads + 2 * s.dims.kv_heads) * s.dims.head_dim, style);
  c.backward = [s, style](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "d_qkv", style,
                         [&](const TensorView& d_qkv, const BlockQuantView& blocks) {
                           QkNormRopeBackwardArgs args = BackwardArgs(s, b);
                           args.d_qkv = d_qkv;
                           args.d_qkv_blocks = blocks;
                           return QkNormRopeBackward(exec, args);
                         });
  };
  c.backward_traffic = WithForms({"d_out", "rstd"}, "d_qkv");
  if (s.norm) {
    c.backward_traffic.push_back("qkv");
  }
  return c;
}

}  // namespace

std::vector<OpCase> QkNormRopeCases() {
  std::vector<OpCase> cases = CasesOf(kShapes, MakeCase, kBlockShapes, BlockCase);
  AddCaseOfEachLayout(cases, [](const BlockStyle& style) {
    return BlockCase({{"96x5x1x32", 96, {5, 1, 32}, false, true, kNoScaling, 96, false}, style});
  });
  return cases;
}

}  // namespace hearth::kernels::harness
