#include "common/hf/hf_config.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/hf/config_reader.h"
#include "common/spec/fields/rows.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace hearth::hf {
namespace {

using google::protobuf::FieldDescriptor;
using OrderedJson = nlohmann::ordered_json;

constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

// What config.json means where it leaves them out: transformers' defaults, not those of job files.
constexpr double kHfRopeTheta = 10000.0;
constexpr double kHfRopeFactor = 1.0;
constexpr double kHfLowFreqFactor = 1.0;
constexpr double kHfHighFreqFactor = 4.0;
constexpr int64_t kHfOriginalMaxPosition = 8192;

int32_t Int32(int64_t value) {
  return static_cast<int32_t>(value);
}

// rope_theta and rope_scaling, in the form before transformers 5 or in its rope_parameters.
void ReadRope(ConfigReader& top, v1::ModelSpec& model) {
  model.set_position("rope");
  model.set_rope_theta(top.Double("rope_theta", kHfRopeTheta));
  const Json* object = top.Object("rope_scaling");
  if (object == nullptr) {
    object = top.Object("rope_parameters");
  }
  v1::RopeScaling& scaling = *model.mutable_rope_scaling();
  scaling.set_type("none");
  if (object == nullptr) {
    return;
  }
  // Newer files keep rope_theta in the object, older ones beside it; the object's wins.
  ConfigReader rope(*object, "in rope_scaling");
  model.set_rope_theta(rope.Double("rope_theta", model.rope_theta()));
  const std::string type = rope.String("rope_type", rope.String("type", "default"));
  if (type == "linear" || type == "llama3") {
    scaling.set_type(type);
    scaling.set_factor(rope.Double("factor", kHfRopeFactor));
    if (type == "llama3") {
      scaling.set_low_freq_factor(rope.Double("low_freq_factor", kHfLowFreqFactor));
      scaling.set_high_freq_factor(rope.Double("high_freq_factor", kHfHighFreqFactor));
      scaling.set_original_max_position(
          Int32(rope.Int("original_max_position_embeddings", kHfOriginalMaxPosition)));
    }
  } else if (type != "default") {
    // Ignored, it would train without an error and with other positions.
    rope.Fail(kUnimplemented, "rope_type", absl::StrCat("\"", type, "\" is not supported"));
  }
  if (!rope.status().ok()) {
    top.Fail(rope.status().code(), "rope_scaling", std::string(rope.status().message()));
  }
}

// What our model cannot do: a key of config.json, unless it is absent, null or has the value
// `harmless`; "model_type" for what no key of the class says.
struct Obstacle {
  const char* key;
  std::string_view why;
  std::string_view harmless = "null";
};

// A class of config.json: what a key that is absent means, and which keys it has.
struct HfFormat {
  std::string_view model_type;
  // nullptr: every model of the class meets an obstacle.
  void (*read)(ConfigReader& top, const HfFormat& format, v1::ModelSpec& model);
  // nullptr: read is, too.
  void (*write)(const spec::ModelShape& shape,
                const HfFormat& format,
                int64_t max_position,
                OrderedJson& json);
  // Classes like Llama.
  bool has_head_dim = true;  // else hidden / heads
  int32_t head_dim = 0;      // without the key; 0 = hidden / heads
  bool qk_norm = false;
  bool qkv_bias = false;            // q, k and v have biases, whatever the file says
  bool has_attention_bias = false;  // the key exists
  bool has_mlp_bias = false;        // the key exists
  bool window_by_value = false;     // a sliding_window that is not null is one
  int64_t window = 0;               // by value: without the key; 0 = none
  int64_t max_position = 2048;      // without the key
  bool writes_use_sliding_window = false;
  bool by_name = false;  // model.hf_class tells it from another class that holds the same
  absl::Span<const Obstacle> obstacles = {};
  // Keys with null, where the class's own default would be something else.
  absl::Span<const char* const> nulls = {};
};

// All obstacles that the file has; "" = none.
std::string ObstaclesIn(const ConfigReader& top, const HfFormat& format) {
  std::vector<std::string> found;
  for (const Obstacle& obstacle : format.obstacles) {
    const bool of_class = std::string_view(obstacle.key) == "model_type";
    if (of_class || (top.Has(obstacle.key) && !top.Is(obstacle.key, obstacle.harmless))) {
      found.push_back(absl::StrCat(
          of_class ? "" : absl::StrCat(obstacle.key, " ", top.Text(obstacle.key), ": "),
          std::string(obstacle.why)));
    }
  }
  return absl::StrJoin(found, "; ");
}

// A window that is never shorter than the context changes nothing.
void CheckWindow(ConfigReader& top, const HfFormat& format, const v1::ModelSpec& model) {
  if (!format.window_by_value) {
    if (top.Bool("use_sliding_window", false)) {
      top.Fail(kUnimplemented, "sliding_window", "sliding-window attention is not supported");
    }
    return;
  }
  const int64_t absent = top.IsNull("sliding_window") ? 0 : format.window;
  const int64_t window = top.Has("sliding_window") ? top.Int("sliding_window") : absent;
  if (window > 0 && window < model.max_position()) {
    top.Fail(kUnimplemented, "sliding_window",
             absl::StrCat(window, top.Has("sliding_window") ? "" : " (the class's default)",
                          " is shorter than max_position_embeddings ", model.max_position(),
                          "; sliding-window attention is not supported"));
  }
}

// Llama, Mistral, Phi-3, Qwen2, Qwen3.
void ReadLlamaLike(ConfigReader& top, const HfFormat& format, v1::ModelSpec& model) {
  const int64_t heads = top.Int("num_attention_heads");
  const int64_t hidden = top.Int("hidden_size");
  model.set_layers(Int32(top.Int("num_hidden_layers")));
  model.set_hidden(Int32(hidden));
  model.set_heads(Int32(heads));
  model.set_kv_heads(Int32(top.Int("num_key_value_heads", heads)));
  model.set_head_dim(
      Int32(top.Int("head_dim", format.head_dim > 0 ? format.head_dim : hidden / heads)));
  model.set_ffn_hidden(Int32(top.Int("intermediate_size")));
  model.set_vocab(Int32(top.Int("vocab_size")));
  model.set_norm("rmsnorm");
  model.set_norm_eps(top.Double("rms_norm_eps", 1e-6));
  model.set_qk_norm(format.qk_norm);
  ReadRope(top, model);
  model.set_max_position(Int32(top.Int("max_position_embeddings", format.max_position)));
  model.set_activation("swiglu");
  const std::string act = top.String("hidden_act", "silu");
  if (act != "silu" && act != "swish") {
    top.Fail(kUnimplemented, "hidden_act",
             absl::StrCat("\"", act, "\" is not supported, only silu"));
  }
  // The class decides whether the key means anything: transformers ignores it in the others.
  const bool bias = format.has_attention_bias && top.Bool("attention_bias", false);
  model.set_attention_bias(format.qkv_bias ? "qkv" : bias ? "all" : "none");
  model.set_mlp_bias(format.has_mlp_bias && top.Bool("mlp_bias", false));
  model.set_tied(top.Bool("tie_word_embeddings", false));
  CheckWindow(top, format, model);
  if (format.by_name) {
    model.set_hf_class(std::string(format.model_type));
  }
}

void ReadGpt2(ConfigReader& top, const HfFormat& /*format*/, v1::ModelSpec& model) {
  const int64_t hidden = top.Int("n_embd");
  const int64_t heads = top.Int("n_head");
  model.set_layers(Int32(top.Int("n_layer")));
  model.set_hidden(Int32(hidden));
  model.set_heads(Int32(heads));
  model.set_kv_heads(Int32(heads));
  model.set_head_dim(Int32(hidden / heads));
  model.set_ffn_hidden(Int32(top.Int("n_inner", 4 * hidden)));
  model.set_vocab(Int32(top.Int("vocab_size")));
  model.set_norm("layernorm");
  model.set_norm_eps(top.Double("layer_norm_epsilon", 1e-5));
  model.set_qk_norm(false);
  model.set_position("learned");
  model.set_max_position(Int32(top.Int("n_positions", 1024)));
  // gelu_new is the tanh approximation; plain gelu uses erf.
  const std::string act = top.String("activation_function", "gelu_new");
  if (act == "gelu_new" || act == "gelu_pytorch_tanh") {
    model.set_activation("gelu_tanh");
  } else if (act == "gelu") {
    model.set_activation("gelu");
  } else {
    top.Fail(kUnimplemented, "activation_function", absl::StrCat("\"", act, "\" is not supported"));
  }
  // No key says so: all products of the class have biases.
  model.set_attention_bias("all");
  model.set_mlp_bias(true);
  model.set_tied(top.Bool("tie_word_embeddings", true));
  if (top.Bool("scale_attn_by_inverse_layer_idx", false) || !top.Bool("scale_attn_weights", true)) {
    top.Fail(kUnimplemented, "scale_attn_weights", "only 1/sqrt(head_dim) is supported");
  }
}

// Our own class has the fields of ModelSpec under their own names, except for these.
struct OwnKey {
  std::string_view field;
  const char* key;
};
constexpr OwnKey kOwnKeys[] = {
    {"vocab", "vocab_size"},
    {"max_position", "max_position_embeddings"},
    {"tied", "tie_word_embeddings"},
};

// The fields that say what the model computes, in their order, each with its key. Without the
// rotary positions, whose keys are those of other classes.
template <typename Use>
void ForEachOwnField(const Use& use) {
  const google::protobuf::Descriptor& type = *v1::ModelSpec::descriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!spec::RowOf(field).same_model() && field.name() != "rope_theta" &&
        field.name() != "rope_scaling") {
      const OwnKey* const own = FindRow(kOwnKeys, &OwnKey::field, std::string_view(field.name()));
      use(field, own == nullptr ? field.name().c_str() : own->key);
    }
  }
}

