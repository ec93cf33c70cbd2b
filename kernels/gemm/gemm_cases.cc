#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/formats.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/probe_case.h"
#include "kernels/harness/block_forms.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t M, N, K;
  bool bias;
  bool perf;
};

constexpr Shape kLinear[] = {
    {"linear_1x1x1", 1, 1, 1, true, false},
    {"linear_7x13x5", 7, 13, 5, false, false},
    {"linear_65x33x129_bias", 65, 33, 129, true, false},
    {"linear_131x48x72_bias", 131, 48, 72, true, false},
    {"linear_257x520x40", 257, 520, 40, false, false},
    {"linear_perf_2048x1536x512", 2048, 1536, 512, true, true},
};

// y = x wT + bias, dx = dy w and dw += dyT x, as one call each.
GemmArgs Product(const TensorView& a, const TensorView& b, const TensorView& c) {
  GemmArgs args;
  args.a = a;
  args.b = b;
  args.c = c;
  return args;
}

// A linear layer: y = x wT + bias; dx = dy w, dw += dyT x, dbias += column sums of dy.
OpCase LinearCase(const Shape& s) {
  OpCase c{.op = "gemm", .name = s.name, .perf = s.perf};
  c.buffers = {{"x", {s.M, s.K}},
               {"w", {s.N, s.K}},
               {"dy", {s.M, s.N}},
               {"y", {s.M, s.N}, Role::kOutput},
               {"dx", {s.M, s.K}, Role::kOutput},
               WeightGradient("dw", {s.N, s.K})};
  c.outputs = {{"y", "dy"}};
  c.inputs = {{"x", "dx"}, {"w", "dw"}};
  if (s.bias) {
    c.buffers.push_back({"bias", {s.N}});
    c.buffers.push_back(WeightGradient("dbias", {s.N}));
    c.inputs.push_back({"bias", "dbias"});
  }
  c.forward = [](const Exec& exec, const Buffers& b) {
    GemmArgs args = Product(b["x"], b["w"], b["y"]);
    args.bias = b["bias"];
    args.transpose_b = true;
    return Gemm(exec, args);
  };
  c.backward = [](const Exec& exec, const Buffers& b) {
    HEARTH_RETURN_IF_ERROR(Gemm(exec, Product(b["dy"], b["w"], b["dx"])));
    GemmArgs dw = Product(b["dy"], b["x"], b["dw"]);
    dw.transpose_a = true;
    dw.beta = 1.0;
    HEARTH_RETURN_IF_ERROR(Gemm(exec, dw));
    return b["dbias"].empty() ? absl::OkStatus() : ColumnSum(exec, {b["dy"], b["dbias"], 1.0});
  };
  c.workspace = [](const Buffers& b, int) {
    return std::max(GemmWorkspaceBytes(Product(b["dy"], b["w"], b["dx"])),
                    ColumnSumWorkspaceBytes({b["dy"], b["dy"], 1.0}));
  };
  c.reduction = s.K + s.M + s.N;
  c.thread_invariant = false;
  c.forward_flops = 2.0 * static_cast<double>(s.M * s.N * s.K);
  c.backward_flops = 2.0 * c.forward_flops;
  return c;
}

size_t ProductWorkspace(const Buffers& b, int) {
  return GemmWorkspaceBytes(Product(b["a"], b["b"], b["c"]));
}

// c = 0.5 op(a) op(b) - 2 c, all four transpositions.
OpCase TransposeCase(bool transpose_a, bool transpose_b) {
  constexpr int64_t kM = 9;
  constexpr int64_t kN = 17;
  constexpr int64_t kK = 21;
  OpCase c{.op = "gemm",
           .name = absl::StrCat("alpha_beta_", transpose_a ? "t" : "n", transpose_b ? "t" : "n")};
  c.buffers = {{"a", transpose_a ? std::vector<int64_t>{kK, kM} : std::vector<int64_t>{kM, kK}},
               {"b", transpose_b ? std::vector<int64_t>{kN, kK} : std::vector<int64_t>{kK, kN}},
               {"c", {kM, kN}, Role::kAccumulate}};
  c.forward = [transpose_a, transpose_b](const Exec& exec, const Buffers& b) {
    GemmArgs args = Product(b["a"], b["b"], b["c"]);
    args.transpose_a = transpose_a;
    args.transpose_b = transpose_b;
    args.alpha = 0.5;
    args.beta = -2.0;
    return Gemm(exec, args);
  };
  c.workspace = ProductWorkspace;
  c.reduction = kK;
  c.thread_invariant = false;
  return c;
}

