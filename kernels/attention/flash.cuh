// Tensor-core pieces of the attention kernels: bf16 tiles in swizzled shared memory, copied by
// cp.async and read by ldmatrix, and mma.m16n8k16 with fp32 sums. sm_80 and later.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/attention/own.h"
#include "kernels/cuda/shared_address.cuh"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

constexpr float kLog2e = 1.4426950408889634F;

// Shape and operands of a call as the kernels want them. The fused row is [q | k | v]
// (attention.h).
struct FlashParams {
  const Bf16* qkv;
  const int32_t* starts;  // may be null
  const Bf16* out;        // forward writes it through out_rw
  Bf16* out_rw;
  float* lse;  // [B, Hq, T]; forward: may be null
  const Bf16* d_out;
  const float* delta;  // [B, Hq, T]
  Bf16* d_qkv;
  int sequence;
  int heads;
  int kv_heads;
  int head_dim;  // a multiple of 8, at most the kernel's D; the rest is zeros
  int64_t width;
  int64_t out_width;
  float scale;  // > 0
};

// First key that `query` sees.
__device__ __forceinline__ int FirstKey(const int32_t* starts, int query) {
  return starts == nullptr ? 0 : starts[query];
}

// Last query that sees `key`: the row before the next document.
__device__ __forceinline__ int LastQuery(const int32_t* starts, int key, int sequence) {
  if (starts == nullptr) {
    return sequence - 1;
  }
  // Starts never fall from row to row, so the rows that see the key are one run that begins at the
  // key itself: its end is searched for.
  int low = key;
  int high = sequence - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (starts[middle] > key) {
      high = middle - 1;
    } else {
      low = middle;
    }
  }
  return low;
}

// What some rows see of the keys.
struct SeenKeys {
  int smallest_first;  // no row sees a key before it
  int largest_first;   // every row sees all keys from it up to the row itself
};

// For `rows` rows from `first_row` on, as far as the sequence goes.
__device__ __forceinline__ SeenKeys SeenByRows(const int32_t* starts,
                                               int first_row,
                                               int rows,
                                               int sequence) {
  // Starts never fall from row to row, so the first and the last row bound the others.
  return {FirstKey(starts, min(first_row, sequence - 1)),
          FirstKey(starts, min(first_row + rows, sequence) - 1)};
}

// The starts of a sequence; null: it is one document.
__device__ __forceinline__ const int32_t* StartsOf(const int32_t* starts,
                                                   int64_t batch,
                                                   int sequence) {
  return starts == nullptr ? nullptr : starts + batch * sequence;
}

// Rows of D bf16; the 16-byte chunks of a row are permuted by the row's number, so that ldmatrix's
// eight rows of one chunk lie in different banks.
template <int D>
struct Tile {
  static constexpr int kChunks = D / 8;
  static constexpr int kRowBytes = D * 2;
  static_assert(kChunks % 8 == 0, "the permutation stays within a row");

  static __device__ __forceinline__ uint32_t At(uint32_t base, int row, int chunk) {
    return base + row * kRowBytes + ((chunk ^ (row & 7)) << 4);
  }

  // `rows` rows from `from` on; beyond `valid_rows` (>= 1) and `head_dim` zeros.
  template <int kRows, int kThreads>
  static __device__ __forceinline__ void Load(
      uint32_t base, const Bf16* from, int64_t stride, int valid_rows, int head_dim) {
    static_assert(kRows * kChunks % kThreads == 0, "no partial pass");
#pragma unroll
    for (int pass = 0; pass < kRows * kChunks / kThreads; ++pass) {
      const int index = pass * kThreads + threadIdx.x;
      const int row = index / kChunks;
      const int chunk = index % kChunks;
      const bool valid = row < valid_rows && chunk * 8 < head_dim;
      // A copy of no bytes writes zeros; its address must be readable all the same.
      const Bf16* source = valid ? from + row * stride + chunk * 8 : from;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(At(base, row, chunk)),
                   "l"(source), "r"(valid ? 16 : 0));
    }
  }

  // The warp's `kRows` rows from `row0` on to global memory, rows below `valid_rows` only.
  template <int kRows>
  static __device__ __forceinline__ void Store(
      uint32_t base, int row0, Bf16* to, int64_t stride, int valid_rows, int head_dim) {
    const int lane = threadIdx.x % 32;
    // Neighbouring lanes have neighbouring chunks of a row, so a warp writes whole lines of memory.
    // From the layout of the products a lane would write 4 bytes here and there.
#pragma unroll
    for (int index = lane; index < kRows * kChunks; index += 32) {
      const int row = row0 + index / kChunks;
      const int chunk = index % kChunks;
      uint4 value;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                   : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                   : "r"(At(base, row, chunk)));
      if (row < valid_rows && chunk * 8 < head_dim) {
        *reinterpret_cast<uint4*>(to + row * stride + chunk * 8) = value;
      }
    }
  }
};

