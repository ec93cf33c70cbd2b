// The block-scaled outputs of a kernel (BlockQuantView, core/block_quant.h) from a tile of 128 x
// 128 values in shared memory: both forms, their magnitudes and counts. 128 is the longest Hadamard
// group and the height of a tile of scales, so that blocks of threads share nothing.
//
//   extern __shared__ __align__(16) unsigned char memory[];
//   BlockTile<A>& tile = *reinterpret_cast<BlockTile<A>*>(memory);
//   uint32_t largest = 0;                        // as RaiseMagnitude of Raw8<A>
//   for (...) {                                  // row in [0, 128), col in {0, 8, .., 120}
//     const Raw8<A> v = the values, zeros beyond the tensor;
//     largest = RaiseMagnitude(largest, v);
//     tile.Put(row, col, v);
//   }
//   __syncthreads();
//   WriteBlockForms<A, kLayout>(quant, place, MagnitudeOf<A>(largest), tile);
//
// kLayout is quant.layout (VisitLayout). block_quantize/block_quantize.cu is the plain example,
// pointwise.cuh the producers.
#pragma once

#include <cstdint>

#include "kernels/cuda/quant_tile.cuh"
#include "kernels/formats/block_scale.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels::cuda {

inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockTile = 128;  // rows and columns
inline constexpr int kBlockSegments = kBlockTile / kSpan;

// A tile in words of 4 bytes, and what goes with it. Every 16 rows are followed by 4 words, so that
// a warp that reads 8 segments of 4 columns hits 32 banks.
template <typename A>
struct BlockTile {
  static constexpr int kRowWords = kBlockTile * static_cast<int>(sizeof(A)) / 4;
  static constexpr int kWords = kBlockTile * kRowWords + kBlockSegments * 4;

  uint32_t words[kWords];
  uint8_t row_scales[1024];  // as they lie in memory
  uint8_t column_scales[1024];
  uint32_t largest[kBlockSegments * kBlockSegments];  // MeasureSquares
  uint32_t scratch[3][32];

  __device__ __forceinline__ uint32_t* At(int row, int word) {
    return words + row * kRowWords + row / kSpan * 4 + word;
  }
  // Eight values at (row, col), col a multiple of 8.
  __device__ __forceinline__ void Put(int row, int col, const Raw8<A>& v) {
    *reinterpret_cast<Raw8<A>*>(At(row, col * static_cast<int>(sizeof(A)) / 4)) = v;
  }
};

// Resident blocks of a multiprocessor to leave registers for, with `tiles` tiles each: what shared
// memory has room for. More than three (bf16; fp32: two) would spill in the loops over spans.
template <typename A>
constexpr int ResidentBlocks(int tiles) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900 && __CUDA_ARCH__ / 100 != 10
  constexpr int kSharedBytes = 100 * 1024;  // sm_86, sm_89, sm_120
#else
  constexpr int kSharedBytes = 228 * 1024;
#endif
  const int fit = kSharedBytes / (tiles * static_cast<int>(sizeof(BlockTile<A>)) + 1024);
  const int most = sizeof(A) == 2 ? 3 : 2;
  return fit < 1 ? 1 : fit < most ? fit : most;
}

// Where the tile lies: its first element in a tensor [rows, cols]. `first`: of all its tiles.
struct BlockPlace {
  int64_t rows, cols;
  int64_t row0, col0;
  bool first;
};

// The sixteen values of a row from segment `seg` on.
template <typename A>
__device__ __forceinline__ void ReadRow(BlockTile<A>& tile, int row, int seg, float (&v)[kSpan]) {
  constexpr int kSpanWords = kSpan * static_cast<int>(sizeof(A)) / 4;
  const uint4* from = reinterpret_cast<const uint4*>(tile.At(row, seg * kSpanWords));
#pragma unroll
  for (int i = 0; i < kSpanWords / 4; ++i) {
    const uint4 part = from[i];
    const uint32_t words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // bf16 is the upper half of an fp32, so two values unpack with a shift and a mask.
      if constexpr (sizeof(A) == 2) {
        v[i * 8 + k * 2] = __uint_as_float(words[k] << 16);
        v[i * 8 + k * 2 + 1] = __uint_as_float(words[k] & 0xFFFF0000U);
      } else {
        v[i * 4 + k] = __uint_as_float(words[k]);
      }
    }
  }
}

