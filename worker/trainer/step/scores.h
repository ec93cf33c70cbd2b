// Log-likelihoods of the ends of token sequences, many sequences in a micro-batch, by the engine's
// own forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

struct ScoreRequest {
  std::vector<int32_t> tokens;  // 2 .. T + 1 of them, each below the model's vocabulary
  int64_t scored = 1;           // the last so many are scored, 1 .. tokens - 1
};

struct Score {
  double log_likelihood = 0;  // sum over the scored tokens of log p(token | those before), nats
  bool greedy = false;        // greedy decoding would write the scored tokens
};

// Places requests in micro-batches. A model that attends within documents has as many in a sample
// as fit (best fit, the longest first), any other one in each sample; what is left is padding. A
// request is computed as if it were alone, so its place changes no more than roundings. Depends
// only on the requests and the engine's shape: ranks may divide the micro-batches.
class ScoreBatches {
 public:
  // `requests` outlive the object. kInvalidArgument: a request that is no ScoreRequest.
  static absl::StatusOr<ScoreBatches> Place(const Engine& engine,
                                            absl::Span<const ScoreRequest> requests);

  int64_t size() const { return (samples() + batch_ - 1) / batch_; }
  int64_t samples() const { return static_cast<int64_t>(samples_.size()); }

  // Runs micro-batch i and writes its requests' entries of `scores`. The engine's plan keeps
  // scores, its StepState has begun a step, and nothing is in flight. Returns when it is done.
  absl::Status Run(Engine& engine, const Pass& pass, int64_t i, absl::Span<Score> scores) const;

 private:
  using Sample = std::vector<size_t>;  // requests, in the order in which they lie

  ScoreBatches(absl::Span<const ScoreRequest> requests, int64_t batch, int64_t length)
      : requests_(requests), batch_(batch), length_(length) {}
  void Fill(const BatchBuffers& out, int64_t row, const Sample& sample) const;
  void Read(const Engine::Scores& read,
            int64_t row,
            const Sample& sample,
            absl::Span<Score> scores) const;

  absl::Span<const ScoreRequest> requests_;
  int64_t batch_ = 1;   // samples of a micro-batch
  int64_t length_ = 0;  // T
  std::vector<Sample> samples_;
};

}  // namespace hearth::trainer
