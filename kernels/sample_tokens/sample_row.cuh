// The blocks that draw for a row of logits, and each thread's part of it (sample_tokens.cu).
#pragma once

#include <cstdint>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/util.cuh"
#include "kernels/sample_tokens/distance.h"

namespace hearth::kernels::cuda::sample {

inline constexpr int kThreads = 512;
inline constexpr int kWarps = kThreads / 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFF;

using Mass = unsigned long long;  // NOLINT(google-runtime-int): the type of CUDA's atomics

// What a kernel is made for: the fewer, the fewer instructions a token.
enum class Make {
  kPlain,      // no filters, no penalty
  kFiltered,   // no penalty
  kPenalised,  // all
};

template <typename A>
struct Params {
  const A* logits;
  const int32_t* streams;
  int32_t* seen;
  int32_t* tokens;
  int32_t* positions;
  int32_t* remaining;
  int32_t* drawn;
  float* log_prob;
  int vocab;
  int64_t width;  // of a row of logits, >= vocab
  int words;      // of seen, a row
  int ranks;      // blocks of a row
  int stretch;    // of a thread, in chunks of eight logits
  int turn_mask;  // with which of them a thread begins (Row::Each)
  int turn_shift;
  bool vectors;  // 16-byte access
  bool staged;   // parts lie in shared memory
  int32_t end_token;
  int top_k;       // 0 = all
  uint32_t least;  // weight
  double top_p;
  bool greedy;
  bool same_shares;  // log_prob's shares are the weights
  WeightScale scale;
  uint32_t near;  // bits of a distance: those below share a bucket
  float penalty;
  uint64_t seed;
};

// What a warp tells all blocks of its row.
struct Word {
  Mass mass;
  float first;
  float second;
};
extern __shared__ uint4 staged_part[];

__device__ __forceinline__ int Thread() {
  return static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ int Lane() {
  return Thread() % 32;
}

__device__ __forceinline__ Mass WarpScan(Mass x) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const Mass below = __shfl_up_sync(kAllLanes, x, offset);
    x += Lane() >= offset ? below : 0;
  }
  return x;
}
__device__ __forceinline__ Mass WarpTotal(Mass x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, offset);
  }
  return x;
}

// Sums over the row.
struct Sums {
  Mass before;  // this thread's tokens
  Mass total;
  float shares;
};

struct Largest {
  float penalised = -INFINITY;
  float plain = -INFINITY;
};

// Bits of distances, which are not negative, order as distances do. Those of NaN, which stands
// behind the vocabulary too, are above all.
struct Range {
  uint32_t low;
  uint32_t high;
};

struct First {
  uint32_t token;
  float shares;
};

// The blocks of a row. All threads of all of them make the same calls.
class Team {
 public:
  __device__ __forceinline__ Team(Word (*told)[kMostClusterBlocks * kWarps], int ranks)
      : told_(told), ranks_(ranks), rank_(static_cast<int>(blockIdx.x) % ranks) {}

  __device__ __forceinline__ int ranks() const { return ranks_; }
  __device__ __forceinline__ int rank() const { return rank_; }
  // What lies at `own` in the shared memory of block `rank`.
  template <typename T>
  __device__ __forceinline__ T* Of(T* own, int rank) const {
    return ranks_ == 1 ? own : InBlock(own, rank);
  }

  __device__ __forceinline__ Largest LargestOf(Largest own) {
    own.penalised = WarpMax(own.penalised);
    own.plain = WarpMax(own.plain);
    const Word* words = Tell({0, own.penalised, own.plain});
    for (int i = Lane(); i < ranks_ * kWarps; i += 32) {
      own.penalised = fmaxf(own.penalised, words[i].first);
      own.plain = fmaxf(own.plain, words[i].second);
    }
    return {WarpMax(own.penalised), WarpMax(own.plain)};
  }
  __device__ __forceinline__ First FirstOf(First own) {
    const Word* words = Tell({__reduce_min_sync(kAllLanes, own.token), WarpSum(own.shares), 0.0F});
    own.shares = 0.0F;
    for (int i = Lane(); i < ranks_ * kWarps; i += 32) {
      own.token = min(own.token, static_cast<uint32_t>(words[i].mass));
      own.shares += words[i].first;
    }
    return {__reduce_min_sync(kAllLanes, own.token), WarpSum(own.shares)};
  }
  __device__ __forceinline__ Range RangeOf(Range own) {
    own.low = __reduce_min_sync(kAllLanes, own.low);
    own.high = __reduce_max_sync(kAllLanes, own.high);
    const Word* words = Tell({static_cast<Mass>(own.high) << 32 | own.low, 0.0F, 0.0F});
    for (int i = Lane(); i < ranks_ * kWarps; i += 32) {
      own.low = min(own.low, static_cast<uint32_t>(words[i].mass));
      own.high = max(own.high, static_cast<uint32_t>(words[i].mass >> 32));
    }
    return {__reduce_min_sync(kAllLanes, own.low), __reduce_max_sync(kAllLanes, own.high)};
  }
  __device__ __forceinline__ Sums SumsOf(Mass mass, float shares) {
    const Mass up_to = WarpScan(mass);
    const Word* words = Tell({__shfl_sync(kAllLanes, up_to, 31), WarpSum(shares), 0.0F});
    const int own = rank_ * kWarps + Thread() / 32;
    Sums sums = {0, 0, 0.0F};
    for (int i = Lane(); i < ranks_ * kWarps; i += 32) {
      sums.before += i < own ? words[i].mass : 0;
      sums.total += words[i].mass;
      sums.shares += words[i].first;
    }
    return {WarpTotal(sums.before) + up_to - mass, WarpTotal(sums.total), WarpSum(sums.shares)};
  }