// The magnitudes of the squares that share a scale, at each of their 16 x 16 tiles, of which four
// threads measure one.
template <typename A, BlockLayout kLayout>
__device__ __forceinline__ void MeasureSquares(BlockTile<A>& tile) {
  const int square = threadIdx.x / 4;
  uint32_t largest = 0;
  for (int i = 0; i < 4; ++i) {
    float v[kSpan];
    ReadRow(tile, square / kBlockSegments * kSpan + threadIdx.x % 4 * 4 + i,
            square % kBlockSegments, v);
    largest = max(largest, LargestMagnitude(v));
  }
  // The four threads of a square are neighbours in a warp: two exchanges give all four the maximum.
  largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 1));
  largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 2));
  if (threadIdx.x % 4 == 0) {
    tile.largest[square] = largest;
  }
  __syncthreads();
  constexpr int kSpans = RowOf(kLayout).length / kSpan;
  if constexpr (kSpans > 1) {
    // A scale covers kSpans x kSpans squares. All threads read before any writes: the neighbours of
    // a square need its own magnitude, not the shared one.
    uint32_t shared = 0;
    const int at = threadIdx.x % (kBlockSegments * kBlockSegments);
    const int first = at / kBlockSegments / kSpans * kSpans * kBlockSegments +
                      at % kBlockSegments / kSpans * kSpans;
    for (int i = 0; i < kSpans * kSpans; ++i) {
      shared = max(shared, tile.largest[first + i / kSpans * kBlockSegments + i % kSpans]);
    }
    __syncthreads();
    if (threadIdx.x < kBlockSegments * kBlockSegments) {
      tile.largest[at] = shared;
    }
    __syncthreads();
  }
}

// What a thread knows of the form it works on, and what it has found. Spans are numbered as they
// lie in memory, 16 elements each: a register instead of two for an element.
struct FormState {
  const BlockForm& form;
  TensorScale tensor;
  RngKey key;
  uint32_t span;        // this thread's of the tile's first line
  uint32_t line_spans;  // of a line
  uint32_t first_span;  // of the form, among the random numbers
  int lines;            // of the tile within the tensor; 0 where this thread's segment is not
  int seg;              // this thread's segment
  uint32_t signs;       // of that segment
  bool e4m3;
  uint8_t* scales;  // in shared memory
  uint32_t largest;
  uint32_t counts;  // saturated, underflowed << 16: a thread has 64 elements

  __device__ __forceinline__ uint32_t SpanOf(int line) const {
    return span + static_cast<uint32_t>(line) * line_spans;
  }
  __device__ __forceinline__ uint64_t Element(uint32_t at) const {
    return static_cast<uint64_t>(first_span + at) * kSpan;
  }
};

__device__ __forceinline__ FormState StateOf(
    const BlockQuantView& quant, const BlockPlace& place, bool columns, int seg, uint8_t* scales) {
  FormState f = {columns ? quant.columns : quant.rows};
  f.key = quant.key;
  f.key.purpose = RngPurpose::kBlockRounding;
  if (quant.position != nullptr) {
    f.key.step = static_cast<uint32_t>(quant.position->step);
    f.key.micro_batch = quant.position->micro_batch;
  }
  const int64_t extent = columns ? place.rows : place.cols;
  const int64_t line0 = columns ? place.col0 : place.row0;
  const int64_t k = (columns ? place.row0 : place.col0) + seg * kSpan;
  const int64_t lines = (columns ? place.cols : place.rows) - line0;
  // Rows and columns of one tensor draw different random numbers: columns count on from the rows.
  f.first_span = columns ? static_cast<uint32_t>(place.rows * place.cols / kSpan) : 0;
  f.span = static_cast<uint32_t>((line0 * extent + k) / kSpan);
  f.line_spans = static_cast<uint32_t>(extent / kSpan);
  f.lines = k < extent ? static_cast<int>(min(lines, int64_t{kBlockTile})) : 0;
  f.seg = seg;
  f.signs = 0;
  if (f.form.hadamard > 0) {
    const SignWords words = SignsOf(f.form.signs, f.key.seed, f.key.step, quant.rotation);
    // Selected, not indexed: an index that is only known at run time would put `words` into local
    // memory.
    const int at = seg * kSpan % f.form.hadamard;
    const uint32_t word = at < 32   ? words.words[0]
                          : at < 64 ? words.words[1]
                          : at < 96 ? words.words[2]
                                    : words.words[3];
    f.signs = (word >> (at % 32)) & 0xFFFFU;
  }
  f.e4m3 = quant.dtype == DType::kE4M3;
  f.scales = scales;
  f.largest = 0;
  f.counts = 0;
  if (f.form.amax != nullptr) {
    f.tensor = TensorScaleOf(*f.form.amax, f.form.rounding);
  }
  return f;
}

