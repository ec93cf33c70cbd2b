// The losses of a chunk's logits, and their gradients in the same pass over memory. Included by
// linear_cross_entropy.cu alone.
#pragma once

#include <type_traits>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr int kLossThreads = 512;
constexpr int kInFlight = 4;   // packs that a thread loads before it uses the first
constexpr int kGroups = 4;     // parts of a row whose arrival a thread waits for one by one
constexpr int kLossRanks = 8;  // blocks at most that share a row
constexpr float kLog2E = 1.44269504088896341F;
// Finite, so that differences of maxima are never NaN; no logit is smaller.
constexpr float kNoMaximum = -1e30F;

// What becomes of the logits.
enum class Mode : int {
  kLoss,      // nothing
  kGradient,  // d_logits in their place
  // d_logits in FP8, elsewhere.
  kE5m2,
  kE4m3,
};

// 2^x, relative error 2^-22; 0 for -infinity.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 16 bytes to shared memory, on their way until the thread waits for the group they are in.
__device__ __forceinline__ void StartCopy(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void EndGroup() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most `later` of this thread's groups are under way, 0 to 3, known when compiled.
__device__ __forceinline__ void WaitForGroups(int later) {
  static_assert(kGroups == 4);
  switch (later) {
    case 3:
      asm volatile("cp.async.wait_group 3;" ::: "memory");
      break;
    case 2:
      asm volatile("cp.async.wait_group 2;" ::: "memory");
      break;
    case 1:
      asm volatile("cp.async.wait_group 1;" ::: "memory");
      break;
    default:
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      break;
  }
}

// The tokens of a chunk: their rows of logits, and where their results go.
template <typename A>
struct LossArgs {
  A* logits;  // [count, padded]
  int64_t count;
  int64_t padded;
  int vocab;
  int ranks = 1;             // blocks that share a row, a cluster
  int share = 0;             // packs of a row that a block has, the last one perhaps fewer
  int kept = 0;              // the first of those, which go through shared memory
  const int32_t* targets;    // [count]
  const float* loss_weight;  // [count]
  float d_loss;
  double* nll;     // [count]
  float* nll_out;  // [count], or null
  uint8_t* rows;   // [count, padded]
  float scale;     // of rows
  float* unscale;  // gets its reciprocal, which the products read
  float unscale_value;
};

// W values as they lie in memory.
template <typename A, int W>
using RowPack = std::conditional_t<W == 8, Raw8<A>, Pack<A, W>>;
template <typename A, int W>
__device__ __forceinline__ RowPack<A, W> LoadRowPack(const A* from) {
  return *reinterpret_cast<const RowPack<A, W>*>(from);
}

// Pack i of a row as floats; columns of padding are -infinity.
template <typename A, int W>
__device__ __forceinline__ void UnpackRow(const RowPack<A, W>& pack,
                                          int i,
                                          int vocab,
                                          float (&out)[W]) {
  if constexpr (W == 8) {
    Unpack(pack, out);
  } else {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      out[j] = ToFloat(pack.at[j]);
    }
  }
  // Only the last packs of a row can reach into the padding, so the test is made once a pack.
  if ((i + 1) * W > vocab) {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      out[j] = i * W + j < vocab ? out[j] : -INFINITY;
    }
  }
}

