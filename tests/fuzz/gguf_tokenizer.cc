#include "common/weights/gguf_tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/base/status_macros.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {
namespace {

// The model has more tokens than the tokenizers in the corpus, so that some are padded.
constexpr int64_t kVocab = 512;

}  // namespace

// A model folder's tokenizer as it goes into a GGUF file: the first line is tokenizer_config.json,
// the rest tokenizer.json.
bool GgufTokenizer(std::string_view bytes) {
  const size_t line = bytes.find('\n');
  if (line == std::string_view::npos) {
    return false;
  }
  ScratchFile("gguf_tokenizer/tokenizer_config.json", bytes.substr(0, line));
  const std::string file = ScratchFile("gguf_tokenizer/tokenizer.json", bytes.substr(line + 1));
  const auto described = weights::DescribeTokenizer(
      Env::Real(), std::filesystem::path(file).parent_path().string(), kVocab);
  if (!described.ok()) {
    return false;
  }
  HEARTH_CHECK(!described->metadata.empty(), "a tokenizer has metadata");
  return true;
}

}  // namespace hearth::fuzz
