#include <algorithm>
#include <cfloat>

#include "common/base/status_macros.h"
#include "kernels/cuda/quant_tile.cuh"
#include "kernels/quantize/quantize.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "quantize";
constexpr int kThreads = 256;
constexpr int kTileRows = 64;
constexpr int kTileCols = 128;
constexpr int kPacks = 4;  // of 8 values, a thread
constexpr int64_t kBlockValues = int64_t{kTileRows} * kTileCols;
static_assert(kThreads * kPacks * 8 == kBlockValues);

// How a tensor's blocks take their values.
enum class Path : uint8_t {
  kTiles,   // 64 x 128, transposed
  kFlat,    // 8192 consecutive values by packs: rows, amax
  kValues,  // the same one by one: any alignment, any outputs
};

struct Entry {
  const void* x;
  QuantView quant;
  int64_t rows;
  int64_t cols;
  uint32_t first_block;
  uint32_t tiles_across;
  Path path;
};

// A kernel's parameter: at most 32764 bytes.
template <int kCapacity>
struct Table {
  Entry entries[kCapacity];
  int count = 0;
  unsigned long long written = 0;  // tensors with values
  unsigned long long* counter = nullptr;
  const int32_t* skip = nullptr;
};
constexpr int kFew = 8;
constexpr int kMany = 256;
static_assert(sizeof(Table<kMany>) <= 32764);

template <typename A>
__device__ __forceinline__ uint32_t QuantizeTile(const Entry& e, uint32_t block, uint32_t* words) {
  const QuantTile<kTileRows> tile(words, kTileCols);
  const int64_t row0 = static_cast<int64_t>(block / e.tiles_across) * kTileRows;
  const int64_t col0 = static_cast<int64_t>(block % e.tiles_across) * kTileCols;
  const int rows = static_cast<int>(min(e.rows - row0, int64_t{kTileRows}));
  const int cols = static_cast<int>(min(e.cols - col0, int64_t{kTileCols}));
  const int row = threadIdx.x / 16;
  const int col = threadIdx.x % 16 * 8;
  const int64_t at = (row0 + row) * e.cols + col0 + col;
  const int64_t step = e.cols * 16;
  const A* x = static_cast<const A*>(e.x) + at;
  // All of the thread's loads before the first use, so that they are under way together.
  Raw8<A> packs[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (row + 16 * i < rows && col < cols) {
      packs[i] = LoadRaw8(x + i * step);
    }
  }
  const float scale = QuantScale(e.quant);
  const bool e4m3 = e.quant.dtype == DType::kE4M3;
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (row + 16 * i < rows && col < cols) {
      float v[8];
      Unpack(packs[i], v);
      amax = RaiseMagnitude(amax, v);
      const uint2 bytes = QuantizePack(v, scale, e4m3);
      if (e.quant.rows != nullptr) {
        StoreQuantRow(e.quant, at + i * step, bytes);
      }
      tile.Put(row + 16 * i, col, bytes);
    }
  }
  // The tile is whole: it leaves by columns, in whole lines of memory.
  __syncthreads();
  tile.WriteColumns(e.quant.columns, e.rows, row0, col0, rows, cols);
  return amax;
}

template <typename A>
__device__ __forceinline__ uint32_t QuantizeFlat(const Entry& e, int64_t begin) {
  const A* x = static_cast<const A*>(e.x) + begin;
  Raw8<A> packs[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    packs[i] = LoadRaw8(x + (i * kThreads + threadIdx.x) * 8);
  }
  const float scale = QuantScale(e.quant);
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    float v[8];
    Unpack(packs[i], v);
    amax = RaiseMagnitude(amax, v);
    if (e.quant.rows != nullptr) {
      StoreQuantRow(e.quant, begin + (i * kThreads + threadIdx.x) * 8,
                    QuantizePack(v, scale, e.quant.dtype == DType::kE4M3));
    }
  }
  return amax;
}

template <typename A>
__device__ __forceinline__ uint32_t QuantizeValues(const Entry& e, int64_t begin) {
  const int64_t end = min(begin + kBlockValues, e.rows * e.cols);
  const float scale = QuantScale(e.quant);
  uint32_t amax = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const float v = ToFloat(static_cast<const A*>(e.x)[i]);
    amax = RaiseMagnitude(amax, v);
    StoreQuantValue(e.quant, e.rows, e.cols, i / e.cols, i % e.cols, v, scale);
  }
  return amax;
}

template <typename A, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(const __grid_constant__ Table<kCapacity> table) {
  __shared__ __align__(16) uint32_t words[QuantTile<kTileRows>::Words(kTileCols)];
  __shared__ uint32_t scratch[32];
  if (table.skip != nullptr && *table.skip != 0) {
    return;
  }
  if (table.counter != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    atomicAdd(table.counter, table.written);
  }
  const Entry& e = EntryOfBlock(table.entries, table.count);
  const uint32_t block = blockIdx.x - e.first_block;
  const int64_t begin = block * kBlockValues;
  // The last block of a flat tensor may be short: it goes value by value.
  uint32_t amax;
  if (e.path == Path::kTiles) {
    amax = QuantizeTile<A>(e, block, words);
  } else if (e.path == Path::kFlat && begin + kBlockValues <= e.rows * e.cols) {
    amax = QuantizeFlat<A>(e, begin);
  } else {
    amax = QuantizeValues<A>(e, begin);
  }
  if (e.quant.amax != nullptr) {
    RaiseAmaxOfBlock(e.quant.amax, amax, scratch);
  }
}

