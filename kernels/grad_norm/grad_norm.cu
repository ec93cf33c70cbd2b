#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/cuda/util.cuh"
#include "kernels/grad_norm/grad_norm.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "grad_norm";
constexpr int64_t kBlock = 4096;  // elements of a partial sum: one warp's work
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kFinalThreads = 1024;
constexpr int kMaxTensors = 128;  // of one launch
// A block whose squares sum to less may have lost bits to underflow, though its elements are not 0.
constexpr double kSmallSum = 0x1p-100;
// More, or NaN: a square may have overflowed, or an element is not finite.
constexpr double kLargeSum = 0x1p127;

struct Table {
  const void* data[kMaxTensors];
  int64_t count[kMaxTensors];
  int64_t first_block[kMaxTensors + 1];  // within the launch; the last is their number
  bool bf16[kMaxTensors];
  int tensors;
};

// The tensor that owns `block`.
__device__ __forceinline__ int OwnerOf(const Table& table, int64_t block) {
  int low = 0;
  int high = table.tensors - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.first_block[middle] <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Eight elements of a lane as floats, in its pattern: packs of 16 bytes, lane after lane, so that a
// warp reads whole lines. `step` counts from 0 to 15. Elements from `n` on are 0.
// kWhole: the block is complete and aligned; packs are read at once.
template <bool kWhole, typename T>
__device__ __forceinline__ void LoadEight(
    const T* block, int64_t n, int step, int lane, float (&x)[8]) {
  constexpr int kWidth = kPackWidth<T>;
#pragma unroll
  for (int pack = 0; pack < 8 / kWidth; ++pack) {
    const int at = (step * (8 / kWidth) + pack) * 32 * kWidth + lane * kWidth;
    float part[kWidth];
    if constexpr (kWhole) {
      LoadFloats<kWidth>(block + at, part);
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        part[i] = at + i < n ? ToFloat(block[at + i]) : 0.0F;
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      x[pack * kWidth + i] = part[i];
    }
  }
}

// The sum of eight squares; `bits` gets the bits of the elements, or-ed.
__device__ __forceinline__ float SumOfEight(const float (&x)[8], unsigned int& bits) {
  float eight = x[0] * x[0];
  bits |= __float_as_uint(x[0]);
#pragma unroll
  for (int i = 1; i < 8; ++i) {
    eight = fmaf(x[i], x[i], eight);
    bits |= __float_as_uint(x[i]);
  }
  return eight;
}

// A lane's share. Same bits with and without kWhole.
template <bool kWhole, typename T>
__device__ __forceinline__ double SumOfLane(const T* block,
                                            int64_t n,
                                            int lane,
                                            unsigned int& bits) {
  constexpr int kBatch = 4;  // steps whose loads are in flight together
  double sum = 0.0;
#pragma unroll 1
  for (int first = 0; first < 16; first += kBatch) {
    float x[kBatch][8];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      LoadEight<kWhole>(block, n, first + i, lane, x[i]);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      // Eight squares lose little in fp32; the long sum does not fit into it.
      sum += static_cast<double>(SumOfEight(x[i], bits));
    }
  }
  return sum;
}

// Again, every square in double, and what is not finite counted.
template <typename T>
__device__ __noinline__ double SlowSum(const T* block, int64_t n, int lane, int64_t& nonfinite) {
  double sum = 0.0;
  unsigned int count = 0;
  for (int step = 0; step < 16; ++step) {
    float x[8];
    LoadEight<false>(block, n, step, lane, x);
    for (int i = 0; i < 8; ++i) {
      const double wide = x[i];
      sum += wide * wide;
      count += isfinite(x[i]) ? 0 : 1;
    }
  }
  nonfinite = static_cast<int64_t>(__reduce_add_sync(0xFFFFFFFF, count));
  return WarpSum(sum);
}

