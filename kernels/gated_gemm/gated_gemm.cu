// Which products around SwiGLU run with it in one kernel, and their launches.
#include <functional>
#include <optional>
#include <string>

#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/gated_gemm/fp8_backward.cuh"
#include "kernels/gated_gemm/fp8_forward.cuh"
#include "kernels/gated_gemm/gated_gemm.cuh"
#include "kernels/gated_gemm/gated_gemm.h"
#include "kernels/thin_gemm/thin_gemm.h"

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
bool Allowed() {
  const char* given = GetEnv("HEARTH_GATED_GEMM");
  return given == nullptr || std::string(given) != "separate";
}
bool Wanted(const Exec& exec) {
  return exec.cuda->gpu().major == 9 && Allowed() && Built();
}

bool Plain(const TensorView& view) {
  return view.dtype == DType::kBF16 && view.cols() % 8 == 0 && Aligned16(view.data);
}

// Whether the product has nothing beside its operands, and rows enough.
bool Simple(const GemmArgs& product) {
  return product.bias.empty() && product.alpha == 1.0 && product.beta == 0.0 &&
         product.scalars == nullptr && product.input_norm.weight.empty() && product.lda == 0 &&
         product.ldb == 0 && product.ldc == 0 && product.a.rows() >= kFewestRows;
}
bool Plain(const GemmArgs& product) {
  return Plain(product.a) && Plain(product.b) && Simple(product);
}

absl::Status Map(const TensorView& view, uint32_t box_rows, uint32_t box_cols, CUtensorMap& map) {
  const int element_bytes = view.dtype == DType::kBF16 ? 2 : 1;
  return MakeTensorMap(MatrixBoxes(view.data, element_bytes, view.rows(), view.cols(), view.cols(),
                                   box_rows, box_cols),
                       map);
}

// Gate (0) or up (1) of rows that have both.
gated::Output HalfOf(const TensorView& gate_up, int half) {
  const int64_t ffn = gate_up.cols() / 2;
  return {gate_up.as<Bf16>() + half * ffn, 2 * ffn};
}
absl::Status MapHalf(const TensorView& gate_up, int half, CUtensorMap& map) {
  const gated::Output at = HalfOf(gate_up, half);
  return MakeTensorMap(
      MatrixBoxes(at.data, 2, gate_up.rows(), gate_up.cols() / 2, at.pitch, 64, gated::kChunkCols),
      map);
}

// S: the kernel's shared memory; `cols` of y in a tile.
template <typename S>
gated::Tiles TilesOf(const TensorView& a, int64_t ffn, int64_t cols) {
  gated::Tiles tiles;
  tiles.rows = static_cast<int32_t>(CeilDiv(a.rows(), S::kARows * gated::kCluster));
  tiles.across = static_cast<int32_t>(CeilDiv(ffn, cols));
  tiles.depth = static_cast<int32_t>(CeilDiv(a.cols(), S::kDepth));
  tiles.ffn = static_cast<int32_t>(ffn);
  return tiles;
}

