// What is fuzzed, one row a parser: `run` hands it bytes that nobody has looked at. It may refuse
// them and must not crash, leak, hang or break what a parser promises (which aborts).
#pragma once

#include <string_view>

#include "absl/types/span.h"

namespace hearth::fuzz {

struct Target {
  std::string_view name;                // and the folder of its inputs, corpus/NAME
  bool (*run)(std::string_view bytes);  // true: the parser has taken (some of) them
};

absl::Span<const Target> Targets();
// Null: none is called so.
const Target* FindTarget(std::string_view name);

bool AgentMessage(std::string_view bytes);
bool ChatTemplate(std::string_view bytes);
bool CheckpointJson(std::string_view bytes);
bool Dataset(std::string_view bytes);
bool EvaluationItems(std::string_view bytes);
bool GgufTokenizer(std::string_view bytes);
bool Http(std::string_view bytes);
bool JobFile(std::string_view bytes);
bool ModelConfig(std::string_view bytes);
bool Records(std::string_view bytes);
bool Safetensors(std::string_view bytes);
bool SentencePiece(std::string_view bytes);
bool StoredFrames(std::string_view bytes);
bool Tokenizer(std::string_view bytes);
bool TrainerPipe(std::string_view bytes);
bool WeightIndex(std::string_view bytes);

}  // namespace hearth::fuzz