// Three products at once, with gaps between the matrices: c = 0.5 a bT - 2 addend.
OpCase BatchCase() {
  constexpr int64_t kM = 9;
  constexpr int64_t kN = 16;
  constexpr int64_t kK = 24;
  OpCase c{.op = "gemm", .name = "batch_3_addend"};
  c.buffers = {{"a", {3, kM + 1, kK}},
               {"b", {3, kN, kK}},
               {"addend", {3, kM, kN}},
               {"c", {3, kM, kN}, Role::kOutput}};
  c.forward = [](const Exec& exec, const Buffers& b) {
    GemmArgs args = Product(TensorView(b["a"].data, b["a"].dtype, {kM, kK}),
                            TensorView(b["b"].data, b["b"].dtype, {kN, kK}),
                            TensorView(b["c"].data, b["c"].dtype, {kM, kN}));
    args.addend = TensorView(b["addend"].data, b["addend"].dtype, {kM, kN});
    args.transpose_b = true;
    args.alpha = 0.5;
    args.beta = -2.0;
    args.batch = 3;
    args.stride_a = (kM + 1) * kK;
    args.stride_b = kN * kK;
    args.stride_c = kM * kN;
    return Gemm(exec, args);
  };
  c.workspace = ProductWorkspace;
  c.reduction = kK;
  c.thread_invariant = false;
  return c;
}

struct Fp8Shape {
  const char* name;
  DType a, b;
  int64_t M, N, K;
  bool fast;
};

constexpr Fp8Shape kFp8[] = {
    {"fp8_e4m3_e4m3_19x32x48", DType::kE4M3, DType::kE4M3, 19, 32, 48, true},
    {"fp8_e5m2_e4m3_129x48x272", DType::kE5M2, DType::kE4M3, 129, 48, 272, false},
    {"fp8_e4m3_e5m2_64x144x1040", DType::kE4M3, DType::kE5M2, 64, 144, 1040, false},
};
constexpr double kScaleA = 0.375;
constexpr double kScaleB = 1.25;

// Empty, or which element of c = kScaleA kScaleB a bT (+ c of before, 0.5) is wrong. The bounds
// leave room for c in bf16 and for an accumulator of 13 fraction bits.
std::string CheckFp8(const Fp8Shape& s, const Buffers& b) {
  const std::vector<double> values_a = b.Values("a");
  const std::vector<double> values_b = b.Values("b");
  for (const char* name : {"y", "sum"}) {
    const std::vector<double> got = b.Values(name);
    const double before = name[0] == 's' ? 0.5 : 0.0;
    for (int64_t m = 0; m < s.M; ++m) {
      for (int64_t n = 0; n < s.N; ++n) {
        double want = before;
        double magnitude = before;
        for (int64_t k = 0; k < s.K; ++k) {
          const double product = kScaleA * kScaleB * values_a[static_cast<size_t>(m * s.K + k)] *
                                 values_b[static_cast<size_t>(n * s.K + k)];
          want += product;
          magnitude += std::fabs(product);
        }
        const double value = got[static_cast<size_t>(m * s.N + n)];
        if (!(std::fabs(value - want) <= 0x1p-8 * std::fabs(want) + 0x1p-10 * magnitude)) {
          return absl::StrCat(name, "[", m, ", ", n, "] = ", value, ", double gives ", want);
        }
      }
    }
  }
  return "";
}

