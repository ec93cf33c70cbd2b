// A cluster of blocks draws for one row, which it reads from the L2 cache twice without top_k and
// top_p: for the largest logit, then for all sums over the tokens. Each block has a part of the
// row, each of its warps a stretch of that. What blocks sum they tell one another through shared
// memory. top_k and top_p are found digit by digit of the distances' bits, with a histogram of
// counts or of weights a digit.
//
// A weight takes about 40 instructions, because its bits are fixed: with 2^25 logits (512 rows)
// that is more time than memory needs (10 us on an H200). With few rows it is the waits that take
// time.
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
constexpr int kResident = 2;          // blocks of a multiprocessor
constexpr int64_t kLeastPart = 2048;  // logits of a block, where a row is divided
constexpr int kBuckets = 2048;
constexpr int kLimbs = 3;  // of ten bits, so that 2^20 of them do not overflow
constexpr unsigned kAllLanes = 0xFFFFFFFF;

using Mass = unsigned long long;  // NOLINT(google-runtime-int): the type of CUDA's atomics

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
  int stretch;    // elements of a warp, a multiple of 256
  bool vectors;   // 16-byte access
  int32_t end_token;
  int top_k;       // 0 = all
  uint32_t least;  // weight
  double top_p;
  float temperature;
  float penalty;
  uint64_t seed;
};

// What a block tells the others of its row.
struct Word {
  Mass mass;
  float first;
  float second;
};

struct Bucket {
  Mass before;  // masses in the buckets below it
  int index;
};

struct Shared {
  uint32_t histogram[kLimbs][kBuckets];
  Mass scan[kWarps];
  float floats[32];
  uint32_t indices[32];
  Word told[2][kMostClusterBlocks];
  Bucket found;
};

// The blocks of a row. All threads of all of them make the same calls.
class Team {
 public:
  __device__ __forceinline__ Team(Shared& shared, int ranks)
      : shared_(shared), ranks_(ranks), rank_(static_cast<int>(blockIdx.x) % ranks) {}

  __device__ __forceinline__ int ranks() const { return ranks_; }
  __device__ __forceinline__ int rank() const { return rank_; }

  // `word`, the same in all threads of a block, of each block in turn. What is returned holds until
  // the call after next: between a reader and the writer of the same words is the call between.
  __device__ __forceinline__ const Word* Tell(const Word& word) {
    turn_ ^= 1;
    if (static_cast<int>(threadIdx.x) < ranks_) {
      *Of(&shared_.told[turn_][rank_], static_cast<int>(threadIdx.x)) = word;
    }
    MeetCluster();
    return shared_.told[turn_];
  }

  // Masses in bucket `index` of all blocks, once they have met.
  __device__ __forceinline__ Mass MassOf(int index, bool weights) {
    Mass mass = 0;
    for (int r = 0; r < ranks_; ++r) {
      mass += *Of(&shared_.histogram[0][index], r);
      // The limbs of the weights were counted apart, as one word would overflow.
      if (weights) {
        mass += (static_cast<Mass>(*Of(&shared_.histogram[1][index], r)) << 10) +
                (static_cast<Mass>(*Of(&shared_.histogram[2][index], r)) << 20);
      }
    }
    return mass;
  }

  // One thread of the team calls it; all return the same after they have met.
  __device__ __forceinline__ void Found(const Bucket& bucket) {
    for (int r = 0; r < ranks_; ++r) {
      *Of(&shared_.found, r) = bucket;
    }
  }

 private:
  template <typename T>
  __device__ __forceinline__ T* Of(T* own, int rank) const {
    return ranks_ == 1 ? own : InBlock(own, rank);
  }

  Shared& shared_;
  int ranks_;
  int rank_;
  int turn_ = 0;
};

// The logits of this block's part of a row.
template <typename A>
struct Row {
  const Params<A>& p;
  const A* logits;
  const uint32_t* seen;  // null without penalty
  int begin;             // of the warp's stretch
  float largest = 0.0F;  // of the row, penalised

