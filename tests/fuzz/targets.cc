#include "tests/fuzz/targets.h"

#include "common/base/table_rows.h"

namespace hearth::fuzz {
namespace {

constexpr Target kTargets[] = {
    {"agent_message", AgentMessage},
    {"chat_template", ChatTemplate},
    {"checkpoint_json", CheckpointJson},
    {"dataset", Dataset},
    {"evaluation_items", EvaluationItems},
    {"gguf_tokenizer", GgufTokenizer},
    {"http", Http},
    {"job_file", JobFile},
    {"model_config", ModelConfig},
    {"records", Records},
    {"safetensors", Safetensors},
    {"sentencepiece", SentencePiece},
    {"stored_frames", StoredFrames},
    {"tokenizer", Tokenizer},
    {"trainer_pipe", TrainerPipe},
    {"weight_index", WeightIndex},
};

}  // namespace

absl::Span<const Target> Targets() {
  return kTargets;
}

const Target* FindTarget(std::string_view name) {
  return FindRow(kTargets, &Target::name, name);
}

}  // namespace hearth::fuzz
