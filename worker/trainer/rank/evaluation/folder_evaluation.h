// Evaluations of a model folder: the loss on datasets, and questions. What `hearth-trainer eval`
// and task: eval do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/io/verified_files.h"
#include "worker/trainer/evaluate/evaluation.h"
#include "worker/trainer/evaluate/source_loss.h"
#include "worker/trainer/rank/evaluation/forward_model.h"
#include "worker/trainer/step/scores.h"

namespace hearth::trainer {

struct FolderEvaluationOptions {
  // sequence_length 0: as trained, else 256 on data and 2048 for questions. micro_batch is ignored.
  // `blame` is kept up to the end of the evaluation.
  ForwardModelOptions folder;
  int64_t micro_batch = 0;  // 0: 8 on data, for questions as many as keep the device busy
  // Called with the files of each dataset before it is read; empty: they are not verified.
  std::function<absl::Status(const std::vector<RecordedFile>&)> verify;
  // Called before the files of a model, of a dataset or of questions are read, which may take any
  // time; the micro-batches that follow are of one size. Empty: nobody is told.
  std::function<void()> before_part;
  // Called before each micro-batch; an error of it ends the evaluation. Empty: nothing is asked.
  std::function<absl::Status()> before_batch;
};

// The loss on each of `datasets`, in their order. `batches` > 0: only the first so many
// micro-batches of each. Samples, attention and which targets count are as the checkpoint's job had
// them. Errors: those of OpenForwardModel, Loader::Open and MeasureSource, of `verify` and of
// `before_batch`.
absl::StatusOr<std::vector<SourceLoss>> MeasureFolder(const FolderEvaluationOptions& options,
                                                      const std::vector<std::string>& datasets,
                                                      int64_t batches,
                                                      Env& env = Env::Real());

struct Asked {
  v1::EvaluationResult result;  // all but step and seconds
  std::unique_ptr<Evaluation> evaluation;
  std::vector<Score> scores;  // of the evaluation's requests
};

// Questions to the folder's model, encoded by its tokenizer; `questions` without context_length.
// Errors: those of OpenForwardModel, OpenTokenizerIn, Evaluation::Open and ScoreBatches, and of
// `before_batch`.
absl::StatusOr<Asked> AskFolder(const FolderEvaluationOptions& options,
                                EvaluationOptions questions,
                                Env& env = Env::Real());

}  // namespace hearth::trainer
