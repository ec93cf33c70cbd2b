#include <string>

#include "common/base/status_macros.h"
#include "common/weights/gguf_tokenizer.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {

// tokenizer.model of a model folder that is exported.
bool SentencePiece(std::string_view bytes) {
  const auto described = weights::DescribeSentencePiece(std::string(bytes), "tokenizer.model");
  if (!described.ok()) {
    return false;
  }
  HEARTH_CHECK(!described->metadata.empty(), "a tokenizer has metadata");
  return true;
}

}  // namespace hearth::fuzz
