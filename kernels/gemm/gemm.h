// Matrix products: OpenBLAS on the CPU, cuBLASLt (cublaslt.h) on a GPU.
//   Row-major throughout; views of rank > 2 are folded to [rows(), cols()].
//   "T" below is the storage type: kF32 or kF64 on the CPU, A on CUDA (core/exec.h).
//   Emulated BF16 (CPU): operands are expected to be rounded already (the engine keeps rounded
//   copies); only the output is rounded here, `round_c`.
#pragma once

#include "absl/status/status.h"
#include "common/formats/product_scratch.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// Bytes: cuBLASLt 13 does not support FP8 products whose tensors' scales lie elsewhere.
inline constexpr size_t kScaleBoundary = 16;

// GemmArgs::input_norm.
struct InputNorm {
  TensorView weight;
  double eps = 0.0;
};

// c = round_c(alpha * op(a) * op(b) + beta * c + bias)
//   a    : [M, K], or [K, M] if transpose_a        b : [K, N], or [N, K] if transpose_b
//   c    : [M, N], read only if beta != 0; may not alias a or b
//   bias : [N], optional, added to every row; c's dtype, or bf16 with an f32 c
//   Dtypes of a, b -> c: T, T -> T; bf16, bf16 -> f32 (gradients that are summed in fp32); and
//   e4m3, e4m3 | e5m2, e4m3 | e4m3, e5m2 -> T (CPU: f32). No TF32.
// FP8 operands: transpose_b without transpose_a (both contracted along their rows), K, N, lda and
// ldb multiples of 16, and
//   scale_a, scale_b : one float each, on the tensors' device: value = quantised * *scale. Without
//                      block scales each on a boundary of kScaleBoundary bytes
//   fast_accumulation: partial sums stay in the tensor core's short accumulator (13 fraction bits
//                      on Hopper): for forward products. No meaning elsewhere
//   lda, ldb, ldc    : elements from one row of a, b, c as stored to the next; 0: contiguous
// Block-scaled operands (core/block_quant.h): block_scales_a and block_scales_b present, each in
// its block_layout; a and b e2m1, or e4m3 / e5m2 as above, whichever its layout holds; scale_a and
// scale_b: the tensors' scales, each required where its layout has one; where it has none there may
// be one all the same, on either side alone. Extents as FP8's, K a multiple of 32, a and b
// contiguous and aligned to 16 bytes. Native if both have one layout, on GPUs that have the units
// and for which ChooseBlockGemms (gemm_probe.h) found them right (an error is then marked,
// gemm/native_error.h); else emulated: both operands become bf16 in the workspace (exact for
// NVFP4), one bf16 product with fp32 sums and the tensors' scales in its alpha, so that only the
// order of the sums differs. GemmPathOf tells which.
//   addend  : optional, what beta multiplies instead of c, which is then not read: c's shape, dtype
//             and leading dimension; may alias a or b, not c
//   input_norm : optional, its weight [K] T: a stands for its rows as RMSNorm leaves them. Their
//             rstd, 1 / sqrt(mean(a^2) + eps), comes after the sums: a product of round(a *
//             weight), times rstd, in other roundings than RmsNormForward and a product of what it
//             writes. For y = x wT; CUDA: for products that ThinGemm does (thin_gemm.h)
//   batch   : so many products at once. The views are of the first; the matrices of the others lie
//             stride_a, stride_b and stride_c (addend too) elements further on each. Only plain
//             operands without bias and rounding
//   scalars : CUDA, optional: two floats on the tensors' device that stand for alpha and beta when
//             the product runs; `beta` still says whether c is read
// One narrow operand, FP8 with its scale or block-scaled, with one in bf16, also on the CPU: the
// narrow one as above, the bf16 one transposed or not, without a scale; all contiguous. Always
// emulated: the narrow operand is widened, and the product is one of bf16 as above, with the scale
// in its alpha. On the CPU bf16 operands are widened too; then both may be bf16.
// The three products of a linear layer with weight w [N, K] (Hugging Face layout):
//   y = x wT      : a = x,  b = w,  transpose_b
//   dx = dy w     : a = dy, b = w
//   dw += dyT x   : a = dy, b = x,  transpose_a, beta = 1
// and with FP8 operands, from copies by columns: dx: a = dy, b = wT [K, N], transpose_b;
//   dw: a = dyT [N, M], b = xT [K, M], transpose_b.
struct GemmArgs {
  TensorView a;
  TensorView b;
  TensorView c;
  TensorView bias;
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1.0;
  double beta = 0.0;
  DType round_c = DType::kF32;  // kF32: no rounding; kBF16 / kF16: round to nearest even
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  const uint8_t* block_scales_a = nullptr;
  const uint8_t* block_scales_b = nullptr;
  BlockLayout block_layout_a = BlockLayout::kNvfp4;
  BlockLayout block_layout_b = BlockLayout::kNvfp4;
  const float* scalars = nullptr;
  bool fast_accumulation = false;
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
  TensorView addend = {};
  InputNorm input_norm = {};
  int64_t batch = 1;
  int64_t stride_a = 0;
  int64_t stride_b = 0;
  int64_t stride_c = 0;
};