template <int kLaneStep>
__device__ __forceinline__ void Transform(const FormState& f, float (&v)[kSpan]) {
  HadamardSpan(v, f.signs);
  // HadamardSpan has done the stages within 16 values. Each further stage pairs two spans, which
  // lie in different lanes.
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
  // One random word for a block of 16, the first of its group of eight elements.
  block.scale = EdenScale(part.base, part.squares, part.projection,
                          RngBlock(f.key, element / 8)[0] & 0xFFFFU);
  return block;
}

__device__ __forceinline__ void Count(FormState& f, const SpanCounts& counts) {
  f.counts += counts.saturated | (counts.underflowed << 16);
}

template <int kLaneStep>
__device__ __forceinline__ void StoreFp4(FormState& f,
                                         const float (&v)[kSpan],
                                         uint32_t largest,
                                         int line) {
  const uint32_t at = f.SpanOf(line);
  const E2m1Block block =
      f.form.rounding == Rounding::kEden
          ? QuantizeEdenSpan<kLaneStep>(f, v, largest, f.Element(at))
          : QuantizeE2m1(v, largest, f.form.rounding, f.tensor, f.key, f.Element(at));
  const bool inside = line < f.lines;
  // Scales beyond the tensor are zeros: a product reads whole tiles of 128 lines, and a scale that
  // is left over from before could be NaN.
  f.scales[SwizzledScaleOffset(line, f.seg, kBlockSegments)] = inside ? block.scale : 0;
  if (!inside) {
    return;
  }
  static_cast<uint2*>(f.form.values)[at] = make_uint2(block.codes.words[0], block.codes.words[1]);
  if (f.form.counts != nullptr && block.scale != kE4m3Nan) {
    Count(f, CountSpan<4>(v, block.codes.words, block.factor, kE2m1Max, block.scale == 0));
  }
}

template <BlockLayout kLayout, int kLaneStep>
__device__ __forceinline__ void StoreFp8(FormState& f,
                                         const float (&v)[kSpan],
                                         uint32_t largest,
                                         int line) {
  using Scale = ScaleOf<kLayout>;
  constexpr int kSpans = RowOf(kLayout).length / kSpan;
#pragma unroll
  for (int distance = 1; distance < kSpans; distance *= 2) {
    largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, distance * kLaneStep));
  }
  const typename Scale::Stored scale = Scale::Make(largest, MaxFiniteInverse(f.e4m3));
  // All lanes of the block know its magnitude; the first one writes the scale.
  const bool inside = line < f.lines;
  if (f.seg % kSpans == 0) {
    const typename Scale::Stored put = inside ? scale : 0;
    if constexpr (WideScales(RowOf(kLayout))) {
      reinterpret_cast<typename Scale::Stored*>(f.scales)[f.seg / kSpans * kBlockTile + line] = put;
    } else {
      f.scales[SwizzledScaleOffset(line, f.seg / kSpans, kBlockSegments / kSpans)] = put;
    }
  }
  if (!inside) {
    return;
  }
  const uint32_t at = f.SpanOf(line);
  Fp8Codes codes;
  if (Scale::IsFinite(scale)) {
    const float factor = Scale::Inverse(scale);
    if (f.form.rounding == Rounding::kNearest) {
#pragma unroll
      for (int i = 0; i < kSpan; i += 2) {
        const float a = MulRn(v[i], factor);
        const float b = MulRn(v[i + 1], factor);
        const uint32_t pair =
            f.e4m3 ? QuantizePair<__NV_E4M3>(a, b) : QuantizePair<__NV_E5M2>(a, b);
        codes.words[i / 4] |= pair << (i % 4 * 8);
      }
    } else {
      codes = EncodeFp8SpanStochastic(v, factor, f.e4m3, f.key, f.Element(at));
    }
    if (f.form.counts != nullptr) {
      const float most = MaxFinite(f.e4m3 ? DType::kE4M3 : DType::kE5M2);
      Count(f, CountSpan<8>(v, codes.words, factor, most, false));
    }
  }
  static_cast<uint4*>(f.form.values)[at] =
      make_uint4(codes.words[0], codes.words[1], codes.words[2], codes.words[3]);
}

