#include <optional>

#include "common/spec/model/model_shape.h"
#include "common/spec/model/position_limit.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

// Both factors are set where the type uses them: their rows have defaults.
void CheckRopeScaling(const v1::RopeScaling& s, Checker& check) {
  if (s.has_low_freq_factor() && s.has_high_freq_factor() &&
      s.high_freq_factor() <= s.low_freq_factor()) {
    check.Add(
        "model.rope_scaling.high_freq_factor",
        Text(s.high_freq_factor(), " must be greater than low_freq_factor ", s.low_freq_factor()));
  }
}

void CheckHeads(const v1::ModelSpec& m, Checker& check) {
  if (m.heads() > 0 && m.kv_heads() > 0 && m.heads() % m.kv_heads() != 0) {
    check.Add("model.kv_heads", Text("heads ", m.heads(), " is not a multiple of kv_heads ",
                                     m.kv_heads(), "; kv_heads must divide heads"));
  }
  if (m.position() == "rope" && m.has_head_dim() && m.head_dim() % 2 != 0) {
    check.Add("model.head_dim", Text(m.head_dim(), " is odd; rope needs an even head_dim"));
  }
}

void CheckHfClass(const v1::ModelSpec& m, Checker& check) {
  const bool complete = m.has_hidden() && m.has_heads() && m.has_head_dim();
  if (m.has_hf_class() && complete && !HfClassHolds(m.hf_class(), m)) {
    check.Add("model.hf_class",
              Text(m.hf_class(),
                   " cannot hold this model; leave hf_class out, and checkpoints are "
                   "written as the first class that can"));
  }
}

}  // namespace

void CheckModelRules(const v1::ModelSpec& model, int64_t sequence_length, Checker& check) {
  CheckRopeScaling(model.rope_scaling(), check);
  CheckHeads(model, check);
  CheckHfClass(model, check);
  const std::optional<int64_t> limit = PositionLimit(model);
  if (limit.has_value() && sequence_length > *limit) {
    check.Add("model.max_position",
              Text(*limit, " is smaller than data.sequence_length ", sequence_length,
                   "; learned positions need a row for each token"));
  }
}

void CheckModelComplete(const v1::ModelSpec& model, Checker& check) {
  const auto require = [&check](std::string_view field, bool has) {
    if (!has) {
      check.Add(field, "required; give model.preset, model.from or the whole shape");
    }
  };
  require("model.layers", model.has_layers());
  require("model.hidden", model.has_hidden());
  require("model.heads", model.has_heads());
  require("model.ffn_hidden", model.has_ffn_hidden());
  if (model.has_hidden() && model.heads() > 0 && !model.has_head_dim()) {
    check.Add("model.head_dim", Text("hidden ", model.hidden(), " is not a multiple of heads ",
                                     model.heads(), "; change either or give head_dim"));
  }
}

}  // namespace hearth::spec
