#include "kernels/attention/document_slots.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "attention's documents";
constexpr int kThreads = 1024;
constexpr int kLanes = 32;
constexpr int kWarps = kThreads / kLanes;
constexpr int kAtOnce = 8;  // loads of a lane in flight
constexpr unsigned kAll = 0xffffffffU;

size_t ArrayBytes(int64_t count) {
  return AlignUp(static_cast<size_t>(count) * sizeof(int32_t), 256);
}

struct Strides {
  int qkv;    // elements of a row
  int out;    // the same
  int heads;  // lse is [B, heads, sequence]
  int sequence;
};

// Calls each(row, mask) for the rows of a warp in order, 32 at a time: bit i of `mask` says whether
// row - lane + i begins a document.
template <typename Each>
__device__ __forceinline__ void ForEachRow(
    const int32_t* starts, int begin, int end, int sequence, Each&& each) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int from = begin; from < end; from += kAtOnce * kLanes) {
    int start[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = from + i * kLanes + lane;
      start[i] = row < end ? __ldg(starts + row) : -1;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = from + i * kLanes + lane;
      each(row, __ballot_sync(kAll, start[i] == row % sequence));
    }
  }
}

// One block; each warp has a part of the rows. A document begins where a row's start is its own
// position.
__global__ void __launch_bounds__(kThreads) FindDocumentsKernel(
    const int32_t* __restrict__ starts, int rows, int slots, Strides strides, DocumentSlots to) {
  extern __shared__ int32_t first_row[];  // [slots + 1]
  __shared__ int counts[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int part = (rows + kWarps - 1) / kWarps;
  const int begin = min(rows, warp * part);
  const int end = min(rows, begin + part);
  int count = 0;
  ForEachRow(starts, begin, end, strides.sequence,
             [&](int, unsigned mask) { count += __popc(mask); });
  if (lane == 0) {
    counts[warp] = count;
  }
  __syncthreads();
  int next = 0;
  int all = 0;
  for (int w = 0; w < kWarps; ++w) {
    next += w < warp ? counts[w] : 0;
    all += counts[w];
  }
  ForEachRow(starts, begin, end, strides.sequence, [&](int row, unsigned mask) {
    const int index = next + __popc(mask & ((1U << lane) - 1));
    if ((mask >> lane & 1U) != 0 && index <= slots) {
      first_row[index] = row;
    }
    next += __popc(mask);
  });
  __syncthreads();
  const auto row_of = [&](int slot) { return slot < all ? first_row[slot] : rows; };
  for (int slot = static_cast<int>(threadIdx.x); slot <= slots; slot += kThreads) {
    const int row = row_of(slot);
    to.qkv[slot] = row * strides.qkv;
    to.out[slot] = row * strides.out;
    to.lse[slot] =
        row / strides.sequence * strides.heads * strides.sequence + row % strides.sequence;
    if (slot < slots) {
      to.lengths[slot] = row_of(slot + 1) - row;
    }
  }
}

}  // namespace

size_t DocumentSlotsBytes(int64_t slots) {
  return ArrayBytes(slots) + 3 * ArrayBytes(slots + 1);
}

DocumentSlots DocumentSlotsIn(void* memory, int64_t slots) {
  char* const at = static_cast<char*>(memory);
  const size_t lengths = ArrayBytes(slots);
  const size_t offsets = ArrayBytes(slots + 1);
  const auto part = [&](size_t bytes) { return reinterpret_cast<int32_t*>(at + bytes); };
  return {part(0), part(lengths), part(lengths + offsets), part(lengths + 2 * offsets)};
}

absl::Status FindDocuments(const Exec& exec,
                           const AttentionDims& dims,
                           const int32_t* starts,
                           int64_t slots,
                           const DocumentSlots& to) {
  const Strides strides = {static_cast<int>((dims.heads + 2 * dims.kv_heads) * dims.head_dim),
                           static_cast<int>(dims.heads * dims.head_dim),
                           static_cast<int>(dims.heads), static_cast<int>(dims.sequence)};
  const size_t shared = static_cast<size_t>(slots + 1) * sizeof(int32_t);
  FindDocumentsKernel<<<1, kThreads, shared, StreamOf(exec)>>>(
      starts, static_cast<int>(dims.batch * dims.sequence), static_cast<int>(slots), strides, to);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace hearth::kernels::cuda