Path PathOf(const QuantizeTensor& tensor) {
  const bool aligned = Aligned16(tensor.x.data) && Aligned16(tensor.quant.columns) &&
                       reinterpret_cast<uintptr_t>(tensor.quant.rows) % 8 == 0;
  if (!aligned) {
    return Path::kValues;
  }
  return tensor.quant.columns != nullptr ? Path::kTiles : Path::kFlat;
}

// Blocks of `entry`, which it completes.
int64_t Place(const QuantizeTensor& tensor, int64_t first_block, Entry& entry) {
  entry.x = tensor.x.data;
  entry.quant = tensor.quant;
  entry.rows = tensor.x.rows();
  entry.cols = tensor.x.cols();
  entry.first_block = static_cast<uint32_t>(first_block);
  entry.path = PathOf(tensor);
  entry.tiles_across = static_cast<uint32_t>(CeilDiv(entry.cols, kTileCols));
  return entry.path == Path::kTiles ? CeilDiv(entry.rows, kTileRows) * entry.tiles_across
                                    : CeilDiv(entry.rows * entry.cols, kBlockValues);
}

template <typename A, int kCapacity>
absl::Status Launch(const Exec& exec, const QuantizeArgs& args) {
  Table<kCapacity> table;
  table.counter = reinterpret_cast<unsigned long long*>(args.counter);
  table.skip = args.skip;
  int64_t blocks = 0;
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    const QuantizeTensor& tensor = args.tensors[i];
    if (!tensor.quant.empty() && tensor.x.numel() > 0) {
      blocks += Place(tensor, blocks, table.entries[table.count++]);
      table.written += tensor.quant.has_values() ? 1 : 0;
    }
    // A launch takes as many tensors as a kernel's parameters hold.
    if (table.count > 0 && (table.count == kCapacity || i + 1 == args.tensors.size())) {
      QuantizeKernel<A, kCapacity>
          <<<static_cast<unsigned>(blocks), kThreads, 0, StreamOf(exec)>>>(table);
      HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
      table.count = 0;
      table.written = 0;
      blocks = 0;
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kMaxScales = 4096;

struct ScalesParams {
  int n;
  int64_t history;
  float* amax;
  float* ring;
  float* scale;
  float* scale_inverse;
  int64_t* cursor;
  const int32_t* skip;
  uint32_t e5m2[kMaxScales / 32];  // one bit a scale
};

// One block, so that the cursor moves after everyone has read it.
__global__ void __launch_bounds__(1024) UpdateScalesKernel(const __grid_constant__ ScalesParams p) {
  const bool skip = p.skip != nullptr && *p.skip != 0;
  const bool delayed = p.history > 0;
  const int64_t cursor = delayed ? *p.cursor : 0;
  __syncthreads();
  for (int i = threadIdx.x; i < p.n; i += blockDim.x) {
    // The new magnitude is cleared also where the step is skipped: it must not count for the step
    // that comes instead.
    float amax = p.amax[i];
    if (delayed) {
      p.amax[i] = 0.0F;
    }
    if (skip) {
      continue;
    }
    if (delayed) {
      p.ring[cursor % p.history * p.n + i] = amax;
      for (int64_t slot = 0; slot < p.history; ++slot) {
        amax = MaxNan(p.ring[slot * p.n + i], amax);
      }
    }
    // Zero, infinity and NaN say nothing about the range: the scale stays as it is.
    float scale = p.scale[i];
    if (amax > 0.0F && !isinf(amax)) {
      const bool e5m2 = (p.e5m2[i / 32] >> (i % 32) & 1) != 0;
      // A tiny magnitude would give an infinite scale, and zeros times it NaN.
      scale = fminf(__fdiv_rn(MaxFinite(e5m2 ? DType::kE5M2 : DType::kE4M3), amax), FLT_MAX);
    }
    p.scale[i] = scale;
    p.scale_inverse[i * kScaleInverseStride] = __fdiv_rn(1.0F, scale);
  }
  if (threadIdx.x == 0 && delayed && !skip) {
    *p.cursor = cursor + 1;
  }
}

}  // namespace

absl::Status Quantize(const Exec& exec, const QuantizeArgs& args) {
  const bool bf16 = args.tensors[0].x.dtype == DType::kBF16;
  if (args.tensors.size() <= kFew) {
    return bf16 ? Launch<Bf16, kFew>(exec, args) : Launch<float, kFew>(exec, args);
  }
  return bf16 ? Launch<Bf16, kMany>(exec, args) : Launch<float, kMany>(exec, args);
}

absl::Status UpdateScales(const Exec& exec, const UpdateScalesArgs& args) {
  ScalesParams p = {static_cast<int>(args.n), args.history, args.amax, args.ring, args.scale,
                    args.scale_inverse,       args.cursor,  args.skip, {}};
  for (size_t i = 0; i < args.dtypes.size(); ++i) {
    p.e5m2[i / 32] |= uint32_t{args.dtypes[i] == DType::kE5M2} << (i % 32);
  }
  const int threads =
      static_cast<int>(std::min<int64_t>(1024, CeilDiv(std::max<int64_t>(args.n, 1), 32) * 32));
  UpdateScalesKernel<<<1, threads, 0, StreamOf(exec)>>>(p);
  return HEARTH_CUDA_LAUNCHED("update_scales");
}

}  // namespace hearth::kernels::cuda
