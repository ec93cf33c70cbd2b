#include <cub/device/device_radix_sort.cuh>

#include "common/base/status_macros.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/util.cuh"
#include "kernels/embedding/embedding.h"
#include "kernels/embedding/segments.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "embedding";
constexpr int kForwardThreads = 256;
constexpr int kVector = 8;  // elements of a row a thread handles, if rows are aligned
constexpr int kThreads = 128;

// Tokens and positions outside their table: the nearest row (the data loader checks them; a kernel
// cannot report).
__device__ __forceinline__ int64_t Clamp(int32_t index, int64_t limit) {
  return index < 0 ? 0 : (index < limit ? index : limit - 1);
}

// A warp a row. W = 1 serves rows that are not aligned to 16 bytes.
template <typename A, int W>
__global__ void __launch_bounds__(kForwardThreads)
    GatherKernel(const A* __restrict__ table,
                 const A* __restrict__ position_table,
                 const int32_t* __restrict__ tokens,
                 const int32_t* __restrict__ positions,
                 A* __restrict__ out,
                 int64_t rows,
                 int64_t cols,
                 int64_t vocab,
                 int64_t max_position) {
  const int lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kForwardThreads / 32) + threadIdx.x / 32;
  LetNextBegin();
  if (row >= rows) {
    return;
  }
  const A* from = table + Clamp(tokens[row], vocab) * cols;
  A* to = out + row * cols;
  // Without positions the row is copied as it is, without going through floats.
  if (position_table == nullptr) {
#pragma unroll 4
    for (int64_t c = lane * W; c < cols; c += 32 * W) {
      StorePack<W>(to + c, LoadPack<W>(from + c));
    }
    return;
  }
  const A* add = position_table + Clamp(positions[row], max_position) * cols;
#pragma unroll 2
  for (int64_t c = lane * W; c < cols; c += 32 * W) {
    float a[W];
    float b[W];
    LoadFloats<W>(from + c, a);
    LoadFloats<W>(add + c, b);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      a[i] += b[i];
    }
    StoreFloats<W>(to + c, a);
  }
}

template <typename A, int W>
void Gather(const Exec& exec, const EmbeddingForwardArgs& args) {
  const int64_t rows = args.tokens.numel();
  const auto blocks = static_cast<unsigned>(CeilDiv(rows, kForwardThreads / 32));
  GatherKernel<A, W><<<blocks, kForwardThreads, 0, StreamOf(exec)>>>(
      args.table.as<A>(), args.position_table.as<A>(), args.tokens.as<int32_t>(),
      args.positions.as<int32_t>(), args.out.as<A>(), rows, args.table.cols(), args.table.rows(),
      args.position_table.rows());
}

template <typename A>
absl::Status Forward(const Exec& exec, const EmbeddingForwardArgs& args) {
  if (args.out.numel() == 0) {
    return absl::OkStatus();
  }
  if (args.table.cols() % kVector == 0 && Aligned16(args.table.data) && Aligned16(args.out.data) &&
      Aligned16(args.position_table.data)) {
    Gather<A, kVector>(exec, args);
  } else {
    Gather<A, 1>(exec, args);
  }
  return HEARTH_CUDA_LAUNCHED(kOp);
}

__global__ void __launch_bounds__(256) PairsKernel(const int32_t* __restrict__ indices,
                                                   int rows,
                                                   int64_t limit,
                                                   uint32_t* __restrict__ keys,
                                                   int32_t* __restrict__ values) {
  const int row = blockIdx.x * 256 + threadIdx.x;
  if (row < rows) {
    keys[row] = static_cast<uint32_t>(Clamp(indices[row], limit));
    values[row] = row;
  }
}

// to[i] += add[i], once rounded to the table's format.
template <int W, typename G>
__device__ __forceinline__ void AddTo(G* to, const float (&add)[W]) {
  float sum[W];
  LoadFloats<W>(to, sum);
#pragma unroll
  for (int i = 0; i < W; ++i) {
    sum[i] += add[i];
  }
  StoreFloats<W>(to, sum);
}
template <int W>
__device__ __forceinline__ void AddToTable(void* table,
                                           bool bf16,
                                           int64_t at,
                                           const float (&add)[W]) {
  if (bf16) {
    AddTo<W>(static_cast<Bf16*>(table) + at, add);
  } else {
    AddTo<W>(static_cast<float*>(table) + at, add);
  }
}

