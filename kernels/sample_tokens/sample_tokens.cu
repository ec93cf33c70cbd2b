// A cluster of blocks draws for one row. Each block has a part of the row, each of its threads a
// stretch of that, so that a sum over the threads before is one over the tokens before. The part is
// read from memory once, into the block's shared memory, where it fits; the passes over it (the
// largest logit, the filters' histograms, the sums) read it there. What warps find they tell all
// blocks of the row through shared memory, with one meeting of the cluster.
//
// top_k and top_p are found with a histogram of counts or of weights over the distances, of which
// each doubling has 128 buckets, and among the distances of the bucket in which the limit lies: in
// bf16 mostly one. Where they differ and are many, that bucket is divided again.
//
// A plain draw takes about 17 instructions a token, the weight's 14 among them, so 2^25 logits (512
// rows) take a little less time than memory needs for them. With few rows it is the waits that take
// time: for the row, and for three meetings.
#include <algorithm>
#include <type_traits>

#include "common/base/status_macros.h"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/context.h"
#include "kernels/cuda/util.cuh"
#include "kernels/sample_tokens/distance.h"
#include "kernels/sample_tokens/sample_tokens.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "sample_tokens";
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kResident = 2;      // blocks of a multiprocessor
constexpr int64_t kLeastPart = 2048;  // logits of a block, where a row is divided
constexpr int kBucketBits = 11;
constexpr int kBuckets = 1 << kBucketBits;
// The first histogram counts distances of T / 2048 to 32 T in 16 doublings, T the temperature; the
// last bucket weighs nothing.
constexpr int kDoublingBits = 7;  // 2^7
constexpr float kNear = 0x1p-11F;
constexpr int kLimbs = 3;         // of ten bits, so that 2^20 of them do not overflow
constexpr int kMostListed = 128;  // distances of a bucket that are compared one by one
constexpr unsigned kAllLanes = 0xFFFFFFFF;

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

struct Bucket {
  Mass left;  // of what is sought, without the masses in the buckets below
  int index;
};

// Distances of a bucket, those of this block.
struct List {
  int count;  // of all there are, more than are listed perhaps
  float distances[kMostListed];
};

struct Limits {
  uint32_t histogram[kLimbs][kBuckets];
  List lists[2];  // of top_k, top_p
  float all[kMostListed];
  uint32_t masses[kMostListed];
  Bucket found;
  float limit;
};
struct NoLimits {};

template <Make kMake>
struct Shared {
  Word told[2][kMostClusterBlocks * kWarps];
  uint32_t drawn_word;
  std::conditional_t<kMake == Make::kPlain, NoLimits, Limits> limits;
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

// Of distances' bits: distances are not negative, so their bits order as they do. Those of NaN,
// which stands behind the vocabulary too, are above all.
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
    // Eight lanes read 16 bytes each at a time, from different banks: their chunks should differ in
    // the last three bits of their numbers. So where the stretch's number is even, some lanes begin
    // later in theirs.
    const int first = First();
    const int count = Count();
    int chunk = first + (count == p.stretch ? Thread() >> p.turn_shift & p.turn_mask : 0);
    // One chunk is on its way, but where a penalty needs the registers.
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

// e^-d; 0 for NaN.
__device__ __forceinline__ float Share(float d) {
  constexpr float kLog2e = 1.44269504088896341F;
  // Below 2^-126 the result is 0.
  const float x = fmaxf(d * -kLog2e, -150.0F);
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The larger of each pair; what is no NaN, if one is.
template <typename A>
__device__ __forceinline__ float LargestOf(float so_far, const Raw8<A>& raw) {
  if constexpr (sizeof(A) == 2) {
    // Two at a time.
    const auto pair = [&](int k) {
      return *reinterpret_cast<const __nv_bfloat162*>(&raw.words[k]);
    };
    const float2 both =
        __bfloat1622float2(__hmax2(__hmax2(pair(0), pair(1)), __hmax2(pair(2), pair(3))));
    return fmaxf(so_far, fmaxf(both.x, both.y));
  } else {
    float x[8];
    Unpack(raw, x);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      so_far = fmaxf(so_far, x[k]);
    }
    return so_far;
  }
}

template <typename A, Make kMake>
__device__ __forceinline__ Largest LargestOf(const Row<A, kMake>& row, Team& team) {
  Largest own;
  row.Each([&](int at, const Raw8<A>& raw) {
    own.plain = LargestOf(own.plain, raw);
    if constexpr (Row<A, kMake>::kPenalty) {
      float x[8];
      row.Penalise(at, raw, x);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        own.penalised = fmaxf(own.penalised, x[k]);
      }
    }
  });
  own.penalised = Row<A, kMake>::kPenalty ? own.penalised : own.plain;
  return team.LargestOf(own);
}

