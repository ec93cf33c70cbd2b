// What cuBLASLt leaves over: column sums, and biases that it does not take.
#include "kernels/cuda/context.h"
#include "kernels/cuda/util.cuh"
#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/gemm.h"

namespace hearth::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;

// partial[part, n] = sum over the part's rows of x[row, n]. A warp has 32 * W consecutive columns
// of every kWarps-th row; the warps' sums are added in order.
template <typename A, int W>
__global__ void __launch_bounds__(kThreads) PartialColumnSums(
    const A* x, int64_t rows, int64_t cols, int64_t rows_per_part, float* partial) {
  // A word more a lane: lanes that write W words apart would share banks.
  __shared__ float sums[kWarps][32][W + 1];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * 32 + lane) * W;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * rows_per_part;
  const int64_t end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
  float sum[W] = {};
  if (col < cols) {
#pragma unroll 4
    for (int64_t row = begin + warp; row < end; row += kWarps) {
      float in[W];
      LoadFloats<W>(x + row * cols + col, in);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        sum[i] += in[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < W; ++i) {
    sums[warp][lane][i] = sum[i];
  }
  __syncthreads();
  // Now a thread has one column and adds the warps' sums in their order: the same bits every time.
  for (int i = threadIdx.x; i < 32 * W; i += kThreads) {
    const int64_t out_col = static_cast<int64_t>(blockIdx.x) * 32 * W + i;
    if (out_col < cols) {
      float total = 0.0F;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        total += sums[w][i / W][i % W];
      }
      partial[static_cast<int64_t>(blockIdx.y) * cols + out_col] = total;
    }
  }
}

// out[n] = beta * out[n] + sum over parts of partial[part, n]: 32 columns a block, each of its
// warps every kWarps-th part.
template <typename G>
__global__ void __launch_bounds__(kThreads)
    FinalColumnSums(const float* partial, int parts, int64_t cols, float beta, G* out) {
  __shared__ float sums[kWarps][32];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t col = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  float sum = 0.0F;
  if (col < cols) {
#pragma unroll 4
    for (int part = warp; part < parts; part += kWarps) {
      sum += partial[part * cols + col];
    }
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && col < cols) {
    float total = 0.0F;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      total += sums[w][lane];
    }
    // With beta 0 `out` is not read: it may hold anything, NaN included.
    out[col] = FromFloat<G>(beta == 0.0F ? total : beta * ToFloat(out[col]) + total);
  }
}

template <typename A, int W>
absl::Status LaunchPartial(const Exec& exec, const ColumnSumArgs& args) {
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  const int64_t parts = ColumnSumParts(rows);
  const dim3 grid(static_cast<unsigned>(CeilDiv(cols, 32 * W)), static_cast<unsigned>(parts));
  PartialColumnSums<A, W><<<grid, kThreads, 0, StreamOf(exec)>>>(
      args.x.as<A>(), rows, cols, CeilDiv(rows, parts), static_cast<float*>(exec.workspace.data));
  return HEARTH_CUDA_LAUNCHED("column_sum");
}

template <typename A>
absl::Status Partial(const Exec& exec, const ColumnSumArgs& args) {
  constexpr int kWidth = kPackWidth<A>;
  const bool vectors =
      args.x.cols() % kWidth == 0 && reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0;
  return vectors ? LaunchPartial<A, kWidth>(exec, args) : LaunchPartial<A, 1>(exec, args);
}

template <typename G>
absl::Status Final(const Exec& exec, const ColumnSumArgs& args) {
  const int64_t cols = args.x.cols();
  FinalColumnSums<G><<<static_cast<unsigned>(CeilDiv(cols, 32)), kThreads, 0, StreamOf(exec)>>>(
      static_cast<const float*>(exec.workspace.data),
      static_cast<int>(ColumnSumParts(args.x.rows())), cols, static_cast<float>(args.beta),
      args.out.as<G>());
  return HEARTH_CUDA_LAUNCHED("column_sum");
}

template <typename C, typename B>
__global__ void __launch_bounds__(kThreads)
    AddRowBiasKernel(C* c, int64_t rows, int64_t cols, int64_t ldc, const B* bias) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (col >= cols) {
    return;
  }
  const float add = ToFloat(bias[col]);
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    C* at = c + row * ldc + col;
    *at = FromFloat<C>(ToFloat(*at) + add);
  }
}

__global__ void ProductScalarsKernel(
    float alpha, const float* scale_a, const float* scale_b, float beta, float* out) {
  const float a = scale_a == nullptr ? 1.0F : *scale_a;
  const float b = scale_b == nullptr ? 1.0F : *scale_b;
  out[0] = __fmul_rn(alpha, __fmul_rn(a, b));
  out[1] = beta;
}

template <typename C, typename B>
absl::Status LaunchRowBias(const Exec& exec,
                           const TensorView& c,
                           int64_t ldc,
                           const TensorView& bias) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(c.cols(), kThreads)),
                  static_cast<unsigned>(c.rows() < 16384 ? c.rows() : 16384));
  AddRowBiasKernel<C, B>
      <<<grid, kThreads, 0, StreamOf(exec)>>>(c.as<C>(), c.rows(), c.cols(), ldc, bias.as<B>());
  return HEARTH_CUDA_LAUNCHED("row bias");
}

}  // namespace

absl::Status ProductScalars(const Exec& exec,
                            double alpha,
                            const float* scale_a,
                            const float* scale_b,
                            double beta,
                            float* out) {
  ProductScalarsKernel<<<1, 1, 0, StreamOf(exec)>>>(static_cast<float>(alpha), scale_a, scale_b,
                                                    static_cast<float>(beta), out);
  return HEARTH_CUDA_LAUNCHED("product scalars");
}

absl::Status ColumnSum(const Exec& exec, const ColumnSumArgs& args) {
  const absl::Status partial =
      args.x.dtype == DType::kBF16 ? Partial<Bf16>(exec, args) : Partial<float>(exec, args);
  if (!partial.ok()) {
    return partial;
  }
  return args.out.dtype == DType::kBF16 ? Final<Bf16>(exec, args) : Final<float>(exec, args);
}

absl::Status AddRowBias(const Exec& exec,
                        const TensorView& c,
                        int64_t ldc,
                        const TensorView& bias) {
  if (c.dtype == DType::kBF16) {
    return bias.dtype == DType::kBF16 ? LaunchRowBias<Bf16, Bf16>(exec, c, ldc, bias)
                                      : LaunchRowBias<Bf16, float>(exec, c, ldc, bias);
  }
  return bias.dtype == DType::kBF16 ? LaunchRowBias<float, Bf16>(exec, c, ldc, bias)
                                    : LaunchRowBias<float, float>(exec, c, ldc, bias);
}

}  // namespace hearth::kernels::cuda
