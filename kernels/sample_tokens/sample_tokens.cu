// A block draws for one row, which it reads from the L2 cache a few times: each warp a stretch of
// it. top_k and top_p are found digit by digit of the distances' bits, with a histogram of counts
// or of weights a digit.
#include "kernels/cuda/util.cuh"
#include "kernels/sample_tokens/distance.h"
#include "kernels/sample_tokens/sample_tokens.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "sample_tokens";
constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
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

struct Shared {
  uint32_t histogram[kLimbs][kBuckets];
  Mass scan[kWarps];
  float floats[32];
  Mass found_before;
  int found;
};

// The logits of this block's row.
template <typename A>
struct Row {
  const Params<A>& p;
  const A* logits;
  const uint32_t* seen;  // null without penalty
  float largest = 0.0F;  // penalised

  // visit(index, logit) for the elements at .. at + 7 that there are.
  template <typename Visit>
  __device__ __forceinline__ void Eight(int at, const Visit& visit) const {
    if (p.vectors && at + 8 <= p.vocab) {
      float x[8];
      Unpack(LoadRaw8(logits + at), x);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        visit(at + k, x[k]);
      }
      return;
    }
    for (int i = at; i < p.vocab && i < at + 8; ++i) {
      visit(i, ToFloat(logits[i]));
    }
  }
  // The same for all of this thread's elements.
  template <typename Visit>
  __device__ __forceinline__ void Each(const Visit& visit) const {
    // A warp has one stretch of the row, so that a sum over the warps before it is one over the
    // tokens before it. Draw needs that.
    const int begin = static_cast<int>(threadIdx.x / 32) * p.stretch;
    const int end = min(begin + p.stretch, p.vocab);
    for (int at = begin + static_cast<int>(threadIdx.x % 32) * 8; at < end; at += 256) {
      Eight(at, visit);
    }
  }
  __device__ __forceinline__ float Penalised(int i, float logit) const {
    const bool known = seen != nullptr && ((seen[i / 32] >> (i % 32)) & 1U) != 0;
    return PenalisedLogit(logit, known, p.penalty);
  }
  __device__ __forceinline__ float Distance(int i, float logit) const {
    return DistanceOf(Penalised(i, logit), largest, p.temperature);
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

// Larger of values whose order is that of (logit, -index).
__device__ __forceinline__ Mass OrderOf(float x, int index) {
  const uint32_t bits = __float_as_uint(x + 0.0F);  // -0 counts as 0
  // As integers, bits of negative floats fall while the floats rise: they are inverted, and the
  // others moved above them.
  const uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<Mass>(ordered) << 32 | (0xFFFFFFFFU - static_cast<uint32_t>(index));
}
__device__ __forceinline__ float LogitOf(Mass order) {
  const auto ordered = static_cast<uint32_t>(order >> 32);
  return __uint_as_float((ordered & 0x80000000U) != 0 ? ordered & 0x7FFFFFFFU : ~ordered);
}
__device__ __forceinline__ Mass BlockLargest(Mass x, Mass* scratch) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Mass other = __shfl_xor_sync(kAllLanes, x, offset);
    x = other > x ? other : x;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    scratch[threadIdx.x / 32] = x;
  }
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) {
    x = scratch[w] > x ? scratch[w] : x;
  }
  return x;
}

// One digit of Select: which bucket reaches `left`, from which the masses below it are taken.
__device__ __forceinline__ int FindBucket(Shared& shared, bool weights, Mass& left) {
  Mass own[kBuckets / kThreads];
  Mass sum = 0;
#pragma unroll
  for (int k = 0; k < kBuckets / kThreads; ++k) {
    const int bucket = static_cast<int>(threadIdx.x) * (kBuckets / kThreads) + k;
    // The limbs of the weights were counted apart, as one word would overflow.
    own[k] = shared.histogram[0][bucket];
    if (weights) {
      own[k] += (static_cast<Mass>(shared.histogram[1][bucket]) << 10) +
                (static_cast<Mass>(shared.histogram[2][bucket]) << 20);
    }
    sum += own[k];
  }
  Mass total;
  const Mass up_to = BlockScan(sum, shared.scan, total);
  Mass before = up_to - sum;
  // True in exactly one thread.
  if (before < left && left <= up_to) {
    int bucket = static_cast<int>(threadIdx.x) * (kBuckets / kThreads);
#pragma unroll
    for (int k = 0; k < kBuckets / kThreads - 1; ++k) {
      if (before + own[k] < left) {
        before += own[k];
        ++bucket;
      } else {
        break;
      }
    }
    shared.found = bucket;
    shared.found_before = before;
  }
  __syncthreads();
  left -= shared.found_before;
  return shared.found;
}