// Sorted (token, row) pairs, cut into tiles of kSegmentTile. A token whose rows all lie in one tile
// is added to the table at once; the parts of one that goes on across tiles are left in `heads`
// (the run came from the tile before) and `tails` (it starts here), [tiles, cols] each.
// Block (x, y): tile x, columns y * kThreads * W and on.
template <typename A, int W>
__global__ void __launch_bounds__(kThreads) SumTilesKernel(const A* __restrict__ d_out,
                                                           const uint32_t* __restrict__ keys,
                                                           const int32_t* __restrict__ values,
                                                           int rows,
                                                           int64_t cols,
                                                           void* table,
                                                           bool table_bf16,
                                                           float* __restrict__ heads,
                                                           float* __restrict__ tails) {
  // Element 0 is the pair before the tile, the last the one after it.
  __shared__ int64_t key[kSegmentTile + 2];
  __shared__ int32_t from[kSegmentTile];
  const int begin = blockIdx.x * kSegmentTile;
  const int count = min(kSegmentTile, rows - begin);
  for (int i = threadIdx.x; i < count + 2; i += kThreads) {
    const int at = begin + i - 1;
    // -1 is no token, so that the first run and the last one end there.
    key[i] = at >= 0 && at < rows ? static_cast<int64_t>(keys[at]) : -1;
    if (i >= 1 && i <= count) {
      from[i - 1] = values[at];
    }
  }
  __syncthreads();
  const int64_t c = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * W;
  if (c >= cols) {
    return;
  }
  constexpr int kBatch = sizeof(A) == 2 ? 8 : 4;  // rows in flight
  float sum[W] = {};
  bool first_run = true;
  for (int batch = 0; batch < count; batch += kBatch) {
    Pack<A, W> in[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (batch + b < count) {
        in[b] = LoadPack<W>(d_out + from[batch + b] * cols + c);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = batch + b;
      if (i >= count) {
        break;
      }
#pragma unroll
      for (int k = 0; k < W; ++k) {
        sum[k] += ToFloat(in[b].at[k]);
      }
      if (i + 1 < count && key[i + 2] == key[i + 1]) {
        continue;
      }
      // The run, or this tile's part of it, ends with pair i.
      // A run that came from the tile before, or goes on in the next, is added up by the block of
      // its first tile: one block, in one order.
      if (first_run && key[0] == key[1]) {
        StoreFloats<W>(heads + blockIdx.x * cols + c, sum);
      } else if (key[i + 2] == key[i + 1]) {
        StoreFloats<W>(tails + blockIdx.x * cols + c, sum);
      } else {
        AddToTable<W>(table, table_bf16, key[i + 1] * cols + c, sum);
      }
      first_run = false;
#pragma unroll
      for (int k = 0; k < W; ++k) {
        sum[k] = 0.0F;
      }
    }
  }
}

// Runs across tiles: the block of the tile in which a run starts adds its parts, in order.
template <int W>
__global__ void __launch_bounds__(kThreads) SumRunsKernel(const uint32_t* __restrict__ keys,
                                                          int rows,
                                                          int64_t cols,
                                                          const float* __restrict__ heads,
                                                          const float* __restrict__ tails,
                                                          void* table,
                                                          bool table_bf16) {
  const int tiles = gridDim.x;
  const int tile = blockIdx.x;
  const int64_t next = (static_cast<int64_t>(tile) + 1) * kSegmentTile;
  if (next >= rows) {
    return;
  }
  const uint32_t key = keys[next - 1];
  const bool starts_here = tile == 0 || keys[next - 1 - kSegmentTile] != key;
  // Only runs that start in this tile and leave it.
  if (!starts_here || keys[next] != key) {
    return;
  }
  const int64_t c = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * W;
  if (c >= cols) {
    return;
  }
  // The first tile after this one that does not begin with the key.
  int end = tiles;
  for (int low = tile + 2; low < end;) {
    const int middle = low + (end - low) / 2;
    if (keys[static_cast<int64_t>(middle) * kSegmentTile] == key) {
      low = middle + 1;
    } else {
      end = middle;
    }
  }
  float sum[W];
  LoadFloats<W>(tails + tile * cols + c, sum);
  // A tile that the run covers from end to end has left all of it in `heads`, like the one in which
  // the run ends.
#pragma unroll 4
  for (int t = tile + 1; t < end; ++t) {
    float part[W];
    LoadFloats<W>(heads + t * cols + c, part);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      sum[k] += part[k];
    }
  }
  AddToTable<W>(table, table_bf16, static_cast<int64_t>(key) * cols + c, sum);
}

// Where the parts of the workspace are.
struct Scratch {
  uint32_t* keys;
  uint32_t* sorted_keys;
  int32_t* values;
  int32_t* sorted_values;
  void* sort;
  float* heads;
  float* tails;
};

