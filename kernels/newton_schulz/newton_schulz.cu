#include "common/base/status_macros.h"
#include "kernels/cuda/util.cuh"
#include "kernels/newton_schulz/newton_schulz.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "newton_schulz";
constexpr int kThreads = 256;
constexpr int kTile = 32;
constexpr int kRows = kThreads / kTile;  // of a tile at a time
constexpr float kEpsilon = 1e-7F;

// Matrices of one shape in one launch: source and destination of each, and its place in the batch.
struct List {
  const void* from[kNewtonSchulzBatch];
  void* to[kNewtonSchulzBatch];
  int place[kNewtonSchulzBatch];
  int count;
};
static_assert(sizeof(List) <= 4096, "what every GPU takes as a kernel's parameters");

// partial[place, part] = sum of squares of a part of the matrix: a block each.
template <typename G>
__global__ void __launch_bounds__(kThreads)
    PartialSquares(const __grid_constant__ List list, int64_t count, float* partial) {
  __shared__ float scratch[32];
  const G* x = static_cast<const G*>(list.from[blockIdx.y]);
  const int64_t part = (count + kNewtonSchulzParts - 1) / kNewtonSchulzParts;
  const int64_t begin = blockIdx.x * part;
  const int64_t end = begin + part < count ? begin + part : count;
  float sum = 0.0F;
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const float value = ToFloat(x[i]);
    sum = __fmaf_rn(value, value, sum);
  }
  sum = BlockSum(sum, scratch);
  if (threadIdx.x == 0) {
    partial[list.place[blockIdx.y] * kNewtonSchulzParts + blockIdx.x] = sum;
  }
}

// `from` is [rows, cols]; to = from / (norm + epsilon), [cols, rows] if kTranspose. Without
// `partial` nothing is divided.
template <typename From, typename To, bool kTranspose>
__global__ void __launch_bounds__(kThreads)
    CopyTiles(const __grid_constant__ List list, int64_t rows, int64_t cols, const float* partial) {
  // A word more a row: the reads by columns then hit different banks.
  __shared__ float tile[kTile][kTile + 1];
  __shared__ float scratch[32];
  float scale = 1.0F;
  if (partial != nullptr) {
    static_assert(kNewtonSchulzParts == kThreads, "a thread has one part");
    const float sum =
        BlockSum(partial[list.place[blockIdx.z] * kNewtonSchulzParts + threadIdx.x], scratch);
    // The Frobenius norm is at least the largest singular value, so all of them come to lie within
    // [0, 1], where the polynomials converge. The epsilon is for a matrix of zeros.
    scale = __frcp_rn(__fadd_rn(__fsqrt_rn(sum), kEpsilon));
  }
  const From* from = static_cast<const From*>(list.from[blockIdx.z]);
  To* to = static_cast<To*>(list.to[blockIdx.z]);
  const int lane = threadIdx.x % kTile;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTile;
#pragma unroll
  for (int r = threadIdx.x / kTile; r < kTile; r += kRows) {
    const int64_t row = first_row + r;
    const int64_t col = first_col + lane;
    if (row < rows && col < cols) {
      const float value = __fmul_rn(ToFloat(from[row * cols + col]), scale);
      if constexpr (kTranspose) {
        tile[r][lane] = value;
      } else {
        to[row * cols + col] = FromFloat<To>(value);
      }
    }
  }
  if constexpr (kTranspose) {
    __syncthreads();
#pragma unroll
    for (int r = threadIdx.x / kTile; r < kTile; r += kRows) {
      const int64_t row = first_col + r;  // of the transpose
      const int64_t col = first_row + lane;
      if (row < cols && col < rows) {
        to[row * rows + col] = FromFloat<To>(tile[lane][r]);
      }
    }
  }
}

// x = scale * x + shift * I in place, for [m, m] one after the other: a thread has an element of a
// row, a block row blockIdx.y of matrix blockIdx.z.
__global__ void __launch_bounds__(kThreads)
    ShiftKernel(Bf16* x, int64_t m, float scale, float shift) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = blockIdx.y;
  if (col < m) {
    Bf16* const at = x + (blockIdx.z * m + row) * m + col;
    const float value = __fmul_rn(ToFloat(*at), scale);
    *at = FromFloat<Bf16>(col == row ? __fadd_rn(value, shift) : value);
  }
}

