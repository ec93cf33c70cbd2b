// What all kinds of `hearth-trainer eval` ask of the model.
#pragma once

#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/rank/forward_model.h"

namespace hearth::trainer {

// The folder, device, recipe and length of samples that the options name; no micro-batch.
inline ForwardModelOptions EvalFolder(const EvalOptions& options) {
  ForwardModelOptions folder;
  folder.path = options.checkpoint;
  folder.weights = options.choice;
  folder.device = options.device;
  folder.recipe = options.recipe;
  folder.sequence_length = options.sequence_length;
  folder.threads = ThreadsOrAll(options.threads);
  return folder;
}

}  // namespace hearth::trainer