// Finds the limits of top_k and top_p.
template <typename A, Make kMake>
class Select {
 public:
  __device__ __forceinline__ Select(const Row<A, kMake>& row, Limits& shared, Team& team)
      : row_(row), shared_(shared), team_(team) {}

  // The largest distance that is kept.
  __device__ __forceinline__ float Limit() {
    float limit = INFINITY;
    // top_p is a share of what top_k has left, so it comes second and sees only distances up to
    // `limit`. A loop, so that the code of Find is there once.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
      const bool weights = turn == 1;
      if (weights ? row_.p.top_p < 1.0 : row_.p.top_k > 0) {
        limit = Find(weights, limit);
      }
    }
    return limit;
  }

 private:
  // Which of the distances a histogram counts, and how it divides them.
  struct Scale {
    Range range;
    uint32_t base;  // bits where the second bucket begins, less 2^shift
    int shift;
    __device__ __forceinline__ bool Has(uint32_t bits) const {
      return bits - range.low <= range.high - range.low;
    }
    __device__ __forceinline__ int BucketOf(uint32_t bits) const {
      return static_cast<int>(min((max(bits, base) - base) >> shift, uint32_t{kBuckets - 1}));
    }
  };

  // The smallest distance D so that the tokens with d <= D, of those with d <= limit, number top_k,
  // or with `weights` weigh top_p of them all. Where it is in the first histogram's last bucket, of
  // which nothing weighs: `limit`.
  __device__ __forceinline__ float Find(bool weights, float limit) {
    List& list = shared_.lists[weights ? 1 : 0];
    Scale scale = {{0, __float_as_uint(limit)}, row_.p.near, 23 - kDoublingBits};
    Mass left = 0;
#pragma unroll 1
    for (bool again = false;; again = true) {
      const Bucket bucket = Histogram(weights, scale, left);
      if (!again && bucket.index == kBuckets - 1) {
        return limit;
      }
      left = bucket.left;
      const Range range = team_.RangeOf(ListBucket(scale, bucket.index, list));
      int count = 0;
      for (int r = 0; r < team_.ranks(); ++r) {
        count += team_.Of(&list, r)->count;
      }
      if (range.low == range.high) {
        return __uint_as_float(range.low);
      }
      if (count <= kMostListed) {
        return FindListed(weights, list, count, left);
      }
      const int bits = 32 - __clz(static_cast<int>(range.high - range.low));
      scale = {range, range.low, max(bits - kBucketBits, 0)};
      MeetCluster();
      if (Thread() == 0) {
        list.count = 0;
      }
    }
  }

  // The bucket in which `left` are reached; 0: top_k, or top_p of all.
  __device__ __forceinline__ Bucket Histogram(bool weights, const Scale& scale, Mass left) {
    Clear();
    EachBits([&](uint32_t bits) {
      if (scale.Has(bits)) {
        Count(weights, bits, scale.BucketOf(bits));
      }
    });
    MeetCluster();
    return FindBucket(weights, left);
  }
  // Lists this block's distances of a bucket and returns their range.
  __device__ __forceinline__ Range ListBucket(const Scale& scale, int bucket, List& list) {
    Range range = {0xFFFFFFFF, 0};
    EachBits([&](uint32_t bits) {
      if (scale.Has(bits) && scale.BucketOf(bits) == bucket) {
        range = {min(range.low, bits), max(range.high, bits)};
        const int at = atomicAdd(&list.count, 1);
        if (at < kMostListed) {
          list.distances[at] = __uint_as_float(bits);
        }
      }
    });
    return range;
  }

  // visit(bits) for all distances of this thread.
  template <typename Visit>
  __device__ __forceinline__ void EachBits(const Visit& visit) const {
    row_.Each([&](int at, const Raw8<A>& raw) {
      float d[8];
      row_.ToDistances(at, raw, d);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        visit(__float_as_uint(d[k]));
      }
    });
  }

  __device__ __forceinline__ void Clear() {
    // All limbs: their buckets lie one behind the other. The other blocks have read what they want
    // of them: they have met since.
    __syncthreads();
    for (int i = Thread(); i < kLimbs * kBuckets; i += kThreads) {
      shared_.histogram[0][i] = 0;
    }
    __syncthreads();
  }

  __device__ __forceinline__ uint32_t MassOf(bool weights, float d) const {
    return weights ? WeightOf(d, row_.p.scale) : 1U;
  }

  // Adds a distance to the histogram: 1, or its weight, limb by limb.
  __device__ __forceinline__ void Count(bool weights, uint32_t bits, int bucket) {
    if (!weights) {
      atomicAdd(&shared_.histogram[0][bucket], 1U);
      return;
    }
    const uint32_t weight = MassOf(weights, __uint_as_float(bits));
#pragma unroll
    for (int limb = 0; limb < kLimbs; ++limb) {
      const uint32_t part = weight >> (10 * limb) & 1023U;
      if (part != 0) {
        atomicAdd(&shared_.histogram[limb][bucket], part);
      }
    }
  }

  // Masses in bucket `index` of all blocks, once they have met.
  __device__ __forceinline__ Mass MassIn(int index, bool weights) {
    Mass mass = 0;
    for (int r = 0; r < team_.ranks(); ++r) {
      mass += *team_.Of(&shared_.histogram[0][index], r);
      // The limbs of the weights were counted apart, as one word would overflow.
      if (weights) {
        mass += (static_cast<Mass>(*team_.Of(&shared_.histogram[1][index], r)) << 10) +
                (static_cast<Mass>(*team_.Of(&shared_.histogram[2][index], r)) << 20);
      }
    }
    return mass;
  }

  // Which bucket reaches `left`, or what it stands for; the last if all masses together do not, as
  // NaN is not counted. The histograms are complete in all blocks; each block adds up its share of
  // the buckets.
  __device__ __forceinline__ Bucket FindBucket(bool weights, Mass left) {
    constexpr int kMostOwn = kBuckets / kThreads;
    const int share = kBuckets / team_.ranks();
    const int count = max(share / kThreads, 1);  // of a thread
    const bool mine = Thread() * count < share;
    const int first = team_.rank() * share + Thread() * count;
    Mass own[kMostOwn];
    Mass sum = 0;
#pragma unroll
    for (int k = 0; k < kMostOwn; ++k) {
      own[k] = mine && k < count ? MassIn(first + k, weights) : 0;
      sum += own[k];
    }
    const Sums sums = team_.SumsOf(sum, 0.0F);
    if (left == 0) {
      left = weights ? TopMass(row_.p.top_p, sums.total) : static_cast<Mass>(row_.p.top_k);
    }
    const bool none = left > sums.total;
    // True in exactly one thread of the team.
    Mass before = sums.before;
    if (none ? team_.rank() == 0 && Thread() == 0 : before < left && left <= before + sum) {
      int bucket = first;
#pragma unroll
      for (int k = 0; k < kMostOwn - 1; ++k) {
        if (before + own[k] < left) {
          before += own[k];
          ++bucket;
        } else {
          break;
        }
      }
      for (int r = 0; r < team_.ranks(); ++r) {
        *team_.Of(&shared_.found, r) = {left - before, none ? kBuckets - 1 : bucket};
      }
    }
    MeetCluster();
    return shared_.found;
  }

  // Among the `count` distances that the blocks have listed: a thread has one and adds up the
  // masses of those below it and up to it. Every block finds the same.
  __device__ __forceinline__ float FindListed(bool weights, List& list, int count, Mass left) {
    const int own = Thread();
    float d = INFINITY;
    if (own < count) {
      int at = own;
      int r = 0;
      for (int there = team_.Of(&list, 0)->count; at >= there; there = team_.Of(&list, r)->count) {
        at -= there;
        ++r;
      }
      d = team_.Of(&list, r)->distances[at];
      shared_.all[own] = d;
      shared_.masses[own] = MassOf(weights, d);
    }
    __syncthreads();
    if (own < count) {
      Mass below = 0;
      Mass up_to = 0;
      for (int i = 0; i < count; ++i) {
        const float other = shared_.all[i];
        const uint32_t mass = shared_.masses[i];
        below += other < d ? mass : 0;
        up_to += other <= d ? mass : 0;
      }
      // Threads of equal distances write the same.
      if (below < left && left <= up_to) {
        shared_.limit = d;
      }
    }
    __syncthreads();
    return shared_.limit;
  }

  const Row<A, kMake>& row_;
  Limits& shared_;
  Team& team_;
};

