// The backward kernel of gated_gemm.h in FP8: dy = d_out (E5M2) wT (E4M3) stays in registers; the
// kept gate and up come through shared memory, and where they were the gradients (E5M2) leave, by
// rows and by columns, and y (E4M3) by columns. Gradients and y are rounded to bf16 on the way; dy
// is not.
//
// The tensor core's sums are short (GemmArgs::fast_accumulation), so every stage's are added to
// others in fp32, while the next stage is multiplied. This takes 192 registers for a tile of 64 x
// 128.
//
// As forward, the rows of the weight lie in a tile in such an order that the sums of a thread are
// columns in a row: 32, a block of the kept input.
#pragma once

#include "kernels/gated_gemm/fp8_turns.cuh"
#include "kernels/swiglu/arithmetic.cuh"

namespace hearth::kernels::cuda::gated {

inline constexpr int kGradientRows = 64;
// Bytes of a warpgroup's tile, in rows of 128 bytes that are swizzled as TMA does it.
struct alignas(1024) GradientTile {
  static constexpr int kBytes = kGradientRows * kGradientCols;
  uint8_t gate[kBytes];  // kept, and then its gradient
  uint8_t up[kBytes];
  uint8_t y[kBytes];
};
struct Fp8BackwardShared : Fp8Operands<7, kGradientRows, kGradientCols> {
  GradientTile tiles[2];
  TmaBarrier kept[2];

  __device__ __forceinline__ void InitBarriers() {
    Fp8Operands::InitBarriers();
    kept[0].Init(1);
    kept[1].Init(1);
  }
};

struct Fp8BackwardMaps {
  CUtensorMap d_out;  // boxes of 64 x 128
  CUtensorMap w;      // DownBoxes
  // [rows, F] each, boxes of 64 x 128: of the kept input and of the gradients' rows.
  CUtensorMap gate;
  CUtensorMap up;
  CUtensorMap d_gate;
  CUtensorMap d_up;
};
struct Fp8BackwardOutputs {
  const float* scale_d_out;
  const float* scale_w;
  const uint8_t* kept_scales;  // [rows, 2 F / 32]
  QuantView d_gate_up;         // E5M2; columns, and amax or not
  QuantView y;                 // E4M3; columns
  int64_t rows;                // a multiple of 16
};

// sums += the products of a stage.
__device__ __forceinline__ void AddStage(const float (&products)[64], float (&sums)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    sums[i] += products[i];
  }
}

// Starts the products of the stage that is next.
__device__ __forceinline__ void MultiplyGradientStage(Fp8BackwardShared& s,
                                                      Fp8Position<Fp8BackwardShared>& at,
                                                      float (&products)[64]) {
  s.full[at.ring.slot].Wait(at.ring.parity);
  const uint64_t a = OperandAlongK(SharedAddress(s.a[at.ring.slot]));
  const uint64_t b = OperandAlongK(SharedAddress(s.b[at.ring.slot]));
  BeginProducts();
#pragma unroll
  for (int i = 0; i < Fp8BackwardShared::kDepth / 32; ++i) {
    constexpr uint64_t kStep = 32 >> 4;
    MultiplyE5m2(products, a + i * kStep, b + i * kStep, i > 0);
  }
  CommitProducts();
  at.ring.Next();
}

// sums = the products of a tile.
__device__ __forceinline__ void MultiplyGradientTile(Fp8BackwardShared& s,
                                                     int group,
                                                     int32_t depth,
                                                     Fp8Position<Fp8BackwardShared>& at,
                                                     float (&sums)[64]) {
  // Two stages are under way at a time.
  float even[64];
  float odd[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    sums[i] = 0.0F;
  }
  TakeTurn(s, group, at);
  int before = at.ring.slot;
  MultiplyGradientStage(s, at, even);
  for (int32_t k = 1; k + 1 < depth; k += 2) {
    int slot = at.ring.slot;
    MultiplyGradientStage(s, at, odd);
    WaitProducts<1>();
    Release(s, before);
    AddStage(even, sums);
    before = at.ring.slot;
    MultiplyGradientStage(s, at, even);
    WaitProducts<1>();
    Release(s, slot);
    AddStage(odd, sums);
  }
  if (depth % 2 == 0) {
    const int slot = at.ring.slot;
    MultiplyGradientStage(s, at, odd);
    PassTurn(s, group);
    WaitProducts<1>();
    Release(s, before);
    AddStage(even, sums);
    WaitProducts<0>();
    Release(s, slot);
    AddStage(odd, sums);
  } else {
    PassTurn(s, group);
    WaitProducts<0>();
    Release(s, before);
    AddStage(even, sums);
  }
}

