// The limits that top_k and top_p set to the distances of a row (sample_tokens.cu).
#pragma once

#include "kernels/sample_tokens/sample_row.cuh"

namespace hearth::kernels::cuda::sample {

inline constexpr int kBucketBits = 11;
inline constexpr int kBuckets = 1 << kBucketBits;
// The first histogram counts distances of T / 2048 to 32 T in 16 doublings, T the temperature; the
// last bucket weighs nothing.
inline constexpr int kDoublingBits = 7;  // 2^7
inline constexpr float kNear = 0x1p-11F;
inline constexpr int kLimbs = 3;         // of ten bits, so that 2^20 of them do not overflow
inline constexpr int kMostListed = 128;  // distances of a bucket that are compared one by one

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

}  // namespace hearth::kernels::cuda::sample