// FP8 operands into T, and added to a weight gradient.
OpCase Fp8Case(const Fp8Shape& s) {
  OpCase c{.op = "gemm", .name = s.name};
  BufferSpec a = {"a", {s.M, s.K}};
  BufferSpec b = {"b", {s.N, s.K}};
  a.dtype = s.a;
  b.dtype = s.b;
  BufferSpec sum = WeightGradient("sum", {s.M, s.N});
  sum.fill = {Fill::kConstant, 0.5, 0.0};
  c.buffers = {a,
               b,
               {"y", {s.M, s.N}, Role::kOutput},
               sum,
               {"scale_a", {1}, Role::kInput, {Fill::kConstant, kScaleA, 0}, DType::kU8},
               {"scale_b", {1}, Role::kInput, {Fill::kConstant, kScaleB, 0}, DType::kU8}};
  const auto product = [s](const Buffers& buffers, const char* name) {
    GemmArgs args = Product(buffers["a"], buffers["b"], buffers[name]);
    args.transpose_b = true;
    args.scale_a = buffers["scale_a"].as<float>();
    args.scale_b = buffers["scale_b"].as<float>();
    args.fast_accumulation = s.fast;
    return args;
  };
  c.forward = [product](const Exec& exec, const Buffers& buffers) {
    HEARTH_RETURN_IF_ERROR(Gemm(exec, product(buffers, "y")));
    GemmArgs sum_args = product(buffers, "sum");
    sum_args.beta = 1.0;
    return Gemm(exec, sum_args);
  };
  c.workspace = [product](const Buffers& buffers, int) {
    return GemmWorkspaceBytes(product(buffers, "y"));
  };
  c.check = [s](const Buffers& buffers) { return CheckFp8(s, buffers); };
  c.double_reference = false;
  c.thread_invariant = false;
  return c;
}

// A product of `doctor` (probe_case.h) in FP8 with one scale a tensor, which ran in jobs and was
// refused there, because the second scale lay 4 bytes behind the first. Where it adds to c, c is
// kBefore first.
OpCase ProbedCase(const ProbeCase& which) {
  constexpr double kBefore = 0.75;
  const ProbeProduct operands = MakeProbeOperands(which);
  const auto contents = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(values[0]));
  };
  const std::vector<float> scales = ProbeScales(operands);
  const int64_t scale_count = static_cast<int64_t>(scales.size());
  OpCase c{.op = "gemm",
           .name = absl::StrCat("probe_", absl::StrReplaceAll(which.name, {{" ", "_"}}))};
  c.buffers = {{.name = "a", .shape = {operands.m, operands.k}, .dtype = which.a},
               {.name = "b", .shape = {operands.n, operands.k}, .dtype = which.b},
               {.name = "scales", .shape = {scale_count}, .dtype = DType::kU8},
               {.name = "c", .shape = {operands.m, operands.n}, .role = Role::kOutput}};
  c.buffers[0].contents = contents(operands.a.bytes);
  c.buffers[1].contents = contents(operands.b.bytes);
  c.buffers[2].contents = contents(scales);
  if (which.gradient) {
    c.buffers[3].role = Role::kAccumulate;
    c.buffers[3].fill = {Fill::kConstant, kBefore, 0.0};
    c.buffers[3].dtype = DType::kU8;
  }
  const auto product = [which, operands](const Buffers& b) {
    GemmArgs args = ProbeArgs(which, operands, b["scales"].as<float>());
    args.a.data = b["a"].data;
    args.b.data = b["b"].data;
    args.c = b["c"];
    return args;
  };
  c.forward = [product](const Exec& exec, const Buffers& b) { return Gemm(exec, product(b)); };
  c.workspace = [product](const Buffers& b, int) { return GemmWorkspaceBytes(product(b)); };
  c.check = [which](const Buffers& b) {
    ProbeProduct truth = MakeProbeProduct(which);
    for (size_t i = 0; i < truth.want.size(); ++i) {
      truth.want[i] += truth.beta * (kBefore - double{truth.c[i]});
    }
    const double error = ProbeError(truth, b.Values("c"));
    return error <= which.bound ? ""
                                : absl::StrCat("relative error ", error, ", bound ", which.bound);
  };
  c.double_reference = false;
  c.thread_invariant = false;
  return c;
}

