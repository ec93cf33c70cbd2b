#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/cuda/util.cuh"
#include "kernels/muon_leading/basis.h"
#include "kernels/muon_leading/muon_leading.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "muon_leading";
constexpr int kRank = formats::kLeadingRank;
constexpr int kBlock = formats::kLeadingBlock;
constexpr int kMostTogether = 16;
constexpr int kWarp = 32;
constexpr int kThreads = 256;  // of the kernels that give a warp a row
constexpr int kRowsABlock = kThreads / kWarp;
constexpr int kWidth = 4;  // elements of a thread at a time

// For the basis a thread has one product of two columns of Y, over one of kParts parts of the rows.
constexpr int kBasisThreads = 512;
constexpr int kPairs = kRank * kRank;
constexpr int kParts = kBasisThreads / kPairs;
static_assert(kBasisThreads % kPairs == 0 && kParts >= 1);

// For R a thread has a column, over one of kGroups parts of the rows.
constexpr int kGroups = 16;
static_assert(kRank <= kGroups, "a thread adds up the groups of one element of R");

constexpr int kBlocksAThread = 4;  // of codes

struct Slot {
  uint8_t* codes;
  uint8_t* scales;
  Bf16* left;
  Bf16* right;
  float* unit;
  void* grad;
  float* momentum;  // scratch from here on
  float* product;
  float* largest;
  uint32_t* dropped;
  int rows;
  int cols;
  uint32_t index;
};

struct Table {
  Slot slots[kMostTogether];
  const float* grad_scale;  // or null
  const int32_t* skip;      // or null
  float mu;
};
static_assert(sizeof(Table) <= 4096, "a kernel's parameters");

__device__ __forceinline__ bool Skips(const Table& table) {
  return table.skip != nullptr && *table.skip != 0;
}

// The calling warp's row.
__device__ __forceinline__ int RowOfWarp() {
  return static_cast<int>(blockIdx.x) * kRowsABlock + static_cast<int>(threadIdx.x) / kWarp;
}

__device__ __forceinline__ float Dot(const float (&x)[kRank], const float (&y)[kRank]) {
  float sum = 0.0F;
#pragma unroll
  for (int k = 0; k < kRank; ++k) {
    sum = __fmaf_rn(x[k], y[k], sum);
  }
  return sum;
}

// The momentum, the look ahead and Y.
template <typename G>
__global__ void __launch_bounds__(kThreads) AdvanceKernel(const __grid_constant__ Table table) {
  const Slot& slot = table.slots[blockIdx.y];
  const int row = RowOfWarp();
  if (Skips(table) || row >= slot.rows) {
    return;
  }
  const float scale = table.grad_scale != nullptr ? *table.grad_scale : 1.0F;
  const float unit = *slot.unit;
  float left[kRank];
  LoadFloats<kRank>(slot.left + int64_t{row} * kRank, left);
  float product[kRank] = {};
  for (int col = static_cast<int>(threadIdx.x) % kWarp * kWidth; col < slot.cols;
       col += kWarp * kWidth) {
    const int64_t at = int64_t{row} * slot.cols + col;
    const uint64_t codes = *reinterpret_cast<const uint16_t*>(slot.codes + at / 2);
    const float step = formats::LeadingStep(slot.scales[at / kBlock], unit);
    G* const grads = static_cast<G*>(slot.grad) + at;
    float grad[kWidth];
    float momentum[kWidth];
    LoadFloats<kWidth>(grads, grad);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float right[kRank];
      LoadFloats<kRank>(slot.right + int64_t{col + i} * kRank, right);
      const float old = __fmaf_rn(formats::LeadingCode(codes, i), step, Dot(left, right));
      const float g = __fmul_rn(grad[i], scale);
      momentum[i] = __fmaf_rn(table.mu, old, g);
      grad[i] = __fmaf_rn(table.mu, momentum[i], g);
#pragma unroll
      for (int k = 0; k < kRank; ++k) {
        product[k] = __fmaf_rn(momentum[i], right[k], product[k]);
      }
    }
    StoreFloats<kWidth>(slot.momentum + at, momentum);
    StoreFloats<kWidth>(grads, grad);
  }
#pragma unroll
  for (int k = 0; k < kRank; ++k) {
    product[k] = WarpSum(product[k]);
  }
  if (threadIdx.x % kWarp == 0) {
    StoreFloats<kRank>(slot.product + int64_t{row} * kRank, product);
  }
}

