// The quantised outputs of a kernel (QuantView, core/tensor.h) from the values it has in registers:
// `rows` are stored at once, `columns` go through a tile of bytes in shared memory, so that both
// are written in whole 32-byte sectors in the pass that computes the values.
//
// A block owns a tile of kRows x cols values whose first row is a multiple of 16. Threads may hold
// the values in any arrangement of packs of 8 consecutive columns:
//
//   __shared__ __align__(16) uint32_t words[QuantTile<64>::Words(128)];
//   __shared__ uint32_t scratch[32];
//   const QuantTile<64> tile(words, 128);
//   const float scale = QuantScale(quant);
//   uint32_t amax = 0;
//   for (...) {                                  // row in [0, 64), col in {0, 8, .., 120}
//     v[8] = the values, rounded to the plain format;
//     amax = RaiseMagnitude(amax, v);
//     const uint2 bytes = QuantizePack(v, scale, quant.dtype == DType::kE4M3);
//     if (quant.rows != nullptr) StoreQuantRow(quant, (row0 + row) * C + col0 + col, bytes);
//     if (quant.columns != nullptr) tile.Put(row, col, bytes);
//   }
//   if (quant.columns != nullptr) {
//     __syncthreads();
//     tile.WriteColumns(quant.columns, R, row0, col0, rows of the tile within R, cols within C);
//   }
//   if (quant.amax != nullptr) RaiseAmaxOfBlock(quant.amax, amax, scratch);
//
// Alignment: rows 8 bytes and C a multiple of 8; columns 16 bytes and R, C multiples of 16. For
// anything else there is StoreQuantValue. quantize/quantize.cu is the plain example.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

// Whether tensors stored as A have quantised, block-scaled and kept forms: RequireFormStorage
// (core/exec.h) has refused them elsewhere. Launchers instantiate no kernel that writes or reads
// them without.
template <typename A>
inline constexpr bool kHasForms = std::is_same_v<A, Bf16>;

// 1 where nothing is scaled: amax alone is wanted.
__device__ __forceinline__ float QuantScale(const QuantView& quant) {
  return quant.scale != nullptr ? *quant.scale : 1.0F;
}

// Magnitudes as unsigned integers: their order is that of the values, and NaN is above infinity.
__device__ __forceinline__ uint32_t RaiseMagnitude(uint32_t bits, float v) {
  return max(bits, __float_as_uint(v) & 0x7FFFFFFFU);
}
template <int N>
__device__ __forceinline__ uint32_t RaiseMagnitude(uint32_t bits, const float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    bits = RaiseMagnitude(bits, v[i]);
  }
  return bits;
}

// The same of packs as they lie in memory, two bf16 at once: `bits` starts at 0, goes through this
// alone, and MagnitudeOf has the result.
template <typename A>
__device__ __forceinline__ uint32_t RaiseMagnitude(uint32_t bits, const Raw8<A>& raw) {
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(A)) * 2; ++i) {
    // The halves of a word are compared on their own; MagnitudeOf brings the two maxima together.
    bits = sizeof(A) == 2 ? __vmaxu2(bits, raw.words[i] & 0x7FFF7FFFU)
                          : max(bits, raw.words[i] & 0x7FFFFFFFU);
  }
  return bits;
}
template <typename A>
__device__ __forceinline__ uint32_t MagnitudeOf(uint32_t bits) {
  return sizeof(A) == 2 ? max(bits << 16, bits & 0xFFFF0000U) : bits;
}

// *amax raised to the block's largest magnitude. Every thread calls it, with the block's size a
// multiple of 32; `scratch` is 32 words of shared memory that nobody else uses at the time.
__device__ __forceinline__ void RaiseAmaxOfBlock(float* amax, uint32_t bits, uint32_t* scratch) {
  bits = __reduce_max_sync(0xFFFFFFFF, bits);
  if (threadIdx.x % 32 == 0) {
    scratch[threadIdx.x / 32] = bits;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    bits = threadIdx.x < blockDim.x / 32 ? scratch[threadIdx.x] : 0;
    bits = __reduce_max_sync(0xFFFFFFFF, bits);
    // One atomic a block, because all blocks meet at this address.
    if (threadIdx.x == 0) {
      RaiseAmax(amax, __uint_as_float(bits));
    }
  }
}

