#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/core/formats.h"
#include "kernels/gated_gemm/gated_gemm.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N, K, F;
  bool perf = false;
};

// From 1,024 rows on Hopper takes both as one kernel.
constexpr Shape kShapes[] = {
    {"1x1x1", 1, 1, 1},
    {"33x17x19", 33, 17, 19},
    {"1024x64x256", 1024, 64, 256},
    {"cut_tiles_1100x136x328", 1100, 136, 328},  // rows, depth and columns of tiles that are cut
    {"long_1040x520x40", 1040, 520, 40},
    {"panels_2304x72x136", 2304, 72, 136},
    {"perf_36864x768x2048", 36864, 768, 2048, true},
    {"perf_32768x896x4864", 32768, 896, 4864, true},
    {"perf_16384x1536x8960", 16384, 1536, 8960, true},
};

OpCase CommonOf(const Shape& s, const char* direction, double flops) {
  OpCase c;
  c.op = "gated_gemm";
  c.name = std::string(direction) + "_" + s.name;
  c.reduction = s.K;
  c.thread_invariant = false;
  c.perf = s.perf;
  c.cuda_only = s.perf;
  c.forward_flops = flops * static_cast<double>(s.N * s.K * s.F);
  return c;
}

Fill Normal(double deviation) {
  return {Fill::kNormal, 0.0, deviation};
}

OpCase ForwardCase(const Shape& s) {
  OpCase c = CommonOf(s, "forward", 4.0);
  const double spread = 1.5 / std::sqrt(static_cast<double>(s.K));
  c.buffers = {{"x", {s.N, s.K}},
               {"w", {2 * s.F, s.K}, Role::kInput, Normal(spread)},
               {"gate_up", {s.N, 2 * s.F}, Role::kOutput},
               {"y", {s.N, s.F}, Role::kOutput}};
  const auto args_of = [](const Buffers& b) {
    GatedGemmForwardArgs args;
    args.product.a = b["x"];
    args.product.b = b["w"];
    args.product.c = b["gate_up"];
    args.product.transpose_b = true;
    args.activation.gate_up = b["gate_up"];
    args.activation.y = b["y"];
    return args;
  };
  c.forward = [args_of](const Exec& exec, const Buffers& b) {
    return GatedGemmForward(exec, args_of(b));
  };
  c.workspace = [args_of](const Buffers& b, int) { return GemmWorkspaceBytes(args_of(b).product); };
  return c;
}

// The gradient stands where gate_up was; dy, which nobody reads, in the workspace.
OpCase BackwardCase(const Shape& s) {
  OpCase c = CommonOf(s, "backward", 2.0);
  const double spread = 1.0 / std::sqrt(static_cast<double>(s.K));
  c.buffers = {{"d_out", {s.N, s.K}},
               {"w", {s.K, s.F}, Role::kInput, Normal(spread)},
               {"gate_up", {s.N, 2 * s.F}, Role::kAccumulate}};
  const size_t scratch = AlignUp(static_cast<size_t>(s.N * s.F) * sizeof(double), 256);
  const auto args_of = [s](const Buffers& b, void* dy) {
    GatedGemmBackwardArgs args;
    args.product.a = b["d_out"];
    args.product.b = b["w"];
    args.product.c = TensorView(dy, b["d_out"].dtype, {s.N, s.F});
    args.activation.dy = args.product.c;
    args.activation.gate_up = b["gate_up"];
    args.activation.d_gate_up = b["gate_up"];
    return args;
  };
  c.forward = [args_of, scratch](const Exec& exec, const Buffers& b) {
    Exec rest = exec;
    rest.workspace.data = static_cast<char*>(exec.workspace.data) + scratch;
    rest.workspace.bytes -= scratch;
    return GatedGemmBackward(rest, args_of(b, exec.workspace.data));
  };
  c.workspace = [args_of, scratch](const Buffers& b, int) {
    return scratch + GemmWorkspaceBytes(args_of(b, b["gate_up"].data).product);
  };
  return c;
}