  // Logits at .. at + 7, at < vocab; NaN, which weighs nothing, for those that there are not.
  __device__ __forceinline__ Raw8<A> Load(int at) const {
    if (p.vectors && at + 8 <= p.vocab) {
      return LoadRaw8(logits + at);
    }
    float x[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      x[k] = at + k < p.vocab ? ToFloat(logits[at + k]) : NAN;
    }
    return PackRaw8<A>(x);
  }
  // visit(at, x) for all of this thread's logits, eight at a time, of which kAhead times eight are
  // on their way.
  template <int kAhead, typename Visit>
  __device__ __forceinline__ void Each(const Visit& visit) const {
    // A warp has one stretch of the row, so that a sum over the warps before it is one over the
    // tokens before it. Draw needs that.
    const int end = min(begin + p.stretch, p.vocab);
#pragma unroll 1
    for (int at = begin + static_cast<int>(threadIdx.x % 32) * 8; at < end; at += kAhead * 256) {
      Raw8<A> raw[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        raw[u] = {};
        if (at + u * 256 < end) {
          raw[u] = Load(at + u * 256);
        }
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (at + u * 256 < end) {
          float x[8];
          Unpack(raw[u], x);
          visit(at + u * 256, x);
        }
      }
    }
  }
  // Bit k: whether token at + k has been seen, at a multiple of 8.
  __device__ __forceinline__ uint32_t Seen(int at) const {
    return seen != nullptr ? seen[at / 32] >> (at % 32) : 0U;
  }
  __device__ __forceinline__ float Penalised(float logit, bool known) const {
    return PenalisedLogit(logit, known, p.penalty);
  }
  // Logits to distances.
  __device__ __forceinline__ void ToDistances(int at, const float (&x)[8], float (&d)[8]) const {
    const uint32_t known = Seen(at);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      d[k] = DistanceOf(Penalised(x[k], (known >> k & 1U) != 0), largest, p.temperature);
    }
  }
};

__device__ __forceinline__ Mass WarpScan(Mass x) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const Mass below = __shfl_up_sync(kAllLanes, x, offset);
    x += static_cast<int>(threadIdx.x % 32) >= offset ? below : 0;
  }
  return x;
}

// Inclusive sums over the block; `total` in every thread.
__device__ __forceinline__ Mass BlockScan(Mass x, Mass* scratch, Mass& total) {
  // The barrier that follows also waits for those who still read an earlier scan.
  x = WarpScan(x);
  const int warp = threadIdx.x / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 31) {
    scratch[warp] = x;
  }
  __syncthreads();
  Mass before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    before += w < warp ? scratch[w] : 0;
    total += scratch[w];
  }
  return before + x;
}

// The largest of the row's logits.
struct Largest {
  float penalised = -INFINITY;
  float plain = -INFINITY;
};
template <typename A>
__device__ __forceinline__ Largest LargestOf(const Row<A>& row, Team& team, float* scratch) {
  Largest found;
  // fmaxf passes over NaN.
  if (row.seen == nullptr) {
    row.template Each<4>([&](int, const float(&x)[8]) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        found.plain = fmaxf(found.plain, x[k]);
      }
    });
    found.plain = found.penalised = BlockMax(found.plain, scratch);
  } else {
    row.template Each<1>([&](int at, const float(&x)[8]) {
      const uint32_t known = row.Seen(at);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        found.plain = fmaxf(found.plain, x[k]);
        found.penalised = fmaxf(found.penalised, row.Penalised(x[k], (known >> k & 1U) != 0));
      }
    });
    found.plain = BlockMax(found.plain, scratch);
    found.penalised = BlockMax(found.penalised, scratch);
  }
  const Word* told = team.Tell({0, found.penalised, found.plain});
  for (int r = 0; r < team.ranks(); ++r) {
    found.penalised = fmaxf(found.penalised, told[r].first);
    found.plain = fmaxf(found.plain, told[r].second);
  }
  return found;
}

