#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/cuda/block_tile.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "block_quantize";
constexpr int kThreads = kBlockThreads;
constexpr int kTile = kBlockTile;

struct Entry {
  const void* x;
  BlockQuantView quant;
  int64_t rows;
  int64_t cols;
  uint32_t first_block;
  uint32_t tiles_across;
};

// A kernel's parameter: at most 32764 bytes.
template <int kCapacity>
struct Table {
  Entry entries[kCapacity];
  int count = 0;
  int written = 0;  // of them with values
  const int32_t* skip = nullptr;
  unsigned long long* counter = nullptr;
};
constexpr int kFew = 4;
constexpr int kMany = 96;
static_assert(sizeof(Table<kMany>) <= 32764);

// Copies the tile; zeros beyond x. The largest magnitude.
template <typename A>
__device__ __forceinline__ uint32_t
LoadTile(const Entry& e, int64_t row0, int64_t col0, BlockTile<A>& tile) {
  constexpr int kPerRow = BlockTile<A>::kRowWords / 4;
  // All loads of a turn come before its first store, so that they are under way together.
  constexpr int kAtOnce = 8;
  const A* x = static_cast<const A*>(e.x);
  uint32_t bits = 0;
  for (int first = threadIdx.x; first < kTile * kPerRow; first += kThreads * kAtOnce) {
    Raw8<Bf16> chunks[kAtOnce];  // 16 bytes each
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kThreads;
      const int64_t row = row0 + at / kPerRow;
      const int64_t col = col0 + at % kPerRow * static_cast<int>(16 / sizeof(A));
      chunks[i] = Raw8<Bf16>{};
      if (row < e.rows && col < e.cols) {
        chunks[i] = LoadRaw8(reinterpret_cast<const Bf16*>(x + row * e.cols + col));
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kThreads;
      *reinterpret_cast<Raw8<Bf16>*>(tile.At(at / kPerRow, at % kPerRow * 4)) = chunks[i];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t word = chunks[i].words[k];
        bits = sizeof(A) == 2 ? __vmaxu2(bits, word & 0x7FFF7FFFU) : max(bits, word & 0x7FFFFFFFU);
      }
    }
  }
  return MagnitudeOf<A>(bits);
}

template <typename A, BlockLayout kLayout, int kCapacity>
__global__ void __launch_bounds__(kThreads, ResidentBlocks<A>(1))
    BlockQuantizeKernel(const __grid_constant__ Table<kCapacity> table) {
  extern __shared__ __align__(16) unsigned char memory[];
  BlockTile<A>& tile = *reinterpret_cast<BlockTile<A>*>(memory);
  if (table.skip != nullptr && *table.skip != 0) {
    return;
  }
  if (table.counter != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    atomicAdd(table.counter, static_cast<unsigned long long>(table.written));
  }
  const Entry& e = EntryOfBlock(table.entries, table.count);
  const uint32_t block = blockIdx.x - e.first_block;
  const int64_t row0 = static_cast<int64_t>(block / e.tiles_across) * kTile;
  const int64_t col0 = static_cast<int64_t>(block % e.tiles_across) * kTile;
  const BlockPlace place = {e.rows, e.cols, row0, col0, block == 0};
  const uint32_t largest = LoadTile(e, row0, col0, tile);
  __syncthreads();
  WriteBlockForms<A, kLayout>(e.quant, place, largest, tile);
}