// Forward in FP8 with all that training asks for, and then as evaluation does, which keeps nothing.
// Nobody reads gate_up.
struct Fp8Shape {
  Shape shape;
  int64_t row_step = 1;  // of the rows that are checked: the reference takes long
  bool cuda_only = false;
};
constexpr Fp8Shape kFp8Shapes[] = {
    {{"fp8_33x48x64", 33, 48, 64}},
    {{"fp8_1024x64x64", 1024, 64, 64}},
    {{"fp8_cut_tiles_1100x144x96", 1100, 144, 96}, 3},
    // Tiles with more stages than the ring has.
    {{"fp8_long_1040x1552x32", 1040, 1552, 32}, 3},
    // Several tiles for each multiprocessor, of one stage and of nine.
    {{"fp8_turns_2304x48x2080", 2304, 48, 2080}, 7, true},
    {{"fp8_long_turns_2304x1040x2048", 2304, 1040, 2048}, 37, true},
    {{"perf_fp8_36864x768x2048", 36864, 768, 2048, true}},
    {{"perf_fp8_32768x896x4864", 32768, 896, 4864, true}},
    {{"perf_fp8_16384x1536x8960", 16384, 1536, 8960, true}},
};
constexpr double kScaleX = 0.375;
constexpr double kScaleY = 19.0;
double ScaleW(const Shape& s) {
  return 4.0 / std::sqrt(static_cast<double>(s.K));
}

// Gate or up of an element, and how far a computed one may be off: for a sum of 13 fraction bits
// that is rounded to bf16.
struct Near {
  double value;
  double bound;
};
class Fp8Reference {
 public:
  Fp8Reference(const Shape& s, const Buffers& b)
      : shape_(s), x_(b.Values("x")), w_(b.Values("w")), scale_(kScaleX * ScaleW(s)) {}
  Near Sum(int64_t row, int64_t of) const {
    double sum = 0.0;
    double magnitude = 0.0;
    for (int64_t k = 0; k < shape_.K; ++k) {
      const double product =
          x_[static_cast<size_t>(row * shape_.K + k)] * w_[static_cast<size_t>(of * shape_.K + k)];
      sum += product;
      magnitude += std::fabs(product);
    }
    return {scale_ * sum, 0x1p-8 * std::fabs(scale_ * sum) + 0x1p-10 * scale_ * magnitude};
  }

 private:
  Shape shape_;
  std::vector<double> x_;
  std::vector<double> w_;
  double scale_;
};
Near SwigluNear(const Near& gate, const Near& up) {
  const double silu = gate.value / (1.0 + std::exp(-gate.value));
  const double y = silu * up.value;
  // The slope of silu is at most 1.1.
  return {y, 1.1 * std::fabs(up.value) * gate.bound +
                 (std::fabs(silu) + 1.1 * gate.bound) * up.bound + 0x1p-8 * std::fabs(y)};
}
// Empty, or that `got` in E4M3 of this scale is not near `want`.
std::string CompareE4m3(
    const std::string& name, int64_t at, double got, const Near& want, double scale) {
  const double largest = 448.0 * scale;
  const double value = std::clamp(want.value, -largest, largest);
  const double bound = want.bound + 0x1p-4 * (std::fabs(value) + want.bound) + 0x1p-10 * scale;
  return std::fabs(got - value) <= bound
             ? ""
             : absl::StrCat(name, "[", at, "] = ", got, ", double gives ", value, ", bound ",
                            bound);
}