// e^(logit - largest); 0 for NaN.
__device__ __forceinline__ float Share(float logit, float largest) {
  constexpr float kLog2e = 1.44269504088896341F;
  // Below 2^-126 the result is 0.
  const float x = fmaxf((logit - largest) * kLog2e, -150.0F);
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// One digit of Select: which bucket reaches `left`, from which the masses below it are taken. The
// histograms are complete in all blocks; each block adds up its share of the buckets.
__device__ __forceinline__ int FindBucket(Shared& shared, Team& team, bool weights, Mass& left) {
  constexpr int kMostOwn = kBuckets / kThreads;
  const int share = kBuckets / team.ranks();
  const int count = max(share / kThreads, 1);  // of a thread
  const bool mine = static_cast<int>(threadIdx.x) * count < share;
  const int first = team.rank() * share + static_cast<int>(threadIdx.x) * count;
  Mass own[kMostOwn];
  Mass sum = 0;
#pragma unroll
  for (int k = 0; k < kMostOwn; ++k) {
    own[k] = mine && k < count ? team.MassOf(first + k, weights) : 0;
    sum += own[k];
  }
  Mass total;
  const Mass up_to_thread = BlockScan(sum, shared.scan, total);
  const Word* told = team.Tell({total, 0.0F, 0.0F});
  Mass before = up_to_thread - sum;
  for (int r = 0; r < team.rank(); ++r) {
    before += told[r].mass;
  }
  // True in exactly one thread of the team.
  if (before < left && left <= before + sum) {
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
    team.Found({before, bucket});
  }
  MeetCluster();
  left -= shared.found.before;
  return shared.found.index;
}

// Adds a distance to the histogram: 1, or its weight, limb by limb.
__device__ __forceinline__ void CountDistance(Shared& shared, bool weights, float d, int bucket) {
  if (!weights) {
    atomicAdd(&shared.histogram[0][bucket], 1U);
    return;
  }
  const uint32_t weight = WeightOf(d);
#pragma unroll
  for (int limb = 0; limb < kLimbs; ++limb) {
    const uint32_t part = weight >> (10 * limb) & 1023U;
    if (part != 0) {
      atomicAdd(&shared.histogram[limb][bucket], part);
    }
  }
}

// The smallest distance D so that the tokens with d <= D, of those with d <= limit, number `left`
// or weigh so much; there are as many.
template <typename A>
__device__ float Select(
    const Row<A>& row, Shared& shared, Team& team, bool weights, Mass left, float limit) {
  // 11 + 11 + 10 bits are the whole pattern of a float.
  uint32_t prefix = 0;
#pragma unroll 1
  for (int level = 0; level < 3; ++level) {
    const int digits = level < 2 ? 11 : 10;
    const int shift = level < 2 ? 21 - 11 * level : 0;
    const int above = shift + digits;
    const uint32_t mask = (1U << digits) - 1;
    __syncthreads();
    // All limbs: their buckets lie one behind the other. The other blocks have read what they want
    // of them: they have met since.
    for (int i = threadIdx.x; i < kLimbs * kBuckets; i += kThreads) {
      shared.histogram[0][i] = 0;
    }
    __syncthreads();
    row.template Each<1>([&](int at, const float(&x)[8]) {
      float d[8];
      row.ToDistances(at, x, d);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const uint32_t bits = __float_as_uint(d[k]);
        // Only tokens whose higher digits are those found so far. Distances are not negative, so
        // their bits order as they do. Those behind the vocabulary are infinite: they come last.
        if (d[k] <= limit && (level == 0 || bits >> above == prefix)) {
          CountDistance(shared, weights, d[k], static_cast<int>(bits >> shift & mask));
        }
      }
    });
    MeetCluster();
    const auto digit = static_cast<uint32_t>(FindBucket(shared, team, weights, left));
    prefix = prefix << digits | digit;
  }
  return __uint_as_float(prefix);
}

// Weights of eight tokens, as far as the filters keep them.
template <typename A>
__device__ __forceinline__ void WeighEight(
    const Row<A>& row, float limit, int at, const float (&x)[8], uint32_t (&weights)[8]) {
  float d[8];
  row.ToDistances(at, x, d);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const uint32_t weight = d[k] <= limit ? WeightOf(d[k]) : 0;
    weights[k] = weight >= row.p.least ? weight : 0;
  }
}
__device__ __forceinline__ Mass SumOf(const uint32_t (&weights)[8]) {
  // Four times the largest weight, 2^31, fit a word.
  return static_cast<Mass>(weights[0] + weights[1] + weights[2] + weights[3]) +
         (weights[4] + weights[5] + weights[6] + weights[7]);
}