// What the class means without the key of a whole number; nullopt: it is required.
std::optional<int64_t> AbsentInt(const FieldDescriptor& field, const HfFormat& format) {
  if (field.name() == "max_position") {
    return format.max_position;
  }
  int64_t value = 0;
  return absl::SimpleAtoi(spec::RowOf(field).default_value(), &value) ? std::optional(value)
                                                                      : std::nullopt;
}

// A key that is absent has the default of the field's row.
void ReadHearth(ConfigReader& top, const HfFormat& format, v1::ModelSpec& model) {
  // First: it sets position to rope, which the file's own key replaces below.
  ReadRope(top, model);
  v1::JobSpec defaults;
  spec::FillRowDefaults(defaults);
  ForEachOwnField([&](const FieldDescriptor& field, const char* key) {
    const v1::ModelSpec& without = defaults.model();
    const auto& reflection = *model.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.SetInt32(&model, &field, Int32(top.Int(key, AbsentInt(field, format))));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection.SetDouble(&model, &field,
                             top.Double(key, reflection.GetDouble(without, &field)));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection.SetBool(&model, &field, top.Bool(key, reflection.GetBool(without, &field)));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        reflection.SetString(&model, &field,
                             top.String(key, reflection.GetString(without, &field)));
        break;
      default:
        HEARTH_CHECK(false, "a model field of a type that config.json cannot hold");
    }
  });
}

