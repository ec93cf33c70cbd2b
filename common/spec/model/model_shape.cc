#include "common/spec/model/model_shape.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "common/spec/fields/rows.h"
#include "common/spec/resolve/resolve.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

// The value of the enumerator named `name`; validation has made sure that it is one.
template <typename Enum>
Enum EnumOf(const std::vector<std::string_view>& names, std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  return static_cast<Enum>(it == names.end() ? 0 : it - names.begin());
}

// `spec` has its defaults: the numbers of its type are set.
RopeScaling MakeRopeScaling(const v1::RopeScaling& spec) {
  RopeScaling scaling;
  scaling.type = EnumOf<RopeScalingType>(RopeScalingNames(), spec.type());
  if (scaling.type != RopeScalingType::kNone) {
    scaling.factor = spec.factor();
  }
  if (scaling.type == RopeScalingType::kLlama3) {
    scaling.low_freq_factor = spec.low_freq_factor();
    scaling.high_freq_factor = spec.high_freq_factor();
    scaling.original_max_position = spec.original_max_position();
  }
  return scaling;
}

bool SquareHeads(const ModelShape& shape) {
  return shape.heads * shape.head_dim == shape.hidden;
}

bool RopeSwiglu(const ModelShape& s) {
  return s.norm == Norm::kRmsNorm && s.position == Position::kRope &&
         s.activation == Activation::kSwiglu;
}

// What Llama's classes share, all but biases and norms of heads.
bool LlamaLike(const ModelShape& s, AttentionBias bias, bool qk_norm = false) {
  return RopeSwiglu(s) && s.spec.qk_norm() == qk_norm && s.attention_bias == bias &&
         !s.spec.mlp_bias();
}

// The fields of ModelSpec that the rows below judge, or that their classes have a key for. Any
// other must have its default: no class can say it.
constexpr std::string_view kHfFields[] = {
    "layers",       "hidden",     "heads",          "kv_heads", "head_dim", "ffn_hidden",
    "vocab",        "norm",       "norm_eps",       "qk_norm",  "position", "rope_theta",
    "rope_scaling", "activation", "attention_bias", "mlp_bias", "tied",     "max_position",
};

bool HasOnlyHfFields(const v1::ModelSpec& model) {
  const google::protobuf::Descriptor& type = *model.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    const bool judged = std::find(std::begin(kHfFields), std::end(kHfFields),
                                  std::string_view(field.name())) != std::end(kHfFields);
    const bool given = field.is_repeated() || model.GetReflection()->HasField(model, &field);
    if (!judged && !RowOf(field).same_model() && given && !IsRowDefault(model, field)) {
      return false;
    }
  }
  return true;
}

struct HfRow {
  HfClass hf_class;
  bool (*expresses)(const ModelShape& shape);
  // A shape has this class only if model.hf_class says so: another one, above, holds the same.
  bool by_name = false;
};

bool Expresses(const HfRow& row, const ModelShape& shape) {
  return HasOnlyHfFields(shape.spec) && row.expresses(shape);
}

// attention_bias of Hugging Face's Llama and Qwen3 means q, k, v and output alike: "all", never
// "qkv".
constexpr HfRow kHfClasses[] = {
    {{"qwen3", "Qwen3ForCausalLM"},
     [](const ModelShape& s) {
       return LlamaLike(s, AttentionBias::kNone, true) || LlamaLike(s, AttentionBias::kAll, true);
     }},
    {{"qwen2", "Qwen2ForCausalLM"},
     [](const ModelShape& s) { return LlamaLike(s, AttentionBias::kQkv) && SquareHeads(s); }},
    {{"llama", "LlamaForCausalLM"},
     [](const ModelShape& s) {
       return RopeSwiglu(s) && !s.spec.qk_norm() && s.attention_bias != AttentionBias::kQkv;
     }},
    {{"gpt2", "GPT2LMHeadModel"},
     [](const ModelShape& s) {
       return s.norm == Norm::kLayerNorm && s.position == Position::kLearned &&
              s.activation != Activation::kSwiglu && !s.spec.qk_norm() &&
              s.attention_bias == AttentionBias::kAll && s.spec.mlp_bias() &&
              s.kv_heads == s.heads && SquareHeads(s);
     }},
    {{"mistral", "MistralForCausalLM"},
     [](const ModelShape& s) { return LlamaLike(s, AttentionBias::kNone); },
     /*by_name=*/true},
    // Its rope_scaling is of kinds of its own.
    {{"phi3", "Phi3ForCausalLM"},
     [](const ModelShape& s) {
       return LlamaLike(s, AttentionBias::kNone) && SquareHeads(s) &&
              s.rope_scaling.type == RopeScalingType::kNone;
     },
     /*by_name=*/true},
};