// What is the same for all tiles of a thread.
struct GradientEpilogue {
  float product_scale;
  float d_scale;
  float y_scale;
  uint32_t amax;  // of RaiseMagnitude
};

// What 16 kept bytes are multiplied by, as UseKeptScale.
__device__ __forceinline__ float UseKeptScale16(uint4& bytes, uint32_t scale) {
  KeptPack low = {make_uint2(bytes.x, bytes.y), scale};
  KeptPack high = {make_uint2(bytes.z, bytes.w), scale};
  UseKeptScale(low);
  const float factor = UseKeptScale(high);
  bytes = make_uint4(low.bytes.x, low.bytes.y, high.bytes.x, high.bytes.y);
  return factor;
}
// Values i and i + 1 of 16, i even and known when compiled.
__device__ __forceinline__ float2 KeptPairOf16(const uint4& bytes, int i, float factor) {
  const KeptPack pack = {i < 8 ? make_uint2(bytes.x, bytes.y) : make_uint2(bytes.z, bytes.w), 0};
  return KeptPairOf(pack, i % 8, factor);
}

// 16 columns of a row, in their place: `at` bytes on in all parts of the tile. kFirst: of dy.
template <int kFirst>
__device__ __forceinline__ void GradientColumns(const float (&dy)[64],
                                                GradientTile& tile,
                                                int at,
                                                uint32_t gate_scale,
                                                uint32_t up_scale,
                                                GradientEpilogue& e) {
  uint4 gate = *reinterpret_cast<const uint4*>(tile.gate + at);
  uint4 up = *reinterpret_cast<const uint4*>(tile.up + at);
  const float gate_factor = UseKeptScale16(gate, gate_scale);
  const float up_factor = UseKeptScale16(up, up_scale);
  Columns16 d_gate;
  Columns16 d_up;
  Columns16 y;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float2 g = KeptPairOf16(gate, 2 * i, gate_factor);
    const float2 u = KeptPairOf16(up, 2 * i, up_factor);
    // The two rows of a thread take turns in its sums, two columns at a time.
    const float2 low = SwigluGradient<Bf16>(g.x, u.x, dy[kFirst + 4 * i] * e.product_scale);
    const float2 high = SwigluGradient<Bf16>(g.y, u.y, dy[kFirst + 4 * i + 1] * e.product_scale);
    d_gate[i / 4].words[i % 4] = PackPair(low.x, high.x);
    d_up[i / 4].words[i % 4] = PackPair(low.y, high.y);
    y[i / 4].words[i % 4] = PackPair(SwigluOf<Bf16>(g.x, u.x), SwigluOf<Bf16>(g.y, u.y));
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // Beyond the matrix all is zero.
    e.amax = RaiseMagnitude(RaiseMagnitude(e.amax, d_gate[i]), d_up[i]);
  }
  *reinterpret_cast<uint4*>(tile.gate + at) = QuantizeColumns<__NV_E5M2>(d_gate, e.d_scale);
  *reinterpret_cast<uint4*>(tile.up + at) = QuantizeColumns<__NV_E5M2>(d_up, e.d_scale);
  *reinterpret_cast<uint4*>(tile.y + at) = QuantizeColumns<__NV_E4M3>(y, e.y_scale);
}

// Where a warpgroup's tile lies.
struct GradientPlace {
  int64_t row;
  int32_t col;
  int32_t ffn;
};

