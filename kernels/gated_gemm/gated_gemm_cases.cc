#include <cmath>
#include <string>
#include <vector>

#include "kernels/core/cpu.h"
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

}  // namespace

std::vector<OpCase> GatedGemmCases() {
  return CasesOf(kShapes, ForwardCase, kShapes, BackwardCase);
}

}  // namespace hearth::kernels::harness