// The smallest distance D so that the tokens with d <= D, of those with d <= limit, number `left`
// or weigh so much; there are as many.
template <typename A>
__device__ float Select(const Row<A>& row, Shared& shared, bool weights, Mass left, float limit) {
  // 11 + 11 + 10 bits are the whole pattern of a float.
  constexpr int kShifts[] = {21, 10, 0};
  constexpr int kDigits[] = {11, 11, 10};
  uint32_t prefix = 0;
#pragma unroll 1
  for (int level = 0; level < 3; ++level) {
    const int shift = kShifts[level];
    const int above = shift + kDigits[level];
    const uint32_t mask = (1U << kDigits[level]) - 1;
    __syncthreads();
    // All limbs: their buckets lie one behind the other.
    for (int i = threadIdx.x; i < kLimbs * kBuckets; i += kThreads) {
      shared.histogram[0][i] = 0;
    }
    __syncthreads();
    row.Each([&](int i, float logit) {
      const float d = row.Distance(i, logit);
      const uint32_t bits = __float_as_uint(d);
      // Only tokens whose higher digits are those found so far. Distances are not negative, so
      // their bits order as they do; NaN is left out.
      if (!(d <= limit) || (level > 0 && bits >> above != prefix)) {
        return;
      }
      const uint32_t bucket = (bits >> shift) & mask;
      if (!weights) {
        atomicAdd(&shared.histogram[0][bucket], 1U);
        return;
      }
      const uint32_t weight = WeightOf(d);
      if ((weight & 1023U) != 0) {
        atomicAdd(&shared.histogram[0][bucket], weight & 1023U);
      }
      if ((weight >> 10 & 1023U) != 0) {
        atomicAdd(&shared.histogram[1][bucket], weight >> 10 & 1023U);
      }
      if (weight >> 20 != 0) {
        atomicAdd(&shared.histogram[2][bucket], weight >> 20);
      }
    });
    __syncthreads();
    prefix = prefix << kDigits[level] | static_cast<uint32_t>(FindBucket(shared, weights, left));
  }
  return __uint_as_float(prefix);
}