// The token that a row gets, for the one thread of the team that `mine` is true in.
struct Choice {
  bool mine;
  int token;
  float shares;  // of all tokens
};

// The first of the tokens with the largest penalised logit.
template <typename A, Make kMake>
__device__ __forceinline__ Choice Likeliest(const Row<A, kMake>& row, Team& team, float largest) {
  First own = {0xFFFFFFFF, 0.0F};
  row.Each([&](int at, const Raw8<A>& raw) {
    float x[8];
    row.Penalise(at, raw, x);
    float plain[8];
    Unpack(raw, plain);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      own.token = x[k] == row.largest ? min(own.token, static_cast<uint32_t>(at + k)) : own.token;
      own.shares += Share(largest - plain[k]);
    }
  });
  const First first = team.FirstOf(own);
  // -infinity is NaN's too.
  const int token = row.largest == -INFINITY ? 0 : static_cast<int>(first.token);
  return {team.rank() == 0 && Thread() == 0, token, first.shares};
}

// Of eight tokens: weights as far as the filters keep them, and log_prob's shares if those are the
// weights, in the same unit.
template <typename A, Make kMake>
__device__ __forceinline__ Mass WeighEight(const Row<A, kMake>& row,
                                           float limit,
                                           const float (&d)[8],
                                           uint32_t (&weights)[8],
                                           float& shares) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float weight = WeightBeforeRounding(d[k], row.p.scale);
    shares += weight;
    weights[k] = static_cast<uint32_t>(weight);
    if constexpr (Row<A, kMake>::kFilters) {
      weights[k] = d[k] <= limit && weights[k] >= row.p.least ? weights[k] : 0;
    }
  }
  // Four times the largest weight, 2^31, fit a word.
  return static_cast<Mass>(weights[0] + weights[1] + weights[2] + weights[3]) +
         (weights[4] + weights[5] + weights[6] + weights[7]);
}