std::string Name(const std::vector<std::string_view>& names, auto value) {
  return std::string(names[static_cast<size_t>(value)]);
}

OrderedJson RopeScalingJson(const spec::RopeScaling& scaling) {
  if (scaling.type == spec::RopeScalingType::kNone) {
    return nullptr;
  }
  OrderedJson json;
  json["rope_type"] = Name(spec::RopeScalingNames(), scaling.type);
  json["factor"] = scaling.factor;
  if (scaling.type == spec::RopeScalingType::kLlama3) {
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
    json["original_max_position_embeddings"] = scaling.original_max_position;
  }
  return json;
}

void WriteLlamaLike(const spec::ModelShape& s,
                    const HfFormat& format,
                    int64_t max_position,
                    OrderedJson& json) {
  json["hidden_size"] = s.hidden;
  json["intermediate_size"] = s.ffn_hidden;
  json["num_hidden_layers"] = s.layers;
  json["num_attention_heads"] = s.heads;
  json["num_key_value_heads"] = s.kv_heads;
  if (format.has_head_dim) {
    json["head_dim"] = s.head_dim;
  }
  json["vocab_size"] = s.vocab;
  json["rms_norm_eps"] = s.spec.norm_eps();
  json["rope_theta"] = s.spec.rope_theta();
  json["rope_scaling"] = RopeScalingJson(s.rope_scaling);
  json["max_position_embeddings"] = max_position;
  json["hidden_act"] = "silu";
  if (format.writes_use_sliding_window) {
    json["use_sliding_window"] = false;
  }
  for (const char* key : format.nulls) {
    json[key] = nullptr;
  }
  if (format.has_attention_bias) {
    json["attention_bias"] = s.attention_bias == spec::AttentionBias::kAll;
  }
  if (format.has_mlp_bias) {
    json["mlp_bias"] = s.spec.mlp_bias();
  }
  json["attention_dropout"] = 0.0;
}

