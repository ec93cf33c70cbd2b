#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
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
  bool over_x = false;  // forward: y overwrites x
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
    // One place for both, as a job's quantised operands had once.
    {{"fp8_over_x_1100x144x96", 1100, 144, 96}, 3, false, true},
    {{"perf_fp8_36864x768x2048", 36864, 768, 2048, true}},
    {{"perf_fp8_32768x896x4864", 32768, 896, 4864, true}},
    {{"perf_fp8_16384x1536x8960", 16384, 1536, 8960, true}},
};
constexpr double kScaleX = 0.375;
constexpr double kScaleY = 19.0;
double ScaleW(const Shape& s) {
  return 4.0 / std::sqrt(static_cast<double>(s.K));
}
BufferSpec Float(const char* name, double value, Role role = Role::kInput) {
  return {name, {1}, role, {Fill::kConstant, value, 0.0}, DType::kU8};
}
// A buffer of values of E4M3, in [-7.5, 7.5], the same in all of this size.
BufferSpec E4m3Values(const char* name, int64_t rows, int64_t cols, Role role) {
  const RngKey key = {kSeed, RngPurpose::kTest, 2, 0, 0};
  BufferSpec spec = {.name = name, .shape = {rows, cols}, .role = role, .dtype = DType::kE4M3};
  for (int64_t i = 0; i < rows * cols; ++i) {
    const uint32_t word = RngWord(key, static_cast<uint64_t>(i));
    spec.contents.push_back(static_cast<char>(word % 0x50 | (word >> 24 & 0x80)));
  }
  return spec;
}
GemmArgs Fp8Product(const Buffers& b, const TensorView& c) {
  GemmArgs product;
  product.a = b["x"];
  product.b = b["w"];
  product.c = c;
  product.transpose_b = true;
  product.scale_a = b["scale_x"].as<float>();
  product.scale_b = b["scale_w"].as<float>();
  return product;
}

// A computed value, and how far it may be off.
struct Near {
  double value;
  double bound;
};

// The elements of x wT, as sums of 13 fraction bits that are rounded to bf16 (forward), or of fp32.
class Fp8Reference {
 public:
  Fp8Reference(const Shape& s, const Buffers& b, double sum_error)
      : depth_(s.K),
        sum_error_(sum_error),
        x_(b.Values("x")),
        w_(b.Values("w")),
        scale_(kScaleX * ScaleW(s)) {}
  Near Sum(int64_t row, int64_t of) const {
    double sum = 0.0;
    double magnitude = 0.0;
    for (int64_t k = 0; k < depth_; ++k) {
      const double product =
          x_[static_cast<size_t>(row * depth_ + k)] * w_[static_cast<size_t>(of * depth_ + k)];
      sum += product;
      magnitude += std::fabs(product);
    }
    return {scale_ * sum, 0x1p-8 * std::fabs(scale_ * sum) + sum_error_ * scale_ * magnitude};
  }

 private:
  int64_t depth_;
  double sum_error_;
  std::vector<double> x_;
  std::vector<double> w_;
  double scale_;
};
double Sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
Near SwigluNear(const Near& gate, const Near& up) {
  const double silu = gate.value * Sigmoid(gate.value);
  const double y = silu * up.value;
  // The slope of silu is at most 1.1.
  return {y, 1.1 * std::fabs(up.value) * gate.bound +
                 (std::fabs(silu) + 1.1 * gate.bound) * up.bound + 0x1p-8 * std::fabs(y)};
}

// The bytes of a buffer as FP8 with one scale, against what they should be near.
struct Fp8Values {
  std::string name;
  std::string bytes;
  DType dtype;

  // Empty, or that value `at`, divided by `scale`, is not near `want`.
  std::string Compare(int64_t at, const Near& want, double scale) const {
    const bool e4m3 = dtype == DType::kE4M3;
    const auto code = static_cast<uint8_t>(bytes[static_cast<size_t>(at)]);
    const double got = (e4m3 ? DecodeE4m3(code) : DecodeE5m2(code)) / scale;
    const double largest = MaxFinite(dtype) / scale;
    const double value = std::clamp(want.value, -largest, largest);
    // Half of the last place, also of subnormal values.
    const double bound = want.bound + (e4m3 ? 0x1p-4 : 0x1p-3) * (std::fabs(value) + want.bound) +
                         (e4m3 ? 0x1p-10 : 0x1p-17) / scale;
    return std::fabs(got - value) <= bound
               ? ""
               : absl::StrCat(name, "[", at, "] = ", got, ", double gives ", value, ", bound ",
                              bound);
  }
};
Fp8Values Fp8ValuesOf(const Buffers& b, const std::string& name, DType dtype = DType::kE4M3) {
  return {name, b.Bytes(name), dtype};
}
// The scale by which value `at` of kept bytes is to be divided.
double KeptDivisor(const Fp8Values& kept, int64_t values, int64_t at) {
  const auto code = static_cast<uint8_t>(kept.bytes[static_cast<size_t>(values + at / kKeptBlock)]);
  return 1.0 / DecodeE8m0(code);
}

