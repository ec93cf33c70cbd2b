// The forward kernel of gated_gemm.h with operands in E4M3: of gate and up nothing is written but
// the kept form, of y nothing but the quantised one. The bits are those that SwigluForward makes of
// a product with these sums: gate, up and y are rounded to bf16 on the way.
//
// The rows of the weight lie in a tile in such an order (weight_boxes.h) that the sums of a thread
// are 16 columns of gate in a row, and the same 16 of up: it stores them as they are.
#pragma once

#include "kernels/gated_gemm/fp8_turns.cuh"
#include "kernels/swiglu/arithmetic.cuh"

namespace hearth::kernels::cuda::gated {

inline constexpr int kFp8RowBlocks = 2;  // of 64 rows, in a tile
// Two tiles of the weight, of kWeightBoxRows each, are side by side: gate and up.
using Fp8Shared = Fp8Operands<7, 64 * kFp8RowBlocks, 2 * kWeightBoxRows>;

struct Fp8Maps {
  CUtensorMap x;  // boxes of kARows x 128
  CUtensorMap w;  // GateUpBoxes
};
struct Fp8Outputs {
  const float* scale_x;
  const float* scale_w;
  KeptInput keep;  // of gate and up, [rows, 2 F]; may be empty
  QuantView y;     // E4M3; rows, and amax or not
  int64_t rows;
};

// sums[i] = the products of the i-th 64 rows of a tile.
__device__ __forceinline__ void MultiplyFp8Tile(Fp8Shared& s,
                                                int group,
                                                int32_t depth,
                                                Fp8Position<Fp8Shared>& at,
                                                float (&sums)[kFp8RowBlocks][64]) {
  // Descriptors count in 16 bytes. The next 32 of k are 32 bytes on in a row.
  constexpr uint64_t kStep = 32 >> 4;
  constexpr uint64_t kNextRows = 64 * 128 >> 4;
  TakeTurn(s, group, at);
  int before = 0;
  for (int32_t k = 0; k < depth; ++k) {
    s.full[at.ring.slot].Wait(at.ring.parity);
    const uint64_t a = OperandAlongK(SharedAddress(s.a[at.ring.slot]));
    const uint64_t b = OperandAlongK(SharedAddress(s.b[at.ring.slot]));
    BeginProducts();
#pragma unroll
    for (int i = 0; i < Fp8Shared::kDepth / 32; ++i) {
#pragma unroll
      for (int block = 0; block < kFp8RowBlocks; ++block) {
        // The first product of a tile overwrites the sums of the tile before.
        MultiplyE4m3(sums[block], a + block * kNextRows + i * kStep, b + i * kStep, k > 0 || i > 0);
      }
    }
    CommitProducts();
    // All but the newest are done: the stage before can be filled again while this one is
    // multiplied.
    if (k > 0) {
      WaitProducts<1>();
      Release(s, before);
    }
    before = at.ring.slot;
    at.ring.Next();
  }
  PassTurn(s, group);
  WaitProducts<0>();
  Release(s, before);
}

// Both kept blocks' largest magnitudes as floats: x of gate, y of up. A block is the columns of two
// neighbouring lanes.
__device__ __forceinline__ uint2 LargestOfBlocks(const Columns16& gate, const Columns16& up) {
  const uint32_t of_gate = LargestOf(gate);
  const uint32_t of_up = LargestOf(up);
  // One word for both: gate in the low half.
  uint32_t largest =
      __vmaxu2(__byte_perm(of_gate, of_up, 0x5410), __byte_perm(of_gate, of_up, 0x7632));
  largest = __vmaxu2(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 1));
  return make_uint2(largest << 16, largest & 0xFFFF0000U);
}

// The 16 columns from element `at` of the kept input on; `store`: they exist.
__device__ __forceinline__ void KeepColumns(
    const KeptInput& keep, int64_t at, const Columns16& columns, uint32_t largest, bool store) {
  const uint32_t scale = KeptScaleOf(largest);
  uint4 bytes = QuantizeColumns<__NV_E4M3>(columns, __uint_as_float((254U - scale) << 23));
  if (scale == kE8m0Nan) {
    bytes = make_uint4(0, 0, 0, 0);
  }
  if (store) {
    *reinterpret_cast<uint4*>(keep.values + at) = bytes;
    if (Lane() % 2 == 0) {
      keep.scales[at / kKeptBlock] = static_cast<uint8_t>(scale);
    }
  }
}

