// Models from a folder, for evaluation and sampling.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

struct ModelFolderOptions {
  std::string path;             // a checkpoint, or any Hugging Face model folder
  int64_t sequence_length = 0;  // 0 = that of training where the folder says, else 256
  int64_t micro_batch = 1;
  int threads = 1;
};

// A forward-only engine in fp32 with the folder's weights. Of a checkpoint its spec has the job's
// data.packing and data.attention.
absl::StatusOr<std::unique_ptr<Engine>> LoadModelFolder(const ModelFolderOptions& options,
                                                        Env& env = Env::Real());

struct SamplingOptions {
  double temperature = 0.8;  // 0 = the most likely token
  int top_k = 40;            // 0 = all
  uint64_t seed = 1;
};

// The token after `context` (its last sequence_length tokens count). `index` numbers the draw
// within a text: the same seed, index and context give the same token. `scratch` is reused between
// calls.
absl::StatusOr<int32_t> SampleNext(Engine& engine,
                                   const std::vector<int32_t>& context,
                                   const SamplingOptions& options,
                                   int64_t index,
                                   std::vector<float>& scratch);

// Picks from logits; exposed for tests. Entries of `logits` are overwritten.
int32_t PickToken(std::vector<float>& logits, const SamplingOptions& options, int64_t index);

}  // namespace hearth::trainer
