// Which pass gives a text's log-probabilities, and in which shape.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/generate/text_scorer.h"
#include "worker/trainer/generate/text_writer.h"

namespace hearth::trainer {

struct LogProbsChoice {
  LogProbs from = LogProbs::kGeneration;
  ScoringShape shape;          // of training's forward pass; not read otherwise
  bool deterministic = false;  // the checkpoint's job runs only kernels that repeat their bits
};

// "auto" is training for a checkpoint whose job has train.deterministic: true and quantises
// nothing, as its user wants training's bits; else generation. `shown`: somebody reads them;
// otherwise they are generation's, and asking for others is kInvalidArgument. kInvalidArgument
// also: no such name; a folder without a job, and no shape.
absl::StatusOr<LogProbsChoice> ChooseLogProbs(const LogProbsOptions& options,
                                              bool shown,
                                              const std::string& folder,
                                              Env& env = Env::Real());

}  // namespace hearth::trainer
