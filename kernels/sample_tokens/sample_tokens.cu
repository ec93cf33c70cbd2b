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
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/util.cuh"
#include "kernels/sample_tokens/distance.h"
#include "kernels/sample_tokens/sample_limits.cuh"
#include "kernels/sample_tokens/sample_row.cuh"
#include "kernels/sample_tokens/sample_tokens.h"

namespace hearth::kernels::cuda::sample {
namespace {

constexpr char kOp[] = "sample_tokens";
constexpr int64_t kResident = 2;      // blocks of a multiprocessor
constexpr int64_t kLeastPart = 2048;  // logits of a block, where a row is divided

struct NoLimits {};

template <Make kMake>
struct Shared {
  Word told[2][kMostClusterBlocks * kWarps];
  uint32_t drawn_word;
  std::conditional_t<kMake == Make::kPlain, NoLimits, Limits> limits;
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

// Weighs eight tokens as far as the filters keep them. log_prob's shares, if they are the weights,
// are in the same unit.
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
  TakeTurn();
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
// `own`: bytes of shared memory of a block, without its part.
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
  const cudaLaunchAttribute cluster = ClusterAttribute(ranks);
  return LaunchInTurn(
      exec, kOp, kernel,
      {dim3(static_cast<unsigned>(rows * ranks)), kThreads, bytes, ranks > 1 ? &cluster : nullptr},
      p);
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
}  // namespace hearth::kernels::cuda::sample

namespace hearth::kernels::cuda {

absl::Status SampleTokens(const Exec& exec, const SampleTokensArgs& args) {
  return args.logits.dtype == DType::kBF16 ? sample::Run<Bf16>(exec, args)
                                           : sample::Run<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