// Linear layers as they are trained: hearth-112m, and the 0.5B and 1.5B shapes.
struct PerfShape {
  const char* linear;
  const char* fp8;
  int64_t M, N, K;
};

constexpr PerfShape kPerf[] = {
    {"linear_perf_36864x4096x768", "fp8_perf_36864x4096x768", 36864, 4096, 768},
    {"linear_perf_36864x1152x768", "fp8_perf_36864x1152x768", 36864, 1152, 768},
    {"linear_perf_36864x768x768", "fp8_perf_36864x768x768", 36864, 768, 768},
    {"linear_perf_36864x768x2048", "fp8_perf_36864x768x2048", 36864, 768, 2048},
    {"linear_perf_32768x9728x896", "fp8_perf_32768x9728x896", 32768, 9728, 896},
    {"linear_perf_32768x896x4864", "fp8_perf_32768x896x4864", 32768, 896, 4864},
    {"linear_perf_16384x17920x1536", "fp8_perf_16384x17920x1536", 16384, 17920, 1536},
    {"linear_perf_16384x1536x8960", "fp8_perf_16384x1536x8960", 16384, 1536, 8960},
};

// Only timed, on a GPU. BF16: forward, then dgrad and wgrad; FP8: the forward product, plain and
// added to c.
OpCase PerfCase(const PerfShape& s, bool fp8) {
  OpCase c = fp8 ? Fp8Case({s.fp8, DType::kE4M3, DType::kE4M3, s.M, s.N, s.K, true})
                 : LinearCase({s.linear, s.M, s.N, s.K, false, true});
  c.perf = true;
  c.cuda_only = true;
  c.forward_flops = 2.0 * static_cast<double>(s.M * s.N * s.K) * (fp8 ? 2.0 : 1.0);
  return c;
}

// Column sums alone: their bits must not depend on threads.
OpCase ColumnSumCase(int64_t rows, int64_t cols) {
  OpCase c{.op = "gemm", .name = absl::StrCat("column_sum_", rows, "x", cols)};
  c.buffers = {{"x", {rows, cols}}, WeightGradient("out", {cols}, Role::kOutput)};
  c.forward = [](const Exec& exec, const Buffers& b) {
    return ColumnSum(exec, {b["x"], b["out"], 0.0});
  };
  c.workspace = [](const Buffers& b, int) {
    return ColumnSumWorkspaceBytes({b["x"], b["out"], 0.0});
  };
  c.reduction = rows;
  return c;
}

struct BlockKind {
  BlockLayout layout;
  DType dtype;

  bool scaled() const { return RowOf(layout).tensor_scale; }
};
constexpr BlockKind kNv = {BlockLayout::kNvfp4, DType::kE2M1};
constexpr BlockKind kMx = {BlockLayout::kMxfp8, DType::kE4M3};
constexpr BlockKind kMxE5m2 = {BlockLayout::kMxfp8, DType::kE5M2};
constexpr BlockKind kFp8Block = {BlockLayout::kFp8Block, DType::kE4M3};
constexpr BlockKind kFp8BlockE5m2 = {BlockLayout::kFp8Block, DType::kE5M2};

struct BlockShape {
  const char* name;
  int64_t M, N, K;
  BlockKind a, b;
  bool bias = false;
  bool perf = false;
  double beta = 0.0;
};