std::string CheckFp8(const Fp8Shape& s, const Buffers& b) {
  const auto [name, N, K, F, perf] = s.shape;
  const Fp8Reference reference(s.shape, b);
  const std::string kept = b.Bytes("kept");
  const std::string y = b.Bytes("y");
  const auto byte = [](const std::string& bytes, int64_t at) {
    return static_cast<uint8_t>(bytes[static_cast<size_t>(at)]);
  };
  double amax = 0.0;
  for (int64_t row = 0; row < N; row += s.row_step) {
    for (int64_t col = 0; col < F; ++col) {
      Near parts[2];
      for (int64_t part = 0; part < 2; ++part) {
        const int64_t at = row * 2 * F + part * F + col;
        parts[part] = reference.Sum(row, part * F + col);
        const double scale = DecodeE8m0(byte(kept, N * 2 * F + at / kKeptBlock));
        const std::string error =
            CompareE4m3("kept", at, DecodeE4m3(byte(kept, at)) * scale, parts[part], scale);
        if (!error.empty()) {
          return error;
        }
      }
      const Near want = SwigluNear(parts[0], parts[1]);
      const int64_t at = row * F + col;
      const std::string error =
          CompareE4m3("y", at, DecodeE4m3(byte(y, at)) / kScaleY, want, 1.0 / kScaleY);
      if (!error.empty()) {
        return error;
      }
      amax = std::max(amax, std::fabs(want.value) - want.bound);
    }
  }
  const double largest = b.Get("amax", 0);
  // Rows that are not checked may have larger values.
  if (!(largest >= amax) || (s.row_step == 1 && largest > 1.05 * amax + 0.05)) {
    return absl::StrCat("amax is ", largest, ", double gives ", amax);
  }
  return b.Bytes("y_alone") == y ? "" : "y is another where nothing is kept";
}

OpCase Fp8Case(const Fp8Shape& s) {
  const auto [name, N, K, F, perf] = s.shape;
  OpCase c = CommonOf(s.shape, "forward", 4.0);
  c.cuda_only = s.cuda_only || perf;
  const auto scale = [](const char* of, double value) {
    return BufferSpec{of, {1}, Role::kInput, {Fill::kConstant, value, 0.0}, DType::kU8};
  };
  c.buffers = {{.name = "x", .shape = {N, K}, .dtype = DType::kE4M3},
               {.name = "w", .shape = {2 * F, K}, .dtype = DType::kE4M3},
               scale("scale_x", kScaleX),
               scale("scale_w", ScaleW(s.shape)),
               scale("scale_y", kScaleY),
               {"gate_up", {N, 2 * F}, Role::kOutput},
               KeptWords("kept", N, 2 * F),
               Words("y", static_cast<size_t>(N * F)),
               Words("y_alone", static_cast<size_t>(N * F)),
               {"amax", {1}, Role::kAccumulate, {Fill::kConstant, 0.0, 0.0}, DType::kU8}};
  const auto args_of = [](const Buffers& b) {
    GatedGemmForwardArgs args;
    args.product.a = b["x"];
    args.product.b = b["w"];
    args.product.c = b["gate_up"];
    args.product.transpose_b = true;
    args.product.scale_a = b["scale_x"].as<float>();
    args.product.scale_b = b["scale_w"].as<float>();
    args.product.fast_accumulation = true;
    args.activation.gate_up = b["gate_up"];
    args.activation.y_quant.rows = b["y"].data;
    args.activation.y_quant.scale = b["scale_y"].as<float>();
    args.gate_up_read = false;
    return args;
  };
  c.forward = [args_of, N, F, perf](const Exec& exec, const Buffers& b) -> absl::Status {
    GatedGemmForwardArgs args = args_of(b);
    args.activation.y_quant.amax = b["amax"].as<float>();
    args.activation.keep = KeptAt(b["kept"].data, N, 2 * F);
    HEARTH_RETURN_IF_ERROR(GatedGemmForward(exec, args));
    if (perf) {
      return absl::OkStatus();
    }
    args = args_of(b);
    args.activation.y_quant.rows = b["y_alone"].data;
    return GatedGemmForward(exec, args);
  };
  c.workspace = [args_of](const Buffers& b, int) { return GemmWorkspaceBytes(args_of(b).product); };
  c.check = [s](const Buffers& b) { return CheckFp8(s, b); };
  c.double_reference = false;
  return c;
}

}  // namespace

std::vector<OpCase> GatedGemmCases() {
  return CasesOf(kShapes, ForwardCase, kFp8Shapes, Fp8Case, kShapes, BackwardCase);
}

}  // namespace hearth::kernels::harness
