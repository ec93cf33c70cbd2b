#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/cuda/quant_tile.cuh"
#include "kernels/formats/block_scale.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "block_quantize";
constexpr int kThreads = 256;
constexpr int kTile = 128;  // rows and columns: a Hadamard group and a tile of scales
constexpr int kSegments = kTile / kSpan;

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

// The tile of x in shared memory, in words of 4 bytes, and what goes with it. Every 16 rows are
// followed by 4 words, so that a warp that reads 8 segments of 4 columns hits 32 banks.
template <typename A>
struct Tile {
  static constexpr int kRowWords = kTile * static_cast<int>(sizeof(A)) / 4;
  static constexpr int kWords = kTile * kRowWords + kSegments * 4;

  uint32_t words[kWords];
  uint8_t row_scales[1024];  // as they lie in memory
  uint8_t column_scales[1024];
  uint32_t largest[kSegments * kSegments];  // of the 16 x 16 tiles
  uint32_t scratch[3][32];

  __device__ __forceinline__ uint32_t* At(int row, int word) {
    return words + row * kRowWords + row / kSpan * 4 + word;
  }
};

// Copies the tile; zeros beyond x. The largest magnitude.
template <typename A>
__device__ __forceinline__ uint32_t
LoadTile(const Entry& e, int64_t row0, int64_t col0, Tile<A>& tile) {
  constexpr int kPerRow = Tile<A>::kRowWords / 4;
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

// The sixteen values of a row from segment `seg` on.
template <typename A>
__device__ __forceinline__ void ReadRow(Tile<A>& tile, int row, int seg, float (&v)[kSpan]) {
  constexpr int kSpanWords = kSpan * static_cast<int>(sizeof(A)) / 4;
  const uint4* from = reinterpret_cast<const uint4*>(tile.At(row, seg * kSpanWords));
#pragma unroll
  for (int i = 0; i < kSpanWords / 4; ++i) {
    const uint4 part = from[i];
    const uint32_t words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (sizeof(A) == 2) {
        v[i * 8 + k * 2] = __uint_as_float(words[k] << 16);
        v[i * 8 + k * 2 + 1] = __uint_as_float(words[k] & 0xFFFF0000U);
      } else {
        v[i * 4 + k] = __uint_as_float(words[k]);
      }
    }
  }
}

// The magnitudes of the 16 x 16 tiles, four threads each.
template <typename A>
__device__ __forceinline__ void MeasureSquares(Tile<A>& tile) {
  const int square = threadIdx.x / 4;
  uint32_t largest = 0;
  for (int i = 0; i < 4; ++i) {
    float v[kSpan];
    ReadRow(tile, square / kSegments * kSpan + threadIdx.x % 4 * 4 + i, square % kSegments, v);
    largest = max(largest, LargestMagnitude(v));
  }
  largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 1));
  largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 2));
  if (threadIdx.x % 4 == 0) {
    tile.largest[square] = largest;
  }
  __syncthreads();
}

// What a thread knows of the form it works on, and what it has found.
struct FormState {
  const BlockForm& form;
  TensorScale tensor;
  RngKey key;
  uint64_t first_element;  // of the form
  int64_t lines, extent;
  int64_t line0, k0;  // of the tile
  int seg;            // this thread's segment
  uint32_t signs;     // of that segment
  bool e4m3;
  uint8_t* scales;  // in shared memory
  uint32_t largest;
  SpanCounts counts;
};

__device__ __forceinline__ FormState StateOf(const Entry& e,
                                             const RngKey& key,
                                             bool columns,
                                             int64_t row0,
                                             int64_t col0,
                                             int seg,
                                             uint8_t* scales) {
  FormState f = {columns ? e.quant.columns : e.quant.rows};
  f.key = key;
  f.first_element = columns ? static_cast<uint64_t>(e.rows * e.cols) : 0;
  f.lines = columns ? e.cols : e.rows;
  f.extent = columns ? e.rows : e.cols;
  f.line0 = columns ? col0 : row0;
  f.k0 = columns ? row0 : col0;
  f.seg = seg;
  f.signs = 0;
  if (f.form.hadamard > 0) {
    const SignWords words = SignsOf(f.form.signs, key.seed, key.step, e.quant.rotation);
    const int at = seg * kSpan % f.form.hadamard;
    const uint32_t word = at < 32   ? words.words[0]
                          : at < 64 ? words.words[1]
                          : at < 96 ? words.words[2]
                                    : words.words[3];
    f.signs = (word >> (at % 32)) & 0xFFFFU;
  }
  f.e4m3 = e.quant.dtype == DType::kE4M3;
  f.scales = scales;
  if (f.form.amax != nullptr) {
    f.tensor = TensorScaleOf(*f.form.amax, f.form.rounding);
  }
  return f;
}