constexpr BlockShape kBlockScaled[] = {
    {"nvfp4_64x144x160_bias", 64, 144, 160, kNv, kNv, true},
    {"nvfp4_256x128x512_beta", 256, 128, 512, kNv, kNv, false, false, 1.0},
    {"mxfp8_e5m2_64x144x160_beta", 64, 144, 160, kMxE5m2, kMx, false, false, 1.0},
    {"nvfp4_perf_8192x2048x768", 8192, 2048, 768, kNv, kNv, false, true},
    {"mxfp8_perf_8192x2048x768", 8192, 2048, 768, kMx, kMx, false, true},
    {"fp8_block_64x144x288_beta", 64, 144, 288, kFp8BlockE5m2, kFp8Block, false, false, 1.0},
    // The operands have two layouts; neither, the first or the second has a scale of the tensor.
    {"fp8_block_mxfp8_130x48x160", 130, 48, 160, kFp8Block, kMx},
    {"nvfp4_fp8_block_64x144x160_beta", 64, 144, 160, kNv, kFp8Block, false, false, 1.0},
    {"mxfp8_nvfp4_130x48x96_bias", 130, 48, 96, kMx, kNv, true},
};

void AddBlockOperand(OpCase& c,
                     const std::string& name,
                     const BlockShape& s,
                     const BlockKind& kind,
                     int64_t lines,
                     int64_t extent) {
  const auto words = [&](const char* part, size_t bytes) {
    BufferSpec spec = {name + part, {static_cast<int64_t>(bytes / 8)}, Role::kOutput};
    spec.dtype = DType::kI64;
    c.buffers.push_back(spec);
  };
  const Fill zero = {Fill::kConstant, 0.0, 0.0};
  c.buffers.push_back({name, {lines, extent}});
  words(".values", DTypeBytes(kind.dtype, lines * extent));
  words(".scales", BlockScaleBytes(kind.layout, lines, extent));
  c.buffers.push_back({name + ".scale", {1}, Role::kAccumulate, zero, DType::kU8});
  if (!s.perf) {
    c.buffers.push_back({name + ".back", {lines, extent}, Role::kOutput});
  }
}

absl::Status QuantizeBlockOperand(const Exec& exec,
                                  const Buffers& b,
                                  const std::string& name,
                                  const BlockKind& kind) {
  BlockQuantizeTensor tensor;
  tensor.x = b[name];
  tensor.quant.layout = kind.layout;
  tensor.quant.dtype = kind.dtype;
  tensor.quant.rows.values = b[name + ".values"].data;
  tensor.quant.rows.scales = b[name + ".scales"].as<uint8_t>();
  if (kind.scaled()) {
    tensor.quant.rows.amax = b["amax"].as<float>();
    tensor.quant.rows.tensor_scale = b[name + ".scale"].as<float>();
  }
  HEARTH_RETURN_IF_ERROR(BlockQuantize(exec, {absl::MakeConstSpan(&tensor, 1), nullptr}));
  const TensorView back = b[name + ".back"];
  return back.empty() ? absl::OkStatus()
                      : BlockDequantize(exec, {{kind.layout, kind.dtype, tensor.quant.rows.values,
                                                tensor.quant.rows.scales, nullptr},
                                               back});
}

GemmArgs BlockProduct(const BlockShape& s, const Buffers& b) {
  GemmArgs args;
  args.a = TensorView(b["a.values"].data, s.a.dtype, {s.M, s.K});
  args.b = TensorView(b["b.values"].data, s.b.dtype, {s.N, s.K});
  args.c = b["c"];
  args.bias = b["bias"];
  args.transpose_b = true;
  args.alpha = 0.5;
  args.beta = s.beta;
  args.block_scales_a = b["a.scales"].as<uint8_t>();
  args.block_scales_b = b["b.scales"].as<uint8_t>();
  args.block_layout_a = s.a.layout;
  args.block_layout_b = s.b.layout;
  args.scale_a = s.a.scaled() ? b["a.scale"].as<float>() : nullptr;
  args.scale_b = s.b.scaled() ? b["b.scale"].as<float>() : nullptr;
  return args;
}