void WriteGpt2(const spec::ModelShape& s,
               const HfFormat& /*format*/,
               int64_t /*max_position*/,
               OrderedJson& json) {
  json["n_embd"] = s.hidden;
  json["n_layer"] = s.layers;
  json["n_head"] = s.heads;
  json["n_inner"] = s.ffn_hidden;
  json["n_positions"] = s.max_position;
  json["vocab_size"] = s.vocab;
  json["layer_norm_epsilon"] = s.spec.norm_eps();
  json["activation_function"] = s.activation == spec::Activation::kGelu ? "gelu" : "gelu_new";
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    json[key] = 0.0;
  }
}

void WriteHearth(const spec::ModelShape& s,
                 const HfFormat& /*format*/,
                 int64_t max_position,
                 OrderedJson& json) {
  v1::ModelSpec model = s.spec;
  model.set_max_position(Int32(max_position));
  ForEachOwnField([&](const FieldDescriptor& field, const char* key) {
    const auto& reflection = *model.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        json[key] = reflection.GetInt32(model, &field);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        json[key] = reflection.GetDouble(model, &field);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        json[key] = reflection.GetBool(model, &field);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        json[key] = reflection.GetString(model, &field);
        break;
      default:
        HEARTH_CHECK(false, "a model field of a type that config.json cannot hold");
    }
  });
  if (s.position == spec::Position::kRope) {
    json["rope_theta"] = s.spec.rope_theta();
    json["rope_scaling"] = RopeScalingJson(s.rope_scaling);
  }
}

constexpr const char* kMistralNulls[] = {"sliding_window"};
// Its classes pad with token 32000, which small vocabularies lack.
constexpr const char* kPhi3Nulls[] = {"sliding_window", "pad_token_id"};

constexpr Obstacle kPhi3Obstacles[] = {
    {"partial_rotary_factor", "only whole heads are rotated here", "1.0"},
};
constexpr Obstacle kOlmo2Obstacles[] = {
    {"model_type",
     "attention and feed-forward have their norms behind them, and q_norm and k_norm span all "
     "heads"},
};
constexpr Obstacle kGemmaObstacles[] = {
    {"attn_logit_softcapping", "attention scores are capped"},
    {"final_logit_softcapping", "logits are capped"},
    {"query_pre_attn_scalar", "attention is scaled by it instead of head_dim"},
    {"sliding_window", "some layers attend within a window"},
    {"rope_local_base_freq", "rotary frequencies differ by layer"},
    {"vision_config", "it has an image model"},
    {"model_type",
     "norms multiply by 1 + weight and also stand behind attention and feed-forward, the "
     "feed-forward is a gated GELU, and embeddings are multiplied by sqrt(hidden_size)"},
};

