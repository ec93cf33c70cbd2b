#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/gelu/gelu.h"
#include "kernels/harness/block_forms.h"
#include "kernels/harness/cases.h"
#include "kernels/harness/kept_extremes.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N, F;
  Activation kind;
  bool bias;
  bool perf;
  bool quant = false;  // outputs are quantised too
  bool cuda_only = false;
};

constexpr Shape kShapes[] = {
    {"erf_33x19", 33, 19, Activation::kGelu, false, false},
    {"erf_bias_7x130", 7, 130, Activation::kGelu, true, false},
    {"tanh_33x19", 33, 19, Activation::kGeluTanh, false, false},
    {"tanh_bias_1x1", 1, 1, Activation::kGeluTanh, true, false},
    {"erf_bias_37x264", 37, 264, Activation::kGelu, true, false},
    {"tanh_144x640", 144, 640, Activation::kGeluTanh, false, false},
    {"perf_erf_4096x1536", 4096, 1536, Activation::kGelu, true, true},
    {"quant_erf_33x24", 33, 24, Activation::kGelu, true, false, true},
    {"quant_tanh_144x640", 144, 640, Activation::kGeluTanh, false, false, true},
    {"perf_tanh_4096x1536", 4096, 1536, Activation::kGeluTanh, true, true},
    {"perf_tanh_36864x3072", 36864, 3072, Activation::kGeluTanh, true, true, false, true},
    {"perf_erf_36864x3072", 36864, 3072, Activation::kGelu, true, true, false, true},
    {"perf_quant_tanh_36864x3072", 36864, 3072, Activation::kGeluTanh, true, true, true, true},
};

GeluBackwardArgs BackwardArgs(Activation kind, const Buffers& b) {
  GeluBackwardArgs args;
  args.dy = b["dy"];
  args.x = b["x"];
  args.bias = b["bias"];
  args.dx = b["dx"];
  args.kind = kind;
  return args;
}

struct BlockShape {
  const char* name;
  int64_t N, F;
  Activation kind;
  BlockStyle y, dx;
  bool perf = false;
  bool kept = false;  // forward keeps its input, backward reads that
};

// Whole tiles, and tiles that are cut off by the last row and column.
constexpr BlockShape kBlockShapes[] = {
    {"blocks_nvidia_erf_160x288", 160, 288, Activation::kGelu, kNvidiaInput, kNvidiaGradient},
    {"blocks_quartet_tanh_128x256", 128, 256, Activation::kGeluTanh, kQuartetInput,
     kQuartetGradient},
    {"blocks_mxfp8_tanh_32x96", 32, 96, Activation::kGeluTanh, kMxfp8Blocks, kMxfp8Blocks},
    {"blocks_kept_nvidia_erf_160x288", 160, 288, Activation::kGelu, kNvidiaInput, kNvidiaGradient,
     false, true},
    {"perf_blocks_nvidia_tanh_36864x3072", 36864, 3072, Activation::kGeluTanh, kNvidiaInput,
     kNvidiaGradient, true},
};

struct KeptShape {
  const char* name;
  int64_t N, F;
  Activation kind;
};

constexpr KeptShape kKeptShapes[] = {
    {"kept_erf_33x32", 33, 32, Activation::kGelu},
    {"kept_tanh_144x640", 144, 640, Activation::kGeluTanh},
};

// Forward keeps its input, then y and dx come from what it kept.
OpCase KeptCase(const KeptShape& s) {
  OpCase c;
  c.op = "gelu";
  c.name = s.name;
  c.buffers = {{"x", {s.N, s.F}, Role::kInput, {Fill::kNormal, 0.0, 2.0}},
               {"bias", {s.F}},
               {"y", {s.N, s.F}, Role::kOutput},
               {"y_again", {s.N, s.F}, Role::kOutput},
               {"dy", {s.N, s.F}},
               {"dx", {s.N, s.F}, Role::kOutput},
               KeptWords("kept", s.N, s.F),
               Quantised("y_rows", "y", {s.N, s.F}, DType::kE4M3, false)};
  AddQuantised(c, "y_again", {s.N, s.F}, DType::kE4M3, false);
  AddQuantised(c, "dx", {s.N, s.F}, DType::kE5M2, false);
  const auto kept = [s](const Buffers& b) { return KeptAt(b["kept"].data, s.N, s.F); };
  c.forward = [s, kept](const Exec& exec, const Buffers& b) {
    GeluForwardArgs args;
    args.x = b["x"];
    args.bias = b["bias"];
    args.y = b["y"];
    args.kind = s.kind;
    args.y_quant = b.Quant("y_rows");
    args.keep = kept(b);
    HEARTH_RETURN_IF_ERROR(GeluForward(exec, args));
    args.y = b["y_again"];
    args.y_quant = b.Quant("y_again_quant");
    args.keep = {};
    args.kept = kept(b);
    return GeluForward(exec, args);
  };
  c.backward = [s, kept](const Exec& exec, const Buffers& b) {
    GeluBackwardArgs args = BackwardArgs(s.kind, b);
    args.dx_quant = b.Quant("dx_quant");
    args.kept = kept(b);
    return GeluBackward(exec, args);
  };
  c.slack = 16.0;
  return c;
}