// The scales of the kept blocks of a thread: gate and up of its two rows. What does not exist is
// zero, whatever its scale.
struct KeptScales {
  uint32_t gate[2];
  uint32_t up[2];
};
__device__ __forceinline__ KeptScales LoadKeptScales(const Fp8BackwardOutputs& out,
                                                     const GradientPlace& place) {
  KeptScales scales = {{kKeptExactScale, kKeptExactScale}, {kKeptExactScale, kKeptExactScale}};
  const int32_t col = place.col + Lane() % 4 * 32;
  const int64_t blocks = place.ffn / kKeptBlock;  // of gate, or of up, in a row
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row =
        place.row + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + Lane() / 4 + half * 8;
    if (row < out.rows && col < place.ffn) {
      const uint8_t* const at = out.kept_scales + row * 2 * blocks + col / kKeptBlock;
      scales.gate[half] = __ldg(at);
      scales.up[half] = __ldg(at + blocks);
    }
  }
  return scales;
}

// The gradients and y of a warpgroup's tile, in its place.
__device__ __forceinline__ void GradientRowsOfTile(const float (&dy)[64],
                                                   GradientTile& tile,
                                                   const KeptScales& scales,
                                                   GradientEpilogue& e) {
  // The first of 16 bytes of the thread's 32 in a row: parts of a row of 128 bytes are swizzled.
  const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + Lane() / 4;
  const int part = Lane() % 4 * 2;
  const int first = row * 128 + ((part ^ row % 8) * 16);
  const int second = row * 128 + (((part + 1) ^ row % 8) * 16);
  constexpr int kNextRow = 8 * 128;
  GradientColumns<0>(dy, tile, first, scales.gate[0], scales.up[0], e);
  GradientColumns<32>(dy, tile, second, scales.gate[0], scales.up[0], e);
  GradientColumns<2>(dy, tile, first + kNextRow, scales.gate[1], scales.up[1], e);
  GradientColumns<34>(dy, tile, second + kNextRow, scales.gate[1], scales.up[1], e);
}

// Four words of four bytes each, transposed in place; `turned`: the words are c, d, a, b.
__device__ __forceinline__ void TransposeBytesOf(uint32_t (&words)[16], int first, bool turned) {
  const uint32_t low = turned ? 0x1054 : 0x5410;
  const uint32_t high = turned ? 0x3276 : 0x7632;
  const uint32_t ab_low = __byte_perm(words[first], words[first + 1], 0x5140);
  const uint32_t ab_high = __byte_perm(words[first], words[first + 1], 0x7362);
  const uint32_t cd_low = __byte_perm(words[first + 2], words[first + 3], 0x5140);
  const uint32_t cd_high = __byte_perm(words[first + 2], words[first + 3], 0x7362);
  words[first] = __byte_perm(ab_low, cd_low, low);
  words[first + 1] = __byte_perm(ab_low, cd_low, high);
  words[first + 2] = __byte_perm(ab_high, cd_high, low);
  words[first + 3] = __byte_perm(ab_high, cd_high, high);
}

// A part of a tile by columns, to `columns` [., rows], which is at the tile's first column. A
// thread has four columns of 16 rows.
__device__ __forceinline__ void StoreGradientColumns(const uint8_t* part,
                                                     uint8_t* columns,
                                                     const GradientPlace& place,
                                                     int64_t rows) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int group = thread % 4;  // of 16 rows
  const int word = thread / 4;
  const int64_t row = place.row + group * 16;
  if (row >= rows || place.col + word * 4 >= place.ffn) {
    return;
  }
  // Neighbouring groups read rows in another order, so that they do not meet in the same banks.
  const bool turned = group % 2 != 0;
  uint32_t words[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int of = i ^ (turned ? 2 : 0);
    const int at = (group * 16 + of) * 128 + ((word / 4) ^ of % 8) * 16 + word % 4 * 4;
    words[i] = *reinterpret_cast<const uint32_t*>(part + at);
  }
#pragma unroll
  for (int i = 0; i < 16; i += 4) {
    TransposeBytesOf(words, i, turned);
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    *reinterpret_cast<uint4*>(columns + (word * 4 + c) * rows + row) =
        make_uint4(words[c], words[4 + c], words[8 + c], words[12 + c]);
  }
}