// The matrices of a batch that have to be transposed, or the others. `load`: to x, else from it.
List ListOf(const NewtonSchulzBatch& batch, bool transposed, bool load) {
  List list = {};
  int place = 0;
  for (const TensorView& matrix : batch.matrices) {
    if ((matrix.rows() > matrix.cols()) == transposed) {
      Bf16* const x = static_cast<Bf16*>(batch.x) + place * matrix.numel();
      list.from[list.count] = load ? matrix.data : x;
      list.to[list.count] = load ? static_cast<void*>(x) : matrix.data;
      list.place[list.count++] = place;
    }
    ++place;
  }
  return list;
}

template <typename From, typename To, bool kTranspose>
absl::Status Copy(
    const Exec& exec, const List& list, int64_t rows, int64_t cols, const float* partial) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(cols, kTile)),
                  static_cast<unsigned>(CeilDiv(rows, kTile)), static_cast<unsigned>(list.count));
  CopyTiles<From, To, kTranspose><<<grid, kThreads, 0, StreamOf(exec)>>>(list, rows, cols, partial);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

template <typename G>
absl::Status Load(const Exec& exec, const NewtonSchulzBatch& batch) {
  const TensorView& first = batch.matrices[0];
  const int64_t m = first.rows() < first.cols() ? first.rows() : first.cols();
  const int64_t n = first.numel() / m;
  for (const bool transposed : {false, true}) {
    const List list = ListOf(batch, transposed, true);
    if (list.count == 0) {
      continue;
    }
    const dim3 grid(static_cast<unsigned>(kNewtonSchulzParts), static_cast<unsigned>(list.count));
    PartialSquares<G><<<grid, kThreads, 0, StreamOf(exec)>>>(list, m * n, batch.partial);
    HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
    HEARTH_RETURN_IF_ERROR(transposed ? (Copy<G, Bf16, true>(exec, list, n, m, batch.partial))
                                      : (Copy<G, Bf16, false>(exec, list, m, n, batch.partial)));
  }
  return absl::OkStatus();
}

template <typename G>
absl::Status Store(const Exec& exec, const NewtonSchulzBatch& batch) {
  const TensorView& first = batch.matrices[0];
  const int64_t m = first.rows() < first.cols() ? first.rows() : first.cols();
  const int64_t n = first.numel() / m;
  for (const bool transposed : {false, true}) {
    const List list = ListOf(batch, transposed, false);
    if (list.count > 0) {
      HEARTH_RETURN_IF_ERROR(transposed ? (Copy<Bf16, G, true>(exec, list, m, n, nullptr))
                                        : (Copy<Bf16, G, false>(exec, list, m, n, nullptr)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadNewtonSchulz(const Exec& exec, const NewtonSchulzBatch& batch) {
  return batch.matrices[0].dtype == DType::kBF16 ? Load<Bf16>(exec, batch)
                                                 : Load<float>(exec, batch);
}

absl::Status ShiftDiagonal(const Exec& exec, const ShiftDiagonalArgs& args) {
  const int64_t m = args.x.rows();
  const dim3 grid(static_cast<unsigned>(CeilDiv(m, kThreads)), static_cast<unsigned>(m),
                  static_cast<unsigned>(args.count));
  ShiftKernel<<<grid, kThreads, 0, StreamOf(exec)>>>(
      args.x.as<Bf16>(), m, static_cast<float>(args.scale), static_cast<float>(args.shift));
  return HEARTH_CUDA_LAUNCHED(kOp);
}

absl::Status StoreNewtonSchulz(const Exec& exec, const NewtonSchulzBatch& batch) {
  return batch.matrices[0].dtype == DType::kBF16 ? Store<Bf16>(exec, batch)
                                                 : Store<float>(exec, batch);
}

}  // namespace hearth::kernels::cuda
