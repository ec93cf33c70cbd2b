// Forward attention on tensor cores (FlashAttention-2's scheme): a block owns 128 queries of one
// head, its warps 32 each; keys pass by in tiles of 64, the latest first, with a running maximum
// and sum for each query.
#include <cmath>

#include "kernels/attention/flash.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kMT = 2;                 // tiles of 16 queries of a warp
constexpr int kM = kWarps * kMT * 16;  // queries of a block
constexpr int kN = 64;                 // keys at a time
constexpr int kNT = kN / 8;

template <int D>
constexpr int kSharedBytes = (kM + 2 * kN) * D * 2;

// The queries' state; [mt][half] is row 16 mt + 8 half + lane / 4 of the warp.
struct Rows {
  float max[kMT][2];  // of unscaled scores
  float sum[kMT][2];  // this lane's columns only
  int first[kMT][2];  // first key
  int index[kMT][2];  // row of the sequence
};

__device__ __forceinline__ void MaskScores(const Rows& rows, int n0, float (&s)[kMT][kNT][4]) {
  const int column0 = n0 + threadIdx.x % 4 * 2;
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int nt = 0; nt < kNT; ++nt) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = column0 + nt * 8 + i % 2;
        // -inf and not a large negative number: 2^-inf is exactly 0, so a masked key adds nothing
        // to the sum and to the output.
        const bool seen = column >= rows.first[mt][i / 2] && column <= rows.index[mt][i / 2];
        s[mt][nt][i] = seen ? s[mt][nt][i] : -INFINITY;
      }
    }
  }
}

// Scores to unnormalised probabilities; sums and output so far are rescaled to the new maximum.
template <int D>
__device__ __forceinline__ void SoftmaxStep(float scale_log2,
                                            Rows& rows,
                                            float (&s)[kMT][kNT][4],
                                            float (&o)[kMT][D / 8][4]) {
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = rows.max[mt][half];
      const float old_max = max;
#pragma unroll
      for (int nt = 0; nt < kNT; ++nt) {
        max = fmaxf(max, fmaxf(s[mt][nt][2 * half], s[mt][nt][2 * half + 1]));
      }
      // The four lanes of a row must agree on the maximum, as each scales its own columns by it.
      // Their sums stay apart until FinishRows.
      max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFF, max, 1));
      max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFF, max, 2));
      rows.max[mt][half] = max;
      // No key seen so far: every power below must be 2^-inf, not NaN.
      const float shift = max == -INFINITY ? 0.0F : max * scale_log2;
      const float correction = Exp2(fmaf(old_max, scale_log2, -shift));
      float sum = rows.sum[mt][half] * correction;
#pragma unroll
      for (int nt = 0; nt < kNT; ++nt) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float p = Exp2(fmaf(s[mt][nt][2 * half + e], scale_log2, -shift));
          s[mt][nt][2 * half + e] = p;
          sum += p;
        }
      }
      rows.sum[mt][half] = sum;
#pragma unroll
      for (int dt = 0; dt < D / 8; ++dt) {
        o[mt][dt][2 * half] *= correction;
        o[mt][dt][2 * half + 1] *= correction;
      }
    }
  }
}

// A warp's rows before the first key.
__device__ __forceinline__ void StartRows(const int32_t* starts,
                                          int first_row,
                                          int sequence,
                                          Rows& rows) {
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + mt * 16 + half * 8 + threadIdx.x % 32 / 4;
      rows.index[mt][half] = row;
      // Rows beyond the sequence read the last row's start; what they compute is not stored.
      rows.first[mt][half] = FirstKey(starts, min(row, sequence - 1));
      rows.max[mt][half] = -INFINITY;
      rows.sum[mt][half] = 0.0F;
    }
  }
}

// One over the rows' sums; writes lse, [T] of this head, where it is wanted.
__device__ __forceinline__ void FinishRows(const FlashParams& p,
                                           const Rows& rows,
                                           float* lse,
                                           float (&inverse)[kMT][2]) {
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = rows.sum[mt][half];
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
      // Every row sees at least itself, so the sum is not 0.
      inverse[mt][half] = 1.0F / sum;
      const int row = rows.index[mt][half];
      // The natural logarithm of the sum of e^(scale s). The maximum is kept without the scale.
      if (lse != nullptr && threadIdx.x % 4 == 0 && row < p.sequence) {
        lse[row] = rows.max[mt][half] * p.scale + logf(sum);
      }
    }
  }
}

// Writes a warp's rows, o / sum, by way of its own rows of q's tile, which nobody else has read;
// `out` is that of the block's first row.
template <int D>
__device__ __forceinline__ void StoreRows(const FlashParams& p,
                                          const float (&o)[kMT][D / 8][4],
                                          const float (&inverse)[kMT][2],
                                          uint32_t q_tile,
                                          int warp_row,
                                          Bf16* out,
                                          int rows_left) {
  __syncwarp();
  StageResults<D>(o, inverse, q_tile, warp_row);
  __syncwarp();
  Tile<D>::template Store<kMT * 16>(q_tile, warp_row, out, p.out_width, rows_left, p.head_dim);
}

