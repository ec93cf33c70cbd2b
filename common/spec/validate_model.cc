#include <cmath>

#include "common/spec/checker.h"
#include "common/spec/model.h"
#include "common/spec/validate.h"

namespace hearth::spec {
namespace {

void CheckRanges(const v1::ModelSpec& m, Checker& check) {
  check.Range("model.layers", m.has_layers(), m.layers(), 1, kMaxLayers);
  check.Range("model.hidden", m.has_hidden(), m.hidden(), 8, 65536);
  check.Range("model.heads", m.has_heads(), m.heads(), 1, 1024);
  check.Range("model.kv_heads", m.has_kv_heads(), m.kv_heads(), 1, 1024);
  check.Range("model.head_dim", m.has_head_dim(), m.head_dim(), 2, 512);
  check.Range("model.ffn_hidden", m.has_ffn_hidden(), m.ffn_hidden(), 8, 262144);
  check.Range("model.vocab", m.has_vocab(), m.vocab(), 2, 4194304);
  check.Rule("model.norm_eps", !m.has_norm_eps() || (m.norm_eps() > 0.0 && m.norm_eps() < 1.0),
             m.norm_eps(), "is out of range; must be > 0 and < 1");
  check.Rule("model.rope_theta",
             !m.has_rope_theta() || (m.rope_theta() > 1.0 && std::isfinite(m.rope_theta())),
             m.rope_theta(), "is out of range; must be > 1");
  check.Rule("model.dropout", !m.has_dropout() || (m.dropout() >= 0.0 && m.dropout() < 1.0),
             m.dropout(), "is out of range; must be >= 0 and < 1");
  check.Rule("model.init_std",
             !m.has_init_std() || (m.init_std() > 0.0 && std::isfinite(m.init_std())), m.init_std(),
             "is out of range; must be > 0");
}

void CheckNames(const v1::ModelSpec& m, Checker& check) {
  check.Name("model.norm", m.has_norm(), m.norm(), "norm", NormNames());
  check.Name("model.position", m.has_position(), m.position(), "position encoding",
             PositionNames());
  check.Name("model.activation", m.has_activation(), m.activation(), "activation",
             ActivationNames());
  check.Name("model.attention_bias", m.has_attention_bias(), m.attention_bias(),
             "kind of attention bias", AttentionBiasNames());
}

void CheckRopeScaling(const v1::RopeScaling& s, Checker& check) {
  check.Name("model.rope_scaling.type", s.has_type(), s.type(), "rope scaling", RopeScalingNames());
  if (s.type() != "linear" && s.type() != "llama3") {
    return;
  }
  check.Rule("model.rope_scaling.factor",
             !s.has_factor() || (s.factor() >= 1.0 && std::isfinite(s.factor())), s.factor(),
             "is out of range; must be >= 1");
  if (s.type() != "llama3") {
    return;
  }
  const double low = s.has_low_freq_factor() ? s.low_freq_factor() : 1.0;
  const double high = s.has_high_freq_factor() ? s.high_freq_factor() : 4.0;
  check.Rule("model.rope_scaling.low_freq_factor", low > 0.0 && std::isfinite(low), low,
             "is out of range; must be > 0");
  check.Rule("model.rope_scaling.high_freq_factor", high > low && std::isfinite(high), high,
             Text("must be greater than low_freq_factor ", low));
  check.AtLeast("model.rope_scaling.original_max_position", s.has_original_max_position(),
                s.original_max_position(), 1);
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

}  // namespace

void ValidateModelFields(const v1::ModelSpec& model,
                         int64_t sequence_length,
                         std::vector<FieldViolation>& violations) {
  Checker check(violations);
  CheckRanges(model, check);
  CheckNames(model, check);
  CheckRopeScaling(model.rope_scaling(), check);
  CheckHeads(model, check);
  if (model.position() == "learned" && model.has_max_position()) {
    check.AtLeast("model.max_position", true, model.max_position(), 1);
    if (model.max_position() >= 1 && sequence_length > model.max_position()) {
      check.Add("model.max_position",
                Text(model.max_position(), " is smaller than data.sequence_length ",
                     sequence_length, "; learned positions need a row for each token"));
    }
  }
}

void ValidateModel(const v1::ModelSpec& model,
                   int64_t sequence_length,
                   std::vector<FieldViolation>& violations) {
  Checker check(violations);
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
  ValidateModelFields(model, sequence_length, violations);
}

}  // namespace hearth::spec
