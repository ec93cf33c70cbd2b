#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/harness/block_forms.h"
#include "kernels/harness/cases.h"
#include "kernels/harness/kept_extremes.h"
#include "kernels/swiglu/swiglu.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N, F;
  double spread;  // standard deviation of the inputs; large values reach the flat ends
  bool perf;
  bool quant = false;  // outputs are quantised too
  bool cuda_only = false;
};

constexpr Shape kShapes[] = {
    {"1x1", 1, 1, 1.0, false},
    {"33x19", 33, 19, 1.0, false},
    {"vectors_37x264", 37, 264, 1.0, false},  // whole packs of 8, odd rows, a part of a tile
    {"tiles_144x640", 144, 640, 2.0, false},
    {"wide_values_7x130", 7, 130, 30.0, false},
    {"quant_33x24", 33, 24, 1.0, false, true},
    {"quant_144x640", 144, 640, 2.0, false, true},
    {"perf_4096x1536", 4096, 1536, 1.0, true},
    {"perf_36864x2048", 36864, 2048, 1.0, true, false, true},
    {"perf_quant_36864x2048", 36864, 2048, 1.0, true, true, true},
};

struct BlockShape {
  const char* name;
  int64_t N, F;
  BlockStyle y, d_gate_up;
  bool perf = false;
  bool kept = false;  // forward keeps its input, backward reads that
};

// Whole tiles, and tiles that are cut off by the last row.
constexpr BlockShape kBlockShapes[] = {
    {"blocks_nvidia_160x128", 160, 128, kNvidiaInput, kNvidiaGradient},
    {"blocks_quartet_256x384", 256, 384, kQuartetInput, kQuartetGradient},
    {"blocks_mxfp8_96x256", 96, 256, kMxfp8Blocks, kMxfp8Blocks},
    {"blocks_kept_nvidia_160x128", 160, 128, kNvidiaInput, kNvidiaGradient, false, true},
    {"blocks_kept_quartet_256x384", 256, 384, kQuartetInput, kQuartetGradient, false, true},
    {"blocks_kept_mxfp8_96x256", 96, 256, kMxfp8Blocks, kMxfp8Blocks, false, true},
    {"perf_blocks_nvidia_36864x2048", 36864, 2048, kNvidiaInput, kNvidiaGradient, true},
    {"perf_blocks_kept_nvidia_36864x2048", 36864, 2048, kNvidiaInput, kNvidiaGradient, true, true},
    {"perf_blocks_quartet_36864x2048", 36864, 2048, kQuartetInput, kQuartetGradient, true},
    {"perf_blocks_mxfp8_36864x2048", 36864, 2048, kMxfp8Blocks, kMxfp8Blocks, true},
};

struct KeptShape {
  const char* name;
  int64_t N, F;
  double spread;
  bool perf = false;
  bool again = false;  // backward makes y's columns too
};

constexpr KeptShape kKeptShapes[] = {
    {"kept_33x32", 33, 32, 1.0},
    {"kept_37x288", 37, 288, 30.0},
    {"kept_144x640", 144, 640, 2.0},
    {"kept_again_144x640", 144, 640, 2.0, false, true},
    {"kept_again_48x96", 48, 96, 2.0, false, true},
    {"perf_kept_36864x2048", 36864, 2048, 1.0, true},
    {"perf_kept_again_36864x2048", 36864, 2048, 1.0, true, true},
};