// The token for the block's row, in the thread that returns true.
template <typename A>
__device__ bool Draw(
    const Row<A>& row, Shared& shared, int32_t stream, int32_t position, int* token) {
  const Params<A>& p = row.p;
  float limit = INFINITY;
  if (p.top_k > 0) {
    limit = Select(row, shared, false, p.top_k, limit);
  }
  Mass total;
  // top_p is a share of what top_k has left, so it comes second and sees only distances up to
  // `limit`.
  if (p.top_p < 1.0) {
    Mass mass = 0;
    row.Each([&](int i, float logit) {
      const float d = row.Distance(i, logit);
      mass += d <= limit ? WeightOf(d) : 0;
    });
    BlockScan(mass, shared.scan, total);
    limit = Select(row, shared, true, TopMass(p.top_p, total), limit);
  }
  const auto weight_of = [&](int i, float logit) -> Mass {
    const float d = row.Distance(i, logit);
    const uint32_t weight = d <= limit ? WeightOf(d) : 0;
    return weight >= p.least ? weight : 0;
  };
  Mass mass = 0;
  row.Each([&](int i, float logit) { mass += weight_of(i, logit); });
  const Mass up_to_thread = BlockScan(mass, shared.scan, total);
  const Mass target = DrawnMass(p.seed, stream, position, total);
  // The masses before this warp's stretch and up to its end.
  const Mass up_to = __shfl_sync(kAllLanes, up_to_thread, 31);
  Mass before = __shfl_sync(kAllLanes, up_to_thread - mass, 0);
  // The token lies in another warp's stretch. One warp alone goes on, through its stretch again
  // until the sum passes the target.
  if (target < before || target >= up_to) {
    return false;
  }
  const int begin = static_cast<int>(threadIdx.x / 32) * p.stretch;
  for (int from = begin; from < begin + p.stretch; from += 256) {
    const int at = from + static_cast<int>(threadIdx.x % 32) * 8;
    Mass own = 0;
    row.Eight(at, [&](int i, float logit) { own += weight_of(i, logit); });
    const Mass sum = WarpScan(own);
    const bool here = target >= before + sum - own && target < before + sum;
    const bool found_by_any = __any_sync(kAllLanes, here) != 0;
    if (here) {
      Mass left = target - (before + sum - own);
      int found = -1;
      row.Eight(at, [&](int i, float logit) {
        const Mass weight = weight_of(i, logit);
        if (found < 0 && left < weight) {
          found = i;
        } else if (found < 0) {
          left -= weight;
        }
      });
      *token = found;
      return true;
    }
    if (found_by_any) {
      return false;
    }
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  return false;
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
__global__ void __launch_bounds__(kThreads) SampleKernel(const __grid_constant__ Params<A> p) {
  __shared__ Shared shared;
  const int index = blockIdx.x;
  // A row that has ended keeps its state.
  if (p.remaining[index] <= 0) {
    if (threadIdx.x == 0) {
      p.drawn[index] = -1;
      if (p.log_prob != nullptr) {
        p.log_prob[index] = 0.0F;
      }
    }
    return;
  }
  const A* logits = p.logits + index * p.width;
  Row<A> row = {p, logits, nullptr};
  if (p.penalty != 1.0F) {
    row.seen = reinterpret_cast<const uint32_t*>(p.seen) + static_cast<int64_t>(index) * p.words;
  }
  Mass best = 0;
  float largest = -INFINITY;
  row.Each([&](int i, float logit) {
    const Mass order = OrderOf(row.Penalised(i, logit), i);
    best = order > best ? order : best;
    largest = fmaxf(largest, logit);
  });
  best = BlockLargest(best, shared.scan);
  row.largest = LogitOf(best);
  float log_of_sum = 0.0F;
  if (p.log_prob != nullptr) {
    largest = BlockMax(largest, shared.floats);
    float sum = 0.0F;
    row.Each([&](int, float logit) { sum += logit == logit ? __expf(logit - largest) : 0.0F; });
    log_of_sum = largest + logf(BlockSum(sum, shared.floats));
  }
  int token = static_cast<int>(0xFFFFFFFFU - static_cast<uint32_t>(best));
  // Greedy, and where every logit is -inf: the best by order.
  bool mine = threadIdx.x == 0;
  if (p.temperature > 0.0F && row.largest != -INFINITY) {
    mine = Draw(row, shared, p.streams[index], p.positions[index] + 1, &token);
  }
  // Everybody has read what the one thread changes.
  __syncthreads();
  if (mine) {
    Finish(p, logits, index, token, log_of_sum);
  }
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
  p.stretch = static_cast<int>(CeilDiv(p.vocab, kWarps * 256)) * 256;
  p.vectors = p.width % 8 == 0 && Aligned16(p.logits);
  p.end_token = args.end_token;
  const int64_t top_k = args.rule.top_k;
  p.top_k = top_k < p.vocab ? static_cast<int>(top_k) : 0;
  p.least = LeastWeight(args.rule.min_p);
  p.top_p = args.rule.top_p;
  p.temperature = static_cast<float>(args.rule.temperature);
  p.penalty = static_cast<float>(args.rule.repetition_penalty);
  p.seed = args.rule.seed;
  SampleKernel<A><<<static_cast<unsigned>(rows), kThreads, 0, StreamOf(exec)>>>(p);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace

absl::Status SampleTokens(const Exec& exec, const SampleTokensArgs& args) {
  return args.logits.dtype == DType::kBF16 ? Run<Bf16>(exec, args) : Run<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