// The largest of what is compared.
struct Largest {
  double least = 0.0;
  void Raise(const Near& near) { least = std::max(least, std::fabs(near.value) - near.bound); }
  // Empty, or that "amax" is another. Rows that are not checked may have larger values.
  std::string Compare(const Buffers& b, bool all) const {
    const double got = b.Get("amax", 0);
    return got >= least && (!all || got <= 1.05 * least + 0.05)
               ? ""
               : absl::StrCat("amax is ", got, ", double gives ", least);
  }
};

std::string CheckFp8(const Fp8Shape& s, const Buffers& b) {
  const auto [name, N, K, F, perf] = s.shape;
  const Fp8Reference reference(s.shape, b, 0x1p-10);
  const Fp8Values kept = Fp8ValuesOf(b, "kept");
  const Fp8Values y = Fp8ValuesOf(b, s.over_x ? "x_over" : "y");
  Largest amax;
  for (int64_t row = 0; row < N; row += s.row_step) {
    for (int64_t col = 0; col < F; ++col) {
      const int64_t gate_at = row * 2 * F + col;
      const int64_t up_at = gate_at + F;
      const Near gate = reference.Sum(row, col);
      const Near up = reference.Sum(row, F + col);
      const Near want = SwigluNear(gate, up);
      amax.Raise(want);
      for (const std::string& error :
           {kept.Compare(gate_at, gate, KeptDivisor(kept, N * 2 * F, gate_at)),
            kept.Compare(up_at, up, KeptDivisor(kept, N * 2 * F, up_at)),
            y.Compare(row * F + col, want, kScaleY)}) {
        if (!error.empty()) {
          return error;
        }
      }
    }
  }
  const std::string error = amax.Compare(b, s.row_step == 1);
  // Over x another kernel runs, whose sums have another order.
  const bool same = s.over_x || b.Bytes("y_alone") == y.bytes;
  return !error.empty() || same ? error : "y is another where nothing is kept";
}

