#include "common/hf/hf_config.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {

// config.json of a model folder.
bool ModelConfig(std::string_view bytes) {
  return hf::ModelSpecFromHfConfig(bytes, "config.json").ok();
}

}  // namespace hearth::fuzz