template <typename A, int W, Mode kMode>
__device__ __forceinline__ void StoreGradient(const LossArgs<A>& args,
                                              int64_t row,
                                              int i,
                                              const float (&g)[W]) {
  const int64_t at = row * args.padded + static_cast<int64_t>(i) * W;
  if constexpr (kMode == Mode::kGradient) {
    if constexpr (W == 8) {
      StoreRaw8(args.logits + at, PackRaw8<A>(g));
    } else {
      StoreFloats<W>(args.logits + at, g);
    }
  } else if constexpr (W % 2 == 0) {
    // Rounded to A first: FP8 codes must be those that quantising the plain gradient would give.
    float v[W];
    if constexpr (W == 8) {
      Unpack(PackRaw8<A>(g), v);
    } else {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        v[j] = Rounded<A>(g[j]);
      }
    }
    Pack<uint16_t, W / 2> codes;
#pragma unroll
    for (int j = 0; j < W; j += 2) {
      codes.at[j / 2] =
          __nv_cvt_float2_to_fp8x2(make_float2(v[j] * args.scale, v[j + 1] * args.scale),
                                   __NV_SATFINITE, kMode == Mode::kE4m3 ? __NV_E4M3 : __NV_E5M2);
    }
    *reinterpret_cast<Pack<uint16_t, W / 2>*>(args.rows + at) = codes;
  }
}

// The largest logit that a thread has met, and the sum of e^(x - max).
struct Softmax {
  float max = kNoMaximum;
  float sum = 0.0F;

  template <int W>
  __device__ __forceinline__ void Add(const float (&v)[W]) {
    float top = max;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      top = fmaxf(top, v[j]);
    }
    // The sum so far was taken relative to the old maximum. kNoMaximum is finite, so that the first
    // call gives 0 and not NaN.
    sum *= Exp2((max - top) * kLog2E);
    // e^(v - top) = 2^(v log2 e - top log2 e): one multiply-add and one instruction for 2^x.
    const float offset = top * kLog2E;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      sum += Exp2(fmaf(v[j], kLog2E, -offset));
    }
    max = top;
  }
};

// A block's packs of a row, counted from its first, as its threads divide them: [0, kept) are
// copied to shared memory while the row before is written, in kGroups parts; the others are read
// from `logits` in both passes. A thread copies, reads and replaces the same packs, so only it has
// to wait for them.
template <typename A, int W>
class RowReader {
 public:
  __device__ __forceinline__ RowReader(const LossArgs<A>& args, unsigned char* shared)
      : args_(args),
        kept_(reinterpret_cast<RowPack<A, W>*>(shared)),
        first_(static_cast<int>(blockIdx.x) % args.ranks * args.share),
        packs_(min(static_cast<int>(args.padded / W) - first_, args.share)),
        kept_packs_(min(args.kept, packs_)) {
    const int threads = static_cast<int>(blockDim.x);
    // Rounded up to whole turns of the block, so that a thread meets the same packs in every pass.
    span_ = (kept_packs_ + threads * kGroups - 1) / (threads * kGroups) * threads;
  }

  // Where the block's first pack lies.
  __device__ __forceinline__ const A* RowOf(int64_t row) const {
    return args_.logits + row * args_.padded + static_cast<int64_t>(first_) * W;
  }
  // The block's packs are those from First() on.
  __device__ __forceinline__ int First() const { return first_; }
  __device__ __forceinline__ int Packs() const { return packs_; }
  // Packs of group g are those from here, blockDim.x apart, to GroupEnd(g).
  __device__ __forceinline__ int GroupBegin(int g) const { return g * span_ + threadIdx.x; }
  __device__ __forceinline__ int GroupEnd(int g) const { return min((g + 1) * span_, kept_packs_); }

  __device__ __forceinline__ void Start(const A* x, int i) const {
    if constexpr (W > 1) {
      StartCopy(kept_ + i, x + static_cast<int64_t>(i) * W);
    }
  }
  __device__ __forceinline__ void StartRow(const A* x) const {
    for (int g = 0; g < kGroups; ++g) {
      for (int i = GroupBegin(g); i < GroupEnd(g); i += blockDim.x) {
        Start(x, i);
      }
      EndGroup();
    }
  }
  __device__ __forceinline__ void Kept(int i, float (&v)[W]) const {
    UnpackRow<A, W>(kept_[i], first_ + i, args_.vocab, v);
  }

