// Backward attention on tensor cores without atomics: one kernel owns keys and sums over the
// queries (and query heads) that see them, one owns queries and sums over keys. Scores are computed
// again in both: 7 products instead of 5 buy the same bits in every run.
#include "kernels/attention/flash.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr int kBlock = 128;  // rows that a block owns
constexpr int kStep = 32;    // rows of the other side at a time
constexpr int kST = kStep / 8;

// What KeyKernel keeps of each row of a stage: lse, delta and where the row's document starts.
constexpr int kStatistics = 3;

// Two tiles of owned rows for as long as the block lives, two stages of two tiles that pass by, and
// the statistics of both.
template <int D>
constexpr int kSharedBytes = (2 * kBlock + 2 * 2 * kStep) * D * 2 + 2 * kStatistics* kStep * 4;

// With D = 128 a warp of 32 rows would not have the registers.
template <int D>
constexpr int kTiles = D == 64 ? 2 : 1;  // of 16 rows, of a warp
template <int D>
constexpr int kThreads = kBlock / (16 * kTiles<D>)*32;

// Where the operands of a head begin.
struct Heads {
  const Bf16* q;
  const Bf16* k;
  const Bf16* v;
  const Bf16* d_out;
  const float* lse;
  const float* delta;
  const int32_t* starts;  // may be null
};

__device__ __forceinline__ Heads HeadsOf(const FlashParams& p, int64_t batch, int head) {
  const int kv_head = head / (p.heads / p.kv_heads);
  const Bf16* rows = p.qkv + batch * p.sequence * p.width;
  const int64_t d = p.head_dim;
  const int64_t statistics = (batch * p.heads + head) * p.sequence;
  return {rows + head * d,
          rows + (p.heads + kv_head) * d,
          rows + (p.heads + p.kv_heads + kv_head) * d,
          p.d_out + batch * p.sequence * p.out_width + head * d,
          p.lse + statistics,
          p.delta + statistics,
          StartsOf(p.starts, batch, p.sequence)};
}

// Scores [keys, queries] to probabilities and `dp` to the gradient of the scores.
// `lse`, `delta`, `starts`: shared memory, of the step's queries. `masked`: some pairs do not see
// each other. `first_key`: the warp's.
template <int kMT>
__device__ __forceinline__ void KeyGradients(const float* lse,
                                             const float* delta,
                                             const int* starts,
                                             float scale_log2,
                                             bool masked,
                                             int m0,
                                             int first_key,
                                             float (&s)[kMT][kST][4],
                                             float (&dp)[kMT][kST][4]) {
#pragma unroll
  for (int nt = 0; nt < kST; ++nt) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = nt * 8 + threadIdx.x % 4 * 2 + e;
      // exp(x) as exp2(x log2 e): one multiply-add and one instruction of the special-function
      // unit.
      const float shift = lse[column] * kLog2e;
      const float d = delta[column];
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int i = 2 * half + e;
          float value = Exp2(fmaf(s[mt][nt][i], scale_log2, -shift));
          if (masked) {
            const int key = first_key + mt * 16 + half * 8 + threadIdx.x % 32 / 4;
            value = m0 + column >= key && starts[column] <= key ? value : 0.0F;
          }
          s[mt][nt][i] = value;
          // dS = P (dP - delta), with delta the row sum of dP P = dO . O, which the pass before has
          // made.
          dp[mt][nt][i] = value * (dp[mt][nt][i] - d);
        }
      }
    }
  }
}