template <typename A, BlockLayout kLayout, int kCapacity>
absl::Status LaunchTable(const Exec& exec, const Table<kCapacity>& table, int64_t blocks) {
  constexpr int kBytes = static_cast<int>(sizeof(BlockTile<A>));
  const auto kernel = BlockQuantizeKernel<A, kLayout, kCapacity>;
  if (kBytes > 48 * 1024) {
    HEARTH_CUDA_RETURN_IF_ERROR(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  }
  kernel<<<static_cast<unsigned>(blocks), kThreads, kBytes, StreamOf(exec)>>>(table);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

template <typename A, BlockLayout kLayout, int kCapacity>
absl::Status Launch(const Exec& exec, const BlockQuantizeArgs& args) {
  Table<kCapacity> table;
  table.skip = args.skip;
  table.counter = reinterpret_cast<unsigned long long*>(args.counter);
  int64_t blocks = 0;
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    const BlockQuantizeTensor& tensor = args.tensors[i];
    if (!tensor.quant.empty() && tensor.x.numel() > 0) {
      Entry& entry = table.entries[table.count++];
      entry.x = tensor.x.data;
      entry.quant = tensor.quant;
      table.written += tensor.quant.rows.has_values() || tensor.quant.columns.has_values() ? 1 : 0;
      entry.rows = tensor.x.rows();
      entry.cols = tensor.x.cols();
      entry.first_block = static_cast<uint32_t>(blocks);
      entry.tiles_across = static_cast<uint32_t>(CeilDiv(entry.cols, kTile));
      blocks += CeilDiv(entry.rows, kTile) * entry.tiles_across;
    }
    // A launch takes as many tensors as a kernel's parameters hold.
    if (table.count > 0 && (table.count == kCapacity || i + 1 == args.tensors.size())) {
      const absl::Status launched = LaunchTable<A, kLayout>(exec, table, blocks);
      if (!launched.ok()) {
        return launched;
      }
      table.count = 0;
      table.written = 0;
      blocks = 0;
    }
  }
  return absl::OkStatus();
}

template <typename A>
absl::Status LaunchTyped(const Exec& exec, const BlockQuantizeArgs& args) {
  return VisitLayout(args.tensors[0].quant.layout, [&](auto layout) {
    constexpr BlockLayout kLayout = decltype(layout)::value;
    return args.tensors.size() <= kFew ? Launch<A, kLayout, kFew>(exec, args)
                                       : Launch<A, kLayout, kMany>(exec, args);
  });
}

// Eight codes of E2M1 as bf16: high and low bytes by table (__byte_perm looks up four nibbles whose
// top bits are clear), then the signs.
__device__ __forceinline__ void E2m1ToBf16(uint32_t codes, uint32_t (&out)[4]) {
  // 0, 0.5, 1, 1.5, 2, 3, 4 and 6 are 0000, 3F00, 3F80, 3FC0, 4000, 4040, 4080 and 40C0 in bf16.
  const uint32_t magnitudes = codes & 0x77777777U;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t picked = half == 0 ? magnitudes : magnitudes >> 16;
    const uint32_t high = __byte_perm(0x3F3F3F00U, 0x40404040U, picked);
    const uint32_t low = __byte_perm(0xC0800000U, 0xC0804000U, picked);
    const uint32_t signs = half == 0 ? codes : codes >> 16;
    out[half * 2] =
        __byte_perm(low, high, 0x5140) | ((signs & 0x8U) << 12) | ((signs & 0x80U) << 24);
    out[half * 2 + 1] =
        __byte_perm(low, high, 0x7362) | ((signs & 0x800U) << 4) | ((signs & 0x8000U) << 16);
  }
}

