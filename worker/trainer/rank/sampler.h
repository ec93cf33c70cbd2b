// Models from a folder, for evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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

}  // namespace hearth::trainer