// The token of the stretch of this warp's thread `lane` at which the masses, `before` at its begin,
// pass `target`, in the lane that returns true.
template <typename A, Make kMake>
__device__ bool FindToken(
    const Row<A, kMake>& row, float limit, int lane, Mass before, Mass target, int& token) {
  const int first = __shfl_sync(kAllLanes, row.First(), lane);
  const int count = __shfl_sync(kAllLanes, row.Count(), lane);
  for (int from = 0; from < count; from += 32) {
    const int chunk = first + from + Lane();
    const int at = (row.part + chunk) * 8;
    uint32_t weights[8] = {};
    Mass own = 0;
    if (from + Lane() < count) {
      float d[8];
      row.ToDistances(at, row.Load(chunk), d);
      float shares = 0.0F;
      own = WeighEight(row, limit, d, weights, shares);
    }
    const Mass sum = WarpScan(own);
    const bool here = target >= before + sum - own && target < before + sum;
    if (__any_sync(kAllLanes, here) != 0) {
      Mass left = target - (before + sum - own);
      bool found = false;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        if (here && !found && left < weights[k]) {
          found = true;
          token = at + k;
        }
        left -= found ? 0 : weights[k];
      }
      return here;
    }
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  return false;
}

// A token drawn in proportion to the weights.
template <typename A, Make kMake>
__device__ __forceinline__ Choice
Draw(const Row<A, kMake>& row, Shared<kMake>& shared, Team& team, float largest) {
  float limit = INFINITY;
  if constexpr (Row<A, kMake>::kFilters) {
    limit = Select<A, kMake>(row, shared.limits, team).Limit();
  }
  Mass mass = 0;
  float shares = 0.0F;
  const auto weigh = [&](auto same_shares) {
    row.Each([&](int at, const Raw8<A>& raw) {
      float d[8];
      row.ToDistances(at, raw, d);
      uint32_t weights[8];
      float weighed = shares;
      mass += WeighEight(row, limit, d, weights, weighed);
      if constexpr (decltype(same_shares)::value) {
        shares = weighed;
      } else {
        Unpack(raw, d);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          shares += Share(largest - d[k]);
        }
      }
    });
  };
  if (!Row<A, kMake>::kPenalty && row.p.same_shares) {
    weigh(std::true_type());
    shares *= 1.0F / kLargestWeight;
  } else {
    weigh(std::false_type());
  }
  const Sums sums = team.SumsOf(mass, shares);
  const Mass target = DrawnMass(shared.drawn_word, sums.total);
  Choice choice = {false, 0, sums.shares};
  // One thread of the team has the token in its stretch. Its warp goes through that again.
  const bool here = target >= sums.before && target < sums.before + mass;
  const unsigned lanes = __ballot_sync(kAllLanes, here);
  if (lanes != 0) {
    const int lane = __ffs(static_cast<int>(lanes)) - 1;
    const Mass before = __shfl_sync(kAllLanes, sums.before, lane);
    choice.mine = FindToken(row, limit, lane, before, target, choice.token);
  }
  return choice;
}

