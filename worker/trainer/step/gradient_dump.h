// Gradients on disk, for comparison with other implementations.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

// Writes the accumulated gradients (of d_loss times the sum of w * nll, before any clip) into the
// folder `dir` as fp32 model.safetensors under the Hugging Face names. Waits for the stream.
absl::Status WriteGradients(const Engine& engine, const std::string& dir);

}  // namespace hearth::trainer