// The sum over one block, by one warp; every lane returns the same.
template <typename T>
__device__ __forceinline__ double SumOfBlock(const T* block, int64_t n, int64_t& nonfinite) {
  const int lane = threadIdx.x % 32;
  unsigned int bits = 0;
  double sum = n == kBlock && reinterpret_cast<uintptr_t>(block) % 16 == 0
                   ? SumOfLane<true>(block, n, lane, bits)
                   : SumOfLane<false>(block, n, lane, bits);
  sum = WarpSum(sum);
  nonfinite = 0;
  const bool nonzero = __any_sync(0xFFFFFFFF, (bits & 0x7FFFFFFF) != 0);
  // A sum of ordinary size hides nothing: an element that is not finite would have made it infinite
  // or NaN.
  if (!nonzero || (sum >= kSmallSum && sum <= kLargeSum)) {
    return sum;
  }
  return SlowSum(block, n, lane, nonfinite);
}

// A warp a block: partial sums to sums[first + block] and counts.
__global__ void __launch_bounds__(kThreads)
    BlockKernel(const __grid_constant__ Table table, double* sums, int64_t* nonfinite) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (block >= table.first_block[table.tensors]) {
    return;
  }
  const int tensor = OwnerOf(table, block);
  const int64_t begin = (block - table.first_block[tensor]) * kBlock;
  const int64_t left = table.count[tensor] - begin;
  const int64_t n = left < kBlock ? left : kBlock;
  int64_t count = 0;
  const double sum =
      table.bf16[tensor]
          ? SumOfBlock(static_cast<const Bf16*>(table.data[tensor]) + begin, n, count)
          : SumOfBlock(static_cast<const float*>(table.data[tensor]) + begin, n, count);
  if (threadIdx.x % 32 == 0) {
    sums[block] = sum;
    nonfinite[block] = count;
  }
}

// One CUDA block: thread t adds partial sums t, t + 1024, ..., then a fixed tree.
__global__ void __launch_bounds__(kFinalThreads) FinalKernel(const double* sums,
                                                             const int64_t* nonfinite,
                                                             int64_t blocks,
                                                             double* sum_squares,
                                                             int64_t* nonfinite_out) {
  __shared__ double scratch[32];
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) {
    total = 0;
  }
  double sum = 0.0;
  unsigned long long count = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < blocks; i += kFinalThreads) {
    sum += sums[i];
    count += static_cast<unsigned long long>(nonfinite[i]);
  }
  sum = BlockSum(sum, scratch);  // also orders the zeroing of `total` before the additions
  if (count != 0) {
    atomicAdd(&total, count);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    *sum_squares = sum;
    if (nonfinite_out != nullptr) {
      *nonfinite_out = static_cast<int64_t>(total);
    }
  }
}

}  // namespace

absl::Status SumSquares(const Exec& exec, const SumSquaresArgs& args) {
  int64_t blocks = 0;
  for (const TensorView& tensor : args.tensors) {
    if (tensor.dtype == DType::kF64) {
      return absl::UnimplementedError("grad_norm: f64 tensors on CUDA");
    }
    blocks += CeilDiv(tensor.numel(), kBlock);
  }
  // A sum for each block of a tensor, whatever launch makes it. FinalKernel adds them in their
  // order: the same bits in each run.
  double* sums = static_cast<double*>(exec.workspace.data);
  int64_t* nonfinite = reinterpret_cast<int64_t*>(sums + blocks);
  int64_t done = 0;
  for (size_t begin = 0; begin < args.tensors.size(); begin += kMaxTensors) {
    const size_t end = std::min(args.tensors.size(), begin + kMaxTensors);
    Table table = {};
    for (size_t i = begin; i < end; ++i) {
      const int slot = table.tensors++;
      const TensorView& tensor = args.tensors[i];
      table.data[slot] = tensor.data;
      table.count[slot] = tensor.numel();
      table.bf16[slot] = tensor.dtype == DType::kBF16;
      table.first_block[slot + 1] = table.first_block[slot] + CeilDiv(tensor.numel(), kBlock);
    }
    const int64_t of_launch = table.first_block[table.tensors];
    if (of_launch > 0) {
      BlockKernel<<<static_cast<unsigned>(CeilDiv(of_launch, kWarps)), kThreads, 0,
                    StreamOf(exec)>>>(table, sums + done, nonfinite + done);
      HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
    }
    done += of_launch;
  }
  FinalKernel<<<1, kFinalThreads, 0, StreamOf(exec)>>>(sums, nonfinite, blocks, args.sum_squares,
                                                       args.nonfinite);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace hearth::kernels::cuda