// Two values as FP8, the first in the low byte.
template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint32_t QuantizePair(float a, float b) {
  return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kFormat);
}
template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint2 QuantizePack(const float (&v)[8], float scale) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = QuantizePair<kFormat>(v[2 * i] * scale, v[2 * i + 1] * scale);
  }
  return make_uint2(pairs[0] | (pairs[1] << 16), pairs[2] | (pairs[3] << 16));
}
// round(v * scale), in the order of addresses. One branch for the eight.
__device__ __forceinline__ uint2 QuantizePack(const float (&v)[8], float scale, bool e4m3) {
  return e4m3 ? QuantizePack<__NV_E4M3>(v, scale) : QuantizePack<__NV_E5M2>(v, scale);
}

// Eight bytes of `rows` from element `at` (row * C + col), a multiple of 8.
__device__ __forceinline__ void StoreQuantRow(const QuantView& quant, int64_t at, uint2 bytes) {
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(quant.rows) + at) = bytes;
}

// One value anywhere, of any shape and alignment, to the outputs that are wanted.
__device__ __forceinline__ void StoreQuantValue(
    const QuantView& quant, int64_t R, int64_t C, int64_t row, int64_t col, float v, float scale) {
  const uint8_t byte = ToFp8(v * scale, quant.dtype == DType::kE4M3);
  if (quant.rows != nullptr) {
    static_cast<uint8_t*>(quant.rows)[row * C + col] = byte;
  }
  if (quant.columns != nullptr) {
    static_cast<uint8_t*>(quant.columns)[col * R + row] = byte;
  }
}

// Four words of four bytes each, transposed in place.
__device__ __forceinline__ void TransposeBytes(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  // First pairs of bytes of two words, then pairs of those: a transpose of 4 x 4 in eight
  // instructions.
  const uint32_t ab_low = __byte_perm(a, b, 0x5140);
  const uint32_t ab_high = __byte_perm(a, b, 0x7362);
  const uint32_t cd_low = __byte_perm(c, d, 0x5140);
  const uint32_t cd_high = __byte_perm(c, d, 0x7362);
  a = __byte_perm(ab_low, cd_low, 0x5410);
  b = __byte_perm(ab_low, cd_low, 0x7632);
  c = __byte_perm(ab_high, cd_high, 0x5410);
  d = __byte_perm(ab_high, cd_high, 0x7632);
}

// kRows x cols bytes in shared memory, row-major. Words of a row are permuted by the row's group of
// 16, so that reading several groups at once does not hit the same banks.
template <int kRows>
class QuantTile {
  static_assert(kRows == 16 || kRows == 32 || kRows == 64 || kRows == 128);
  static constexpr int kGroups = kRows / 16;
  static constexpr int kTurn = 32 / kGroups % 32;

 public:
  // 32-bit words of shared memory, aligned to 16 bytes, for `cols` columns.
  static constexpr __host__ __device__ int Words(int cols) {
    return (cols + 127) / 128 * 32 * kRows;
  }

  __device__ __forceinline__ QuantTile(uint32_t* words, int cols)
      : words_(words), stride_((cols + 127) / 128 * 32) {}

  // Eight bytes at (row, col), col a multiple of 8.
  __device__ __forceinline__ void Put(int row, int col, uint2 bytes) const {
    const int word = (col / 4) ^ (row / 16 * kTurn);
    *reinterpret_cast<uint2*>(words_ + row * stride_ + word) = bytes;
  }

  // Writes the tile's transpose to columns[col0 + c, row0 + r], c < cols, r < rows, by all threads
  // of the block; cols and rows are multiples of 16 and at most the tile's. The caller synchronises
  // between the last Put and this, and between this and the next Put.
  __device__ __forceinline__ void WriteColumns(
      void* columns, int64_t R, int64_t row0, int64_t col0, int rows, int cols) const {
    uint8_t* out = static_cast<uint8_t*>(columns) + col0 * R + row0;
    for (int task = threadIdx.x; task < cols / 4 * kGroups; task += blockDim.x) {
      const int group = task % kGroups;
      const int word = task / kGroups;
      if (group * 16 >= rows) {
        continue;
      }
      const uint32_t* from = words_ + group * 16 * stride_ + (word ^ (group * kTurn));
      // A task is 16 rows of four columns: 16 words in, and a store of 16 consecutive bytes for
      // each column.
      uint32_t in[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        in[i] = from[i * stride_];
      }
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        TransposeBytes(in[i], in[i + 1], in[i + 2], in[i + 3]);
      }
      uint8_t* to = out + int64_t{word} * 4 * R + group * 16;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        *reinterpret_cast<uint4*>(to + c * R) = make_uint4(in[c], in[4 + c], in[8 + c], in[12 + c]);
      }
    }
  }

 private:
  uint32_t* words_;
  int stride_;  // words from row to row
};

}  // namespace hearth::kernels::cuda