// The copy of the next K runs under softmax and PV, that of V under QK.
template <int D>
__global__ void __launch_bounds__(kThreads, 2) ForwardKernel(const FlashParams p) {
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t q_tile = SharedAddress(shared);
  const uint32_t k_tile = q_tile + kM * D * 2;
  const uint32_t v_tile = k_tile + kN * D * 2;
  const int head = blockIdx.x % p.heads;
  const int64_t batch = blockIdx.x / p.heads;
  // Blocks with the most keys first.
  const int m0 = (gridDim.y - 1 - blockIdx.y) * kM;
  const int warp_row = threadIdx.x / 32 * (kMT * 16);
  const int kv_head = head / (p.heads / p.kv_heads);
  const Bf16* q = p.qkv + batch * p.sequence * p.width + static_cast<int64_t>(head) * p.head_dim;
  const Bf16* k = q + static_cast<int64_t>(p.heads - head + kv_head) * p.head_dim;
  const Bf16* v = k + static_cast<int64_t>(p.kv_heads) * p.head_dim;
  const int32_t* starts = StartsOf(p.starts, batch, p.sequence);

  Rows rows;
  StartRows(starts, m0 + warp_row, p.sequence, rows);
  const SeenKeys warp = SeenByRows(starts, m0 + warp_row, kMT * 16, p.sequence);
  const int n_begin = FirstKey(starts, m0) / kN;
  const int n_last = (min(m0 + kM, p.sequence) - 1) / kN;

  const auto load = [&](uint32_t tile, const Bf16* from, int n) {
    Tile<D>::template Load<kN, kThreads>(tile, from + static_cast<int64_t>(n) * kN * p.width,
                                         p.width, p.sequence - n * kN, p.head_dim);
    CommitCopies();
  };
  Tile<D>::template Load<kM, kThreads>(q_tile, q + static_cast<int64_t>(m0) * p.width, p.width,
                                       p.sequence - m0, p.head_dim);
  load(k_tile, k, n_last);

  float o[kMT][D / 8][4];
  Clear(o);
  const float scale_log2 = p.scale * kLog2e;
  for (int n = n_last; n >= n_begin; --n) {
    const int n0 = n * kN;
    WaitForCopies();
    __syncthreads();  // K is there; nobody reads the last V any more
    load(v_tile, v, n);
    // A warp that sees none of the keys still takes part in copies and barriers.
    const bool seen = n0 < m0 + warp_row + kMT * 16 && n0 + kN > warp.smallest_first;
    float s[kMT][kNT][4];
    Clear(s);
    if (seen) {
      MultiplyByRows<D>(q_tile, warp_row, k_tile, s);
    }
    WaitForCopies();
    __syncthreads();  // V is there; nobody reads K any more
    if (n > n_begin) {
      load(k_tile, k, n - 1);
    }
    if (!seen) {
      continue;
    }
    // Only tiles on the diagonal, or where a document begins, have pairs to mask.
    if (n0 + kN - 1 > m0 + warp_row || n0 < warp.largest_first) {
      MaskScores(rows, n0, s);
    }
    SoftmaxStep<D>(scale_log2, rows, s, o);
    AddProduct<D>(s, v_tile, o);
  }

  float inverse[kMT][2];
  FinishRows(p, rows, p.lse == nullptr ? nullptr : p.lse + (batch * p.heads + head) * p.sequence,
             inverse);
  Bf16* out =
      p.out_rw + (batch * p.sequence + m0) * p.out_width + static_cast<int64_t>(head) * p.head_dim;
  StoreRows<D>(p, o, inverse, q_tile, warp_row, out, p.sequence - m0);
}

template <int D>
absl::Status Launch(const Exec& exec, const AttentionDims& dims, const FlashParams& p) {
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      ForwardKernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<D>));
  const dim3 grid(static_cast<unsigned>(dims.batch * dims.heads),
                  static_cast<unsigned>(CeilDiv(dims.sequence, kM)));
  ForwardKernel<D><<<grid, kThreads, kSharedBytes<D>, StreamOf(exec)>>>(p);
  return HEARTH_CUDA_LAUNCHED("attention forward");
}

}  // namespace

absl::Status FlashForward(const Exec& exec, const AttentionForwardArgs& args, float scale) {
  const AttentionDims& dims = args.dims;
  FlashParams p = FlashParamsOf(args, scale);
  p.out_rw = args.out.as<Bf16>();
  return dims.head_dim <= 64 ? Launch<64>(exec, dims, p) : Launch<128>(exec, dims, p);
}

}  // namespace hearth::kernels::cuda