// Starts to copy a step of KeyKernel: q, then d_out, of the kStep queries from m0 into `stage`, and
// their lse, delta and starts into `statistics`.
template <int D>
__device__ __forceinline__ void LoadQueries(
    const FlashParams& p, const Heads& h, int m0, uint32_t stage, float* statistics) {
  Tile<D>::template Load<kStep, kThreads<D>>(stage, h.q + static_cast<int64_t>(m0) * p.width,
                                             p.width, p.sequence - m0, p.head_dim);
  Tile<D>::template Load<kStep, kThreads<D>>(stage + kStep * D * 2,
                                             h.d_out + static_cast<int64_t>(m0) * p.out_width,
                                             p.out_width, p.sequence - m0, p.head_dim);
  if (threadIdx.x < kStatistics * kStep) {
    // Queries beyond the end get lse = delta = 0; their q and d_out are 0, and so is all they add.
    // Without documents every query starts at 0.
    const int query = m0 + threadIdx.x % kStep;
    const bool is_start = threadIdx.x >= 2 * kStep;
    const bool valid = query < p.sequence && !(is_start && h.starts == nullptr);
    const float* from = threadIdx.x < kStep || (is_start && h.starts == nullptr) ? h.lse
                        : is_start ? reinterpret_cast<const float*>(h.starts)
                                   : h.delta;
    CopyWord(SharedAddress(statistics + threadIdx.x), from + (valid ? query : 0), valid);
  }
  CommitCopies();
}

// Writes a warp's dK and dV by way of its own rows of the tiles of k and v; `d_rows` is d_qkv at
// the block's first key.
template <int D>
__device__ __forceinline__ void StoreKeyGradients(const FlashParams& p,
                                                  const float (&dk)[kTiles<D>][D / 8][4],
                                                  const float (&dv)[kTiles<D>][D / 8][4],
                                                  uint32_t k_tile,
                                                  uint32_t v_tile,
                                                  int warp_row,
                                                  Bf16* d_rows,
                                                  int kv_head,
                                                  int rows_left) {
  constexpr int kMT = kTiles<D>;
  // KeyGradients has left dS without the scale: dK gets it here, once an element. dV has none.
  float one[kMT][2];
  float scale[kMT][2];
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
    one[mt][0] = one[mt][1] = 1.0F;
    scale[mt][0] = scale[mt][1] = p.scale;
  }
  // A warp has read only its own rows of k and v, so they are free.
  __syncwarp();
  StageResults<D>(dk, scale, k_tile, warp_row);
  StageResults<D>(dv, one, v_tile, warp_row);
  __syncwarp();
  const int64_t d = p.head_dim;
  Tile<D>::template Store<kMT * 16>(k_tile, warp_row, d_rows + (p.heads + kv_head) * d, p.width,
                                    rows_left, p.head_dim);
  Tile<D>::template Store<kMT * 16>(v_tile, warp_row, d_rows + (p.heads + p.kv_heads + kv_head) * d,
                                    p.width, rows_left, p.head_dim);
}

// Behind KeyKernel's tiles: [stage][lse, delta, starts].
template <int D>
__device__ __forceinline__ float* Statistics(unsigned char* shared) {
  return reinterpret_cast<float*>(shared + (2 * kBlock + 4 * kStep) * D * 2);
}