// A span of the form: segment f.seg of line `line` of the tile; the spans of a group are kLaneStep
// lanes apart. `square`: the magnitude of its square, if that counts.
template <BlockLayout kLayout, int kLaneStep>
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
  const uint32_t scaled = RowOf(kLayout).square && squares ? square : largest;
  if constexpr (RowOf(kLayout).fp4) {
    StoreFp4<kLaneStep>(f, v, scaled, line);
  } else {
    StoreFp8<kLayout, kLaneStep>(f, v, scaled, line);
  }
}

template <typename A, BlockLayout kLayout>
__device__ __forceinline__ void QuantizeRows(FormState& f, BlockTile<A>& tile, bool squares) {
  // Eight neighbouring lanes have the eight segments of a line: the spans of a Hadamard group, or
  // of a block of scales, are one lane apart.
  const int first = threadIdx.x / 32 * 4 + threadIdx.x % 32 / kBlockSegments;
#pragma unroll 1
  for (int line = first; line < kBlockTile; line += kBlockThreads / kBlockSegments) {
    float v[kSpan];
    ReadRow(tile, line, f.seg, v);
    QuantizeSpan<kLayout, 1>(f, v, line, squares,
                             tile.largest[line / kSpan * kBlockSegments + f.seg]);
  }
}

template <typename A, BlockLayout kLayout>
__device__ __forceinline__ void QuantizeColumns(FormState& f, BlockTile<A>& tile, bool squares) {
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(A));  // columns
  // Four neighbouring lanes have four words of a row, so that a warp reads different banks; the
  // segments of a line are four lanes apart.
  const int first = threadIdx.x / 32 * 4 + threadIdx.x % 4;
#pragma unroll 1
  for (int word = first; word < BlockTile<A>::kRowWords; word += kBlockThreads / kBlockSegments) {
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
      QuantizeSpan<kLayout, 4>(f, v, line, squares,
                               tile.largest[f.seg * kBlockSegments + line / kSpan]);
    }
  }
}