template <typename A>
__device__ __forceinline__ void Finish(
    const Params<A>& p, const A* logits, int row, int token, float log_of_sum) {
  // All loads before the first store: the compiler may not change their order, and each is a wait.
  int32_t* seen =
      p.seen == nullptr ? nullptr : p.seen + static_cast<int64_t>(row) * p.words + token / 32;
  const int32_t known = seen == nullptr ? 0 : *seen;
  const float logit = ToFloat(logits[token]);
  const int32_t position = p.positions[row];
  const int32_t remaining = token == p.end_token ? 0 : p.remaining[row] - 1;
  p.drawn[row] = token;
  p.tokens[row] = token;
  p.remaining[row] = remaining;
  // The next pass reads the token at its own position; a text that has ended stays where it is.
  if (remaining > 0) {
    p.positions[row] = position + 1;
  }
  if (p.log_prob != nullptr) {
    p.log_prob[row] = logit - log_of_sum;
  }
  if (seen != nullptr) {
    *seen = known | 1 << (token % 32);
  }
}

// Blocks of a multiprocessor that registers must leave room for. With 100 KB of shared memory, as
// from compute capability 12.0 on, the histograms and a part of a row leave room for one mostly.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
template <Make kMake>
constexpr int kLeastResident = kMake == Make::kPlain ? kResident : 1;
#else
template <Make kMake>
constexpr int kLeastResident = kResident;
#endif

template <typename A, Make kMake>
__global__ void __launch_bounds__(kThreads, kLeastResident<kMake>)
    SampleKernel(const __grid_constant__ Params<A> p) {
  __shared__ Shared<kMake> shared;
  Team team(shared.told, p.ranks);
  const int index = static_cast<int>(blockIdx.x) / p.ranks;
  // A row that has ended keeps its state.
  if (p.remaining[index] <= 0) {
    if (team.rank() == 0 && Thread() == 0) {
      p.drawn[index] = -1;
      if (p.log_prob != nullptr) {
        p.log_prob[index] = 0.0F;
      }
    }
    return;
  }
  // Nobody writes to a block's memory before it has begun.
  ArriveInCluster();
  Row<A, kMake> row(p, index, team.rank());
  row.Stage();
  if constexpr (Row<A, kMake>::kFilters) {
    if (Thread() < 2) {
      shared.limits.lists[Thread()].count = 0;
    }
  }
  // Before the last meeting, after which one thread changes the position.
  if (Thread() == 0) {
    shared.drawn_word = DrawnWord(p.seed, p.streams[index], p.positions[index] + 1);
  }
  WaitForChunks();
  WaitForCluster();
  __syncthreads();
  const Largest largest = LargestOf(row, team);
  row.largest = largest.penalised;
  const bool drawn = !p.greedy && fabsf(row.largest) < INFINITY;
  const Choice choice =
      drawn ? Draw(row, shared, team, largest.plain) : Likeliest(row, team, largest.plain);
  if (choice.mine) {
    Finish(p, row.Logits(), index, choice.token, largest.plain + logf(choice.shares));
  }
}

// Bytes of shared memory for a block's part of a row.
template <typename A>
int64_t PartBytes(int64_t vocab, int64_t ranks) {
  return CeilDiv(CeilDiv(vocab, 8), ranks * kThreads) * kThreads *
         static_cast<int64_t>(sizeof(Raw8<A>));
}