// The largest distance that top_k and top_p keep.
template <typename A>
__device__ float LimitOf(const Row<A>& row, Shared& shared, Team& team) {
  const Params<A>& p = row.p;
  float limit = INFINITY;
  if (p.top_k > 0) {
    limit = Select(row, shared, team, false, p.top_k, limit);
  }
  // top_p is a share of what top_k has left, so it comes second and sees only distances up to
  // `limit`.
  if (p.top_p < 1.0) {
    Mass mass = 0;
    row.template Each<1>([&](int at, const float(&x)[8]) {
      float d[8];
      row.ToDistances(at, x, d);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        mass += d[k] <= limit ? WeightOf(d[k]) : 0;
      }
    });
    Mass total;
    BlockScan(mass, shared.scan, total);
    const Word* told = team.Tell({total, 0.0F, 0.0F});
    total = 0;
    for (int r = 0; r < team.ranks(); ++r) {
      total += told[r].mass;
    }
    limit = Select(row, shared, team, true, TopMass(p.top_p, total), limit);
  }
  return limit;
}

// The token that a row gets, for the one thread of the team that `mine` is true in.
struct Choice {
  bool mine;
  int token;
  float sum;  // of all tokens' shares
};

// The first of the tokens with the largest penalised logit.
template <typename A>
__device__ __forceinline__ Choice
Likeliest(const Row<A>& row, Shared& shared, Team& team, float largest) {
  uint32_t first = 0xFFFFFFFF;
  float sum = 0.0F;
  row.template Each<1>([&](int at, const float(&x)[8]) {
    const uint32_t known = row.Seen(at);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const bool found = row.Penalised(x[k], (known >> k & 1U) != 0) == row.largest;
      first = found ? min(first, static_cast<uint32_t>(at + k)) : first;
      sum += Share(x[k], largest);
    }
  });
  sum = BlockSum(sum, shared.floats);
  first = BlockReduce(first, shared.indices, 0xFFFFFFFFU,
                      [](uint32_t value) { return __reduce_min_sync(kAllLanes, value); });
  const Word* told = team.Tell({first, sum, 0.0F});
  Choice choice = {team.rank() == 0 && threadIdx.x == 0, 0, 0.0F};
  Mass least = told[0].mass;
  for (int r = 0; r < team.ranks(); ++r) {
    least = told[r].mass < least ? told[r].mass : least;
    choice.sum += told[r].first;
  }
  choice.token = static_cast<int>(least);
  return choice;
}