// y is made of what a call before has kept.
OpCase ExtremesCase(int64_t N, int64_t F) {
  OpCase c;
  c.op = "gelu";
  c.name = absl::StrCat("kept_extremes_", N, "x", F);
  AddKeptExtremes(c, "x", "y", N, F, 1, [](const std::vector<double>& v) {
    return 0.5 * v[0] * (1.0 + std::erf(v[0] * std::sqrt(0.5)));
  });
  c.buffers.push_back({"y_before", {N, F}, Role::kOutput});
  c.forward = [N, F](const Exec& exec, const Buffers& b) {
    GeluForwardArgs args;
    args.x = b["x"];
    args.y = b["y_before"];
    args.kind = Activation::kGelu;
    args.keep = KeptAt(b["kept"].data, N, F);
    HEARTH_RETURN_IF_ERROR(GeluForward(exec, args));
    args.y = b["y"];
    args.kept = args.keep;
    args.keep = {};
    return GeluForward(exec, args);
  };
  return c;
}

OpCase BlockCase(const BlockShape& s) {
  OpCase c;
  c.op = "gelu";
  c.name = s.name;
  c.perf = c.cuda_only = s.perf;
  c.buffers = {{"x", {s.N, s.F}, Role::kInput, {Fill::kNormal, 0.0, 2.0}},
               {"y", {s.N, s.F}, Role::kOutput},
               {"dy", {s.N, s.F}},
               {"dx", {s.N, s.F}, Role::kOutput},
               {"bias", {s.F}}};
  AddBlockForms(c, "y", s.N, s.F, s.y);
  AddBlockForms(c, "dx", s.N, s.F, s.dx);
  if (s.kept) {
    AddKeptTwice(c, s.N, s.F);
  }
  const auto kept = [s](const Buffers& b, const char* name) {
    return s.kept ? KeptAt(b[name].data, s.N, s.F) : KeptInput();
  };
  c.forward = [s, kept](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "y", s.y, [&](const TensorView& y, const BlockQuantView& blocks) {
      GeluForwardArgs args;
      args.x = b["x"];
      args.bias = b["bias"];
      args.y = y;
      args.y_blocks = blocks;
      args.kind = s.kind;
      args.keep = kept(b, blocks.empty() ? "kept.without" : "kept");
      return GeluForward(exec, args);
    });
  };
  c.backward = [s, kept](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "dx", s.dx,
                         [&](const TensorView& dx, const BlockQuantView& blocks) {
                           GeluBackwardArgs args = BackwardArgs(s.kind, b);
                           args.dx = dx;
                           args.dx_blocks = blocks;
                           args.kept = kept(b, "kept");
                           return GeluBackward(exec, args);
                         });
  };
  c.forward_traffic = {"x", "y.alone.rows.values", "y.alone.rows.scales", "y.alone.columns.values",
                       "y.alone.columns.scales"};
  c.backward_traffic = {"x",
                        "dy",
                        "dx.alone.rows.values",
                        "dx.alone.rows.scales",
                        "dx.alone.columns.values",
                        "dx.alone.columns.scales"};
  return c;
}

}  // namespace

std::vector<OpCase> GeluCases() {
  std::vector<OpCase> cases;
  for (const Shape& s : kShapes) {
    OpCase c;
    c.op = "gelu";
    c.name = s.name;
    c.buffers = {{"x", {s.N, s.F}, Role::kInput, {Fill::kNormal, 0.0, 2.0}},
                 {"y", {s.N, s.F}, Role::kOutput},
                 {"dy", {s.N, s.F}},
                 {"dx", {s.N, s.F}, Role::kOutput}};
    if (s.quant) {
      // The second copies are made without a plain output.
      AddQuantised(c, "y", {s.N, s.F}, DType::kE4M3, !s.perf);
      AddQuantised(c, "dx", {s.N, s.F}, DType::kE5M2, !s.perf);
    }
    c.outputs = {{"y", "dy"}};
    c.inputs = {{"x", "dx"}};
    if (s.bias) {
      c.buffers.push_back({"bias", {s.F}});
    }
    const Activation kind = s.kind;
    c.forward = [kind](const Exec& exec, const Buffers& b) {
      GeluForwardArgs args;
      args.x = b["x"];
      args.bias = b["bias"];
      args.y = b["y"];
      args.kind = kind;
      args.y_quant = b.Quant("y_quant");
      HEARTH_RETURN_IF_ERROR(GeluForward(exec, args));
      args.y = TensorView();
      args.y_quant = b.Quant("y_alone");
      return args.y_quant.empty() ? absl::OkStatus() : GeluForward(exec, args);
    };
    c.backward = [kind](const Exec& exec, const Buffers& b) {
      GeluBackwardArgs args = BackwardArgs(kind, b);
      args.dx_quant = b.Quant("dx_quant");
      HEARTH_RETURN_IF_ERROR(GeluBackward(exec, args));
      args.dx = TensorView();
      args.dx_quant = b.Quant("dx_alone");
      return args.dx_quant.empty() ? absl::OkStatus() : GeluBackward(exec, args);
    };
    c.slack = 16.0;
    c.perf = s.perf;
    c.cuda_only = s.cuda_only;
    c.forward_traffic = {"x", "y", "y_quant"};
    c.backward_traffic = {"x", "dy", "dx", "dx_quant"};
    cases.push_back(c);
  }
  for (const BlockShape& s : kBlockShapes) {
    cases.push_back(BlockCase(s));
  }
  for (const KeptShape& s : kKeptShapes) {
    cases.push_back(KeptCase(s));
  }
  cases.push_back(ExtremesCase(40, 96));
  return cases;
}

}  // namespace hearth::kernels::harness
