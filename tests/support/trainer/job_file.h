// A job file of the smallest preset on the CPU, for tests of the trainer's verbs.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

namespace hearth::trainer {

// Writes "NAME.yaml" into the tests' folder and returns its path. Sequences have 32 tokens,
// micro-batches 2 sequences.
inline std::string WriteJobFile(std::string_view name, std::string_view recipe, int global_tokens) {
  const std::string path = absl::StrFormat("%s%s.yaml", testing::TempDir(), name);
  std::ofstream(path) << absl::StrFormat(R"(
name: %s
model: {preset: hearth-nano, vocab: 256}
data: {train: /nowhere, sequence_length: 32}
batch: {micro_batch_size: 2, global_batch_tokens: %d}
precision: {recipe: %s}
resources: {device: cpu}
train: {steps: 10}
)",
                                         name, global_tokens, recipe);
  return path;
}

}  // namespace hearth::trainer