// Blocks of a row: as long as all of them run at once, and as many as their memory asks for.
// `own`: bytes of shared memory of a block but for its part.
template <typename A>
int64_t RanksOf(const GpuProperties& gpu, int64_t own, int64_t rows, int64_t vocab) {
  constexpr int64_t kReserved = 1024;  // of a block; one block can have all but that
  const auto needed = [&](int64_t ranks) { return own + PartBytes<A>(vocab, ranks) + kReserved; };
  const int64_t room = gpu.shared_memory_bytes + kReserved;
  int64_t ranks = 1;
  while (ranks < kMostClusterBlocks) {
    const int64_t resident = std::min(kResident, room / needed(ranks * 2));
    const bool at_once = rows * ranks * 2 <= resident * gpu.multiprocessors;
    if (needed(ranks) <= room && (!at_once || vocab < ranks * 2 * kLeastPart)) {
      break;
    }
    ranks *= 2;
  }
  return ranks;
}

template <typename A>
Params<A> ParamsOf(const SampleTokensArgs& args) {
  Params<A> p = {};
  p.logits = args.logits.as<A>();
  p.streams = args.streams.as<int32_t>();
  p.seen = args.seen.as<int32_t>();
  p.tokens = args.tokens.as<int32_t>();
  p.positions = args.positions.as<int32_t>();
  p.remaining = args.remaining.as<int32_t>();
  p.drawn = args.drawn.as<int32_t>();
  p.log_prob = args.log_prob.as<float>();
  p.vocab = static_cast<int>(VocabOf(args));
  p.width = args.logits.cols();
  p.words = (p.vocab + 31) / 32;
  p.vectors = p.width % 8 == 0 && Aligned16(p.logits);
  p.end_token = args.end_token;
  const SamplingRule& rule = args.rule;
  p.top_k = rule.top_k < p.vocab ? static_cast<int>(rule.top_k) : 0;
  p.least = LeastWeight(rule.min_p);
  p.top_p = rule.top_p;
  p.greedy = rule.temperature == 0.0;
  p.same_shares = rule.temperature == 1.0;
  p.scale = WeightScaleOf(rule.temperature);
  p.near = FloatBits(static_cast<float>(rule.temperature) * kNear);
  p.penalty = static_cast<float>(rule.repetition_penalty);
  p.seed = rule.seed;
  return p;
}

template <typename A, Make kMake>
absl::Status Launch(const Exec& exec, int64_t rows, Params<A> p) {
  const auto kernel = SampleKernel<A, kMake>;
  cudaFuncAttributes code;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncGetAttributes(&code, kernel));
  const GpuProperties& gpu = exec.cuda->gpu();
  const auto own = static_cast<int64_t>(code.sharedSizeBytes);
  const int64_t room = gpu.shared_memory_bytes - own;
  HEARTH_ASSIGN_OR_RETURN(const int64_t ranks,
                          ClusterBlocks(kernel, RanksOf<A>(gpu, own, rows, p.vocab)));
  const int64_t part = PartBytes<A>(p.vocab, ranks);
  p.staged = part <= room;
  p.ranks = static_cast<int>(ranks);
  p.stretch = static_cast<int>(CeilDiv(CeilDiv(p.vocab, 8), ranks * kThreads));
  // The largest factor that the stretch and 8 share.
  const int factor = p.stretch % 8 == 0 ? 8 : p.stretch & -p.stretch;
  p.turn_mask = factor - 1;
  p.turn_shift = factor == 8 ? 0 : factor == 4 ? 1 : factor == 2 ? 2 : 3;
  const size_t bytes = p.staged ? static_cast<size_t>(part) : 0;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(room)));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  cudaLaunchAttribute cluster;
  cudaLaunchConfig_t config = ClusterLaunch(exec, ranks, kThreads, bytes, cluster);
  config.gridDim = dim3(static_cast<unsigned>(rows * ranks));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaLaunchKernelEx(&config, kernel, p));
  return HEARTH_CUDA_LAUNCHED(kOp);
}

template <typename A>
absl::Status Run(const Exec& exec, const SampleTokensArgs& args) {
  const int64_t rows = args.logits.rows();
  const Params<A> p = ParamsOf<A>(args);
  if (p.penalty != 1.0F) {
    return Launch<A, Make::kPenalised>(exec, rows, p);
  }
  const bool filters = !p.greedy && (p.top_k > 0 || p.top_p < 1.0 || p.least > 0);
  return filters ? Launch<A, Make::kFiltered>(exec, rows, p)
                 : Launch<A, Make::kPlain>(exec, rows, p);
}

}  // namespace

absl::Status SampleTokens(const Exec& exec, const SampleTokensArgs& args) {
  return args.logits.dtype == DType::kBF16 ? Run<Bf16>(exec, args) : Run<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