// Forward keeps its input, then y and d_gate_up come from what it kept.
OpCase KeptCase(const KeptShape& s) {
  OpCase c;
  c.op = "swiglu";
  c.name = s.name;
  c.perf = c.cuda_only = s.perf;
  c.buffers = {{"gate_up", {s.N, 2 * s.F}, Role::kInput, {Fill::kNormal, 0.0, s.spread}},
               {"y", {s.N, s.F}, Role::kOutput},
               {"y_again", {s.N, s.F}, Role::kOutput},
               {"dy", {s.N, s.F}},
               {"d_gate_up", {s.N, 2 * s.F}, Role::kOutput},
               KeptWords("kept", s.N, 2 * s.F),
               Quantised("y_rows", "y", {s.N, s.F}, DType::kE4M3, false)};
  AddQuantised(c, "y_again", {s.N, s.F}, DType::kE4M3, false);
  AddQuantised(c, "d_gate_up", {s.N, 2 * s.F}, DType::kE5M2, false);
  if (s.again) {
    c.buffers.push_back(Words("y_columns", static_cast<size_t>(s.N * s.F)));
    c.double_reference = false;  // doubles are not quantised
    c.check = [](const Buffers& b) -> std::string {
      return b.Quant("y_again_quant").empty() ||
                     b.Bytes("y_columns") == b.Bytes("y_again_quant.columns")
                 ? ""
                 : "backward makes other columns of y than forward";
    };
  }
  const auto kept = [s](const Buffers& b) { return KeptAt(b["kept"].data, s.N, 2 * s.F); };
  c.forward = [s, kept](const Exec& exec, const Buffers& b) {
    SwigluForwardArgs args;
    args.gate_up = b["gate_up"];
    args.y = s.perf ? TensorView() : b["y"];
    args.y_quant = b.Quant("y_rows");
    args.keep = kept(b);
    HEARTH_RETURN_IF_ERROR(SwigluForward(exec, args));
    args.y = b["y_again"];
    args.y_quant = b.Quant("y_again_quant");
    args.keep = {};
    args.kept = kept(b);
    return s.perf ? absl::OkStatus() : SwigluForward(exec, args);
  };
  c.backward = [s, kept](const Exec& exec, const Buffers& b) {
    SwigluBackwardArgs args;
    args.dy = b["dy"];
    args.gate_up = b["gate_up"];
    args.kept = kept(b);
    args.d_gate_up = s.perf ? TensorView() : b["d_gate_up"];
    args.d_gate_up_quant = b.Quant("d_gate_up_quant");
    if (const QuantView y = b.Quant("y_again_quant"); s.again && !y.empty()) {
      args.y_quant.dtype = y.dtype;
      args.y_quant.columns = b["y_columns"].data;
      args.y_quant.scale = y.scale;
    }
    return SwigluBackward(exec, args);
  };
  c.forward_traffic = {"gate_up", "kept", "y_rows"};
  c.backward_traffic = {"kept", "dy", "d_gate_up_quant"};
  if (s.again) {
    c.backward_traffic.emplace_back("y_columns");
  }
  return c;
}

// y is made of what a call before has kept.
OpCase ExtremesCase(int64_t N, int64_t F) {
  OpCase c;
  c.op = "swiglu";
  c.name = absl::StrCat("kept_extremes_", N, "x", F);
  AddKeptExtremes(c, "gate_up", "y", N, 2 * F, 2, [](const std::vector<double>& v) {
    return v[0] / (1.0 + std::exp(-v[0])) * v[1];
  });
  c.buffers.push_back({"y_before", {N, F}, Role::kOutput});
  c.forward = [N, F](const Exec& exec, const Buffers& b) {
    SwigluForwardArgs args;
    args.gate_up = b["gate_up"];
    args.y = b["y_before"];
    args.keep = KeptAt(b["kept"].data, N, 2 * F);
    HEARTH_RETURN_IF_ERROR(SwigluForward(exec, args));
    args.y = b["y"];
    args.kept = args.keep;
    args.keep = {};
    return SwigluForward(exec, args);
  };
  return c;
}