// The tile's scales from shared memory to where they lie among the form's.
template <BlockLayout kLayout>
__device__ __forceinline__ void CopyScales(const FormState& f,
                                           const BlockPlace& place,
                                           bool columns) {
  constexpr int kBlock = RowOf(kLayout).length;
  const int64_t extent = columns ? place.rows : place.cols;
  const int64_t line0 = columns ? place.col0 : place.row0;
  const int64_t k0 = columns ? place.row0 : place.col0;
  // Wide scales lie by blocks and then lines. Those of a byte lie as cuBLASLt reads them, in tiles
  // of 128 lines x 4 blocks, 512 bytes each.
  if constexpr (WideScales(RowOf(kLayout))) {
    using Stored = typename ScaleOf<kLayout>::Stored;
    static_assert(kBlockTile / kBlock * kBlockTile <= kBlockThreads, "each thread copies a scale");
    const int64_t lines = PaddedScaleLines(columns ? place.cols : place.rows, sizeof(Stored));
    const int block = threadIdx.x / kBlockTile;
    const int line = threadIdx.x % kBlockTile;
    if (block < kBlockTile / kBlock && k0 + block * kBlock < extent && line0 + line < lines) {
      reinterpret_cast<Stored*>(f.form.scales)[(k0 / kBlock + block) * lines + line0 + line] =
          reinterpret_cast<const Stored*>(f.scales)[threadIdx.x];
    }
  } else {
    const int64_t across = CeilDiv(extent / kBlock, 4);
    const int64_t at = k0 / kBlock / 4;
    // With blocks of 16 there are two such tiles under 128 columns; the second is missing where the
    // tensor ends before it.
    const int tiles = static_cast<int>(min(across - at, int64_t{kBlockTile / kBlock / 4}));
    if (threadIdx.x < tiles * 128) {
      reinterpret_cast<uint32_t*>(f.form.scales +
                                  (line0 / kBlockTile * across + at) * 512)[threadIdx.x] =
          reinterpret_cast<const uint32_t*>(f.scales)[threadIdx.x];
    }
  }
}

// After a form: its scales, totals and, by the tensor's first tile, the scale of the tensor.
template <BlockLayout kLayout>
__device__ __forceinline__ void FinishForm(const FormState& f,
                                           const BlockPlace& place,
                                           bool columns,
                                           uint32_t* scratch) {
  if (f.form.has_values()) {
    CopyScales<kLayout>(f, place, columns);
    if (f.form.counts != nullptr) {
      // A thread has counted 64 elements at most and a warp 2,048: both halves of the word hold
      // that.
      const uint32_t counted = __reduce_add_sync(0xFFFFFFFF, f.counts);
      auto* counts = reinterpret_cast<unsigned long long*>(f.form.counts);
      if (threadIdx.x % 32 == 0 && (counted & 0xFFFFU) != 0) {
        atomicAdd(counts, static_cast<unsigned long long>(counted & 0xFFFFU));
      }
      if (threadIdx.x % 32 == 0 && counted >> 16 != 0) {
        atomicAdd(counts + 1, static_cast<unsigned long long>(counted >> 16));
      }
    }
    if (place.first && threadIdx.x == 0 && f.form.tensor_scale != nullptr) {
      *f.form.tensor_scale = f.tensor.decode;
    }
  }
  if (f.form.measured != nullptr) {
    RaiseAmaxOfBlock(f.form.measured, RecordedMagnitude(f.largest), scratch);
  }
}

// Everything that `quant` wants of the tile, by the kBlockThreads threads of the block, after a
// barrier that follows the last Put. `largest`: the largest magnitude among what the thread put. A
// barrier must come before the next Put. quant is best a parameter of the kernel: it is read often.
template <typename A, BlockLayout kLayout>
__device__ __forceinline__ void WriteBlockForms(const BlockQuantView& quant,
                                                const BlockPlace& place,
                                                uint32_t largest,
                                                BlockTile<A>& tile) {
  if (RowOf(kLayout).square && quant.square) {
    MeasureSquares<A, kLayout>(tile);
  }
  const int lane = threadIdx.x % 32;
  if (quant.rows.wanted()) {
    FormState f = StateOf(quant, place, false, lane % kBlockSegments, tile.row_scales);
    QuantizeRows<A, kLayout>(f, tile, quant.square);
    // All lines' scales must be in shared memory before CopyScales takes them out.
    __syncthreads();
    FinishForm<kLayout>(f, place, false, tile.scratch[0]);
  }
  if (quant.columns.wanted()) {
    FormState f = StateOf(quant, place, true, lane / 4, tile.column_scales);
    QuantizeColumns<A, kLayout>(f, tile, quant.square);
    __syncthreads();
    FinishForm<kLayout>(f, place, true, tile.scratch[1]);
  }
  if (quant.amax != nullptr) {
    RaiseAmaxOfBlock(quant.amax, RecordedMagnitude(largest), tile.scratch[2]);
  }
}

}  // namespace hearth::kernels::cuda