// What is the same for all tiles of a thread.
struct Fp8Epilogue {
  float product_scale;
  float y_scale;
  int32_t ffn;
  uint32_t amax;  // of RaiseMagnitude
};

// Row `row` of the sums, columns from `col` on: kHalf of the two rows that the thread has of 64.
template <int kHalf>
__device__ __forceinline__ void Fp8Row(
    const float (&sums)[64], const Fp8Outputs& out, int64_t row, int32_t col, Fp8Epilogue& e) {
  Columns16 gate;
  Columns16 up;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = i * 4 + kHalf * 2;
    gate[i / 4].words[i % 4] = PackPair(sums[at] * e.product_scale, sums[at + 1] * e.product_scale);
    up[i / 4].words[i % 4] =
        PackPair(sums[32 + at] * e.product_scale, sums[33 + at] * e.product_scale);
  }
  const bool store = row < out.rows && col < e.ffn;
  if (!out.keep.empty()) {
    const uint2 largest = LargestOfBlocks(gate, up);
    const int64_t at = row * 2 * e.ffn + col;
    KeepColumns(out.keep, at, gate, largest.x, store);
    KeepColumns(out.keep, at + e.ffn, up, largest.y, store);
  }
  Columns16 y;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    // From the rounded values, as a kernel of its own would read them.
    const float2 g = PairOf(gate, i);
    const float2 u = PairOf(up, i);
    y[i / 4].words[i % 4] = PackPair(SwigluOf<Bf16>(g.x, u.x), SwigluOf<Bf16>(g.y, u.y));
  }
  // Beyond the matrix all is zero.
  e.amax = RaiseMagnitude(RaiseMagnitude(e.amax, y[0]), y[1]);
  if (store) {
    *reinterpret_cast<uint4*>(static_cast<uint8_t*>(out.y.rows) + row * e.ffn + col) =
        QuantizeColumns<__NV_E4M3>(y, e.y_scale);
  }
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    Fp8ForwardKernel(const __grid_constant__ Fp8Maps maps, Fp8Outputs out, Tiles tiles) {
#if HEARTH_HOPPER_CODE
  extern __shared__ uint8_t memory[];
  auto& s = Prepare<Fp8Shared>(memory);
  const uint32_t rank = ClusterRank();
  const int group = Fp8Group();
  if (group < 0) {
    GiveRegisters<40>();
    if (threadIdx.x == 0) {
      CopyFp8Operands(s, maps.x, maps.w, tiles, rank);
    }
  } else {
    TakeRegisters<232>();
    Fp8Position<Fp8Shared> at(group, tiles);
    Fp8Epilogue e = {*out.scale_x * *out.scale_w, QuantScale(out.y), tiles.ffn, 0};
    float sums[kFp8RowBlocks][64];
    ForEachTile(tiles, rank, group, 2, [&](int32_t row, int32_t col) {
      MultiplyFp8Tile(s, group, tiles.depth, at, sums);
      at.ring.Skip(tiles.depth);  // the other warpgroup's tile
      const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
      const int32_t first_col = col * kWeightBoxRows + Lane() % 4 * kForwardThreadCols;
      const int64_t first_row = int64_t{row} * Fp8Shared::kARows + warp * 16 + Lane() / 4;
#pragma unroll
      for (int block = 0; block < kFp8RowBlocks; ++block) {
        Fp8Row<0>(sums[block], out, first_row + block * 64, first_col, e);
        Fp8Row<1>(sums[block], out, first_row + block * 64 + 8, first_col, e);
      }
    });
    RaiseAmaxOfWarp(out.y.amax, e.amax);
  }
  // A block that ends gives its memory back, which the other one may still write to or arrive at.
  ClusterSync();
#else
  __trap();
#endif
}

}  // namespace hearth::kernels::cuda::gated