Scratch Divide(const Workspace& workspace, const SegmentScratch& layout) {
  char* base = static_cast<char*>(workspace.data);
  Scratch s;
  s.keys = reinterpret_cast<uint32_t*>(base);
  s.sorted_keys = reinterpret_cast<uint32_t*>(base + layout.pairs);
  s.values = reinterpret_cast<int32_t*>(base + 2 * layout.pairs);
  s.sorted_values = reinterpret_cast<int32_t*>(base + 3 * layout.pairs);
  s.sort = base + 4 * layout.pairs;
  s.heads = reinterpret_cast<float*>(base + 4 * layout.pairs + layout.sort);
  s.tails = reinterpret_cast<float*>(base + 4 * layout.pairs + layout.sort + layout.sums);
  return s;
}

// Fills sorted_keys and sorted_values; equal keys keep the order of their rows.
absl::Status Sort(const Exec& exec,
                  const TensorView& indices,
                  int64_t limit,
                  const Scratch& s,
                  size_t sort_bytes) {
  const int rows = static_cast<int>(indices.numel());
  PairsKernel<<<static_cast<unsigned>(CeilDiv(rows, 256)), 256, 0, StreamOf(exec)>>>(
      indices.as<int32_t>(), rows, limit, s.keys, s.values);
  HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
  int bits = 1;
  // Sorts only by the bits that an index can have: each pass takes time.
  while (bits < 32 && (int64_t{1} << bits) < limit) {
    ++bits;
  }
  size_t needed = 0;
  HEARTH_CUDA_RETURN_IF_ERROR(
      cub::DeviceRadixSort::SortPairs(nullptr, needed, s.keys, s.sorted_keys, s.values,
                                      s.sorted_values, rows, 0, bits, StreamOf(exec)));
  if (needed > sort_bytes) {
    return absl::InternalError("embedding: the sort needs more memory than was planned for it");
  }
  HEARTH_CUDA_RETURN_IF_ERROR(cub::DeviceRadixSort::SortPairs(s.sort, needed, s.keys, s.sorted_keys,
                                                              s.values, s.sorted_values, rows, 0,
                                                              bits, StreamOf(exec)));
  return absl::OkStatus();
}

template <typename A, int W>
absl::Status SumSegments(const Exec& exec,
                         const TensorView& d_out,
                         const TensorView& d_table,
                         const Scratch& s) {
  const int rows = static_cast<int>(d_out.rows());
  const int64_t cols = d_out.cols();
  const dim3 grid(static_cast<unsigned>(CeilDiv(rows, kSegmentTile)),
                  static_cast<unsigned>(CeilDiv(cols, int64_t{kThreads} * W)));
  const bool bf16 = d_table.dtype == DType::kBF16;
  SumTilesKernel<A, W><<<grid, kThreads, 0, StreamOf(exec)>>>(d_out.as<A>(), s.sorted_keys,
                                                              s.sorted_values, rows, cols,
                                                              d_table.data, bf16, s.heads, s.tails);
  HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
  SumRunsKernel<W><<<grid, kThreads, 0, StreamOf(exec)>>>(s.sorted_keys, rows, cols, s.heads,
                                                          s.tails, d_table.data, bf16);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

absl::Status ScatterAdd(const Exec& exec,
                        const TensorView& d_out,
                        const TensorView& indices,
                        const TensorView& d_table) {
  if (d_out.numel() == 0) {
    return absl::OkStatus();
  }
  const SegmentScratch layout = SegmentScratchOf(d_out.rows(), d_out.cols());
  const Scratch s = Divide(exec.workspace, layout);
  HEARTH_RETURN_IF_ERROR(Sort(exec, indices, d_table.rows(), s, layout.sort));
  const bool vectors =
      d_out.cols() % kVector == 0 && Aligned16(d_out.data) && Aligned16(d_table.data);
  if (d_out.dtype == DType::kBF16) {
    return vectors ? SumSegments<Bf16, kVector>(exec, d_out, d_table, s)
                   : SumSegments<Bf16, 1>(exec, d_out, d_table, s);
  }
  return vectors ? SumSegments<float, kVector>(exec, d_out, d_table, s)
                 : SumSegments<float, 1>(exec, d_out, d_table, s);
}

}  // namespace

absl::Status EmbeddingForward(const Exec& exec, const EmbeddingForwardArgs& args) {
  return args.table.dtype == DType::kBF16 ? Forward<Bf16>(exec, args) : Forward<float>(exec, args);
}

absl::Status EmbeddingBackward(const Exec& exec, const EmbeddingBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, EmbeddingBackwardWorkspaceBytes(args), kOp));
  if (!args.d_table.empty()) {
    HEARTH_RETURN_IF_ERROR(ScatterAdd(exec, args.d_out, args.tokens, args.d_table));
  }
  if (!args.d_position_table.empty()) {
    HEARTH_RETURN_IF_ERROR(ScatterAdd(exec, args.d_out, args.positions, args.d_position_table));
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels::cuda
