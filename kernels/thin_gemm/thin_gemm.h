// The product of few rows with a weight, y = x wT, for passes of one token a text: what it takes is
// the time to read the weight. With the weight of gate and up it may end in SwiGLU
// (swiglu/swiglu.h).
//   T = kF32 or kF64 (CPU), kBF16 (CUDA), the same for all views of a call.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/core/door.h"
#include "kernels/gated_gemm/gated_gemm.h"
#include "kernels/gemm/gemm.h"

namespace hearth::kernels {

// y = round(x wT + bias + addend), sums in fp32 (CPU: T).
//   x       : [M, K]
//   input_norm : x stands for round(x * weight) * rstd of its rows, as GemmArgs has it
//   w       : [N, K]
//   bias    : [N] or absent
//   addend  : [M, N] or absent
//   y       : [M, N]; may be addend, aliases nothing else
// With swiglu w is [gate: F | up: F] by rows, without a bias and an addend:
//   gate_up : [M, 2F], round(x wT), or absent: nobody reads it
//   y       : [M, F], round(silu(gate) * up) of what gate_up has or would have: on a GPU the bits
//             that SwigluForward gives of it
//   tile_rows, splits : CUDA: rows of w that a block has (kThinTiles, kThinGroupRows), and blocks
//             that divide K among them (1, 2, 4 or 8); 0: TileThinGemm decides. Bits depend on
//             both, on the kernel and on the GPU's size, not on the other rows of x as long as M
//             stays up to 16, 32 or 64
//   warps   : CUDA: the kernel for every GPU (thin_warps.cuh), also where warpgroups could multiply
struct ThinGemmArgs {
  TensorView x;
  InputNorm input_norm;
  TensorView w;
  TensorView bias;
  TensorView addend;
  TensorView y;
  TensorView gate_up;
  bool swiglu = false;
  DType round = DType::kF32;
  int tile_rows = 0;
  int splits = 0;
  bool warps = false;
};

// CPU: gate_up, where swiglu has none. CUDA: none.
size_t ThinGemmWorkspaceBytes(const ThinGemmArgs& args);
// CUDA: the same bits in every run. With Exec::early_start the kernel before in the stream must not
// write w, bias or the norm's weight: they are read while it runs. It may write x.
// Errors: kInvalidArgument (shape, dtype, workspace); kUnimplemented on a GPU (storage; compute
// capability below 9.0; M above 64; K, N or F no multiple of 8; views that are not aligned to 16
// bytes; more blocks than run at once).
HEARTH_DECLARE_OP(ThinGemm, ThinGemmArgs);

// Whether HEARTH_THIN_GEMM is `how`, to compare (docs/gpu.md).
bool ThinGemmAsked(absl::string_view how);

namespace cuda {
// The product, or the product with SwiGLU, as ThinGemm, if exec wants such products and ThinGemm
// does all that `args` asks for. `args` has passed CanImplement.
std::optional<ThinGemmArgs> ThinFormOf(const Exec& exec, const GemmArgs& args);
std::optional<ThinGemmArgs> ThinFormOf(const Exec& exec, const GatedGemmForwardArgs& args);
// Whether the product is one of those with its input_norm, and faster than after RmsNormForward.
bool GainsByInputNorm(const Exec& exec, const GemmArgs& args);
}  // namespace cuda

}  // namespace hearth::kernels