// dK and dV of 128 keys of one key/value head. Scores are held as [keys, queries], which makes
// probabilities the left operand of dV's product as they are.
template <int D>
__global__ void __launch_bounds__(kThreads<D>, D == 64 ? 2 : 1) KeyKernel(const FlashParams p) {
  constexpr int kMT = kTiles<D>;
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t k_tile = SharedAddress(shared);
  const uint32_t v_tile = k_tile + kBlock * D * 2;
  const uint32_t stages = v_tile + kBlock * D * 2;
  constexpr uint32_t kTileBytes = kStep * D * 2;
  float* const statistics = Statistics<D>(shared);

  const int kv_head = blockIdx.x % p.kv_heads;
  const int64_t batch = blockIdx.x / p.kv_heads;
  const int group = p.heads / p.kv_heads;
  const int n0 = blockIdx.y * kBlock;  // the first keys are seen by the most queries
  const int warp_row = threadIdx.x / 32 * (kMT * 16);
  const Heads own = HeadsOf(p, batch, kv_head * group);
  Tile<D>::template Load<kBlock, kThreads<D>>(k_tile, own.k + static_cast<int64_t>(n0) * p.width,
                                              p.width, p.sequence - n0, p.head_dim);
  Tile<D>::template Load<kBlock, kThreads<D>>(v_tile, own.v + static_cast<int64_t>(n0) * p.width,
                                              p.width, p.sequence - n0, p.head_dim);
  // The search runs under the copies.
  const int m_begin = n0 / kStep;
  // LastQuery never falls from key to key, so the last key's bounds those of all the block's keys.
  const int last_key = min(n0 + kBlock, p.sequence) - 1;
  const int steps = LastQuery(own.starts, last_key, p.sequence) / kStep + 1 - m_begin;

  // Step i is tile m_begin + i % steps of query head i / steps of the group.
  const auto load = [&](int i) {
    LoadQueries<D>(p, HeadsOf(p, batch, kv_head * group + i / steps), (m_begin + i % steps) * kStep,
                   stages + i % 2 * 2 * kTileBytes, statistics + i % 2 * kStatistics * kStep);
  };
  load(0);

  float dk[kMT][D / 8][4];
  float dv[kMT][D / 8][4];
  Clear(dk);
  Clear(dv);
  const float scale_log2 = p.scale * kLog2e;
  for (int i = 0; i < group * steps; ++i) {
    WaitForCopies();
    __syncthreads();  // stage i is there; nobody reads stage i - 1 any more
    if (i + 1 < group * steps) {
      load(i + 1);
    }
    const int m0 = (m_begin + i % steps) * kStep;
    const float* const lse = statistics + i % 2 * kStatistics * kStep;
    const int* const start = reinterpret_cast<const int*>(lse + 2 * kStep);
    if (m0 + kStep <= n0 + warp_row || start[0] >= n0 + warp_row + kMT * 16) {
      continue;  // all of the warp's keys come later, or their documents have ended
    }
    const uint32_t q_tile = stages + i % 2 * 2 * kTileBytes;
    const uint32_t d_out_tile = q_tile + kTileBytes;
    float s[kMT][kST][4];
    float dp[kMT][kST][4];
    Clear(s);
    Clear(dp);
    MultiplyByRows<D>(k_tile, warp_row, q_tile, s);
    MultiplyByRows<D>(v_tile, warp_row, d_out_tile, dp);
    // All pairs see each other unless the first query comes before the warp's last key, or the last
    // query's document begins behind the warp's first key.
    const bool masked =
        m0 < n0 + warp_row + kMT * 16 - 1 || start[min(kStep, p.sequence - m0) - 1] > n0 + warp_row;
    KeyGradients(lse, lse + kStep, start, scale_log2, masked, m0, n0 + warp_row, s, dp);
    AddProduct<D>(s, d_out_tile, dv);
    AddProduct<D>(dp, q_tile, dk);
  }

  StoreKeyGradients<D>(p, dk, dv, k_tile, v_tile, warp_row,
                       p.d_qkv + (batch * p.sequence + n0) * p.width, kv_head, p.sequence - n0);
}

// A warp's queries: lse in powers of 2, and delta.
template <int kMT>
struct QueryRows {
  float shift[kMT][2];
  float delta[kMT][2];
};

template <int kMT>
__device__ __forceinline__ void StartQueries(const Heads& h,
                                             int first_row,
                                             int sequence,
                                             QueryRows<kMT>& rows) {
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Rows beyond the sequence read the last row's numbers: they must not read outside, and what
      // they compute is not stored.
      const int row = min(first_row + mt * 16 + half * 8 + static_cast<int>(threadIdx.x) % 32 / 4,
                          sequence - 1);
      rows.shift[mt][half] = h.lse[row] * kLog2e;
      rows.delta[mt][half] = h.delta[row];
    }
  }
}

// dS of kStep keys from n0, without the scale, from scores and dP, into `s`. First keys are read
// here, where few tiles come by: there are no registers to keep them in.
template <int kMT>
__device__ __forceinline__ void QueryGradients(const int32_t* starts,
                                               int sequence,
                                               const QueryRows<kMT>& rows,
                                               float scale_log2,
                                               bool masked,
                                               int first_row,
                                               int n0,
                                               float (&s)[kMT][kST][4],
                                               const float (&dp)[kMT][kST][4]) {
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + mt * 16 + half * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
      const int first = masked ? FirstKey(starts, min(row, sequence - 1)) : 0;
#pragma unroll
      for (int nt = 0; nt < kST; ++nt) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int i = 2 * half + e;
          float value = Exp2(fmaf(s[mt][nt][i], scale_log2, -rows.shift[mt][half]));
          if (masked) {
            const int column = n0 + nt * 8 + threadIdx.x % 4 * 2 + e;
            value = column >= first && column <= row ? value : 0.0F;
          }
          s[mt][nt][i] = value * (dp[mt][nt][i] - rows.delta[mt][half]);
        }
      }
    }
  }
}

