// Which products around SwiGLU run with it in one kernel, and their launches.
#include <string>

#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/gated_gemm/gated_gemm.cuh"
#include "kernels/gated_gemm/gated_gemm.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "gated_gemm";
// With fewer rows there are too few tiles for all multiprocessors.
constexpr int64_t kFewestRows = 1024;

// Whether the program holds the kernels and not the traps that other architectures than sm_90a get,
// which need next to no registers.
bool Built() {
  static const bool built = [] {
    cudaFuncAttributes attributes = {};
    return cudaFuncGetAttributes(&attributes, gated::ForwardKernel) == cudaSuccess &&
           attributes.numRegs > 64;
  }();
  return built;
}

// HEARTH_GATED_GEMM=separate: two calls always, to compare.
bool Wanted(const Exec& exec) {
  const char* given = GetEnv("HEARTH_GATED_GEMM");
  return exec.cuda->gpu().major == 9 && (given == nullptr || std::string(given) != "separate") &&
         Built();
}

bool Plain(const TensorView& view) {
  return view.dtype == DType::kBF16 && view.cols() % 8 == 0 && Aligned16(view.data);
}

bool Plain(const GemmArgs& product) {
  return Plain(product.a) && Plain(product.b) && product.bias.empty() && product.alpha == 1.0 &&
         product.beta == 0.0 && product.scalars == nullptr && product.lda == 0 &&
         product.ldb == 0 && product.ldc == 0 && product.a.rows() >= kFewestRows;
}

bool Fuses(const Exec& exec, const GatedGemmForwardArgs& args) {
  const SwigluForwardArgs& activation = args.activation;
  return Wanted(exec) && Plain(args.product) && args.product.transpose_b &&
         !args.product.transpose_a && !activation.has_forms() && Plain(activation.gate_up) &&
         Plain(activation.y);
}

bool Fuses(const Exec& exec, const GatedGemmBackwardArgs& args) {
  // The kernel writes the gradients over gate and up, chunk by chunk, and can put them nowhere
  // else.
  const SwigluBackwardArgs& activation = args.activation;
  return Wanted(exec) && Plain(args.product) && !args.product.transpose_b &&
         !args.product.transpose_a && activation.d_gate_up_quant.empty() &&
         activation.d_gate_up_blocks.empty() && activation.kept.empty() &&
         activation.y_quant.empty() && Plain(activation.gate_up) && Plain(activation.dy) &&
         activation.d_gate_up.data == activation.gate_up.data;
}

absl::Status Map(const TensorView& view, uint32_t box_rows, uint32_t box_cols, CUtensorMap& map) {
  return MakeTensorMap({view.data, view.rows(), view.cols(), view.cols(), box_rows, box_cols}, map);
}

// Gate (0) or up (1) of rows that have both.
gated::Output HalfOf(const TensorView& gate_up, int half) {
  const int64_t ffn = gate_up.cols() / 2;
  return {gate_up.as<Bf16>() + half * ffn, 2 * ffn};
}
absl::Status MapHalf(const TensorView& gate_up, int half, CUtensorMap& map) {
  const gated::Output at = HalfOf(gate_up, half);
  return MakeTensorMap(
      {at.data, gate_up.rows(), gate_up.cols() / 2, at.pitch, 64, gated::kChunkCols}, map);
}

gated::Tiles TilesOf(int64_t rows, int64_t depth, int64_t ffn, int64_t cols) {
  gated::Tiles tiles;
  tiles.rows = static_cast<int32_t>(CeilDiv(rows, gated::kTileRows * gated::kCluster));
  tiles.across = static_cast<int32_t>(CeilDiv(ffn, cols));
  tiles.depth = static_cast<int32_t>(CeilDiv(depth, gated::kDepth));
  tiles.ffn = static_cast<int32_t>(ffn);
  return tiles;
}

// A block for each multiprocessor, with `bytes` of shared memory and what aligning them takes.
template <typename Kernel, typename... Args>
absl::Status Launch(const Exec& exec, Kernel kernel, size_t bytes, const Args&... args) {
  const int shared = static_cast<int>(bytes) + 1024;
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  // The stages leave no shared memory for a second block of a multiprocessor. Only whole clusters
  // are launched.
  const int blocks = exec.cuda->gpu().multiprocessors / gated::kCluster * gated::kCluster;
  kernel<<<static_cast<unsigned>(blocks), gated::kThreads, static_cast<size_t>(shared),
           StreamOf(exec)>>>(args...);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace

absl::Status GatedGemmForward(const Exec& exec, const GatedGemmForwardArgs& args) {
  if (!Fuses(exec, args)) {
    return cpu::GatedGemmForward(exec, args);
  }
  const TensorView& x = args.product.a;
  const int64_t ffn = args.activation.gate_up.cols() / 2;
  gated::ForwardMaps maps;
  HEARTH_RETURN_IF_ERROR(Map(x, gated::kTileRows, gated::kDepth, maps.x));
  HEARTH_RETURN_IF_ERROR(Map(args.product.b, 128, gated::kDepth, maps.w));
  const gated::ForwardOutputs out = {HalfOf(args.activation.gate_up, 0),
                                     HalfOf(args.activation.gate_up, 1),
                                     {args.activation.y.as<Bf16>(), ffn},
                                     x.rows()};
  return Launch(exec, gated::ForwardKernel, sizeof(gated::ForwardShared), maps, out,
                TilesOf(x.rows(), x.cols(), ffn, gated::kForwardCols));
}

absl::Status GatedGemmBackward(const Exec& exec, const GatedGemmBackwardArgs& args) {
  if (!Fuses(exec, args)) {
    return cpu::GatedGemmBackward(exec, args);
  }
  const TensorView& d_out = args.product.a;
  gated::BackwardMaps maps;
  HEARTH_RETURN_IF_ERROR(Map(d_out, gated::kTileRows, gated::kDepth, maps.d_out));
  HEARTH_RETURN_IF_ERROR(Map(args.product.b, gated::kDepth, 64, maps.w));
  HEARTH_RETURN_IF_ERROR(MapHalf(args.activation.gate_up, 0, maps.gate));
  HEARTH_RETURN_IF_ERROR(MapHalf(args.activation.gate_up, 1, maps.up));
  return Launch(
      exec, gated::BackwardKernel, sizeof(gated::BackwardShared), maps,
      TilesOf(d_out.rows(), d_out.cols(), args.activation.dy.cols(), gated::kBackwardCols));
}

}  // namespace hearth::kernels::cuda
