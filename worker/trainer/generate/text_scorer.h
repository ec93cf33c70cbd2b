// Log-probabilities of tokens as training computes them: by its forward pass over whole sequences,
// in the shape of its micro-batches, with a generator's weights.
//
// They have the bits of the losses that training's pass gives the same micro-batch: the ops, their
// shapes and the order of their sums are its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/spec/plan/generation_plan.h"
#include "kernels/core/exec.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/model/model.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/precision/quant_state.h"
#include "worker/trainer/step/scores.h"

namespace hearth::trainer {

// The micro-batches of a training job.
struct ScoringShape {
  int64_t micro_batch = 0;  // sequences; 0: texts are not scored
  int64_t length = 0;       // T, tokens of a sequence
  bool documents = false;   // tokens see only their own document (data.attention)
};

// The plan of the pass, from that of the model whose texts are scored. Nothing is quantised: where
// that model's recipe quantises, the pass runs in the plain one. kInvalidArgument: no such shape,
// or one whose sequences are too short for texts of `tokens` tokens, or longer than the model
// learned positions for; kUnimplemented: the plain recipe keeps weights in another format.
absl::StatusOr<spec::TrainingPlanOptions> ScoringPlan(const spec::TrainingPlanOptions& model,
                                                      const ScoringShape& shape,
                                                      int64_t tokens);

// Not movable. Used by one thread.
class TextScorer {
 public:
  // Scratch of the pass's largest op: of a model that is bound to `plan` without memory.
  static absl::StatusOr<size_t> MeasureScratch(const spec::TrainingPlanOptions& options,
                                               const spec::TrainingPlan& plan,
                                               const ParameterStore& parameters,
                                               const kernels::Exec& exec,
                                               bool documents);

  // `options`: those of `plan`; `all`: the arena with the buffers that `ids` names. Parameters,
  // arena and exec's stream outlive the object.
  static absl::StatusOr<std::unique_ptr<TextScorer>> Create(
      const spec::TrainingPlanOptions& options,
      spec::TrainingPlan plan,
      const ParameterStore& parameters,
      const Arena& all,
      const spec::GenerationBuffers& ids,
      const kernels::Exec& exec,
      bool documents);

  // Gives one for each scored token of each request. A request is a sequence, from its beginning
  // on, in the order of the requests; a pass has as many as the micro-batch, and padding behind
  // each. kInvalidArgument: a request that is no ScoreRequest; other errors are those of the ops.
  absl::StatusOr<std::vector<std::vector<float>>> Score(absl::Span<const ScoreRequest> requests);

 private:
  TextScorer() = default;
  absl::Status Bind(const spec::TrainingPlanOptions& options,
                    const ParameterStore& parameters,
                    bool documents);
  void BindHost(const Arena& all, const spec::GenerationBuffers& ids);
  absl::Status Upload() const;
  // One [N] a row of a micro-batch's targets; holds until the next pass.
  absl::StatusOr<const float*> RunPass();

  spec::TrainingPlanOptions options_;
  std::unique_ptr<Arena> arena_;
  QuantState quant_;  // empty
  std::unique_ptr<Model> model_;
  kernels::Exec exec_;
  double* losses_ = nullptr;   // on the device
  BatchBuffers staged_;        // on the CPU the model's own
  float* host_nll_ = nullptr;  // null on the CPU
};

}  // namespace hearth::trainer