// The token of this warp's stretch at which the masses, `before` at its begin, pass `target`, in
// the lane that returns true.
template <typename A>
__device__ bool FindToken(const Row<A>& row, float limit, Mass before, Mass target, int& token) {
  const int end = min(row.begin + row.p.stretch, row.p.vocab);
  for (int from = row.begin; from < end; from += 256) {
    const int at = from + static_cast<int>(threadIdx.x % 32) * 8;
    uint32_t weights[8] = {};
    if (at < end) {
      float x[8];
      Unpack(row.Load(at), x);
      WeighEight(row, limit, at, x, weights);
    }
    const Mass own = SumOf(weights);
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
template <typename A>
__device__ __forceinline__ Choice Draw(const Row<A>& row,
                                       Shared& shared,
                                       Team& team,
                                       float largest,
                                       int32_t stream,
                                       int32_t position) {
  const float limit = LimitOf(row, shared, team);
  Mass mass = 0;
  float sum = 0.0F;
  row.template Each<1>([&](int at, const float(&x)[8]) {
    uint32_t weights[8];
    WeighEight(row, limit, at, x, weights);
    mass += SumOf(weights);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      sum += Share(x[k], largest);
    }
  });
  sum = BlockSum(sum, shared.floats);
  Mass total;
  const Mass up_to_thread = BlockScan(mass, shared.scan, total);
  const Word* told = team.Tell({total, sum, 0.0F});
  Choice choice = {false, 0, 0.0F};
  Mass blocks_before = 0;
  total = 0;
  for (int r = 0; r < team.ranks(); ++r) {
    blocks_before += r < team.rank() ? told[r].mass : 0;
    total += told[r].mass;
    choice.sum += told[r].first;
  }
  const Mass target = DrawnMass(row.p.seed, stream, position, total);
  // The masses before this warp's stretch and up to its end.
  const Mass up_to = blocks_before + __shfl_sync(kAllLanes, up_to_thread, 31);
  const Mass before = blocks_before + __shfl_sync(kAllLanes, up_to_thread - mass, 0);
  // One warp of the team alone goes on, through its stretch again.
  if (target >= before && target < up_to) {
    choice.mine = FindToken(row, limit, before, target, choice.token);
  }
  return choice;
}

template <typename A>
__device__ __forceinline__ void Finish(
    const Params<A>& p, const A* logits, int row, int token, float log_of_sum) {
  p.drawn[row] = token;
  if (p.log_prob != nullptr) {
    p.log_prob[row] = ToFloat(logits[token]) - log_of_sum;
  }
  if (p.seen != nullptr) {
    p.seen[static_cast<int64_t>(row) * p.words + token / 32] |= 1 << (token % 32);
  }
  p.tokens[row] = token;
  const int remaining = token == p.end_token ? 0 : p.remaining[row] - 1;
  p.remaining[row] = remaining;
  // The next pass reads the token at its own position; a text that has ended stays where it is.
  if (remaining > 0) {
    ++p.positions[row];
  }
}

template <typename A>
__global__ void __launch_bounds__(kThreads, kResident)
    SampleKernel(const __grid_constant__ Params<A> p) {
  __shared__ Shared shared;
  Team team(shared, p.ranks);
  const int index = static_cast<int>(blockIdx.x) / p.ranks;
  TakeTurn();
  // A row that has ended keeps its state.
  if (p.remaining[index] <= 0) {
    if (team.rank() == 0 && threadIdx.x == 0) {
      p.drawn[index] = -1;
      if (p.log_prob != nullptr) {
        p.log_prob[index] = 0.0F;
      }
    }
    return;
  }
  // Before the last word, after which one thread changes them.
  const int32_t stream = p.streams[index];
  const int32_t position = p.positions[index] + 1;
  // Nobody writes to a block's memory before it has begun.
  MeetCluster();
  const int warp = team.rank() * kWarps + static_cast<int>(threadIdx.x) / 32;
  Row<A> row = {p, p.logits + index * p.width, nullptr, warp * p.stretch};
  if (p.penalty != 1.0F) {
    row.seen = reinterpret_cast<const uint32_t*>(p.seen) + static_cast<int64_t>(index) * p.words;
  }
  const Largest largest = LargestOf(row, team, shared.floats);
  row.largest = largest.penalised;
  // Where every logit is -inf too, the first token.
  const bool drawn = p.temperature > 0.0F && row.largest != -INFINITY;
  const Choice choice = drawn ? Draw(row, shared, team, largest.plain, stream, position)
                              : Likeliest(row, shared, team, largest.plain);
  // The block has read what the one thread changes; the others have since the last word.
  __syncthreads();
  if (choice.mine) {
    Finish(p, row.logits, index, choice.token, largest.plain + logf(choice.sum));
  }
}

// Blocks of a row: as long as all of them run at once.
int64_t RanksOf(int64_t rows, int64_t vocab, int multiprocessors) {
  const int64_t room = int64_t{kResident} * multiprocessors;
  int64_t ranks = 1;
  while (ranks < kMostClusterBlocks && rows * ranks * 2 <= room &&
         vocab >= ranks * 2 * kLeastPart) {
    ranks *= 2;
  }
  return ranks;
}

template <typename A>
absl::Status Run(const Exec& exec, const SampleTokensArgs& args) {
  const int64_t rows = args.logits.rows();
  Params<A> p;
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
  HEARTH_ASSIGN_OR_RETURN(
      const int64_t ranks,
      ClusterBlocks(SampleKernel<A>, RanksOf(rows, p.vocab, exec.cuda->gpu().multiprocessors)));
  p.ranks = static_cast<int>(ranks);
  p.stretch = static_cast<int>(CeilDiv(p.vocab, ranks * kWarps * 256)) * 256;
  p.vectors = p.width % 8 == 0 && Aligned16(p.logits);
  p.end_token = args.end_token;
  const int64_t top_k = args.rule.top_k;
  p.top_k = top_k < p.vocab ? static_cast<int>(top_k) : 0;
  p.least = LeastWeight(args.rule.min_p);
  p.top_p = args.rule.top_p;
  p.temperature = static_cast<float>(args.rule.temperature);
  p.penalty = static_cast<float>(args.rule.repetition_penalty);
  p.seed = args.rule.seed;
  const cudaLaunchAttribute cluster = ClusterAttribute(ranks);
  return LaunchInTurn(
      exec, kOp, SampleKernel<A>,
      {dim3(static_cast<unsigned>(rows * ranks)), kThreads, 0, ranks > 1 ? &cluster : nullptr}, p);
}

}  // namespace

absl::Status SampleTokens(const Exec& exec, const SampleTokensArgs& args) {
  return args.logits.dtype == DType::kBF16 ? Run<Bf16>(exec, args) : Run<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