 private:
  // `word`, the same in all lanes of a warp, of each warp of each block in turn. What is returned
  // holds until the call after next: between a reader and the writer of the same words is the call
  // between.
  __device__ __forceinline__ const Word* Tell(const Word& word) {
    turn_ ^= 1;
    if (Lane() < ranks_) {
      *Of(&told_[turn_][rank_ * kWarps + Thread() / 32], Lane()) = word;
    }
    MeetCluster();
    return told_[turn_];
  }

  Word (*told_)[kMostClusterBlocks * kWarps];
  int ranks_;
  int rank_;
  int turn_ = 0;
};

// From memory to this block's shared memory, past the registers.
__device__ __forceinline__ void CopyChunk(void* to, const void* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
__device__ __forceinline__ void WaitForChunks() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// The logits of this thread's stretch of a row, in chunks of eight.
template <typename A, Make kMake>
struct Row {
  static constexpr bool kPenalty = kMake == Make::kPenalised;
  static constexpr bool kFilters = kMake != Make::kPlain;

  const Params<A>& p;
  int index;
  int part;              // first chunk of the block
  float largest = 0.0F;  // of the row, penalised

  __device__ __forceinline__ Row(const Params<A>& params, int row, int rank)
      : p(params), index(row), part(rank * kThreads * params.stretch) {}

  __device__ __forceinline__ const A* Logits() const { return p.logits + index * p.width; }
  // The thread's first chunk, from `part` on.
  __device__ __forceinline__ int First() const { return Thread() * p.stretch; }
  // How many it has.
  __device__ __forceinline__ int Count() const {
    return max(0, min(p.stretch, (p.vocab + 7) / 8 - part - First()));
  }
  // Chunks of the block's part.
  __device__ __forceinline__ int Chunks() const {
    return min((p.vocab + 7) / 8 - part, kThreads * p.stretch);
  }
  // Chunk `chunk` of the part from memory; NaN, which weighs nothing, behind the vocabulary.
  __device__ __forceinline__ Raw8<A> Read(int chunk) const {
    const int at = (part + chunk) * 8;
    if (p.vectors && at + 8 <= p.vocab) {
      return LoadRaw8(Logits() + at);
    }
    float x[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      x[k] = at + k < p.vocab ? ToFloat(Logits()[at + k]) : NAN;
    }
    return PackRaw8<A>(x);
  }
  // Begins to copy the part. Complete after WaitForChunks and a barrier.
  __device__ __forceinline__ void Stage() const {
    auto* slots = reinterpret_cast<Raw8<A>*>(staged_part);
    const int chunks = p.staged ? Chunks() : 0;
#pragma unroll 4
    for (int chunk = Thread(); chunk < chunks; chunk += kThreads) {
      const int at = (part + chunk) * 8;
      if (p.vectors && at + 8 <= p.vocab) {
#pragma unroll
        for (int n = 0; n < static_cast<int>(sizeof(A)) / 2; ++n) {
          CopyChunk(&slots[chunk].words[n * 4], Logits() + at + n * kPackWidth<A>);
        }
      } else {
        slots[chunk] = Read(chunk);
      }
    }
  }
  __device__ __forceinline__ Raw8<A> Load(int chunk) const {
    return p.staged ? reinterpret_cast<const Raw8<A>*>(staged_part)[chunk] : Read(chunk);
  }
  // visit(at, raw) for all of this thread's chunks, not in order; `at`: token of the first logit.
  template <typename Visit>
  __device__ __forceinline__ void Each(const Visit& visit) const {
    // In bf16 a chunk has 16 bytes, and eight lanes read at a time. Their chunks lie in different
    // banks if their numbers differ in the last three bits. So where a stretch has an even number
    // of chunks, lanes begin at different ones. A lane in whose stretch the vocabulary ends begins
    // at its last chunk at most.
    const int first = First();
    const int count = Count();
    int chunk = first + max(0, min(Thread() >> p.turn_shift & p.turn_mask, count - 1));
    // The next chunk is loaded ahead, except with a penalty, which needs the registers.
    Raw8<A> next = {};
    if (!kPenalty && count > 0) {
      next = Load(chunk);
    }
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      const Raw8<A> raw = kPenalty ? Load(chunk) : next;
      const int at = (part + chunk) * 8;
      chunk = chunk + 1 == first + count ? first : chunk + 1;
      if (!kPenalty && n + 1 < count) {
        next = Load(chunk);
      }
      visit(at, raw);
    }
  }
  // Penalised logits of a chunk.
  __device__ __forceinline__ void Penalise(int at, const Raw8<A>& raw, float (&x)[8]) const {
    Unpack(raw, x);
    if constexpr (kPenalty) {
      const auto* seen = reinterpret_cast<const uint32_t*>(p.seen);
      const uint32_t known = seen[static_cast<int64_t>(index) * p.words + at / 32] >> (at % 32);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        x[k] = PenalisedLogit(x[k], (known >> k & 1U) != 0, p.penalty);
      }
    }
  }
  __device__ __forceinline__ void ToDistances(int at, const Raw8<A>& raw, float (&d)[8]) const {
    Penalise(at, raw, d);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      d[k] = DistanceOf(d[k], largest);
    }
  }
};

}  // namespace hearth::kernels::cuda::sample
