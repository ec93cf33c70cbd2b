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

// Micro-batches that hold requests.
struct ScoreShape {
  int64_t micro_batch = 1;  // samples
  int64_t length = 0;       // T, tokens of a sample
  int64_t vocab = 0;
  // As documents of their own several requests share a sample. False: each is the beginning of a
  // sample, in the order of the requests.
  bool shared = false;

  // The engine's, shared where its model attends within documents.
  static ScoreShape Of(const Engine& engine);
};

// Places requests in micro-batches. A shared sample has as many as fit (best fit, the longest
// first); what is left is padding. A request is computed as if it were alone, so its place changes
// no more than roundings. Depends only on the requests and the shape: ranks may divide the
// micro-batches.
class ScoreBatches {
 public:
  // `requests` outlive the object. kInvalidArgument: a request that is no ScoreRequest.
  static absl::StatusOr<ScoreBatches> Place(const ScoreShape& shape,
                                            absl::Span<const ScoreRequest> requests);
  static absl::StatusOr<ScoreBatches> Place(const Engine& engine,
                                            absl::Span<const ScoreRequest> requests) {
    return Place(ScoreShape::Of(engine), requests);
  }

  int64_t size() const { return (samples() + shape_.micro_batch - 1) / shape_.micro_batch; }
  int64_t samples() const { return static_cast<int64_t>(samples_.size()); }

  // Writes micro-batch i.
  void Fill(int64_t i, const BatchBuffers& out) const;
  // A request of a micro-batch, and the row of its first scored target: its other ones follow.
  struct Scored {
    size_t request = 0;
    int64_t row = 0;
  };
  std::vector<Scored> ScoredIn(int64_t i) const;

  // Runs micro-batch i and writes its requests' entries of `scores`. The engine's plan keeps
  // scores, its StepState has begun a step, and nothing is in flight. Returns when it is done.
  absl::Status Run(Engine& engine, const Pass& pass, int64_t i, absl::Span<Score> scores) const;

 private:
  using Sample = std::vector<size_t>;  // requests, in the order in which they lie

  ScoreBatches(absl::Span<const ScoreRequest> requests, const ScoreShape& shape)
      : requests_(requests), shape_(shape) {}
  void FillSample(const BatchBuffers& out, int64_t row, const Sample& sample) const;

  absl::Span<const ScoreRequest> requests_;
  ScoreShape shape_;
  std::vector<Sample> samples_;
};

}  // namespace hearth::trainer