// Four bytes; zero if not `valid` (`from` must be readable all the same).
__device__ __forceinline__ void CopyWord(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from),
               "r"(valid ? 4 : 0));
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::);
}
// Until all of this thread's copies have arrived; other threads' need a __syncthreads() as well.
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group 0;\n" ::: "memory");
}

__device__ __forceinline__ void LoadMatrices(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Rows row0..+15 and columns 16 kt..+15 of a tile as the left operand.
template <int D>
__device__ __forceinline__ void LoadLeft(uint32_t tile, int row0, int kt, uint32_t (&a)[4]) {
  // Lanes 0 to 15 give the addresses of the 16 rows at the first eight columns, lanes 16 to 31 the
  // same at the next eight: the order of mma's a[0] to a[3].
  const int lane = threadIdx.x % 32;
  LoadMatrices(Tile<D>::At(tile, row0 + (lane & 15), kt * 2 + (lane >> 4)), a);
}
// The transpose of rows row0..+15, columns 16 kt..+15: right operands of two column tiles,
// {b[0], b[1]} for rows row0..+7 and {b[2], b[3]} for the next eight.
template <int D>
__device__ __forceinline__ void LoadRightOfRows(uint32_t tile, int row0, int kt, uint32_t (&b)[4]) {
  // Lanes 8 to 15 give the second half of the 16 columns, lanes 16 to 31 the next eight rows: b[0]
  // and b[1] are the two halves of k of one column tile.
  const int lane = threadIdx.x % 32;
  LoadMatrices(
      Tile<D>::At(tile, row0 + (lane & 7) + ((lane >> 4) << 3), kt * 2 + ((lane >> 3) & 1)), b);
}
// Rows row0..+15 as the inner dimension, columns 16 dp..+15 as two column tiles.
template <int D>
__device__ __forceinline__ void LoadRightOfColumns(uint32_t tile,
                                                   int row0,
                                                   int dp,
                                                   uint32_t (&b)[4]) {
  // mma wants two neighbouring k of a column in one register. Here k runs from row to row, so
  // ldmatrix transposes each 8 x 8 on the way.
  const int lane = threadIdx.x % 32;
  LoadMatricesTransposed(Tile<D>::At(tile, row0 + (lane & 15), dp * 2 + (lane >> 4)), b);
}

// c += a b, a [16, 16], b [16, 8]. Lane 4 g + t holds of c: (g, 2t), (g, 2t+1), (g+8, 2t),
// (g+8, 2t+1).
__device__ __forceinline__ void Mma(float (&c)[4],
                                    const uint32_t (&a)[4],
                                    uint32_t b0,
                                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// Two neighbouring [16, 8] results as one [16, 16] left operand.
__device__ __forceinline__ void LeftOfResults(const float (&c0)[4],
                                              const float (&c1)[4],
                                              uint32_t (&a)[4]) {
  // Each lane holds of the results what the left operand wants of it: nothing moves between lanes.
  a[0] = PackBf16(c0[0], c0[1]);
  a[1] = PackBf16(c0[2], c0[3]);
  a[2] = PackBf16(c1[0], c1[1]);
  a[3] = PackBf16(c1[2], c1[3]);
}

// s[mt][nt] = rows of `left` from row0 + 16 mt times the transpose of rows 8 nt of `right`.
template <int D, int kMT, int kNT>
__device__ __forceinline__ void MultiplyByRows(uint32_t left,
                                               int row0,
                                               uint32_t right,
                                               float (&s)[kMT][kNT][4]) {
  // k is the outer loop: 16 columns of `left` are loaded once for all tiles of `right`, and only
  // their operands are in registers at a time.
#pragma unroll
  for (int kt = 0; kt < D / 16; ++kt) {
    uint32_t a[kMT][4];
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
      LoadLeft<D>(left, row0 + mt * 16, kt, a[mt]);
    }
#pragma unroll
    for (int np = 0; np < kNT / 2; ++np) {
      uint32_t b[4];
      LoadRightOfRows<D>(right, np * 16, kt, b);
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
        Mma(s[mt][2 * np], a[mt], b[0], b[1]);
        Mma(s[mt][2 * np + 1], a[mt], b[2], b[3]);
      }
    }
  }
}
// The same with the left operand in registers.
template <int D, int kMT, int kNT>
__device__ __forceinline__ void MultiplyByRows(const uint32_t (&a)[kMT][D / 16][4],
                                               uint32_t right,
                                               float (&s)[kMT][kNT][4]) {
#pragma unroll
  for (int kt = 0; kt < D / 16; ++kt) {
#pragma unroll
    for (int np = 0; np < kNT / 2; ++np) {
      uint32_t b[4];
      LoadRightOfRows<D>(right, np * 16, kt, b);
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
        Mma(s[mt][2 * np], a[mt][kt], b[0], b[1]);
        Mma(s[mt][2 * np + 1], a[mt][kt], b[2], b[3]);
      }
    }
  }
}
// sum[mt] += p[mt] times rows 0..8 kNT of `right`, p rounded to bf16.
template <int D, int kMT, int kNT>
__device__ __forceinline__ void AddProduct(const float (&p)[kMT][kNT][4],
                                           uint32_t right,
                                           float (&sum)[kMT][D / 8][4]) {
#pragma unroll
  for (int kp = 0; kp < kNT / 2; ++kp) {
    uint32_t a[kMT][4];
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
      LeftOfResults(p[mt][2 * kp], p[mt][2 * kp + 1], a[mt]);
    }
#pragma unroll
    for (int dp = 0; dp < D / 16; ++dp) {
      uint32_t b[4];
      LoadRightOfColumns<D>(right, kp * 16, dp, b);
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
        Mma(sum[mt][2 * dp], a[mt], b[0], b[1]);
        Mma(sum[mt][2 * dp + 1], a[mt], b[2], b[3]);
      }
    }
  }
}