template <int kLaneStep>
__device__ __forceinline__ void Transform(const FormState& f, float (&v)[kSpan]) {
  HadamardSpan(v, f.signs);
  for (int distance = 1; distance < f.form.hadamard / kSpan; distance *= 2) {
    const bool upper = (f.seg & distance) != 0;
#pragma unroll
    for (int i = 0; i < kSpan; ++i) {
      v[i] = HadamardStage(v[i], __shfl_xor_sync(0xFFFFFFFF, v[i], distance * kLaneStep), upper);
    }
  }
  const float norm = HadamardNorm(f.form.hadamard);
#pragma unroll
  for (int i = 0; i < kSpan; ++i) {
    v[i] = MulRn(v[i], norm);
  }
}

// All lanes of a warp call it, also those beyond the tensor, which hold zeros.
template <int kLaneStep>
__device__ __forceinline__ E2m1Block
QuantizeEdenSpan(const FormState& f, const float (&v)[kSpan], uint32_t largest, uint64_t element) {
  EdenBlock part = QuantizeEden(v, largest, f.tensor);
  for (int distance = 1; distance < f.form.hadamard / kSpan; distance *= 2) {
    const int lanes = distance * kLaneStep;
    part.squares = AddRn(part.squares, __shfl_xor_sync(0xFFFFFFFF, part.squares, lanes));
    part.projection = AddRn(part.projection, __shfl_xor_sync(0xFFFFFFFF, part.projection, lanes));
  }
  E2m1Block block;
  block.codes = part.codes;
  block.factor = part.factor;
  block.scale = EdenScale(part.base, part.squares, part.projection,
                          RngBlock(f.key, element / 8)[0] & 0xFFFFU);
  return block;
}

__device__ __forceinline__ void Count(FormState& f, const SpanCounts& counts) {
  f.counts.saturated += counts.saturated;
  f.counts.underflowed += counts.underflowed;
}

template <int kLaneStep>
__device__ __forceinline__ void StoreFp4(
    FormState& f, const float (&v)[kSpan], uint32_t largest, int line, bool inside, uint64_t at) {
  const uint64_t element = f.first_element + at;
  const E2m1Block block = f.form.rounding == BlockRounding::kEden
                              ? QuantizeEdenSpan<kLaneStep>(f, v, largest, element)
                              : QuantizeE2m1(v, largest, f.form.rounding, f.tensor, f.key, element);
  f.scales[SwizzledScaleOffset(line, f.seg, kSegments)] = inside ? block.scale : 0;
  if (!inside) {
    return;
  }
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(f.form.values) + at / 2) =
      make_uint2(block.codes.words[0], block.codes.words[1]);
  if (f.form.counts != nullptr && block.scale != kE4m3Nan) {
    Count(f, CountSpan<4>(v, block.codes.words, block.factor, kE2m1Max, block.scale == 0));
  }
}