// c against the product of what the operands decode to, in double; c began as `start`.
std::string CheckBlockProduct(const BlockShape& s, const Buffers& b) {
  const std::vector<double> c = b.Values("c");
  const std::vector<double> x = b.Values("a.back");
  const std::vector<double> y = b.Values("b.back");
  const std::vector<double> bias = s.bias ? b.Values("bias") : std::vector<double>();
  const double alpha =
      0.5 * (s.a.scaled() ? b.Get("a.scale", 0) : 1.0) * (s.b.scaled() ? b.Get("b.scale", 0) : 1.0);
  const double bound = b.TypeOf("c") == DType::kBF16 ? 0x1p-7 : 1e-5;
  for (int64_t m = 0; m < s.M; ++m) {
    for (int64_t n = 0; n < s.N; ++n) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (int64_t k = 0; k < s.K; ++k) {
        const double product =
            x[static_cast<size_t>(m * s.K + k)] * y[static_cast<size_t>(n * s.K + k)];
        sum += product;
        magnitude += std::fabs(product);
      }
      const double add = (s.bias ? bias[static_cast<size_t>(n)] : 0.0) + s.beta * 0.75;
      const double want = alpha * sum + add;
      const double got = c[static_cast<size_t>(m * s.N + n)];
      if (!(std::fabs(got - want) <=
            bound * (std::fabs(want) + std::fabs(add)) + 1e-6 * alpha * magnitude)) {
        return absl::StrCat("c[", m, ", ", n, "] = ", got, ", double gives ", want);
      }
    }
  }
  return "";
}

OpCase BlockScaledCase(const BlockShape& s) {
  OpCase c{.op = "gemm", .name = s.name, .perf = s.perf, .cuda_only = s.perf};
  c.buffers = {{"amax", {1}, Role::kInput, {Fill::kConstant, 4.5, 0.0}, DType::kU8},
               {"c", {s.M, s.N}, Role::kAccumulate, {Fill::kConstant, 0.75, 0.0}}};
  AddBlockOperand(c, "a", s, s.a, s.M, s.K);
  AddBlockOperand(c, "b", s, s.b, s.N, s.K);
  if (s.bias) {
    c.buffers.push_back({"bias", {s.N}});
  }
  const RunFn quantize = [s](const Exec& exec, const Buffers& b) {
    HEARTH_RETURN_IF_ERROR(QuantizeBlockOperand(exec, b, "a", s.a));
    return QuantizeBlockOperand(exec, b, "b", s.b);
  };
  // Timed: the product alone, of normal numbers: zeros draw less power, which makes it faster.
  if (s.perf) {
    c.prepare = quantize;
  }
  c.forward = [s, quantize](const Exec& exec, const Buffers& b) {
    HEARTH_RETURN_IF_ERROR(s.perf ? absl::OkStatus() : quantize(exec, b));
    return Gemm(exec, BlockProduct(s, b));
  };
  c.workspace = [s](const Buffers& b, int) { return GemmWorkspaceBytes(BlockProduct(s, b)); };
  if (!s.perf) {
    c.check = [s](const Buffers& b) { return CheckBlockProduct(s, b); };
  }
  c.forward_flops =
      2.0 * static_cast<double>(s.M) * static_cast<double>(s.N) * static_cast<double>(s.K);
  c.double_reference = false;
  c.thread_invariant = false;
  return c;
}

}  // namespace

std::vector<OpCase> GemmCases() {
  std::vector<OpCase> cases =
      CasesOf(kLinear, LinearCase, kFp8, Fp8Case, kBlockScaled, BlockScaledCase);
  AddCaseOfEachLayout(cases, [](const BlockStyle& style) {
    const BlockKind kind = {style.layout, style.dtype};
    return BlockScaledCase({"130x48x96", 130, 48, 96, kind, kind});
  });
  for (const ProbeCase& which : ProbeCases()) {
    if (which.fallback == ProbeFallback::kStop) {
      cases.push_back(ProbedCase(which));
    }
  }
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      cases.push_back(TransposeCase(transpose_a, transpose_b));
    }
  }
  for (const PerfShape& shape : kPerf) {
    cases.push_back(PerfCase(shape, false));
    cases.push_back(PerfCase(shape, true));
  }
  cases.push_back(BatchCase());
  cases.push_back(ColumnSumCase(201, 37));
  cases.push_back(ColumnSumCase(3001, 72));
  return cases;
}

}  // namespace hearth::kernels::harness
