// What all kinds of `hearth-trainer eval` ask of the model.
#pragma once

#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/rank/evaluation/folder_evaluation.h"

namespace hearth::trainer {

// The folder, device, recipe and shape of samples that the options name.
inline FolderEvaluationOptions EvalFolder(const EvalOptions& options) {
  FolderEvaluationOptions evaluation;
  evaluation.micro_batch = options.micro_batch;
  ForwardModelOptions& folder = evaluation.folder;
  folder.path = options.checkpoint;
  folder.weights = options.choice;
  folder.device = options.device;
  folder.recipe = options.recipe;
  folder.sequence_length = options.sequence_length;
  folder.threads = ThreadsOrAll(options.threads);
  return evaluation;
}

}  // namespace hearth::trainer
