// Optimizer state on a GPU: plain or in blocks (common/formats/state_blocks.h), loaded and stored
// by warps that each have whole blocks; and stochastic rounding.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "common/formats/state_tables.h"
#include "kernels/core/rng.h"
#include "kernels/core/weight_update.h"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

inline constexpr int kWidth = 4;   // elements of a thread at a time: 16 bytes of f32, 8 of bf16
inline constexpr int kUnroll = 2;  // of those in flight together
inline constexpr int kWarp = 32;
// A warp's turn is a run of this many elements, in kUnroll lines of kLine: a block of states of 8
// bits is a run, one of 4 bits a line, so that a warp alone has all of it.
inline constexpr int64_t kLine = int64_t{kWarp} * kWidth;
inline constexpr int64_t kRun = kLine * kUnroll;
static_assert(kRun == 256 && kLine == 128, "blocks of common/formats/state_blocks.h");

// What a kernel's Slot says of a weight that it updates.
template <typename Slot>
void SetWeight(const UpdatedWeight& tensor, Slot& slot) {
  slot.master = tensor.master.data;
  slot.working = tensor.working.data;
  slot.amax = tensor.amax;
  slot.count = tensor.master.numel();
  slot.first_element = tensor.first_element;
  slot.lr_scale = tensor.lr_scale;
  slot.weight_decay = tensor.weight_decay;
  slot.index = tensor.index;
  slot.working_bf16 = tensor.working.dtype == DType::kBF16;
}

// kWidth elements from `at` on; kWhole: all are there and aligned, else those from `end` on are 0.
template <bool kWhole, typename T>
__device__ __forceinline__ void Load(const T* from, int64_t at, int64_t end, float (&x)[kWidth]) {
  if constexpr (kWhole) {
    LoadFloats<kWidth>(from + at, x);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      x[i] = at + i < end ? ToFloat(from[at + i]) : 0.0F;
    }
  }
}

// `x` becomes its values rounded, which `pack` has, too.
__device__ __forceinline__ void RoundTo(float (&x)[kWidth], Pack<float, kWidth>& pack) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    pack.at[i] = x[i];
  }
}
// Two at a time: one alone would go through a unit of an eighth of the rate.
__device__ __forceinline__ void RoundTo(float (&x)[kWidth], Pack<Bf16, kWidth>& pack) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 2) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x[i], x[i + 1]);
    pack.at[i] = pair.x;
    pack.at[i + 1] = pair.y;
    x[i] = ToFloat(pair.x);
    x[i + 1] = ToFloat(pair.y);
  }
}

// Rounded to T; `x` becomes what was stored.
template <bool kWhole, typename T>
__device__ __forceinline__ void Store(T* to, int64_t at, int64_t end, float (&x)[kWidth]) {
  Pack<T, kWidth> pack;
  RoundTo(x, pack);
  if constexpr (kWhole) {
    StorePack<kWidth>(to + at, pack);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (at + i < end) {
        to[at + i] = pack.at[i];
      }
    }
  }
}

// A state in blocks, in place of the type of a plain one.
template <formats::StateCodec kCodec>
struct Blocks {
  using Code = formats::StateCode<kCodec>;
  static constexpr int kBits = formats::RowOf(kCodec).bits;
  static constexpr int kBlock = formats::RowOf(kCodec).block;
  static constexpr int kBytes = kWidth * kBits / 8;  // of a thread's kWidth codes
  using Word = std::conditional_t<kBits == 8, uint32_t, uint16_t>;
};
template <typename T>
struct IsBlocks : std::false_type {};
template <formats::StateCodec kCodec>
struct IsBlocks<Blocks<kCodec>> : std::true_type {};

// The tables of a state's map, which lie in shared memory: threads read different entries at a
// time. Plain states have none.
struct NoTables {
  static constexpr int kEntries = 0;
};
template <typename T>
struct TablesOfState {
  using type = NoTables;
};
template <formats::StateCodec kCodec>
struct TablesOfState<Blocks<kCodec>> {
  using type = formats::StateTables<kCodec>;
};
template <typename T>
using TablesOf = typename TablesOfState<T>::type;

template <typename B>
__device__ constexpr formats::StateDecades kDecadesOf = B::Code::Decades();

// By all threads of a block; a barrier has to follow.
template <typename T>
__device__ __forceinline__ void SetTables(TablesOf<T>& tables) {
  if constexpr (TablesOf<T>::kEntries > 0) {
    for (int i = static_cast<int>(threadIdx.x); i < TablesOf<T>::kEntries;
         i += static_cast<int>(blockDim.x)) {
      tables.Set(i, kDecadesOf<T>.rows);
    }
  }
}

// A state of a tensor.
template <typename T>
struct StateView {
  void* data;
  float* scales;  // null of a plain state
  const TablesOf<T>& tables;
};

// What a thread has of a tensor in a turn.
using Lines = float[kUnroll][kWidth];

template <bool kWhole, typename B>
__device__ __forceinline__ uint32_t LoadCodes(const void* data, int64_t at, int64_t end) {
  const uint8_t* bytes = static_cast<const uint8_t*>(data) + at * B::kBits / 8;
  if constexpr (kWhole) {
    return *reinterpret_cast<const typename B::Word*>(bytes);
  } else {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < B::kBytes; ++i) {
      codes |= at + i * 8 / B::kBits < end ? uint32_t{bytes[i]} << (8 * i) : 0U;
    }
    return codes;
  }
}