// P of Y. One block a matrix.
__global__ void __launch_bounds__(kBasisThreads) BasisKernel(const __grid_constant__ Table table) {
  __shared__ double parts[kParts][kPairs];
  __shared__ LeadingBasis basis;
  if (Skips(table)) {
    return;
  }
  const Slot& slot = table.slots[blockIdx.x];
  const int thread = static_cast<int>(threadIdx.x);
  const int pair = thread % kPairs;
  double sum = 0.0;
  for (int row = thread / kPairs; row < slot.rows; row += kParts) {
    const float* const y = slot.product + int64_t{row} * kRank;
    sum += static_cast<double>(y[pair / kRank]) * static_cast<double>(y[pair % kRank]);
  }
  parts[thread / kPairs][pair] = sum;
  __syncthreads();
  if (thread == 0) {
    double gram[kRank][kRank];
    for (int i = 0; i < kPairs; ++i) {
      double all = 0.0;
      for (int part = 0; part < kParts; ++part) {
        all += parts[part][i];
      }
      gram[i / kRank][i % kRank] = all;
    }
    FactorGram(gram, basis);
    *slot.dropped = basis.dropped;
  }
  __syncthreads();
  for (int row = thread; row < slot.rows; row += kBasisThreads) {
    float y[kRank];
    float p[kRank];
    LoadFloats<kRank>(slot.product + int64_t{row} * kRank, y);
    RowOfBasis(basis, y, p);
    StoreFloats<kRank>(slot.left + int64_t{row} * kRank, p);
  }
}