// Starts to copy step n of QueryKernel: k, then v, of kStep keys into `stage`.
template <int D>
__device__ __forceinline__ void LoadKeys(const FlashParams& p,
                                         const Heads& h,
                                         int n,
                                         uint32_t stage) {
  const int64_t offset = static_cast<int64_t>(n) * kStep * p.width;
  const int rows = p.sequence - n * kStep;
  Tile<D>::template Load<kStep, kThreads<D>>(stage, h.k + offset, p.width, rows, p.head_dim);
  Tile<D>::template Load<kStep, kThreads<D>>(stage + kStep * D * 2, h.v + offset, p.width, rows,
                                             p.head_dim);
  CommitCopies();
}

// A warp's rows of q and d_out from their tiles.
template <int D>
__device__ __forceinline__ void LoadLefts(uint32_t q_tile,
                                          uint32_t d_out_tile,
                                          int warp_row,
                                          uint32_t (&q)[kTiles<D>][D / 16][4],
                                          uint32_t (&d_out)[kTiles<D>][D / 16][4]) {
#pragma unroll
  for (int mt = 0; mt < kTiles<D>; ++mt) {
#pragma unroll
    for (int kt = 0; kt < D / 16; ++kt) {
      LoadLeft<D>(q_tile, warp_row + mt * 16, kt, q[mt][kt]);
      LoadLeft<D>(d_out_tile, warp_row + mt * 16, kt, d_out[mt][kt]);
    }
  }
}

// Writes a warp's dQ by way of its own rows of q's tile, which nobody else has read; `to` is d_qkv
// at the block's first query and the head.
template <int D>
__device__ __forceinline__ void StoreQueryGradients(const FlashParams& p,
                                                    const float (&dq)[kTiles<D>][D / 8][4],
                                                    uint32_t q_tile,
                                                    int warp_row,
                                                    Bf16* to,
                                                    int rows_left) {
  constexpr int kMT = kTiles<D>;
  float scale[kMT][2];
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
    scale[mt][0] = scale[mt][1] = p.scale;
  }
  __syncwarp();
  StageResults<D>(dq, scale, q_tile, warp_row);
  __syncwarp();
  Tile<D>::template Store<kMT * 16>(q_tile, warp_row, to, p.width, rows_left, p.head_dim);
}