// The codes in one word, the first in its lowest bits. What lies above a code's bits is dropped.
template <typename B>
__device__ __forceinline__ uint32_t PackCodes(const uint32_t (&codes)[kWidth]) {
  static_assert(kWidth == 4 && (B::kBits == 8 || B::kBits == 4));
  if constexpr (B::kBits == 8) {
    const uint32_t low = __byte_perm(codes[0], codes[1], 0x0040);
    return __byte_perm(low, __byte_perm(codes[2], codes[3], 0x0040), 0x5410);
  } else {
    return (codes[0] & 15U) | (codes[1] & 15U) << 4 | (codes[2] & 15U) << 8 |
           (codes[3] & 15U) << 12;
  }
}

template <bool kWhole, typename B>
__device__ __forceinline__ void StoreCodes(void* data, int64_t at, int64_t end, uint32_t codes) {
  uint8_t* bytes = static_cast<uint8_t*>(data) + at * B::kBits / 8;
  if constexpr (kWhole) {
    *reinterpret_cast<typename B::Word*>(bytes) = static_cast<typename B::Word>(codes);
  } else {
#pragma unroll
    for (int i = 0; i < B::kBytes; ++i) {
      if (at + i * 8 / B::kBits < end) {
        bytes[i] = static_cast<uint8_t>(codes >> (8 * i));
      }
    }
  }
}

// A thread's elements of the state, from `at` on in its first line.
template <bool kWhole, typename M>
__device__ __forceinline__ void LoadState(const StateView<M>& view,
                                          int64_t at,
                                          int64_t end,
                                          Lines& x) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t line = at + u * kLine;
    if constexpr (IsBlocks<M>::value) {
      const uint32_t codes = LoadCodes<kWhole, M>(view.data, line, end);
      const float scale = kWhole || line < end ? view.scales[line / M::kBlock] : 0.0F;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const uint32_t code = codes >> (i * M::kBits) & ((1U << M::kBits) - 1);
        // Behind the end a map without a zero would give a value that counts for the largest.
        const bool there = kWhole || line + i < end;
        x[u][i] = there ? __fmul_rn(view.tables.Decode(code), scale) : 0.0F;
      }
    } else {
      Load<kWhole>(static_cast<const M*>(view.data), line, end, x[u]);
    }
  }
}

// The lines [kFirst, kFirst + kCount), which are a block.
template <bool kWhole, typename B, int kFirst, int kCount>
__device__ __forceinline__ void StoreBlock(const StateView<B>& view,
                                           int64_t at,
                                           int64_t end,
                                           const Lines& x) {
  float largest = 0.0F;
#pragma unroll
  for (int u = kFirst; u < kFirst + kCount; ++u) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      largest = MaxNan(largest, kWhole || at + u * kLine + i < end ? fabsf(x[u][i]) : 0.0F);
    }
  }
  largest = WarpMaxMagnitude(largest);
  // Below it 1 / largest would be infinite, and 0 times that NaN.
  const bool zeros = largest < formats::kLeastStateScale;
  const float inverse = zeros ? 0.0F : __fdiv_rn(1.0F, largest);
#pragma unroll
  for (int u = kFirst; u < kFirst + kCount; ++u) {
    uint32_t codes[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const bool there = kWhole || at + u * kLine + i < end;
      codes[i] = there ? view.tables.Encode(__fmul_rn(x[u][i], inverse)) : 0U;
    }
    StoreCodes<kWhole, B>(view.data, at + u * kLine, end, PackCodes<B>(codes));
  }
  const int64_t first = at + kFirst * kLine;
  if (threadIdx.x % kWarp == 0 && first < end) {
    view.scales[first / B::kBlock] = zeros ? 0.0F : largest;
  }
}

template <bool kWhole, typename M>
__device__ __forceinline__ void StoreState(const StateView<M>& view,
                                           int64_t at,
                                           int64_t end,
                                           Lines& x) {
  if constexpr (!IsBlocks<M>::value) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      Store<kWhole>(static_cast<M*>(view.data), at + u * kLine, end, x[u]);
    }
  } else if constexpr (M::kBlock == kRun) {
    StoreBlock<kWhole, M, 0, kUnroll>(view, at, end, x);
  } else {
    static_assert(M::kBlock == kLine && kUnroll == 2);
    StoreBlock<kWhole, M, 0, 1>(view, at, end, x);
    StoreBlock<kWhole, M, 1, 1>(view, at, end, x);
  }
}

// As EncodeBf16Stochastic (common/formats/codecs.h), widened again; infinity and NaN, which the
// noise would make other numbers, stay as they are until Store rounds them.
__device__ __forceinline__ float RoundStochastic(float x, uint32_t word) {
  const uint32_t bits = __float_as_uint(x);
  // Adding noise below the kept bits carries into them with the probability of the cut-off part.
  const bool finite = (bits & 0x7F800000) != 0x7F800000;
  return finite ? __uint_as_float((bits + (word & 0xFFFF)) & 0xFFFF0000) : x;
}

// The four elements of a block of random words (RngBlock).
__device__ __forceinline__ void RoundStochastic(const RngKey& key,
                                                uint64_t block,
                                                float (&x)[kWidth]) {
  static_assert(kWidth == 4);
  const std::array<uint32_t, 4> words = RngBlock(key, block);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    x[i] = RoundStochastic(x[i], words[i]);
  }
}

// Whether `view` can be read kWidth elements at a time; true for none.
inline bool IsAlignedForLines(const TensorView& view) {
  const size_t bytes = kWidth * static_cast<size_t>(DTypeBits(view.dtype)) / 8;
  return reinterpret_cast<uintptr_t>(view.data) % bytes == 0;
}

}  // namespace hearth::kernels::cuda