// All that leaves of a warpgroup's tile, which all of its threads have written.
__device__ __forceinline__ void StoreGradientTile(const GradientTile& tile,
                                                  const Fp8BackwardMaps& maps,
                                                  const Fp8BackwardOutputs& out,
                                                  const GradientPlace& place) {
  if (threadIdx.x % 128 == 0) {
    StoreTile(maps.d_gate, place.col, static_cast<int32_t>(place.row), tile.gate);
    StoreTile(maps.d_up, place.col, static_cast<int32_t>(place.row), tile.up);
    CommitStores();
  }
  auto* const d_columns = static_cast<uint8_t*>(out.d_gate_up.columns);
  auto* const y_columns = static_cast<uint8_t*>(out.y.columns);
  const int64_t at = place.col * out.rows;
  StoreGradientColumns(tile.gate, d_columns + at, place, out.rows);
  StoreGradientColumns(tile.up, d_columns + place.ffn * out.rows + at, place, out.rows);
  StoreGradientColumns(tile.y, y_columns + at, place, out.rows);
}

// One tile of a warpgroup, whose part of shared memory nobody uses any more.
__device__ __forceinline__ void Fp8BackwardTile(Fp8BackwardShared& s,
                                                const Fp8BackwardMaps& maps,
                                                const Fp8BackwardOutputs& out,
                                                const GradientPlace& place,
                                                int group,
                                                int32_t depth,
                                                uint32_t kept_parity,
                                                Fp8Position<Fp8BackwardShared>& at,
                                                GradientEpilogue& e) {
  GradientTile& tile = s.tiles[group];
  if (threadIdx.x % 128 == 0) {
    // They come while the products are computed.
    s.kept[group].ArriveAndExpect(2 * GradientTile::kBytes);
    LoadTile(tile.gate, maps.gate, place.col, static_cast<int32_t>(place.row), s.kept[group]);
    LoadTile(tile.up, maps.up, place.col, static_cast<int32_t>(place.row), s.kept[group]);
  }
  const KeptScales scales = LoadKeptScales(out, place);
  float dy[64];
  MultiplyGradientTile(s, group, depth, at, dy);
  s.kept[group].Wait(kept_parity);
  GradientRowsOfTile(dy, tile, scales, e);
  // All threads make their writes visible to TMA before they meet; only then one of them starts the
  // copy.
  FenceForTma();
  NamedBarrier(static_cast<uint32_t>(1 + group), 128);
  StoreGradientTile(tile, maps, out, place);
  if (threadIdx.x % 128 == 0) {
    WaitStoresRead<0>();
  }
  // The next tile's kept input is written over what all have read now.
  FenceForTma();
  NamedBarrier(static_cast<uint32_t>(1 + group), 128);
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    Fp8BackwardKernel(const __grid_constant__ Fp8BackwardMaps maps,
                      Fp8BackwardOutputs out,
                      Tiles tiles) {
#if HEARTH_HOPPER_CODE
  using S = Fp8BackwardShared;
  extern __shared__ uint8_t memory[];
  auto& s = Prepare<S>(memory);
  const uint32_t rank = ClusterRank();
  const int group = Fp8Group();
  if (group < 0) {
    GiveRegisters<40>();
    if (threadIdx.x == 0) {
      CopyFp8Operands(s, maps.d_out, maps.w, tiles, rank);
    }
  } else {
    TakeRegisters<232>();
    Fp8Position<S> at(group, tiles);
    GradientEpilogue e = {*out.scale_d_out * *out.scale_w, QuantScale(out.d_gate_up),
                          QuantScale(out.y), 0};
    uint32_t kept_parity = 0;
    ForEachTile(tiles, rank, group, 2, [&](int32_t row, int32_t col) {
      const GradientPlace place = {int64_t{row} * kGradientRows, col * kGradientCols, tiles.ffn};
      Fp8BackwardTile(s, maps, out, place, group, tiles.depth, kept_parity, at, e);
      kept_parity ^= 1;
      at.ring.Skip(tiles.depth);  // the other warpgroup's tile
    });
    RaiseAmaxOfWarp(out.d_gate_up.amax, e.amax);
    // The block's memory must not go before TMA has read it.
    if (threadIdx.x % 128 == 0) {
      WaitStores();
    }
  }
  ClusterSync();
#else
  __trap();
#endif
}

}  // namespace hearth::kernels::cuda::gated