// Eight values of a line times their block's scale. 128 x 128 elements a block of threads.
template <typename A, BlockLayout kLayout>
__global__ void __launch_bounds__(kThreads) BlockDequantizeKernel(const uint8_t* values,
                                                                  const uint8_t* scales,
                                                                  DType dtype,
                                                                  int64_t lines,
                                                                  int64_t extent,
                                                                  A* y) {
  __shared__ __align__(16) uint8_t tile_scales[1024];
  constexpr bool kFp4 = RowOf(kLayout).fp4;
  constexpr int kLength = RowOf(kLayout).length;
  const int64_t line0 = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t k0 = static_cast<int64_t>(blockIdx.x) * kTile;
  using Stored = typename ScaleOf<kLayout>::Stored;
  // 128 lines of scales of a byte are contiguous in cuBLASLt's order, 512 bytes for 4 blocks: the
  // tile's are one (MXFP8) or two (NVFP4) such pieces.
  constexpr bool kSwizzled = !WideScales(RowOf(kLayout));
  if constexpr (kSwizzled) {
    const int64_t across = CeilDiv(extent / kLength, 4);
    const int64_t first = k0 / kLength / 4;
    const int tiles = static_cast<int>(min(across - first, int64_t{kTile / kLength / 4}));
    if (threadIdx.x < tiles * 128) {
      reinterpret_cast<uint32_t*>(tile_scales)[threadIdx.x] = reinterpret_cast<const uint32_t*>(
          scales + (line0 / kTile * across + first) * 512)[threadIdx.x];
    }
    __syncthreads();
  }
  const int col = threadIdx.x % 16 * 8;
  const int64_t k = k0 + col;
  for (int row = threadIdx.x / 16; row < kTile; row += kThreads / 16) {
    const int64_t at = (line0 + row) * extent + k;
    if (line0 + row >= lines || k >= extent) {
      continue;
    }
    const uint8_t* const stored =
        kSwizzled
            ? tile_scales + SwizzledScaleOffset(row, col / kLength, kTile / kLength)
            // As BlockScaleOffset, which would read the table of layouts in the host's memory.
            : scales + sizeof(Stored) *
                           (k / kLength * PaddedScaleLines(lines, sizeof(Stored)) + line0 + row);
    const float scale = ScaleOf<kLayout>::Decode(*reinterpret_cast<const Stored*>(stored));
    Raw8<A> out;
    if constexpr (kFp4 && sizeof(A) == 2) {
      // A 4-bit value times an E4M3 scale has at most 6 significant bits: exact in bf16.
      uint32_t words[4];
      E2m1ToBf16(*reinterpret_cast<const uint32_t*>(values + at / 2), words);
      const __nv_bfloat162 twice = __float2bfloat162_rn(scale);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair =
            __hmul2(*reinterpret_cast<const __nv_bfloat162*>(words + i), twice);
        out.words[i] = *reinterpret_cast<const uint32_t*>(&pair);
      }
    } else {
      float v[8];
      const uint2 codes = kFp4 ? make_uint2(*reinterpret_cast<const uint32_t*>(values + at / 2), 0)
                               : *reinterpret_cast<const uint2*>(values + at);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t byte = ((i < 4 ? codes.x : codes.y) >> (i % 4 * 8)) & 0xFFU;
        const float value = kFp4                    ? DecodeE2m1((codes.x >> (i * 4)) & 15U)
                            : dtype == DType::kE4M3 ? DecodeE4m3(static_cast<uint8_t>(byte))
                                                    : DecodeE5m2(static_cast<uint8_t>(byte));
        v[i] = MulRn(value, scale);
      }
      out = PackRaw8<A>(v);
    }
    StoreRaw8(y + at, out);
  }
}

__global__ void __launch_bounds__(kThreads) UpdateBlockAmaxKernel(
    int64_t n, float* measured, float* amax, float margin, const int32_t* skip) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) {
    return;
  }
  // `measured` is cleared in any case: what a refused step has measured must not count.
  if (skip == nullptr || *skip == 0) {
    amax[i] = NextBlockAmax(measured[i], amax[i], margin);
  }
  measured[i] = 0.0F;
}

}  // namespace

absl::Status BlockQuantize(const Exec& exec, const BlockQuantizeArgs& args) {
  return LaunchTyped<Bf16>(exec, args);
}

absl::Status BlockDequantize(const Exec& exec, const BlockDequantizeArgs& args) {
  const int64_t lines = args.y.rows();
  const int64_t extent = args.y.cols();
  if (lines == 0 || extent == 0) {
    return absl::OkStatus();
  }
  const dim3 grid(static_cast<unsigned>(CeilDiv(extent, kTile)),
                  static_cast<unsigned>(CeilDiv(lines, kTile)));
  const auto* values = static_cast<const uint8_t*>(args.x.values);
  return VisitLayout(args.x.layout, [&](auto layout) -> absl::Status {
    constexpr BlockLayout kLayout = decltype(layout)::value;
    if (args.y.dtype == DType::kBF16) {
      BlockDequantizeKernel<Bf16, kLayout><<<grid, kThreads, 0, StreamOf(exec)>>>(
          values, args.x.scales, args.x.dtype, lines, extent, args.y.as<Bf16>());
    } else {
      BlockDequantizeKernel<float, kLayout><<<grid, kThreads, 0, StreamOf(exec)>>>(
          values, args.x.scales, args.x.dtype, lines, extent, args.y.as<float>());
    }
    return HEARTH_CUDA_LAUNCHED("block_dequantize");
  });
}

absl::Status UpdateBlockAmax(const Exec& exec, const UpdateBlockAmaxArgs& args) {
  if (args.n == 0) {
    return absl::OkStatus();
  }
  const auto blocks = static_cast<unsigned>(CeilDiv(args.n, kThreads));
  UpdateBlockAmaxKernel<<<blocks, kThreads, 0, StreamOf(exec)>>>(args.n, args.measured, args.amax,
                                                                 args.margin, args.skip);
  return HEARTH_CUDA_LAUNCHED("update_block_amax");
}

}  // namespace hearth::kernels::cuda
