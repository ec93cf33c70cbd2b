// Choice and launch of the norms' kernels.
#pragma once

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cuda/context.h"
#include "kernels/norm/cuda_limits.h"
#include "kernels/norm/norm_values.cuh"

namespace hearth::kernels::cuda {

// Dynamic shared memory of a block: the transposed copy of a tile, then the stage; backward, the
// sums of a gradient take the place of both.
inline int64_t NormSharedBytes(const NormShape& shape, int64_t stage_bytes, bool backward) {
  return std::max(shape.tile_bytes + (shape.staged ? stage_bytes : 0),
                  backward ? int64_t{shape.cols} * 4 : 0);
}

// Completes tile_rows, last_rows, tile_bytes and staged; returns the blocks of a multiprocessor, at
// most `most`, or 0 if one does not fit. Columns are written in as many bytes as a tile has rows:
// first of all 64, half a cache line, then 32, a sector, if only two blocks fit a multiprocessor.
inline int64_t FitNormTile(const Exec& exec,
                           bool columns,
                           int64_t stage_bytes,
                           bool backward,
                           int64_t most,
                           NormShape& shape) {
  constexpr int64_t kReserved = 1024;  // by the driver, of each block and of the multiprocessor
  constexpr int64_t kStatic = 256;
  struct Choice {
    int tile_rows;
    bool staged;
    int64_t blocks;
  };
  constexpr Choice kChoices[] = {{64, true, 2},  {32, true, 2}, {32, false, 2}, {32, true, 1},
                                 {32, false, 1}, {16, true, 1}, {16, false, 1}};
  const int64_t room = exec.cuda->gpu().shared_memory_bytes + kReserved;
  const int slots = kNormWarps / shape.warps;
  for (const Choice& choice : kChoices) {
    shape.staged = choice.staged;
    shape.tile_rows = columns ? choice.tile_rows : slots;
    shape.last_rows = columns ? std::min(shape.tile_rows, 32) : slots;
    shape.tile_bytes =
        columns ? static_cast<int>(CeilDiv(shape.cols, 128)) * 128 * shape.tile_rows : 0;
    const int64_t block = NormSharedBytes(shape, stage_bytes, backward) + kReserved + kStatic;
    if (room / block >= choice.blocks) {
      return std::min(most, room / block);
    }
  }
  return 0;
}

// `aligned`: every view that is read or written by packs starts at a multiple of 16 bytes.
// `operands`: tensors that are read. Sets everything; the partition follows only from the shape and
// the GPU.
template <typename A>
NormShape NormShapeOf(const Exec& exec,
                      int64_t rows,
                      int64_t cols,
                      const QuantView& quant,
                      bool aligned,
                      int operands,
                      bool backward) {
  NormShape shape;
  shape.rows = rows;
  shape.cols = static_cast<int>(cols);
  const int64_t most = backward ? kNormBackwardBlocks : kNormForwardBlocks<A>;
  const int64_t partials = backward ? NormPartials(rows) : rows;
  shape.blocks = backward ? std::min(partials, most * exec.cuda->gpu().multiprocessors) : rows;
  aligned = aligned && cols % 8 == 0 && reinterpret_cast<uintptr_t>(quant.rows) % 8 == 0;
  if (quant.columns != nullptr) {
    aligned = aligned && rows % 16 == 0 && cols % 16 == 0 && Aligned16(quant.columns);
  }
  shape.warps = static_cast<int>(NormRowWarps(cols));
  const int64_t packs = NormRowPacks(cols);
  // `packs` stays 0, which chooses the kernel that goes value by value.
  if (!aligned || packs > kNormMaxPacks) {
    return shape;
  }
  const int64_t stage_bytes = operands * packs * NormStage<A, 1>::Bytes(1);
  const int64_t fit =
      FitNormTile(exec, quant.columns != nullptr, stage_bytes, backward, most, shape);
  if (fit == 0) {
    return shape;
  }
  shape.packs = static_cast<int>(packs);
  shape.shared_bytes = static_cast<int>(NormSharedBytes(shape, stage_bytes, backward));
  shape.blocks =
      std::min({CeilDiv(rows, shape.last_rows), partials, fit * exec.cuda->gpu().multiprocessors});
  shape.full_tiles = rows / (shape.tile_rows * shape.blocks) * shape.blocks;
  return shape;
}

// Before the launch of a kernel with `shared` bytes of dynamic shared memory.
template <typename Params>
absl::Status AllowNormShared(void (*kernel)(Params), int shared) {
  if (shared > 0) {
    HEARTH_CUDA_RETURN_IF_ERROR(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    // All of it as shared memory, so that as many blocks fit as the shape was made for.
    HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
        kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  }
  return absl::OkStatus();
}

// Whether the kernels for whole rows, which RMSNorm in bf16 has, take the shape.
inline bool HasWholeRows(const NormShape& shape) {
  return shape.packs > 0 && shape.staged && shape.cols == shape.warps * shape.packs * kNormStep;
}

// For params.shape.rows > 0.
template <typename A, bool kCentred>
absl::Status LaunchNormForward(const Exec& exec, const NormForwardParams<A>& p, const char* op) {
  void (*const kernels[])(NormForwardParams<A>) = {
      NormForwardValuesKernel<A, kCentred>, NormForwardKernel<A, 1, kCentred, false>,
      NormForwardKernel<A, 2, kCentred, false>, NormForwardKernel<A, 3, kCentred, false>,
      NormForwardKernel<A, 4, kCentred, false>};
  auto* kernel = kernels[p.shape.packs];
  if constexpr (kHasForms<A> && !kCentred) {
    void (*const whole[])(NormForwardParams<A>) = {
        nullptr, NormForwardKernel<A, 1, false, true>, NormForwardKernel<A, 2, false, true>,
        NormForwardKernel<A, 3, false, true>, NormForwardKernel<A, 4, false, true>};
    kernel = HasWholeRows(p.shape) ? whole[p.shape.packs] : kernel;
  }
  HEARTH_RETURN_IF_ERROR(AllowNormShared(kernel, p.shape.shared_bytes));
  return LaunchInTurn(exec, op, kernel,
                      {dim3(static_cast<unsigned>(p.shape.blocks)), kNormThreads,
                       static_cast<size_t>(p.shape.shared_bytes)},
                      p);
}

// *out += sum of `count` partials, for both gradients at once; nothing for those that are absent.
template <typename G>
absl::Status AddNormPartials(const Exec& exec,
                             const float* weight_partial,
                             const TensorView& d_weight,
                             const float* bias_partial,
                             const TensorView& d_bias,
                             int64_t count,
                             const char* op) {
  PartialSums<G> sums = {};
  unsigned present = 0;
  for (const auto& [partial, out] :
       {std::pair(weight_partial, &d_weight), std::pair(bias_partial, &d_bias)}) {
    if (!out->empty()) {
      sums.partial[present] = partial;
      sums.out[present++] = out->template as<G>();
      sums.cols = static_cast<int>(out->numel());
    }
  }
  if (present == 0) {
    return absl::OkStatus();
  }
  sums.count = static_cast<int>(count);
  const dim3 blocks(static_cast<unsigned>(CeilDiv(sums.cols, 32)), present);
  AddPartialsKernel<<<blocks, dim3(32, 32), 0, StreamOf(exec)>>>(sums);
  return HEARTH_CUDA_LAUNCHED(op);
}

// Where p's `blocks` blocks put their partial sums: in the workspace, where the gradients are
// wanted.
template <typename A>
void PlaceNormPartials(const Exec& exec,
                       const TensorView& d_weight,
                       const TensorView& d_bias,
                       int64_t blocks,
                       NormBackwardParams<A>& p) {
  float* partial = static_cast<float*>(exec.workspace.data);
  p.weight_partial = d_weight.empty() ? nullptr : partial;
  p.bias_partial =
      d_bias.empty() ? nullptr : partial + (d_weight.empty() ? 0 : blocks * p.shape.cols);
}

// The gradients += the sums over p's `blocks` partials.
template <typename A>
absl::Status AddNormGradients(const Exec& exec,
                              const NormBackwardParams<A>& p,
                              const TensorView& d_weight,
                              const TensorView& d_bias,
                              int64_t blocks,
                              const char* op) {
  const auto add = [&](const TensorView& weight, const TensorView& bias) {
    const bool bf16 = (weight.empty() ? bias : weight).dtype == DType::kBF16;
    const auto run = bf16 ? AddNormPartials<Bf16> : AddNormPartials<float>;
    return run(exec, p.weight_partial, weight, p.bias_partial, bias, blocks, op);
  };
  if (d_weight.dtype == d_bias.dtype) {
    return add(d_weight, d_bias);
  }
  HEARTH_RETURN_IF_ERROR(add(d_weight, TensorView()));
  return add(TensorView(), d_bias);
}

// For params.shape.rows > 0; sets params' partial sums where the gradients are wanted.
template <typename A, bool kCentred>
absl::Status LaunchNormBackward(const Exec& exec,
                                NormBackwardParams<A> p,
                                const TensorView& d_weight,
                                const TensorView& d_bias,
                                const char* op) {
  void (*const kernels[])(NormBackwardParams<A>) = {
      NormBackwardValuesKernel<A, kCentred>, NormBackwardKernel<A, 1, kCentred, false>,
      NormBackwardKernel<A, 2, kCentred, false>, NormBackwardKernel<A, 3, kCentred, false>,
      NormBackwardKernel<A, 4, kCentred, false>};
  PlaceNormPartials(exec, d_weight, d_bias, p.shape.blocks, p);
  auto* kernel = kernels[p.shape.packs];
  if constexpr (kHasForms<A> && !kCentred) {
    void (*const whole[])(NormBackwardParams<A>) = {
        nullptr, NormBackwardKernel<A, 1, false, true>, NormBackwardKernel<A, 2, false, true>,
        NormBackwardKernel<A, 3, false, true>, NormBackwardKernel<A, 4, false, true>};
    kernel = HasWholeRows(p.shape) ? whole[p.shape.packs] : kernel;
  }
  HEARTH_RETURN_IF_ERROR(AllowNormShared(kernel, p.shape.shared_bytes));
  kernel<<<static_cast<unsigned>(p.shape.blocks), kNormThreads,
           static_cast<size_t>(p.shape.shared_bytes), StreamOf(exec)>>>(p);
  HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(op));
  return AddNormGradients(exec, p, d_weight, d_bias, p.shape.blocks, op);
}

}  // namespace hearth::kernels::cuda