constexpr HfFormat kFormats[] = {
    {.model_type = "llama",
     .read = ReadLlamaLike,
     .write = WriteLlamaLike,
     .has_attention_bias = true,
     .has_mlp_bias = true},
    {.model_type = "mistral",
     .read = ReadLlamaLike,
     .write = WriteLlamaLike,
     .window_by_value = true,
     .window = 4096,
     .max_position = 131072,
     .by_name = true,
     .nulls = kMistralNulls},
    {.model_type = "phi3",
     .read = ReadLlamaLike,
     .write = WriteLlamaLike,
     .has_head_dim = false,
     .window_by_value = true,
     .max_position = 4096,
     .by_name = true,
     .obstacles = kPhi3Obstacles,
     .nulls = kPhi3Nulls},
    {.model_type = "qwen2",
     .read = ReadLlamaLike,
     .write = WriteLlamaLike,
     .has_head_dim = false,
     .qkv_bias = true,
     .writes_use_sliding_window = true},
    {.model_type = "qwen3",
     .read = ReadLlamaLike,
     .write = WriteLlamaLike,
     .head_dim = 128,
     .qk_norm = true,
     .has_attention_bias = true,
     .writes_use_sliding_window = true},
    {.model_type = "gpt2", .read = ReadGpt2, .write = WriteGpt2},
    {.model_type = "hearth", .read = ReadHearth, .write = WriteHearth, .max_position = 1024},
    {.model_type = "olmo2", .read = nullptr, .write = nullptr, .obstacles = kOlmo2Obstacles},
    {.model_type = "gemma2", .read = nullptr, .write = nullptr, .obstacles = kGemmaObstacles},
    {.model_type = "gemma3", .read = nullptr, .write = nullptr, .obstacles = kGemmaObstacles},
    {.model_type = "gemma3_text", .read = nullptr, .write = nullptr, .obstacles = kGemmaObstacles},
};

const HfFormat* FindFormat(std::string_view model_type) {
  return FindRow(kFormats, &HfFormat::model_type, model_type);
}

std::string FormatNames() {
  std::vector<std::string> names;
  for (const HfFormat& format : kFormats) {
    if (format.read != nullptr) {
      names.emplace_back(format.model_type);
    }
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::StatusOr<v1::ModelSpec> ModelSpecFromHfConfig(std::string_view text,
                                                    std::string_view file_name) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(file_name), ": not a JSON object"));
  }
  ConfigReader top(json, file_name);
  const std::string type = top.String("model_type", "");
  v1::ModelSpec model;
  const HfFormat* format = FindFormat(type);
  const std::string obstacles = format == nullptr ? "" : ObstaclesIn(top, *format);
  if (format == nullptr) {
    top.Fail(kUnimplemented, "model_type",
             absl::StrCat("\"", type, "\" is not one of ", FormatNames()));
  } else if (!obstacles.empty()) {
    top.Fail(kUnimplemented, "model_type",
             absl::StrCat("\"", type, "\" does not fit: ", obstacles));
  } else {
    format->read(top, *format, model);
  }
  HEARTH_RETURN_IF_ERROR(top.status());
  return model;
}

std::string HfConfig(const spec::ModelShape& shape, int64_t max_position, std::string_view dtype) {
  const spec::HfClass hf_class = spec::DetectHfClass(shape);
  // A learned table has a row for each position and cannot grow; rotary positions have no table.
  const int64_t positions =
      shape.position == spec::Position::kLearned ? shape.max_position : max_position;
  OrderedJson json;
  json["architectures"] = {std::string(hf_class.architecture)};
  json["model_type"] = std::string(hf_class.model_type);
  const HfFormat* format = FindFormat(hf_class.model_type);
  HEARTH_CHECK(format != nullptr && format->write != nullptr, "no writer for the class");
  format->write(shape, *format, positions, json);
  json["initializer_range"] = shape.spec.init_std();
  json["tie_word_embeddings"] = shape.spec.tied();
  json["torch_dtype"] = std::string(dtype);
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

absl::StatusOr<v1::ModelSpec> ReadHfConfig(const std::string& dir, Env& env) {
  const std::string file = absl::StrCat(dir, "/config.json");
  if (!env.Exists(file)) {
    return absl::NotFoundError(absl::StrCat(file, ": no such file"));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(file));
  return ModelSpecFromHfConfig(text, file);
}

}  // namespace hearth::hf