template <int kLaneStep>
__device__ __forceinline__ void StoreFp8(
    FormState& f, const float (&v)[kSpan], uint32_t largest, int line, bool inside, uint64_t at) {
  largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, kLaneStep));
  const uint8_t scale = MxBlockScale(largest, MaxFiniteInverse(f.e4m3));
  if (f.seg % 2 == 0) {
    f.scales[SwizzledScaleOffset(line, f.seg / 2, kSegments / 2)] = inside ? scale : 0;
  }
  if (!inside) {
    return;
  }
  Fp8Codes codes;
  if (scale != kE8m0Nan) {
    const float factor = InverseE8m0(scale);
    if (f.form.rounding == BlockRounding::kNearest) {
#pragma unroll
      for (int i = 0; i < kSpan; i += 2) {
        const float a = MulRn(v[i], factor);
        const float b = MulRn(v[i + 1], factor);
        const uint32_t pair =
            f.e4m3 ? QuantizePair<__NV_E4M3>(a, b) : QuantizePair<__NV_E5M2>(a, b);
        codes.words[i / 4] |= pair << (i % 4 * 8);
      }
    } else {
      codes = EncodeFp8SpanStochastic(v, factor, f.e4m3, f.key, f.first_element + at);
    }
    if (f.form.counts != nullptr) {
      const float most = MaxFinite(f.e4m3 ? DType::kE4M3 : DType::kE5M2);
      Count(f, CountSpan<8>(v, codes.words, factor, most, false));
    }
  }
  *reinterpret_cast<uint4*>(static_cast<uint8_t*>(f.form.values) + at) =
      make_uint4(codes.words[0], codes.words[1], codes.words[2], codes.words[3]);
}

// A span of the form: segment f.seg of line `line` of the tile; the spans of a group are kLaneStep
// lanes apart. `square`: the magnitude of its 16 x 16 tile, if that counts.
template <bool kFp4, int kLaneStep>
__device__ __forceinline__ void QuantizeSpan(
    FormState& f, float (&v)[kSpan], int line, bool squares, uint32_t square) {
  if (f.form.hadamard > 0) {
    Transform<kLaneStep>(f, v);
  }
  const uint32_t largest = LargestMagnitude(v);
  f.largest = max(f.largest, largest);
  if (!f.form.has_values()) {
    return;
  }
  const int64_t k = f.k0 + f.seg * kSpan;
  const bool inside = f.line0 + line < f.lines && k < f.extent;
  const uint64_t at = static_cast<uint64_t>((f.line0 + line) * f.extent + k);
  if constexpr (kFp4) {
    StoreFp4<kLaneStep>(f, v, squares ? square : largest, line, inside, at);
  } else {
    StoreFp8<kLaneStep>(f, v, largest, line, inside, at);
  }
}

template <typename A, bool kFp4>
__device__ __forceinline__ void QuantizeRows(FormState& f, Tile<A>& tile, bool squares) {
  const int first = threadIdx.x / 32 * 4 + threadIdx.x % 32 / kSegments;
#pragma unroll 1
  for (int line = first; line < kTile; line += kThreads / kSegments) {
    float v[kSpan];
    ReadRow(tile, line, f.seg, v);
    QuantizeSpan<kFp4, 1>(f, v, line, squares, tile.largest[line / kSpan * kSegments + f.seg]);
  }
}

template <typename A, bool kFp4>
__device__ __forceinline__ void QuantizeColumns(FormState& f, Tile<A>& tile, bool squares) {
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(A));  // columns
  const int first = threadIdx.x / 32 * 4 + threadIdx.x % 4;
#pragma unroll 1
  for (int word = first; word < Tile<A>::kRowWords; word += kThreads / kSegments) {
    // Read again for each column: shared memory is cheaper than 16 more registers.
#pragma unroll 1
    for (int part = 0; part < kPerWord; ++part) {
      float v[kSpan];
#pragma unroll
      for (int i = 0; i < kSpan; ++i) {
        const uint32_t raw = *tile.At(f.seg * kSpan + i, word);
        const uint32_t low = sizeof(A) == 2 ? raw << 16 : raw;
        v[i] = __uint_as_float(part == 0 ? low : raw & 0xFFFF0000U);
      }
      const int line = word * kPerWord + part;
      QuantizeSpan<kFp4, 4>(f, v, line, squares, tile.largest[f.seg * kSegments + line / kSpan]);
    }
  }
}