// A block for each multiprocessor, with S as shared memory and what aligning it takes.
template <typename S, typename Kernel, typename... Args>
absl::Status Launch(const Exec& exec, Kernel kernel, const Args&... args) {
  constexpr int shared = static_cast<int>(sizeof(S)) + 1024;
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  // The stages leave no shared memory for a second block of a multiprocessor. Only whole clusters
  // are launched.
  const int blocks = exec.cuda->gpu().multiprocessors / gated::kCluster * gated::kCluster;
  kernel<<<static_cast<unsigned>(blocks), gated::kThreads, static_cast<size_t>(shared),
           StreamOf(exec)>>>(args...);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

// A forward kernel: what it takes, and its launch.
struct ForwardKernelRow {
  bool (*takes)(const GatedGemmForwardArgs& args);
  absl::Status (*launch)(const Exec& exec, const GatedGemmForwardArgs& args);
};

bool TakesBf16(const GatedGemmForwardArgs& args) {
  const SwigluForwardArgs& activation = args.activation;
  return Plain(args.product) && !activation.has_forms() && Plain(activation.gate_up) &&
         Plain(activation.y);
}

absl::Status LaunchBf16(const Exec& exec, const GatedGemmForwardArgs& args) {
  const TensorView& x = args.product.a;
  const int64_t ffn = args.activation.gate_up.cols() / 2;
  gated::ForwardMaps maps;
  HEARTH_RETURN_IF_ERROR(Map(x, gated::kTileRows, gated::kDepth, maps.x));
  HEARTH_RETURN_IF_ERROR(Map(args.product.b, 128, gated::kDepth, maps.w));
  const gated::ForwardOutputs out = {HalfOf(args.activation.gate_up, 0),
                                     HalfOf(args.activation.gate_up, 1),
                                     {args.activation.y.as<Bf16>(), ffn},
                                     x.rows()};
  return Launch<gated::ForwardShared>(exec, gated::ForwardKernel, maps, out,
                                      TilesOf<gated::ForwardShared>(x, ffn, gated::kForwardCols));
}

// Whether what a kernel writes may go where it still reads.
bool Apart(const void* written, int64_t written_bytes, const TensorView& read) {
  const auto* const to = static_cast<const char*>(written);
  const auto* const from = static_cast<const char*>(read.data);
  return std::less_equal<>()(to + written_bytes, from) ||
         std::less_equal<>()(from + read.bytes(), to);
}

bool TakesFp8(const GatedGemmForwardArgs& args) {
  const GemmArgs& product = args.product;
  const SwigluForwardArgs& activation = args.activation;
  const QuantView& y = activation.y_quant;
  const bool operands = product.a.dtype == DType::kE4M3 && product.b.dtype == DType::kE4M3 &&
                        product.block_scales_a == nullptr && product.fast_accumulation &&
                        Aligned16(product.a.data) && Aligned16(product.b.data) && Simple(product);
  const bool outputs = activation.gate_up.dtype == DType::kBF16 && activation.y.empty() &&
                       activation.y_blocks.empty() && activation.kept.empty() &&
                       y.dtype == DType::kE4M3 && y.rows != nullptr && y.columns == nullptr &&
                       Aligned16(y.rows) && Aligned16(activation.keep.values);
  const int64_t rows = activation.gate_up.rows();
  const int64_t cols = activation.gate_up.cols();
  // As two calls y may overwrite x.
  return !args.gate_up_read && operands && outputs && cols % (2 * kKeptBlock) == 0 &&
         Apart(y.rows, rows * cols / 2, product.a);
}

absl::Status LaunchFp8(const Exec& exec, const GatedGemmForwardArgs& args) {
  using Shared = gated::Fp8Shared;
  const TensorView& x = args.product.a;
  const int64_t ffn = args.activation.gate_up.cols() / 2;
  gated::Fp8Maps maps;
  HEARTH_RETURN_IF_ERROR(Map(x, Shared::kARows, Shared::kDepth, maps.x));
  HEARTH_RETURN_IF_ERROR(
      MakeTensorMap(gated::GateUpBoxes(args.product.b.data, x.cols(), ffn), maps.w));
  const gated::Fp8Outputs out = {args.product.scale_a, args.product.scale_b, args.activation.keep,
                                 args.activation.y_quant, x.rows()};
  return Launch<Shared>(exec, gated::Fp8ForwardKernel, maps, out,
                        TilesOf<Shared>(x, ffn, gated::kWeightBoxRows));
}

constexpr ForwardKernelRow kForwardKernels[] = {{TakesBf16, LaunchBf16}, {TakesFp8, LaunchFp8}};

// The same, backward.
struct BackwardKernelRow {
  bool (*takes)(const GatedGemmBackwardArgs& args);
  absl::Status (*launch)(const Exec& exec, const GatedGemmBackwardArgs& args);
};

bool TakesBf16(const GatedGemmBackwardArgs& args) {
  // The kernel writes the gradients over gate and up, chunk by chunk, and can put them nowhere
  // else.
  const SwigluBackwardArgs& activation = args.activation;
  return Plain(args.product) && !args.product.transpose_b && activation.d_gate_up_quant.empty() &&
         activation.d_gate_up_blocks.empty() && activation.kept.empty() &&
         activation.y_quant.empty() && Plain(activation.gate_up) && Plain(activation.dy) &&
         activation.d_gate_up.data == activation.gate_up.data;
}

absl::Status LaunchBf16(const Exec& exec, const GatedGemmBackwardArgs& args) {
  const TensorView& d_out = args.product.a;
  gated::BackwardMaps maps;
  HEARTH_RETURN_IF_ERROR(Map(d_out, gated::kTileRows, gated::kDepth, maps.d_out));
  HEARTH_RETURN_IF_ERROR(Map(args.product.b, gated::kDepth, 64, maps.w));
  HEARTH_RETURN_IF_ERROR(MapHalf(args.activation.gate_up, 0, maps.gate));
  HEARTH_RETURN_IF_ERROR(MapHalf(args.activation.gate_up, 1, maps.up));
  return Launch<gated::BackwardShared>(
      exec, gated::BackwardKernel, maps,
      TilesOf<gated::BackwardShared>(d_out, args.activation.dy.cols(), gated::kBackwardCols));
}

bool TakesFp8(const GatedGemmBackwardArgs& args) {
  const GemmArgs& product = args.product;
  const SwigluBackwardArgs& activation = args.activation;
  const QuantView& d = activation.d_gate_up_quant;
  const QuantView& y = activation.y_quant;
  const int64_t rows = activation.dy.rows();
  const int64_t ffn = activation.dy.cols();
  const bool operands = product.a.dtype == DType::kE5M2 && product.b.dtype == DType::kE4M3 &&
                        product.transpose_b && product.block_scales_a == nullptr &&
                        !product.fast_accumulation && Aligned16(product.a.data) &&
                        Aligned16(product.b.data) && Simple(product);
  const bool outputs = activation.dy.dtype == DType::kBF16 && !activation.kept.empty() &&
                       activation.d_gate_up.empty() && activation.d_gate_up_blocks.empty() &&
                       d.dtype == DType::kE5M2 && d.rows != nullptr && d.columns != nullptr &&
                       y.dtype == DType::kE4M3 && y.columns != nullptr &&
                       Aligned16(activation.kept.values) && Aligned16(d.rows) &&
                       Aligned16(d.columns) && Aligned16(y.columns);
  // As two calls the forms may overwrite d_out.
  return operands && outputs && rows % 16 == 0 && ffn % kKeptBlock == 0 &&
         Apart(d.rows, rows * ffn * 2, product.a) && Apart(d.columns, rows * ffn * 2, product.a) &&
         Apart(y.columns, rows * ffn, product.a);
}

// Gate (0) or up (1) of bytes [rows, 2 ffn].
absl::Status MapBytesOfHalf(
    const void* data, int64_t rows, int64_t ffn, int half, CUtensorMap& map) {
  return MakeTensorMap(MatrixBoxes(static_cast<const uint8_t*>(data) + half * ffn, 1, rows, ffn,
                                   2 * ffn, gated::kGradientRows, gated::kGradientCols),
                       map);
}

absl::Status LaunchFp8(const Exec& exec, const GatedGemmBackwardArgs& args) {
  using Shared = gated::Fp8BackwardShared;
  const TensorView& d_out = args.product.a;
  const SwigluBackwardArgs& activation = args.activation;
  const int64_t rows = d_out.rows();
  const int64_t ffn = activation.dy.cols();
  gated::Fp8BackwardMaps maps;
  HEARTH_RETURN_IF_ERROR(Map(d_out, Shared::kARows, Shared::kDepth, maps.d_out));
  HEARTH_RETURN_IF_ERROR(
      MakeTensorMap(gated::DownBoxes(args.product.b.data, d_out.cols(), ffn), maps.w));
  const QuantView& d = activation.d_gate_up_quant;
  HEARTH_RETURN_IF_ERROR(MapBytesOfHalf(activation.kept.values, rows, ffn, 0, maps.gate));
  HEARTH_RETURN_IF_ERROR(MapBytesOfHalf(activation.kept.values, rows, ffn, 1, maps.up));
  HEARTH_RETURN_IF_ERROR(MapBytesOfHalf(d.rows, rows, ffn, 0, maps.d_gate));
  HEARTH_RETURN_IF_ERROR(MapBytesOfHalf(d.rows, rows, ffn, 1, maps.d_up));
  const gated::Fp8BackwardOutputs out = {args.product.scale_a,   args.product.scale_b,
                                         activation.kept.scales, d,
                                         activation.y_quant,     rows};
  return Launch<Shared>(exec, gated::Fp8BackwardKernel, maps, out,
                        TilesOf<Shared>(d_out, ffn, gated::kGradientCols));
}

constexpr BackwardKernelRow kBackwardKernels[] = {{TakesBf16, LaunchBf16}, {TakesFp8, LaunchFp8}};

}  // namespace

absl::Status GatedGemmForward(const Exec& exec, const GatedGemmForwardArgs& args) {
  const std::optional<ThinGemmArgs> thin = Allowed() ? ThinFormOf(exec, args) : std::nullopt;
  if (thin.has_value()) {
    return cuda::ThinGemm(exec, *thin);
  }
  if (Wanted(exec) && args.product.transpose_b && !args.product.transpose_a) {
    for (const ForwardKernelRow& row : kForwardKernels) {
      if (row.takes(args)) {
        return row.launch(exec, args);
      }
    }
  }
  return cpu::GatedGemmForward(exec, args);
}

absl::Status GatedGemmBackward(const Exec& exec, const GatedGemmBackwardArgs& args) {
  if (Wanted(exec) && !args.product.transpose_a) {
    for (const BackwardKernelRow& row : kBackwardKernels) {
      if (row.takes(args)) {
        return row.launch(exec, args);
      }
    }
  }
  return cpu::GatedGemmBackward(exec, args);
}

}  // namespace hearth::kernels::cuda