// Without rows. Fields that are not set count as their defaults.
ModelShape MakeShape(const v1::ModelSpec& model, int64_t sequence_length) {
  ModelShape shape;
  // A spec that an older version resolved lacks younger fields; they have their rows' defaults.
  v1::JobSpec job_spec;
  *job_spec.mutable_model() = model;
  FillRowDefaults(job_spec);
  shape.spec.Swap(job_spec.mutable_model());
  shape.layers = model.layers();
  shape.hidden = model.hidden();
  shape.heads = model.heads();
  shape.kv_heads = model.kv_heads();
  shape.head_dim = model.head_dim();
  shape.ffn_hidden = model.ffn_hidden();
  shape.vocab = model.vocab();
  shape.padded_vocab = (shape.vocab + kVocabMultiple - 1) / kVocabMultiple * kVocabMultiple;
  shape.norm = EnumOf<Norm>(NormNames(), model.norm());
  shape.position = EnumOf<Position>(PositionNames(), model.position());
  if (shape.position == Position::kLearned) {
    shape.max_position = model.has_max_position() ? model.max_position() : sequence_length;
  }
  shape.rope_scaling = MakeRopeScaling(shape.spec.rope_scaling());
  shape.activation = EnumOf<Activation>(ActivationNames(), model.activation());
  shape.attention_bias = EnumOf<AttentionBias>(AttentionBiasNames(), model.attention_bias());
  return shape;
}

// Which blocks each layer has. Here a model that mixes layers chooses by their number.
std::vector<LayerRow> RowsOf(const ModelShape& shape) {
  static constexpr BlockKind kDense[] = {BlockKind::kAttention, BlockKind::kDenseFfn};
  return std::vector<LayerRow>(static_cast<size_t>(shape.layers), LayerRow(kDense));
}

}  // namespace

const std::vector<std::string_view>& NormNames() {
  static const auto& names = *new std::vector<std::string_view>{"rmsnorm", "layernorm"};
  return names;
}

const std::vector<std::string_view>& PositionNames() {
  static const auto& names = *new std::vector<std::string_view>{"rope", "learned"};
  return names;
}

const std::vector<std::string_view>& ActivationNames() {
  static const auto& names = *new std::vector<std::string_view>{"swiglu", "gelu", "gelu_tanh"};
  return names;
}

const std::vector<std::string_view>& AttentionBiasNames() {
  static const auto& names = *new std::vector<std::string_view>{"none", "qkv", "all"};
  return names;
}

const std::vector<std::string_view>& RopeScalingNames() {
  static const auto& names = *new std::vector<std::string_view>{"none", "linear", "llama3"};
  return names;
}

absl::StatusOr<ModelShape> ResolveModelShape(const v1::ModelSpec& model, int64_t sequence_length) {
  std::vector<FieldViolation> violations;
  CheckModel(model, sequence_length, violations);
  if (violations.empty() && !model.has_vocab()) {
    violations.push_back({"model.vocab", "required"});
  }
  if (!violations.empty()) {
    return absl::InvalidArgumentError(
        Text(violations.front().field, ": ", violations.front().description));
  }
  ModelShape shape = MakeShape(model, sequence_length);
  shape.rows = RowsOf(shape);
  return shape;
}

std::vector<std::string_view> HfClassNames() {
  std::vector<std::string_view> names;
  for (const HfRow& row : kHfClasses) {
    names.push_back(row.hf_class.model_type);
  }
  return names;
}

bool HfClassHolds(std::string_view name, const v1::ModelSpec& model) {
  const auto* row = std::find_if(std::begin(kHfClasses), std::end(kHfClasses),
                                 [&](const HfRow& r) { return r.hf_class.model_type == name; });
  return row != std::end(kHfClasses) && Expresses(*row, MakeShape(model, /*sequence_length=*/1));
}

HfClass DetectHfClass(const ModelShape& shape) {
  const std::string& wanted = shape.spec.hf_class();
  for (const HfRow& row : kHfClasses) {
    if ((wanted.empty() ? !row.by_name : row.hf_class.model_type == wanted) &&
        Expresses(row, shape)) {
      return row.hf_class;
    }
  }
  return {"hearth", "HearthForCausalLM"};
}

}  // namespace hearth::spec