// R = M^T P.
__global__ void __launch_bounds__(kWarp* kGroups)
    ProjectKernel(const __grid_constant__ Table table) {
  __shared__ float parts[kGroups][kRank][kWarp];
  const Slot& slot = table.slots[blockIdx.y];
  const int col = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  if (Skips(table)) {
    return;
  }
  float sums[kRank] = {};
  for (int row = static_cast<int>(threadIdx.y); col < slot.cols && row < slot.rows;
       row += kGroups) {
    float left[kRank];
    LoadFloats<kRank>(slot.left + int64_t{row} * kRank, left);
    const float x = slot.momentum[int64_t{row} * slot.cols + col];
#pragma unroll
    for (int k = 0; k < kRank; ++k) {
      sums[k] = __fmaf_rn(x, left[k], sums[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kRank; ++k) {
    parts[threadIdx.y][k][threadIdx.x] = sums[k];
  }
  __syncthreads();
  const int k = static_cast<int>(threadIdx.y);
  if (k >= kRank || col >= slot.cols) {
    return;
  }
  float sum = 0.0F;
  for (int group = 0; group < kGroups; ++group) {
    sum += parts[group][k][threadIdx.x];
  }
  const bool dropped = (*slot.dropped >> k & 1U) != 0;
  const uint16_t code = dropped ? LeadingStart(slot.index, col, k) : formats::EncodeBf16(sum);
  reinterpret_cast<uint16_t*>(slot.right)[int64_t{col} * kRank + k] = code;
}

// Leaves the rest in the place of the momentum, and the largest magnitude of each row.
__global__ void __launch_bounds__(kThreads) RestKernel(const __grid_constant__ Table table) {
  const Slot& slot = table.slots[blockIdx.y];
  const int row = RowOfWarp();
  if (Skips(table) || row >= slot.rows) {
    return;
  }
  float left[kRank];
  LoadFloats<kRank>(slot.left + int64_t{row} * kRank, left);
  float largest = 0.0F;
  for (int col = static_cast<int>(threadIdx.x) % kWarp * kWidth; col < slot.cols;
       col += kWarp * kWidth) {
    float* const at = slot.momentum + int64_t{row} * slot.cols + col;
    float rest[kWidth];
    LoadFloats<kWidth>(at, rest);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float right[kRank];
      LoadFloats<kRank>(slot.right + int64_t{col + i} * kRank, right);
      rest[i] -= Dot(left, right);
      largest = MaxNan(largest, fabsf(rest[i]));
    }
    StoreFloats<kWidth>(at, rest);
  }
  largest = WarpMaxMagnitude(largest);
  if (threadIdx.x % kWarp == 0) {
    slot.largest[row] = largest;
  }
}

// Codes and scales of the rest. Each block finds the matrix's number.
__global__ void __launch_bounds__(kThreads) EncodeKernel(const __grid_constant__ Table table) {
  __shared__ float scratch[32];
  const Slot& slot = table.slots[blockIdx.y];
  const int64_t blocks = int64_t{slot.rows} * slot.cols / kBlock;
  const int64_t first = int64_t{blockIdx.x} * kThreads * kBlocksAThread;
  if (Skips(table) || first >= blocks) {
    return;
  }
  float largest = 0.0F;
  for (int row = static_cast<int>(threadIdx.x); row < slot.rows; row += kThreads) {
    largest = MaxNan(largest, slot.largest[row]);
  }
  const float unit = formats::LeadingUnit(BlockMax(largest, scratch));
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *slot.unit = unit;
  }
  for (int turn = 0; turn < kBlocksAThread; ++turn) {
    const int64_t block = first + turn * kThreads + threadIdx.x;
    if (block >= blocks) {
      return;
    }
    float x[kBlock];
    LoadFloats<kBlock>(slot.momentum + block * kBlock, x);
    const formats::LeadingBlock coded = formats::EncodeLeadingBlock(x, unit);
    slot.scales[block] = coded.scale;
    *reinterpret_cast<uint64_t*>(slot.codes + block * kBlock / 2) = coded.codes;
  }
}

Slot SlotOf(const MuonLeadingMatrix& matrix, uint8_t* scratch) {
  const int64_t rows = matrix.grad.rows();
  const int64_t cols = matrix.grad.cols();
  const MuonLeadingScratch at = ScratchOf(sizeof(float), rows, cols);
  Slot slot = {};
  slot.codes = matrix.codes.as<uint8_t>();
  slot.scales = matrix.scales.as<uint8_t>();
  slot.left = static_cast<Bf16*>(matrix.left.data);
  slot.right = static_cast<Bf16*>(matrix.right.data);
  slot.unit = matrix.unit.as<float>();
  slot.grad = matrix.grad.data;
  slot.momentum = reinterpret_cast<float*>(scratch + at.momentum);
  slot.product = reinterpret_cast<float*>(scratch + at.product);
  slot.largest = reinterpret_cast<float*>(scratch + at.largest);
  slot.dropped = reinterpret_cast<uint32_t*>(scratch + at.dropped);
  slot.rows = static_cast<int>(rows);
  slot.cols = static_cast<int>(cols);
  slot.index = matrix.index;
  return slot;
}

// The grids of a batch: `count` matrices, each kernel for the largest of them.
struct Grids {
  unsigned count = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t blocks = 0;

  dim3 Of(int64_t size, int64_t a_block) const {
    return dim3(static_cast<unsigned>(CeilDiv(size, a_block)), count);
  }
};

template <typename G>
absl::Status RunBatch(const Exec& exec, const Table& table, const Grids& grids) {
  cudaStream_t const stream = StreamOf(exec);
  AdvanceKernel<G><<<grids.Of(grids.rows, kRowsABlock), kThreads, 0, stream>>>(table);
  HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
  BasisKernel<<<grids.count, kBasisThreads, 0, stream>>>(table);
  HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
  ProjectKernel<<<grids.Of(grids.cols, kWarp), dim3(kWarp, kGroups), 0, stream>>>(table);
  HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
  RestKernel<<<grids.Of(grids.rows, kRowsABlock), kThreads, 0, stream>>>(table);
  HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
  EncodeKernel<<<grids.Of(grids.blocks, kThreads * kBlocksAThread), kThreads, 0, stream>>>(table);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

// All of one gradient type.
template <typename G>
absl::Status RunAll(const Exec& exec,
                    const MuonLeadingArgs& args,
                    absl::Span<const MuonLeadingMatrix> matrices) {
  Table table = {};
  table.grad_scale = args.grad_scale;
  table.skip = args.skip;
  table.mu = static_cast<float>(args.mu);
  Grids grids;
  auto* scratch = static_cast<uint8_t*>(exec.workspace.data);
  for (const MuonLeadingMatrix& matrix : matrices) {
    if (!IsStoredAs<G>(matrix.grad.dtype)) {
      continue;
    }
    const int64_t rows = matrix.grad.rows();
    const int64_t cols = matrix.grad.cols();
    table.slots[grids.count++] = SlotOf(matrix, scratch);
    scratch += MuonLeadingMatrixBytes(sizeof(float), rows, cols);
    grids.rows = std::max(grids.rows, rows);
    grids.cols = std::max(grids.cols, cols);
    grids.blocks = std::max(grids.blocks, rows * cols / kBlock);
  }
  return grids.count == 0 ? absl::OkStatus() : RunBatch<G>(exec, table, grids);
}

}  // namespace

absl::Status MuonLeading(const Exec& exec, const MuonLeadingArgs& args) {
  absl::Span<const MuonLeadingMatrix> rest = args.matrices;
  while (!rest.empty()) {
    const size_t count = MuonLeadingBatch(exec.device, rest);
    HEARTH_RETURN_IF_ERROR(RunAll<float>(exec, args, rest.first(count)));
    HEARTH_RETURN_IF_ERROR(RunAll<Bf16>(exec, args, rest.first(count)));
    rest.remove_prefix(count);
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels::cuda