OpCase Fp8Case(const Fp8Shape& s) {
  const auto [name, N, K, F, perf] = s.shape;
  OpCase c = CommonOf(s.shape, "forward", 4.0);
  c.cuda_only = s.cuda_only || perf;
  c.buffers = {{.name = "x", .shape = {N, K}, .dtype = DType::kE4M3},
               {.name = "w", .shape = {2 * F, K}, .dtype = DType::kE4M3},
               Float("scale_x", kScaleX),
               Float("scale_w", ScaleW(s.shape)),
               Float("scale_y", kScaleY),
               {"gate_up", {N, 2 * F}, Role::kOutput},
               KeptWords("kept", N, 2 * F),
               Words("y", static_cast<size_t>(N * F)),
               Words("y_alone", static_cast<size_t>(N * F)),
               Float("amax", 0.0, Role::kAccumulate)};
  if (s.over_x) {
    c.buffers[0] = E4m3Values("x", N, K, Role::kInput);
    c.buffers.push_back(E4m3Values("x_over", N, K, Role::kAccumulate));
  }
  const auto args_of = [](const Buffers& b) {
    GatedGemmForwardArgs args;
    args.product = Fp8Product(b, b["gate_up"]);
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
    if (!b["x_over"].empty()) {
      args.product.a = b["x_over"];
      args.activation.y_quant.rows = args.product.a.data;
    }
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

// Backward in FP8: x is the gradient d_out, w the weight by columns. Forward is SwiGLU alone, of
// what is kept then.
constexpr Fp8Shape kFp8BackwardShapes[] = {
    {{"fp8_48x48x64", 48, 48, 64}},
    {{"fp8_1024x64x128", 1024, 64, 128}},
    {{"fp8_cut_tiles_1104x144x160", 1104, 144, 160}, 3},
    {{"fp8_long_1040x1552x32", 1040, 1552, 32}, 3},
    {{"fp8_turns_2320x48x2080", 2320, 48, 2080}, 7, true},
    {{"fp8_long_turns_2304x1040x2048", 2304, 1040, 2048}, 37, true},
    {{"perf_fp8_36864x768x2048", 36864, 768, 2048, true}},
    {{"perf_fp8_32768x896x4864", 32768, 896, 4864, true}},
    {{"perf_fp8_16384x1536x8960", 16384, 1536, 8960, true}},
};
constexpr double kScaleGradient = 900.0;

std::string CheckFp8Backward(const Fp8Shape& s, const Buffers& b) {
  const auto [name, N, K, F, perf] = s.shape;
  const Fp8Reference reference(s.shape, b, 0x1p-12);
  const std::string kept = b.Bytes("kept");
  const Fp8Values rows = Fp8ValuesOf(b, "d_rows", DType::kE5M2);
  const Fp8Values columns = Fp8ValuesOf(b, "d_columns", DType::kE5M2);
  const Fp8Values y = Fp8ValuesOf(b, "y_columns");
  const auto byte = [&kept](int64_t at) {
    return static_cast<uint8_t>(kept[static_cast<size_t>(at)]);
  };
  const auto kept_at = [&](int64_t at) {
    return double{DecodeE4m3(byte(at))} * DecodeE8m0(byte(N * 2 * F + at / kKeptBlock));
  };
  Largest amax;
  for (int64_t row = 0; row < N; row += s.row_step) {
    for (int64_t col = 0; col < F; ++col) {
      const int64_t gate_at = row * 2 * F + col;
      const double gate = kept_at(gate_at);
      const double up = kept_at(gate_at + F);
      const Near dy = reference.Sum(row, col);
      const double sigmoid = Sigmoid(gate);
      const auto times = [&dy](double slope) -> Near {
        return {dy.value * slope, std::fabs(slope) * (dy.bound + 0x1p-7 * std::fabs(dy.value))};
      };
      const Near d_gate = times(up * sigmoid * (1.0 + gate * (1.0 - sigmoid)));
      const Near d_up = times(gate * sigmoid);
      amax.Raise(d_gate);
      amax.Raise(d_up);
      for (const std::string& error :
           {rows.Compare(gate_at, d_gate, kScaleGradient),
            rows.Compare(gate_at + F, d_up, kScaleGradient),
            columns.Compare(col * N + row, d_gate, kScaleGradient),
            columns.Compare((F + col) * N + row, d_up, kScaleGradient),
            y.Compare(col * N + row, SwigluNear({gate, 0.0}, {up, 0.0}), kScaleY)}) {
        if (!error.empty()) {
          return error;
        }
      }
    }
  }
  return amax.Compare(b, s.row_step == 1);
}

OpCase Fp8BackwardCase(const Fp8Shape& s) {
  const auto [name, N, K, F, perf] = s.shape;
  OpCase c = CommonOf(s.shape, "backward", 2.0);
  c.forward_traffic = {"gate_up", "y", "kept"};
  c.backward_flops = c.forward_flops;
  c.forward_flops = 0.0;
  c.cuda_only = s.cuda_only || perf;
  c.buffers = {{.name = "x", .shape = {N, K}, .dtype = DType::kE5M2},
               {.name = "w", .shape = {F, K}, .dtype = DType::kE4M3},
               Float("scale_x", kScaleX),
               Float("scale_w", ScaleW(s.shape)),
               Float("scale_y", kScaleY),
               Float("scale_d", kScaleGradient),
               {"gate_up", {N, 2 * F}},
               {"y", {N, F}, Role::kOutput},
               {"dy", {N, F}, Role::kOutput},
               KeptWords("kept", N, 2 * F),
               Words("d_rows", static_cast<size_t>(N * 2 * F)),
               Words("d_columns", static_cast<size_t>(N * 2 * F)),
               Words("y_columns", static_cast<size_t>(N * F)),
               Float("amax", 0.0, Role::kAccumulate)};
  c.forward = [N, F](const Exec& exec, const Buffers& b) {
    SwigluForwardArgs args;
    args.gate_up = b["gate_up"];
    args.y = b["y"];
    args.keep = KeptAt(b["kept"].data, N, 2 * F);
    return SwigluForward(exec, args);
  };
  const auto args_of = [N, F](const Buffers& b) {
    GatedGemmBackwardArgs args;
    args.product = Fp8Product(b, b["dy"]);
    args.activation.dy = b["dy"];
    args.activation.gate_up = b["gate_up"];
    args.activation.kept = KeptAt(b["kept"].data, N, 2 * F);
    args.activation.d_gate_up_quant = {DType::kE5M2, b["d_rows"].data, b["d_columns"].data,
                                       b["scale_d"].as<float>(), b["amax"].as<float>()};
    args.activation.y_quant = {DType::kE4M3, nullptr, b["y_columns"].data, b["scale_y"].as<float>(),
                               nullptr};
    return args;
  };
  c.backward = [args_of](const Exec& exec, const Buffers& b) {
    return GatedGemmBackward(exec, args_of(b));
  };
  c.workspace = [args_of](const Buffers& b, int) { return GemmWorkspaceBytes(args_of(b).product); };
  c.check = [s](const Buffers& b) { return CheckFp8Backward(s, b); };
  c.double_reference = false;
  return c;
}

}  // namespace

std::vector<OpCase> GatedGemmCases() {
  return CasesOf(kShapes, ForwardCase, kFp8Shapes, Fp8Case, kShapes, BackwardCase,
                 kFp8BackwardShapes, Fp8BackwardCase);
}

}  // namespace hearth::kernels::harness