// After a form: its scales, totals and, by the tensor's first block, the scale of the tensor.
template <bool kFp4>
__device__ __forceinline__ void FinishForm(const FormState& f, bool first, uint32_t* scratch) {
  if (f.form.has_values()) {
    constexpr int kBlock = kFp4 ? 16 : 32;
    const int64_t across = CeilDiv(f.extent / kBlock, 4);
    const int64_t at = f.k0 / kBlock / 4;
    const int tiles = static_cast<int>(min(across - at, int64_t{kFp4 ? 2 : 1}));
    if (threadIdx.x < tiles * 128) {
      reinterpret_cast<uint32_t*>(f.form.scales +
                                  (f.line0 / kTile * across + at) * 512)[threadIdx.x] =
          reinterpret_cast<const uint32_t*>(f.scales)[threadIdx.x];
    }
    if (f.form.counts != nullptr) {
      const uint32_t saturated = __reduce_add_sync(0xFFFFFFFF, f.counts.saturated);
      const uint32_t underflowed = __reduce_add_sync(0xFFFFFFFF, f.counts.underflowed);
      auto* counts = reinterpret_cast<unsigned long long*>(f.form.counts);
      if (threadIdx.x % 32 == 0 && saturated != 0) {
        atomicAdd(counts, static_cast<unsigned long long>(saturated));
      }
      if (threadIdx.x % 32 == 0 && underflowed != 0) {
        atomicAdd(counts + 1, static_cast<unsigned long long>(underflowed));
      }
    }
    if (first && threadIdx.x == 0 && f.form.tensor_scale != nullptr) {
      *f.form.tensor_scale = f.tensor.decode;
    }
  }
  if (f.form.measured != nullptr) {
    RaiseAmaxOfBlock(f.form.measured, RecordedMagnitude(f.largest), scratch);
  }
}

template <typename A, bool kFp4, int kCapacity>
__global__ void __launch_bounds__(kThreads, sizeof(A) == 2 ? 3 : 2)
    BlockQuantizeKernel(const __grid_constant__ Table<kCapacity> table) {
  extern __shared__ __align__(16) unsigned char memory[];
  Tile<A>& tile = *reinterpret_cast<Tile<A>*>(memory);
  if (table.skip != nullptr && *table.skip != 0) {
    return;
  }
  if (table.counter != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    atomicAdd(table.counter, static_cast<unsigned long long>(table.written));
  }
  int low = 0;
  for (int high = table.count; high - low > 1;) {
    const int middle = (low + high) / 2;
    (table.entries[middle].first_block <= blockIdx.x ? low : high) = middle;
  }
  const Entry& e = table.entries[low];
  const uint32_t block = blockIdx.x - e.first_block;
  const int64_t row0 = static_cast<int64_t>(block / e.tiles_across) * kTile;
  const int64_t col0 = static_cast<int64_t>(block % e.tiles_across) * kTile;
  RngKey key = e.quant.key;
  key.purpose = RngPurpose::kBlockRounding;
  if (e.quant.position != nullptr) {
    key.step = static_cast<uint32_t>(e.quant.position->step);
    key.micro_batch = e.quant.position->micro_batch;
  }
  const uint32_t largest = LoadTile(e, row0, col0, tile);
  __syncthreads();
  if (e.quant.square) {
    MeasureSquares(tile);
  }
  const int lane = threadIdx.x % 32;
  if (e.quant.rows.wanted()) {
    FormState f = StateOf(e, key, false, row0, col0, lane % kSegments, tile.row_scales);
    QuantizeRows<A, kFp4>(f, tile, e.quant.square);
    __syncthreads();
    FinishForm<kFp4>(f, block == 0, tile.scratch[0]);
  }
  if (e.quant.columns.wanted()) {
    FormState f = StateOf(e, key, true, row0, col0, lane / 4, tile.column_scales);
    QuantizeColumns<A, kFp4>(f, tile, e.quant.square);
    __syncthreads();
    FinishForm<kFp4>(f, block == 0, tile.scratch[1]);
  }
  if (e.quant.amax != nullptr) {
    RaiseAmaxOfBlock(e.quant.amax, RecordedMagnitude(largest), tile.scratch[2]);
  }
}