OpCase BlockCase(const BlockShape& s) {
  OpCase c;
  c.op = "swiglu";
  c.name = s.name;
  c.perf = c.cuda_only = s.perf;
  c.buffers = {{"gate_up", {s.N, 2 * s.F}},
               {"y", {s.N, s.F}, Role::kOutput},
               {"dy", {s.N, s.F}},
               {"d_gate_up", {s.N, 2 * s.F}, Role::kOutput}};
  AddBlockForms(c, "y", s.N, s.F, s.y);
  AddBlockForms(c, "d_gate_up", s.N, 2 * s.F, s.d_gate_up);
  if (s.kept) {
    AddKeptTwice(c, s.N, 2 * s.F);
  }
  const auto kept = [s](const Buffers& b, const char* name) {
    return s.kept ? KeptAt(b[name].data, s.N, 2 * s.F) : KeptInput();
  };
  c.forward = [s, kept](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "y", s.y, [&](const TensorView& y, const BlockQuantView& blocks) {
      SwigluForwardArgs args;
      args.gate_up = b["gate_up"];
      args.y = y;
      args.y_blocks = blocks;
      args.keep = kept(b, blocks.empty() ? "kept.without" : "kept");
      return SwigluForward(exec, args);
    });
  };
  c.backward = [s, kept](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "d_gate_up", s.d_gate_up,
                         [&](const TensorView& d_gate_up, const BlockQuantView& blocks) {
                           SwigluBackwardArgs args;
                           args.dy = b["dy"];
                           args.gate_up = b["gate_up"];
                           args.d_gate_up = d_gate_up;
                           args.d_gate_up_blocks = blocks;
                           args.kept = kept(b, "kept");
                           return SwigluBackward(exec, args);
                         });
  };
  c.forward_traffic = {"gate_up", "y.alone.rows.values", "y.alone.rows.scales",
                       "y.alone.columns.values", "y.alone.columns.scales"};
  c.backward_traffic = {"gate_up",
                        "dy",
                        "d_gate_up.alone.rows.values",
                        "d_gate_up.alone.rows.scales",
                        "d_gate_up.alone.columns.values",
                        "d_gate_up.alone.columns.scales"};
  return c;
}

}  // namespace

std::vector<OpCase> SwigluCases() {
  std::vector<OpCase> cases;
  for (const Shape& s : kShapes) {
    OpCase c;
    c.op = "swiglu";
    c.name = s.name;
    c.buffers = {{"gate_up", {s.N, 2 * s.F}, Role::kInput, {Fill::kNormal, 0.0, s.spread}},
                 {"y", {s.N, s.F}, Role::kOutput},
                 {"dy", {s.N, s.F}},
                 {"d_gate_up", {s.N, 2 * s.F}, Role::kOutput}};
    if (s.quant) {
      // The second copies are made without a plain output.
      AddQuantised(c, "y", {s.N, s.F}, DType::kE4M3, !s.perf);
      AddQuantised(c, "d_gate_up", {s.N, 2 * s.F}, DType::kE5M2, !s.perf);
    }
    c.outputs = {{"y", "dy"}};
    c.inputs = {{"gate_up", "d_gate_up"}};
    c.forward = [](const Exec& exec, const Buffers& b) {
      SwigluForwardArgs args;
      args.gate_up = b["gate_up"];
      args.y = b["y"];
      args.y_quant = b.Quant("y_quant");
      HEARTH_RETURN_IF_ERROR(SwigluForward(exec, args));
      args.y = TensorView();
      args.y_quant = b.Quant("y_alone");
      return args.y_quant.empty() ? absl::OkStatus() : SwigluForward(exec, args);
    };
    c.backward = [](const Exec& exec, const Buffers& b) {
      SwigluBackwardArgs args;
      args.dy = b["dy"];
      args.gate_up = b["gate_up"];
      args.d_gate_up = b["d_gate_up"];
      args.d_gate_up_quant = b.Quant("d_gate_up_quant");
      HEARTH_RETURN_IF_ERROR(SwigluBackward(exec, args));
      args.d_gate_up = TensorView();
      args.d_gate_up_quant = b.Quant("d_gate_up_alone");
      return args.d_gate_up_quant.empty() ? absl::OkStatus() : SwigluBackward(exec, args);
    };
    c.perf = s.perf;
    c.cuda_only = s.cuda_only;
    c.forward_traffic = {"gate_up", "y", "y_quant"};
    c.backward_traffic = {"gate_up", "dy", "d_gate_up", "d_gate_up_quant"};
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
