#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/types/span.h"
#include "kernels/core/cpu.h"
#include "kernels/sample_tokens/distance.h"
#include "kernels/sample_tokens/sample_tokens.h"

namespace hearth::kernels {
namespace {

// The largest distance that is kept, by top_k and top_p. `sorted` is scratch.
float LimitOf(const SamplingRule& rule,
              const WeightScale& scale,
              absl::Span<const float> distances,
              absl::Span<float> sorted) {
  float limit = std::numeric_limits<float>::infinity();
  std::copy(distances.begin(), distances.end(), sorted.begin());
  auto end = sorted.end();
  if (rule.top_k > 0 && rule.top_k < static_cast<int64_t>(sorted.size())) {
    const auto kth = sorted.begin() + (rule.top_k - 1);
    std::nth_element(sorted.begin(), kth, sorted.end());
    limit = *kth;
    end = std::partition(sorted.begin(), sorted.end(), [limit](float d) { return d <= limit; });
  }
  if (rule.top_p >= 1.0) {
    return limit;
  }
  uint64_t whole = 0;
  for (auto d = sorted.begin(); d != end; ++d) {
    whole += WeightOf(*d, scale);
  }
  uint64_t left = TopMass(rule.top_p, whole);
  std::sort(sorted.begin(), end);
  for (auto d = sorted.begin(); d != end; ++d) {
    const uint64_t weight = WeightOf(*d, scale);
    if (weight >= left) {
      return *d;
    }
    left -= weight;
  }
  return limit;
}

// Number of the token that is drawn.
int32_t Draw(const SamplingRule& rule,
             int32_t stream,
             int32_t position,
             absl::Span<const float> distances,
             absl::Span<float> scratch) {
  const WeightScale scale = WeightScaleOf(rule.temperature);
  const float limit = LimitOf(rule, scale, distances, scratch);
  const uint32_t least = LeastWeight(rule.min_p);
  const auto weight = [&](float d) -> uint64_t {
    const uint32_t w = d <= limit ? WeightOf(d, scale) : 0;
    return w >= least ? w : 0;
  };
  uint64_t whole = 0;
  for (const float d : distances) {
    whole += weight(d);
  }
  uint64_t left = DrawnMass(DrawnWord(rule.seed, stream, position), whole);
  for (size_t i = 0; i < distances.size(); ++i) {
    const uint64_t w = weight(distances[i]);
    if (left < w) {
      return static_cast<int32_t>(i);
    }
    left -= w;
  }
  return 0;
}

// Log of the share of token `at` in the softmax of the row.
template <typename T>
double LogProbability(absl::Span<const T> logits, int32_t at) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const T l : logits) {
    largest = l > largest ? l : largest;
  }
  double sum = 0;
  for (const T l : logits) {
    sum += std::isnan(l) ? 0.0 : std::exp(l - largest);
  }
  return logits[static_cast<size_t>(at)] - largest - std::log(sum);
}

// Words of the row's bits in `seen`; null: none are kept.
int32_t* SeenRow(const SampleTokensArgs& args, int64_t row) {
  return args.seen.empty() ? nullptr : args.seen.as<int32_t>() + row * ((VocabOf(args) + 31) / 32);
}

template <typename T>
int32_t PickRow(const SampleTokensArgs& args, int64_t row, absl::Span<float> scratch) {
  const int64_t vocab = VocabOf(args);
  const T* logits = args.logits.as<T>() + row * args.logits.cols();
  const int32_t* seen = SeenRow(args, row);
  const auto penalty = static_cast<float>(args.rule.repetition_penalty);
  const absl::Span<float> distances = scratch.subspan(0, static_cast<size_t>(vocab));
  for (int64_t i = 0; i < vocab; ++i) {
    const bool known =
        seen != nullptr && ((static_cast<uint32_t>(seen[i / 32]) >> (i % 32)) & 1U) != 0;
    distances[static_cast<size_t>(i)] =
        PenalisedLogit(static_cast<float>(logits[i]), known, penalty);
  }
  // The first of equal ones, as on a GPU.
  const auto best = std::max_element(distances.begin(), distances.end());
  const float largest = *best;
  if (std::isinf(largest) || args.rule.temperature == 0.0) {
    return static_cast<int32_t>(best - distances.begin());
  }
  for (float& d : distances) {
    d = DistanceOf(d, largest);
  }
  return Draw(args.rule, args.streams.as<int32_t>()[row], args.positions.as<int32_t>()[row] + 1,
              distances, scratch.subspan(static_cast<size_t>(vocab)));
}

template <typename T>
void SampleRow(const SampleTokensArgs& args, int64_t row, absl::Span<float> scratch) {
  int32_t& remaining = args.remaining.as<int32_t>()[row];
  int32_t& drawn = args.drawn.as<int32_t>()[row];
  T* log_prob = args.log_prob.empty() ? nullptr : args.log_prob.as<T>() + row;
  if (remaining <= 0) {
    drawn = -1;
    if (log_prob != nullptr) {
      *log_prob = 0;
    }
    return;
  }
  drawn = PickRow<T>(args, row, scratch);
  if (log_prob != nullptr) {
    const T* logits = args.logits.as<T>() + row * args.logits.cols();
    *log_prob = static_cast<T>(
        LogProbability(absl::MakeConstSpan(logits, static_cast<size_t>(VocabOf(args))), drawn));
  }
  if (int32_t* seen = SeenRow(args, row); seen != nullptr) {
    seen[drawn / 32] = static_cast<int32_t>(static_cast<uint32_t>(seen[drawn / 32]) |
                                            (uint32_t{1} << (drawn % 32)));
  }
  args.tokens.as<int32_t>()[row] = drawn;
  remaining = drawn == args.end_token ? 0 : remaining - 1;
  if (remaining > 0) {
    ++args.positions.as<int32_t>()[row];
  }
}

}  // namespace

namespace cpu {

absl::Status SampleTokens(const Exec& exec, const SampleTokensArgs& args) {
  return DispatchFloating(args.logits.dtype, [&]<typename T>() {
    const auto row_floats = static_cast<size_t>(2 * VocabOf(args));
    float* workspace = static_cast<float*>(exec.workspace.data);
    ParallelFor(exec, args.logits.rows(), 1, [&](int64_t row, int64_t) {
      const auto thread = static_cast<size_t>(omp_get_thread_num());
      SampleRow<T>(args, row, absl::MakeSpan(workspace + thread * row_floats, row_floats));
    });
    return absl::OkStatus();
  });
}

}  // namespace cpu
}  // namespace hearth::kernels
