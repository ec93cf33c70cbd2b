// Choice and launch of the norms' kernels.
#pragma once

#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/norm_values.cuh"

namespace hearth::kernels::cuda {

// Dynamic shared memory of a block.
inline int64_t NormSharedBytes(const NormShape& shape, const QuantView& quant, bool backward) {
  const int64_t tile =
      quant.columns == nullptr ? 0 : CeilDiv(shape.cols, 128) * 128 * shape.tile_rows;
  return std::max(tile, backward ? int64_t{shape.cols} * 4 : 0);
}

// `aligned`: every view that is read or written by packs starts at a multiple of 16 bytes.
inline NormShape NormShapeOf(const Exec& exec,
                             int64_t rows,
                             int64_t cols,
                             const QuantView& quant,
                             bool aligned,
                             bool backward) {
  constexpr int64_t kStaticShared = 2048;  // the kernels' own, and the driver's share of a block
  NormShape shape;
  shape.rows = rows;
  shape.cols = static_cast<int>(cols);
  aligned = aligned && cols % 8 == 0 && reinterpret_cast<uintptr_t>(quant.rows) % 8 == 0;
  if (quant.columns != nullptr) {
    aligned = aligned && rows % 16 == 0 && cols % 16 == 0 && Aligned16(quant.columns);
  }
  while (shape.warps < kNormWarps && CeilDiv(cols, 256 * shape.warps) > kNormMaxPacks) {
    shape.warps *= 2;
  }
  const int64_t packs = CeilDiv(cols, 256 * shape.warps);
  const int slots = kNormWarps / shape.warps;
  if (quant.columns != nullptr) {
    shape.tile_rows = cols <= 2048 ? kNormTileRows : kNormTileRows / 2;
  } else {
    shape.tile_rows = backward ? slots : 4 * slots;
  }
  const bool fits = NormSharedBytes(shape, quant, backward) + kStaticShared <=
                    exec.cuda->gpu().shared_memory_bytes;
  shape.packs = aligned && fits && packs <= kNormMaxPacks ? static_cast<int>(packs) : 0;
  return shape;
}

template <typename Params>
absl::Status LaunchNormKernel(const Exec& exec,
                              void (*kernel)(Params),
                              const Params& params,
                              int64_t blocks,
                              int64_t shared,
                              const char* op) {
  constexpr int64_t kWithoutAsking = 40960;
  if (shared > kWithoutAsking) {
    HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  }
  kernel<<<static_cast<unsigned>(blocks), kNormThreads, static_cast<size_t>(shared),
           StreamOf(exec)>>>(params);
  return HEARTH_CUDA_LAUNCHED(op);
}

// For params.shape.rows > 0.
template <typename A, bool kCentred>
absl::Status LaunchNormForward(const Exec& exec, const NormForwardParams<A>& p, const char* op) {
  void (*const kernels[])(NormForwardParams<A>) = {
      NormForwardValuesKernel<A, kCentred>, NormForwardKernel<A, 1, kCentred>,
      NormForwardKernel<A, 2, kCentred>, NormForwardKernel<A, 3, kCentred>,
      NormForwardKernel<A, 4, kCentred>};
  const NormShape& shape = p.shape;
  const bool packs = shape.packs > 0;
  return LaunchNormKernel(exec, kernels[shape.packs], p,
                          packs ? CeilDiv(shape.rows, shape.tile_rows) : shape.rows,
                          packs ? NormSharedBytes(shape, p.quant, false) : 0, op);
}

// *out += sum of `count` partials; nothing if out is absent.
inline absl::Status AddNormPartials(
    const Exec& exec, const float* partial, int64_t count, const TensorView& out, const char* op) {
  if (out.empty()) {
    return absl::OkStatus();
  }
  const int cols = static_cast<int>(out.numel());
  const auto blocks = static_cast<unsigned>(CeilDiv(cols, 32));
  const dim3 threads(32, 32);
  if (out.dtype == DType::kBF16) {
    AddPartialsKernel<<<blocks, threads, 0, StreamOf(exec)>>>(partial, static_cast<int>(count),
                                                              cols, out.as<Bf16>());
  } else {
    AddPartialsKernel<<<blocks, threads, 0, StreamOf(exec)>>>(partial, static_cast<int>(count),
                                                              cols, out.as<float>());
  }
  return HEARTH_CUDA_LAUNCHED(op);
}

// For params.shape.rows > 0; sets params' partial sums where the gradients are wanted.
template <typename A, bool kCentred>
absl::Status LaunchNormBackward(const Exec& exec,
                                NormBackwardParams<A> p,
                                const TensorView& d_weight,
                                const TensorView& d_bias,
                                const char* op) {
  void (*const kernels[])(NormBackwardParams<A>) = {
      NormBackwardValuesKernel<A, kCentred>, NormBackwardKernel<A, 1, kCentred>,
      NormBackwardKernel<A, 2, kCentred>, NormBackwardKernel<A, 3, kCentred>,
      NormBackwardKernel<A, 4, kCentred>};
  const NormShape& shape = p.shape;
  const bool packs = shape.packs > 0;
  // The partition follows from the shape and the GPU alone. Two blocks fit a multiprocessor.
  const int64_t blocks =
      std::min({packs ? CeilDiv(shape.rows, shape.tile_rows) : shape.rows, NormPartials(shape.rows),
                int64_t{2} * exec.cuda->gpu().multiprocessors});
  float* partial = static_cast<float*>(exec.workspace.data);
  p.weight_partial = d_weight.empty() ? nullptr : partial;
  p.bias_partial =
      d_bias.empty() ? nullptr : partial + (d_weight.empty() ? 0 : blocks * shape.cols);
  HEARTH_RETURN_IF_ERROR(LaunchNormKernel(exec, kernels[shape.packs], p, blocks,
                                          packs ? NormSharedBytes(shape, p.quant, true) : 0, op));
  HEARTH_RETURN_IF_ERROR(AddNormPartials(exec, p.weight_partial, blocks, d_weight, op));
  return AddNormPartials(exec, p.bias_partial, blocks, d_bias, op);
}

}  // namespace hearth::kernels::cuda
