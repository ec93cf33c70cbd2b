// Models from a folder that only read: for evaluation and sampling, on either device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/weights/model_files.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/trainer.pb.h"
#include "kernels/cuda/context.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

struct ForwardModelOptions {
  std::string path;  // a checkpoint, or any Hugging Face model folder
  weights::WeightChoice weights = weights::WeightChoice::kStep;  // kEma: only of a checkpoint
  std::string device = "cpu";                                    // cpu | cuda:N
  std::string recipe;           // one that quantises nothing; empty: fp32 on the CPU, bf16 on a GPU
  int64_t sequence_length = 0;  // 0 = that of training where the folder says, else default_length
  int64_t default_length = 256;
  int64_t micro_batch = 1;
  // EngineOptions::too_large_is_bad_spec: the user has set micro_batch.
  bool too_large_is_bad_spec = false;
  int threads = 1;
  std::string micro_batch_name = "--batch";  // what the user sets micro_batch with, for errors
  // Set before each stage to who is to blame if it fails; null: nobody asks. Outlives the call.
  v1::ExitReason* blame = nullptr;
  std::string attention;  // causal | document; empty: as a checkpoint was trained, else causal
};

// Says so to options.blame.
void Blame(const ForwardModelOptions& options, v1::ExitReason reason);

// The members' order is that of what must outlive what.
struct ForwardModel {
  std::unique_ptr<kernels::CudaContext> cuda;  // null on the CPU
  std::unique_ptr<Engine> engine;
};

// A resolved spec with the folder's model; of a checkpoint with the job's data.packing, attention
// and sequence length. kInvalidArgument: no such recipe, or one that quantises: forward passes read
// plain weights. Errors of ReadHfConfig.
absl::StatusOr<v1::JobSpec> ForwardModelSpec(const ForwardModelOptions& options, Env& env);

// A forward-only engine with the folder's weights. Errors also those of OpenGpu, Engine::Create and
// LoadHfWeights.
absl::StatusOr<ForwardModel> OpenForwardModel(const ForwardModelOptions& options,
                                              Env& env = Env::Real());

}  // namespace hearth::trainer