  // First pass.
  __device__ __forceinline__ Softmax Read(const A* x) const {
    Softmax softmax;
    float v[W];
    if (args_.kept > 0) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        // Groups arrive in the order in which they were started: the first is read while the others
        // are still under way.
        WaitForGroups(kGroups - 1 - g);
#pragma unroll 2
        for (int i = GroupBegin(g); i < GroupEnd(g); i += blockDim.x) {
          Kept(i, v);
          softmax.Add(v);
        }
      }
    }
    for (int first = kept_packs_ + threadIdx.x; first < packs_; first += blockDim.x * kInFlight) {
      // All loads of a turn are issued before the first is used, to have them in flight together.
      RowPack<A, W> in[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int i = first + u * blockDim.x;
        if (i < packs_) {
          in[u] = LoadRowPack<A, W>(x + static_cast<int64_t>(i) * W);
        }
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int i = first + u * blockDim.x;
        if (i < packs_) {
          UnpackRow<A, W>(in[u], first_ + i, args_.vocab, v);
          softmax.Add(v);
        }
      }
    }
    return softmax;
  }

  // Second pass: put(pack of the row, v) for every pack, whose place is then given to the row
  // `next`, if any.
  template <typename Put>
  __device__ __forceinline__ void Replace(const A* x, const A* next, const Put& put) const {
    float v[W];
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll 2
      for (int i = GroupBegin(g); i < GroupEnd(g); i += blockDim.x) {
        Kept(i, v);
        put(first_ + i, v);
        // The pack has been read, so its place may take the next row's. No other thread reads it.
        if (next != nullptr) {
          Start(next, i);
        }
      }
      EndGroup();
    }
#pragma unroll 2
    for (int i = kept_packs_ + threadIdx.x; i < packs_; i += blockDim.x) {
      UnpackRow<A, W>(LoadRowPack<A, W>(x + static_cast<int64_t>(i) * W), first_ + i, args_.vocab,
                      v);
      put(first_ + i, v);
    }
  }

 private:
  const LossArgs<A>& args_;
  RowPack<A, W>* kept_;
  int first_;
  int packs_;
  int kept_packs_;
  int span_;
};

template <typename A>
__device__ __forceinline__ void StoreNll(const LossArgs<A>& args, int64_t row, double nll) {
  args.nll[row] = nll;
  if (args.nll_out != nullptr) {
    args.nll_out[row] = static_cast<float>(nll);
  }
}

// A row's maximum and sum of exponentials from those of the blocks that share it, in their order.
// Every thread of the cluster calls it.
class SharedRow {
 public:
  __device__ __forceinline__ SharedRow(int ranks, float2 (&parts)[2][kLossRanks])
      : ranks_(ranks), parts_(parts) {
    if (ranks > 1) {
      MeetCluster();  // all blocks run before the first writes to another
    }
  }
  __device__ __forceinline__ void Combine(float& max, float& sum) {
    if (ranks_ == 1) {
      return;
    }
    // Two places in turn: who writes one again has met all that have read it at the meeting for the
    // other.
    turn_ ^= 1;
    if (threadIdx.x < ranks_) {
      *InBlock(&parts_[turn_][blockIdx.x % ranks_], static_cast<int>(threadIdx.x)) =
          make_float2(max, sum);
    }
    __syncwarp();  // whole warps meet
    MeetCluster();
    max = parts_[turn_][0].x;
    for (int i = 1; i < ranks_; ++i) {
      max = fmaxf(max, parts_[turn_][i].x);
    }
    sum = 0.0F;
    for (int i = 0; i < ranks_; ++i) {
      const float2 part = parts_[turn_][i];
      sum += part.y * Exp2((part.x - max) * kLog2E);
    }
  }

 private:
  int ranks_;
  float2 (&parts_)[2][kLossRanks];
  int turn_ = 0;
};