template <typename A, bool kFp4, int kCapacity>
absl::Status LaunchTable(const Exec& exec, const Table<kCapacity>& table, int64_t blocks) {
  constexpr int kBytes = static_cast<int>(sizeof(Tile<A>));
  const auto kernel = BlockQuantizeKernel<A, kFp4, kCapacity>;
  if (kBytes > 48 * 1024) {
    HEARTH_CUDA_RETURN_IF_ERROR(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  }
  kernel<<<static_cast<unsigned>(blocks), kThreads, kBytes, StreamOf(exec)>>>(table);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

template <typename A, bool kFp4, int kCapacity>
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
    if (table.count > 0 && (table.count == kCapacity || i + 1 == args.tensors.size())) {
      const absl::Status launched = LaunchTable<A, kFp4>(exec, table, blocks);
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
  const bool fp4 = args.tensors[0].quant.dtype == DType::kE2M1;
  if (args.tensors.size() <= kFew) {
    return fp4 ? Launch<A, true, kFew>(exec, args) : Launch<A, false, kFew>(exec, args);
  }
  return fp4 ? Launch<A, true, kMany>(exec, args) : Launch<A, false, kMany>(exec, args);
}

// Eight codes of E2M1 as bf16: high and low bytes by table (__byte_perm looks up four nibbles whose
// top bits are clear), then the signs.
__device__ __forceinline__ void E2m1ToBf16(uint32_t codes, uint32_t (&out)[4]) {
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
template <typename A>
__global__ void __launch_bounds__(kThreads) BlockDequantizeKernel(const uint8_t* values,
                                                                  const uint8_t* scales,
                                                                  DType dtype,
                                                                  int64_t lines,
                                                                  int64_t extent,
                                                                  A* y) {
  __shared__ __align__(16) uint8_t tile_scales[1024];
  const bool fp4 = dtype == DType::kE2M1;
  const int64_t line0 = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t k0 = static_cast<int64_t>(blockIdx.x) * kTile;
  const int block_length = fp4 ? 16 : 32;
  const int64_t across = CeilDiv(extent / block_length, 4);
  const int64_t first = k0 / block_length / 4;
  const int tiles = static_cast<int>(min(across - first, int64_t{fp4 ? 2 : 1}));
  if (threadIdx.x < tiles * 128) {
    reinterpret_cast<uint32_t*>(tile_scales)[threadIdx.x] = reinterpret_cast<const uint32_t*>(
        scales + (line0 / kTile * across + first) * 512)[threadIdx.x];
  }
  __syncthreads();
  const int col = threadIdx.x % 16 * 8;
  const int64_t k = k0 + col;
  for (int row = threadIdx.x / 16; row < kTile; row += kThreads / 16) {
    const int64_t at = (line0 + row) * extent + k;
    if (line0 + row >= lines || k >= extent) {
      continue;
    }
    const uint8_t code =
        tile_scales[SwizzledScaleOffset(row, col / block_length, kTile / block_length)];
    const float scale = fp4 ? DecodeE4m3(code) : DecodeE8m0(code);
    Raw8<A> out;
    if (fp4 && sizeof(A) == 2) {
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
      const uint2 codes = fp4 ? make_uint2(*reinterpret_cast<const uint32_t*>(values + at / 2), 0)
                              : *reinterpret_cast<const uint2*>(values + at);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t byte = ((i < 4 ? codes.x : codes.y) >> (i % 4 * 8)) & 0xFFU;
        const float value = fp4                     ? DecodeE2m1((codes.x >> (i * 4)) & 15U)
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
  if (skip == nullptr || *skip == 0) {
    amax[i] = NextBlockAmax(measured[i], amax[i], margin);
  }
  measured[i] = 0.0F;
}

}  // namespace

absl::Status BlockQuantize(const Exec& exec, const BlockQuantizeArgs& args) {
  return args.tensors[0].x.dtype == DType::kBF16 ? LaunchTyped<Bf16>(exec, args)
                                                 : LaunchTyped<float>(exec, args);
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
  if (args.y.dtype == DType::kBF16) {
    BlockDequantizeKernel<<<grid, kThreads, 0, StreamOf(exec)>>>(
        values, args.x.scales, args.x.dtype, lines, extent, args.y.as<Bf16>());
  } else {
    BlockDequantizeKernel<<<grid, kThreads, 0, StreamOf(exec)>>>(
        values, args.x.scales, args.x.dtype, lines, extent, args.y.as<float>());
  }
  return HEARTH_CUDA_LAUNCHED("block_dequantize");
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
