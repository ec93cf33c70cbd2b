#include "tests/fuzz/targets.h"

namespace hearth::fuzz {
namespace {

constexpr Target kTargets[] = {
    {"agent_message", AgentMessage},
    {"chat_template", ChatTemplate},
    {"checkpoint_json", CheckpointJson},
    {"dataset", Dataset},
    {"http", Http},
    {"job_file", JobFile},
    {"model_config", ModelConfig},
    {"records", Records},
    {"safetensors", Safetensors},
    {"stored_frames", StoredFrames},
    {"tokenizer", Tokenizer},
    {"trainer_pipe", TrainerPipe},
};

}  // namespace

absl::Span<const Target> Targets() {
  return kTargets;
}

const Target* FindTarget(std::string_view name) {
  for (const Target& target : kTargets) {
    if (target.name == name) {
      return &target;
    }
  }
  return nullptr;
}

}  // namespace hearth::fuzz