// A token of weight 0.
template <typename A, int W, Mode kMode>
__device__ __forceinline__ void SkipRow(const LossArgs<A>& args,
                                        const RowReader<A, W>& reader,
                                        int64_t row,
                                        bool first,
                                        const A* next) {
  if (first) {
    StoreNll(args, row, 0.0);
  }
  if constexpr (kMode != Mode::kLoss) {
    const float zeros[W] = {};
    for (int i = threadIdx.x; i < reader.Packs(); i += blockDim.x) {
      StoreGradient<A, W, kMode>(args, row, reader.First() + i, zeros);
    }
    if (args.kept > 0 && next != nullptr) {
      reader.StartRow(next);
    }
  }
}

// A cluster of args.ranks blocks takes every (gridDim.x / ranks)th token. First pass: maximum and
// sum of exponentials; second: the gradient, while the next row is on its way to the places that
// become free. Tokens of weight 0 are not read: their logits may be anything.
template <typename A, int W, Mode kMode>
__global__ void __launch_bounds__(kLossThreads, 2) LossKernel(const LossArgs<A> args) {
  extern __shared__ __align__(16) unsigned char shared_row[];
  __shared__ float scratch[32];
  __shared__ float2 parts[2][kLossRanks];
  const RowReader<A, W> reader(args, shared_row);
  SharedRow shared(args.ranks, parts);
  if ((kMode == Mode::kE4m3 || kMode == Mode::kE5m2) && blockIdx.x == 0 && threadIdx.x == 0) {
    *args.unscale = args.unscale_value;
  }
  // The thread that reads the target's logit and stores the loss.
  const bool first = threadIdx.x == 0 && reader.First() == 0;
  int64_t row = blockIdx.x / args.ranks;
  float weight = args.loss_weight[row];
  int target = args.targets[row];
  if (args.kept > 0 && weight != 0.0F) {
    reader.StartRow(reader.RowOf(row));
  }
  while (row < args.count) {
    const int64_t next = row + gridDim.x / args.ranks;
    const float next_weight = next < args.count ? args.loss_weight[next] : 0.0F;
    const int next_target = next < args.count ? args.targets[next] : 0;
    const A* x = reader.RowOf(row);
    const A* next_x = next_weight != 0.0F ? reader.RowOf(next) : nullptr;
    if (weight == 0.0F) {
      SkipRow<A, W, kMode>(args, reader, row, first, next_x);
    } else {
      const bool valid = target >= 0 && target < args.vocab;
      // Read now: the second pass may write the gradient over the logits.
      const float target_logit =
          first && valid ? ToFloat(args.logits[row * args.padded + target]) : NAN;
      const Softmax mine = reader.Read(x);
      float row_max = BlockMax(mine.max, scratch);
      float row_sum = BlockSum(mine.sum * Exp2((mine.max - row_max) * kLog2E), scratch);
      shared.Combine(row_max, row_sum);
      if (first) {
        StoreNll(args, row,
                 log(static_cast<double>(row_sum)) +
                     (static_cast<double>(row_max) - static_cast<double>(target_logit)));
      }
      if constexpr (kMode != Mode::kLoss) {
        // A target that does not exist shows as NaN in every gradient.
        const float scale = valid ? args.d_loss * weight : NAN;
        const float offset = fmaf(row_max, kLog2E, log2f(row_sum));
        const int target_pack = target / W;
        reader.Replace(x, next_x, [&](int i, float(&g)[W]) {
#pragma unroll
          for (int j = 0; j < W; ++j) {
            g[j] = scale * Exp2(fmaf(g[j], kLog2E, -offset));
          }
          if (i == target_pack) {
#pragma unroll
            for (int j = 0; j < W; ++j) {
              g[j] = i * W + j == target ? g[j] - scale : g[j];
            }
          }
          StoreGradient<A, W, kMode>(args, row, i, g);
        });
      }
    }
    row = next;
    weight = next_weight;
    target = next_target;
  }
}

}  // namespace
}  // namespace hearth::kernels::cuda
