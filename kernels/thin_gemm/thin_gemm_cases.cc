#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/harness/cases.h"
#include "kernels/thin_gemm/thin_gemm.h"

namespace hearth::kernels::harness {
namespace {

enum class Form : uint8_t { kPlain, kBias, kSwiglu };

enum class Addend : uint8_t { kNone, kInPlace, kBeside };

struct Shape {
  const char* name;
  int64_t M, N, K;  // N: rows of w
  Form form = Form::kPlain;
  int splits = 0;
  int tile_rows = 0;
  bool cuda_only = false;  // the CPU's reference takes long
  bool warps = false;
  bool norm = false;
  Addend addend = Addend::kNone;
};

// The same with a fused norm of x, and with an addend: y itself, or a view of its own.
constexpr Shape Normed(Shape s, const char* name) {
  s.name = name;
  s.norm = true;
  return s;
}
constexpr Shape Added(Shape s, const char* name, Addend addend = Addend::kInPlace) {
  s.name = name;
  s.addend = addend;
  return s;
}

constexpr Shape kShapes[] = {
    // One stage, several, and a last one that is cut; the same of tiles.
    {"1x64x64", 1, 64, 64},
    {"3x8x8_bias", 3, 8, 8, Form::kBias},
    {"5x72x136", 5, 72, 136},
    {"8x136x200_bias", 8, 136, 200, Form::kBias},
    {"17x64x1000", 17, 64, 1000},
    {"33x328x72", 33, 328, 72},
    {"64x40x584_bias", 64, 40, 584, Form::kBias},
    {"warps_33x328x72", 33, 328, 72, Form::kPlain, 0, 0, false, true},
    {"warps_64x40x584_bias", 64, 40, 584, Form::kBias, 0, 0, false, true},
    {"warps_swiglu_64x272x72", 64, 272, 72, Form::kSwiglu, 0, 0, false, true},
    {"swiglu_1x16x64", 1, 16, 64, Form::kSwiglu},
    {"swiglu_3x144x200", 3, 144, 200, Form::kSwiglu},
    {"swiglu_17x80x1000", 17, 80, 1000, Form::kSwiglu},
    {"swiglu_64x272x72", 64, 272, 72, Form::kSwiglu},
    // One block for all of K, whose ring goes round; slices of K for two, four and eight.
    {"undivided_16x72x1544", 16, 72, 1544, Form::kPlain, 1},
    {"warps_undivided_64x136x1544_bias", 64, 136, 1544, Form::kBias, 1, 64, false, true},
    {"warps_undivided_wide_64x136x1544", 64, 136, 1544, Form::kPlain, 1, 128, false, true},
    {"wide_20x136x1544", 20, 136, 1544, Form::kPlain, 0, 128},
    {"swiglu_wide_20x144x1544", 20, 144, 1544, Form::kSwiglu, 2, 128},
    {"splits2_3x72x1544", 3, 72, 1544, Form::kPlain, 2},
    {"splits4_33x72x1544", 33, 72, 1544, Form::kPlain, 4},
    {"splits8_1x72x1544", 1, 72, 1544, Form::kPlain, 8},
    {"warps_splits8_64x72x520", 64, 72, 520, Form::kPlain, 8, 64, false, true},
    {"warps_splits8_wide_57x200x1544_bias", 57, 200, 1544, Form::kBias, 8, 128, false, true},
    {"swiglu_undivided_8x80x1544", 8, 80, 1544, Form::kSwiglu, 1},
    {"warps_swiglu_splits2_40x144x1544", 40, 144, 1544, Form::kSwiglu, 2, 64, false, true},
    {"warps_swiglu_splits8_wide_64x144x1544", 64, 144, 1544, Form::kSwiglu, 8, 128, false, true},
    // Groups: each number of rows, undivided with a ring that goes round, and divided. (On other
    // GPUs they run as the ones above, where there is such a tile.)
    {"groups_rows32_64x136x1544", 64, 136, 1544, Form::kPlain, 1, 32, true},
    {"groups_rows40_57x136x1544_bias", 57, 136, 1544, Form::kBias, 2, 40, true},
    {"groups_rows64_64x136x1544_bias", 64, 136, 1544, Form::kBias, 1, 64, true},
    {"groups_rows64_33x136x520", 33, 136, 520, Form::kPlain, 8, 64, true},
    {"groups_rows80_33x136x1544", 33, 136, 1544, Form::kPlain, 4, 80, true},
    {"groups_swiglu_rows32_64x144x1544", 64, 144, 1544, Form::kSwiglu, 1, 32, true},
    {"groups_swiglu_rows64_40x144x1544", 40, 144, 1544, Form::kSwiglu, 4, 64, true},
    {"groups_swiglu_rows80_64x304x1544", 64, 304, 1544, Form::kSwiglu, 1, 80, true},
    // With a fused norm of x, and with an addend.
    Normed({"", 1, 64, 64}, "norm_1x64x64"),
    Normed({"", 5, 72, 136, Form::kBias}, "norm_5x72x136_bias"),
    Normed({"", 17, 64, 1000, Form::kPlain, 4}, "norm_17x64x1000_splits4"),
    Normed({"", 20, 144, 1544, Form::kSwiglu, 2, 128}, "norm_swiglu_wide_20x144x1544_splits2"),
    Normed({"", 64, 136, 520, Form::kBias, 8, 64, false, true}, "norm_warps_64x136x520_splits8"),
    Normed({"", 33, 144, 200, Form::kSwiglu, 1, 128, false, true}, "norm_warps_swiglu_33x144x200"),
    Normed({"", 64, 136, 1544, Form::kBias, 1, 40}, "norm_rows40_64x136x1544_bias"),
    Normed({"", 57, 136, 1000, Form::kPlain, 8, 64}, "norm_rows64_57x136x1000_splits8"),
    Normed({"", 64, 304, 200, Form::kSwiglu, 2, 80}, "norm_swiglu_rows80_64x304x200_splits2"),
    Normed({"", 64, 4096, 768, Form::kSwiglu, 0, 0, true}, "norm_112m_gate_up_64x4096x768"),
    Added({"", 3, 72, 136, Form::kBias}, "addend_3x72x136_bias"),
    Added({"", 64, 72, 520, Form::kPlain, 4, 64, false, true}, "addend_warps_64x72x520_splits4"),
    Added({"", 64, 768, 2048, Form::kPlain, 0, 0, true}, "addend_112m_down_64x768x2048"),
    Added({"", 64, 136, 1544, Form::kBias, 1}, "addend_beside_64x136x1544", Addend::kBeside),
    Added({"", 8, 136, 200}, "addend_beside_8x136x200", Addend::kBeside),
    Normed(Added({"", 64, 136, 200, Form::kBias}, ""), "norm_addend_64x136x200_bias"),
    // Those of models: hearth-112m, Qwen2.5-0.5B and 1.5B.
    {"112m_qkv_64x1152x768", 64, 1152, 768},
    {"112m_o_17x768x768", 17, 768, 768},
    {"112m_gate_up_64x4096x768", 64, 4096, 768, Form::kSwiglu},
    {"112m_down_33x768x2048", 33, 768, 2048},
    {"05b_qkv_3x1152x896_bias", 3, 1152, 896, Form::kBias},
    {"05b_down_64x896x4864", 64, 896, 4864, Form::kPlain, 0, 0, true},
    {"05b_gate_up_8x9728x896", 8, 9728, 896, Form::kSwiglu, 0, 0, true},
    {"15b_qkv_64x2048x1536_bias", 64, 2048, 1536, Form::kBias, 0, 0, true},
    {"15b_o_1x1536x1536", 1, 1536, 1536},
    {"15b_gate_up_1x17920x1536", 1, 17920, 1536, Form::kSwiglu, 0, 0, true},
    {"15b_gate_up_33x17920x1536", 33, 17920, 1536, Form::kSwiglu, 0, 0, true},
    {"15b_down_8x1536x8960", 8, 1536, 8960, Form::kPlain, 0, 0, true},
    {"15b_down_64x1536x8960", 64, 1536, 8960, Form::kPlain, 0, 0, true},
};

ThinGemmArgs ArgsOf(const Shape& s, const Buffers& b) {
  ThinGemmArgs args;
  args.x = b["x"];
  args.w = b["w"];
  args.bias = b["bias"];
  args.y = b["y"];
  args.gate_up = b["gate_up"];
  args.swiglu = s.form == Form::kSwiglu;
  args.tile_rows = s.tile_rows;
  args.splits = s.splits;
  args.warps = s.warps;
  if (s.norm) {
    args.input_norm = {b["norm_weight"], 1e-5};
  }
  if (s.addend != Addend::kNone) {
    args.addend = s.addend == Addend::kInPlace ? args.y : b["addend"];
  }
  return args;
}

OpCase CommonOf(const Shape& s) {
  OpCase c = NewCase("thin_gemm", s.name);
  const bool swiglu = s.form == Form::kSwiglu;
  const double spread = 1.5 / std::sqrt(static_cast<double>(s.K));
  c.buffers = {{"x", {s.M, s.K}},
               {"w", {s.N, s.K}, Role::kInput, {Fill::kNormal, 0.0, spread}},
               {"y",
                {s.M, swiglu ? s.N / 2 : s.N},
                s.addend == Addend::kInPlace ? Role::kAccumulate : Role::kOutput}};
  if (s.addend == Addend::kBeside) {
    c.buffers.push_back({"addend", {s.M, s.N}});
  }
  if (s.norm) {
    c.buffers.push_back({"norm_weight", {s.K}, Role::kInput, {Fill::kNormal, 1.0, 0.3}});
  }
  if (s.form == Form::kBias) {
    c.buffers.push_back({"bias", {s.N}});
  }
  c.reduction = s.K;
  c.thread_invariant = false;
  c.cuda_only = s.cuda_only;
  c.early_start = true;
  return c;
}

OpCase ThinCase(const Shape& s) {
  OpCase c = CommonOf(s);
  c.forward = [s](const Exec& exec, const Buffers& b) { return ThinGemm(exec, ArgsOf(s, b)); };
  c.workspace = [s](const Buffers& b, int) { return ThinGemmWorkspaceBytes(ArgsOf(s, b)); };
  return c;
}

// SwiGLU's bits: gate_up as written, and y as SwigluForward makes it of that; without gate_up y is
// the same.
OpCase SwigluBitsCase(const Shape& s) {
  OpCase c = CommonOf(s);
  c.buffers.push_back({"gate_up", {s.M, s.N}, Role::kOutput});
  c.buffers.push_back({"y_alone", {s.M, s.N / 2}, Role::kOutput});
  c.buffers.push_back({"y_apart", {s.M, s.N / 2}, Role::kOutput});
  const auto alone = [s](const Buffers& b) {
    ThinGemmArgs args = ArgsOf(s, b);
    args.gate_up = TensorView();
    args.y = b["y_alone"];
    return args;
  };
  c.forward = [s, alone](const Exec& exec, const Buffers& b) {
    HEARTH_RETURN_IF_ERROR(ThinGemm(exec, ArgsOf(s, b)));
    HEARTH_RETURN_IF_ERROR(ThinGemm(exec, alone(b)));
    SwigluForwardArgs activation;
    activation.gate_up = b["gate_up"];
    activation.y = b["y_apart"];
    return SwigluForward(exec, activation);
  };
  c.workspace = [alone](const Buffers& b, int) { return ThinGemmWorkspaceBytes(alone(b)); };
  c.check = [](const Buffers& b) -> std::string {
    for (const char* name : {"y_alone", "y_apart"}) {
      if (b.Bytes(name) != b.Bytes("y")) {
        return absl::StrCat(name, " differs from y");
      }
    }
    return "";
  };
  return c;
}
constexpr Shape kSwigluBits[] = {
    {"swiglu_bits_3x144x200", 3, 144, 200, Form::kSwiglu},
    {"swiglu_bits_17x4096x768", 17, 4096, 768, Form::kSwiglu},
    {"swiglu_bits_64x272x520", 64, 272, 520, Form::kSwiglu},
    {"swiglu_bits_warps_64x272x520", 64, 272, 520, Form::kSwiglu, 0, 0, false, true},
};

// A pass's product by way of the doors that the model calls. Nobody reads gate_up.
absl::Status ThroughDoors(const Exec& exec,
                          const Shape& s,
                          const Buffers& b,
                          const TensorView& y,
                          const TensorView& gate_up) {
  GemmArgs product;
  product.a = b["x"];
  product.b = b["w"];
  product.c = s.form == Form::kSwiglu ? gate_up : y;
  product.bias = b["bias"];
  product.transpose_b = true;
  const ThinGemmArgs thin = ArgsOf(s, b);
  product.input_norm = thin.input_norm;
  if (!thin.addend.empty()) {
    product.beta = 1.0;
    product.addend = thin.addend;
  }
  if (s.form != Form::kSwiglu) {
    return Gemm(exec, product);
  }
  GatedGemmForwardArgs args;
  args.product = product;
  args.activation.gate_up = gate_up;
  args.activation.y = y;
  args.gate_up_read = false;
  return GatedGemmForward(exec, args);
}

// With Exec::thin_products the doors run the thin product: its bits. The CPU knows no such thing.
OpCase DoorCase(const Shape& s) {
  OpCase c = CommonOf(s);
  c.buffers.push_back({"y_door", c.buffers[2].shape, Role::kOutput});
  c.forward = [s](const Exec& exec, const Buffers& b) {
    HEARTH_RETURN_IF_ERROR(ThinGemm(exec, ArgsOf(s, b)));
    Exec thin = exec;
    thin.thin_products = true;
    const TensorView gate_up(exec.workspace.data, b["x"].dtype, {s.M, s.N});
    return ThroughDoors(thin, s, b, b["y_door"], gate_up);
  };
  c.workspace = [s](const Buffers& b, int) { return ThinGemmWorkspaceBytes(ArgsOf(s, b)); };
  c.check = [](const Buffers& b) -> std::string {
    return b.Bytes("y_door") == b.Bytes("y") ? "" : "the door gives other bits";
  };
  return c;
}
constexpr Shape kDoors[] = {
    {"door_3x136x200_bias", 3, 136, 200, Form::kBias},
    {"door_64x768x768", 64, 768, 768},
    {"door_swiglu_17x272x200", 17, 272, 200, Form::kSwiglu},
    Normed({"", 64, 136, 200, Form::kBias}, "door_norm_64x136x200_bias"),
    Normed({"", 40, 272, 200, Form::kSwiglu}, "door_norm_swiglu_40x272x200"),
    Added({"", 64, 136, 200}, "door_addend_64x136x200", Addend::kBeside),
};

// Products of models, timed at one row and at 64, as the op divides them, by warps, and in another
// division: rows of a block and blocks of a cluster.
struct PerfShape {
  const char* name;
  int64_t N, K;
  Form form;
  bool norm;  // in passes
  int tile_rows;
  int splits;
};
constexpr PerfShape kPerfShapes[] = {
    {"112m_qkv", 1152, 768, Form::kPlain, true, 40, 4},
    {"112m_o", 768, 768, Form::kPlain, false, 32, 4},
    {"112m_gate_up", 4096, 768, Form::kSwiglu, true, 32, 1},
    {"112m_down", 768, 2048, Form::kPlain, false, 64, 8},
    {"15b_qkv", 2048, 1536, Form::kBias, true, 32, 2},
    {"15b_o", 1536, 1536, Form::kPlain, false, 32, 2},
    {"15b_gate_up", 17920, 1536, Form::kSwiglu, true, 80, 1},
    {"15b_down", 1536, 8960, Form::kPlain, false, 64, 4},
};

OpCase TimedAs(OpCase c, const std::string& name) {
  c.name = name;
  c.perf = true;
  c.cuda_only = true;
  c.recorded = true;
  return c;
}

// The same by the library and, for gate and up, SwigluForward.
OpCase LibraryCase(const Shape& s) {
  OpCase c = CommonOf(s);
  c.forward_traffic = {"x", "w", "y"};
  if (s.form == Form::kBias) {
    c.forward_traffic.push_back("bias");
  }
  c.buffers.push_back({"gate_up", {s.M, s.N}, Role::kOutput});
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return ThroughDoors(exec, s, b, b["y"], b["gate_up"]);
  };
  return c;
}

std::vector<OpCase> PerfCases() {
  std::vector<OpCase> cases;
  for (const PerfShape& perf : kPerfShapes) {
    for (const int64_t rows : {int64_t{1}, int64_t{64}}) {
      const Shape plain = {"perf_", rows, perf.N, perf.K, perf.form};
      const std::string name = absl::StrCat("perf_", perf.name, "_", rows);
      const auto add = [&](OpCase c, absl::string_view suffix) {
        cases.push_back(TimedAs(std::move(c), absl::StrCat(name, suffix)));
      };
      add(LibraryCase(plain), "_library");
      add(ThinCase(plain), "");
      if (perf.norm) {
        add(ThinCase(Normed(plain, "")), "_norm");
      }
      if (rows == 64) {
        Shape other = plain;
        other.warps = true;
        add(ThinCase(other), "_warps");
        other = plain;
        other.tile_rows = perf.tile_rows;
        other.splits = perf.splits;
        add(ThinCase(other), absl::StrCat("_rows", perf.tile_rows, "_splits", perf.splits));
      }
    }
  }
  return cases;
}

}  // namespace

std::vector<OpCase> ThinGemmCases() {
  std::vector<OpCase> cases =
      CasesOf(kShapes, ThinCase, kSwigluBits, SwigluBitsCase, kDoors, DoorCase);
  for (OpCase& perf : PerfCases()) {
    cases.push_back(std::move(perf));
  }
  return cases;
}

}  // namespace hearth::kernels::harness