// Whether Gemm and GatedGemmForward take `args` with its input_norm, and gain by it. On the CPU
// they would lose: there only where HEARTH_THIN_GEMM is "always", for tests.
bool TakesInputNorm(const Exec& exec, const GemmArgs& args);

// What the views and leading dimensions of a call amount to.
struct GemmExtents {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
};
GemmExtents ExtentsOf(const GemmArgs& args);

// Errors: kInvalidArgument (shape, dtype or scales, text says which); kUnimplemented (device,
// rounding, or the library has no kernel). Extents must fit an int.
// CPU: bits depend on exec.threads, not on anything else of the call. CUDA: they depend on the plan
// (cublaslt.h), which a plan file keeps from run to run.
HEARTH_DECLARE_OP(Gemm, GemmArgs);
// CUDA: exec.workspace is used as far as it goes; with less than this, fewer algorithms are tried.
// CPU: required with FP8, block-scaled and bf16 operands, which are widened into it. CUDA: of
// block-scaled operands' bytes, and where one is bf16 and the other narrow, (m + n) k 2 + 512 are
// required while they are emulated.
size_t GemmWorkspaceBytes(const Exec& exec, const GemmArgs& args);
// For either device: 0 with f32 and f64 operands.
size_t GemmWorkspaceBytes(const GemmArgs& args);
// One operand is narrow and the other bf16.
bool IsMixed(const GemmArgs& args);

// How a product is computed.
enum class GemmPath : uint8_t {
  kPlain,     // as its operands are
  kNative,    // block-scaled operands by block-scaled matrix units
  kEmulated,  // narrow operands widened first
};
GemmPath GemmPathOf(const Exec& exec, const GemmArgs& args);
// "plain", "native", "emulated"
const char* GemmPathName(GemmPath path);

// out[n] = beta * out[n] + sum over rows of x[row, n]: the gradient of a bias.
//   x : [M, N] T      out : [N] T (CPU), G (CUDA)
// Bits independent of exec.threads and of the GPU.
struct ColumnSumArgs {
  TensorView x;
  TensorView out;
  double beta = 0.0;
};

size_t ColumnSumWorkspaceBytes(const ColumnSumArgs& args);  // enough for either device
HEARTH_DECLARE_OP(ColumnSum, ColumnSumArgs);

namespace cuda {
// What a product likes to have as workspace.
inline constexpr size_t kGemmWorkspaceBytes = formats::kProductScratchBytes;

// What block-scaled and mixed operands need of it beyond that: both as bf16, and the product's
// scalars. 0 for others.
size_t EmulationBytes(const GemmArgs& args);

// Parts of the rows that are summed first: fixed by the shape alone.
constexpr int64_t ColumnSumParts(int64_t rows) {
  const int64_t parts = (rows + 63) / 64;
  return parts < 256 ? parts : 256;
}

GemmPath GemmPathOf(const Exec& exec, const GemmArgs& args);

// What a product's scalars take of a workspace, with the bytes that are skipped to align them.
inline constexpr size_t kScalarBytes = 256;
inline constexpr size_t kScalarAlignment = 256;

// Whether an FP8 product with one scale a tensor can be computed as MXFP8 whose block scales are
// all 1, with a workspace of this many bytes: half of what the library likes must be left for it.
// The scales lie elsewhere (GemmPlans::UnitScales), so the shape's size does not count.
bool SuitsUnitScales(const GemmArgs& args, size_t workspace_bytes);
// Bytes of block scales that serve both operands of such a product.
size_t UnitScaleBytes(const GemmArgs& args);

// out[0] = alpha * *scale_a * *scale_b, out[1] = beta. A scale that is null counts as 1.
absl::Status ProductScalars(const Exec& exec,
                            double alpha,
                            const float* scale_a,
                            const float* scale_b,
                            double beta,
                            float* out);
// c[row, :] += bias for an f32 or bf16 c with rows of `ldc` elements; bias f32 or bf16.
absl::Status AddRowBias(const Exec& exec, const TensorView& c, int64_t ldc, const TensorView& bias);
}  // namespace cuda

}  // namespace hearth::kernels