// dQ of 128 queries of one head. q and d_out are held in registers as left operands.
template <int D>
__global__ void __launch_bounds__(kThreads<D>, D == 64 ? 2 : 1) QueryKernel(const FlashParams p) {
  constexpr int kMT = kTiles<D>;
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t q_tile = SharedAddress(shared);
  const uint32_t d_out_tile = q_tile + kBlock * D * 2;
  const uint32_t stages = d_out_tile + kBlock * D * 2;
  constexpr uint32_t kTileBytes = kStep * D * 2;

  const int head = blockIdx.x % p.heads;
  const int64_t batch = blockIdx.x / p.heads;
  // The last queries see the most keys. Their blocks begin first, so that the end of the launch has
  // the short ones.
  const int m0 = (gridDim.y - 1 - blockIdx.y) * kBlock;
  const int warp_row = threadIdx.x / 32 * (kMT * 16);
  const Heads h = HeadsOf(p, batch, head);

  QueryRows<kMT> rows;
  StartQueries(h, m0 + warp_row, p.sequence, rows);
  const int end = min(m0 + kBlock, p.sequence);
  const int n_begin = FirstKey(h.starts, m0) / kStep;
  const int n_end = (end - 1) / kStep + 1;
  const SeenKeys warp = SeenByRows(h.starts, m0 + warp_row, kMT * 16, p.sequence);

  const auto load = [&](int n) { LoadKeys<D>(p, h, n, stages + n % 2 * 2 * kTileBytes); };
  Tile<D>::template Load<kBlock, kThreads<D>>(q_tile, h.q + static_cast<int64_t>(m0) * p.width,
                                              p.width, p.sequence - m0, p.head_dim);
  Tile<D>::template Load<kBlock, kThreads<D>>(d_out_tile,
                                              h.d_out + static_cast<int64_t>(m0) * p.out_width,
                                              p.out_width, p.sequence - m0, p.head_dim);
  // Its commit closes the group of q and d_out as well: they go to registers before the loop.
  load(n_begin);
  WaitForCopies();
  __syncthreads();
  uint32_t q[kMT][D / 16][4];
  uint32_t d_out[kMT][D / 16][4];
  LoadLefts<D>(q_tile, d_out_tile, warp_row, q, d_out);

  float dq[kMT][D / 8][4];
  Clear(dq);
  const float scale_log2 = p.scale * kLog2e;
  for (int n = n_begin; n < n_end; ++n) {
    WaitForCopies();
    __syncthreads();  // stage n is there; nobody reads stage n - 1 any more
    if (n + 1 < n_end) {
      load(n + 1);
    }
    const int n0 = n * kStep;
    if (n0 >= m0 + warp_row + kMT * 16 || n0 + kStep <= warp.smallest_first) {
      continue;  // all of the warp's queries come earlier, or their documents begin later
    }
    const uint32_t k_tile = stages + n % 2 * 2 * kTileBytes;
    float s[kMT][kST][4];
    float dp[kMT][kST][4];
    Clear(s);
    Clear(dp);
    MultiplyByRows<D>(q, k_tile, s);
    MultiplyByRows<D>(d_out, k_tile + kTileBytes, dp);
    const bool masked = n0 + kStep - 1 > m0 + warp_row || n0 < warp.largest_first;
    QueryGradients(h.starts, p.sequence, rows, scale_log2, masked, m0 + warp_row, n0, s, dp);
    AddProduct<D>(s, k_tile, dq);
  }

  Bf16* to =
      p.d_qkv + (batch * p.sequence + m0) * p.width + static_cast<int64_t>(head) * p.head_dim;
  StoreQueryGradients<D>(p, dq, q_tile, warp_row, to, p.sequence - m0);
}

template <int D>
absl::Status Launch(const Exec& exec, const AttentionDims& dims, const FlashParams& p) {
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      KeyKernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<D>));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      QueryKernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<D>));
  const unsigned blocks = static_cast<unsigned>(CeilDiv(dims.sequence, kBlock));
  const dim3 key_grid(static_cast<unsigned>(dims.batch * dims.kv_heads), blocks);
  KeyKernel<D><<<key_grid, kThreads<D>, kSharedBytes<D>, StreamOf(exec)>>>(p);
  HEARTH_CUDA_RETURN_IF_ERROR(cudaGetLastError());
  const dim3 query_grid(static_cast<unsigned>(dims.batch * dims.heads), blocks);
  QueryKernel<D><<<query_grid, kThreads<D>, kSharedBytes<D>, StreamOf(exec)>>>(p);
  return HEARTH_CUDA_LAUNCHED("attention backward");
}

}  // namespace

absl::Status FlashBackward(const Exec& exec,
                           const AttentionBackwardArgs& args,
                           float scale,
                           float* delta) {
  const AttentionDims& dims = args.dims;
  FlashParams p = FlashParamsOf(args, scale);
  p.d_out = args.d_out.as<Bf16>();
  p.delta = delta;
  p.d_qkv = args.d_qkv.as<Bf16>();
  if (const absl::Status status = AttentionDelta(exec, args, delta); !status.ok()) {
    return status;
  }
  return dims.head_dim <= 64 ? Launch<64>(exec, dims, p) : Launch<128>(exec, dims, p);
}

}  // namespace hearth::kernels::cuda