template <int kMT, int kNT>
__device__ __forceinline__ void Clear(float (&c)[kMT][kNT][4]) {
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int nt = 0; nt < kNT; ++nt) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        c[mt][nt][i] = 0.0F;
      }
    }
  }
}

// The warp's results, each row times its factor[mt][half], as bf16 into rows row0.. of a tile.
template <int D, int kMT>
__device__ __forceinline__ void StageResults(const float (&c)[kMT][D / 8][4],
                                             const float (&factor)[kMT][2],
                                             uint32_t tile,
                                             int row0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + mt * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int nt = 0; nt < D / 8; ++nt) {
        // A column tile is one 16-byte chunk of the row, of which each of the row's four lanes
        // holds a pair.
        const uint32_t pair = PackBf16(c[mt][nt][2 * half] * factor[mt][half],
                                       c[mt][nt][2 * half + 1] * factor[mt][half]);
        asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(Tile<D>::At(tile, row, nt) + lane % 4 * 4),
                     "r"(pair)
                     : "memory");
      }
    }
  }
}

// 2^x, 0 for -inf; subnormal results are 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// What both directions are launched with; out_rw, d_out, delta and d_qkv are left to them.
inline FlashParams FlashParamsOf(const AttentionArgs& args, float scale) {
  const AttentionDims& dims = args.dims;
  FlashParams p = {};
  p.qkv = args.qkv.as<Bf16>();
  p.starts = args.starts.as<int32_t>();
  p.lse = args.lse.as<float>();
  p.sequence = static_cast<int>(dims.sequence);
  p.heads = static_cast<int>(dims.heads);
  p.kv_heads = static_cast<int>(dims.kv_heads);
  p.head_dim = static_cast<int>(dims.head_dim);
  p.width = (dims.heads + 2 * dims.kv_heads) * dims.head_dim;
  p.out_width = dims.heads * dims.head_dim;
  p.scale = scale;
  return p;
}

}  // namespace hearth::kernels::cuda
