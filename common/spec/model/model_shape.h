// A model's shape: the resolved ModelSpec, its sizes as 64-bit numbers, and what follows from it.
//
// Letters (docs/glossary.md): L layers, C hidden, Hq heads, Hkv kv_heads, D head_dim, F ffn_hidden,
// V vocab, T sequence length.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/formats/model_functions.h"
#include "common/spec/model/layer_blocks.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

using formats::Activation;
using formats::RopeScaling;
using formats::RopeScalingType;

enum class Norm : uint8_t { kRmsNorm, kLayerNorm };
enum class Position : uint8_t { kRope, kLearned };
enum class AttentionBias : uint8_t { kNone, kQkv, kAll };

// The names these enums have in the job file, in the order of the enumerators.
const std::vector<std::string_view>& NormNames();
const std::vector<std::string_view>& PositionNames();
const std::vector<std::string_view>& ActivationNames();
const std::vector<std::string_view>& AttentionBiasNames();
const std::vector<std::string_view>& RopeScalingNames();

// Rows of the padded vocabulary are a multiple of this.
inline constexpr int64_t kVocabMultiple = 128;

// What a layer is made of, in the order of forward: rows of layer_blocks.h, each at most once. Not
// owned: it lies in a table that lives for ever.
using LayerRow = absl::Span<const BlockKind>;

struct ModelShape {
  // What the job says, resolved; fields that it lacks have their rows' defaults. A setting that
  // nothing below derives is read here: spec.norm_eps().
  v1::ModelSpec spec;
  // The spec's sizes, in 64 bits because they are multiplied with each other.
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_hidden = 0;
  int64_t vocab = 0;  // as in checkpoints
  // Derived: paddings, defaults, and names as enumerators.
  int64_t padded_vocab = 0;  // as in memory, a multiple of kVocabMultiple
  int64_t max_position = 0;  // rows of the learned position table; 0 for rope
  Norm norm = Norm::kRmsNorm;
  Position position = Position::kRope;
  RopeScaling rope_scaling;
  Activation activation = Activation::kSwiglu;
  AttentionBias attention_bias = AttentionBias::kNone;

  // The blocks of each layer. What is planned and run follows each layer's own row; in this version
  // ResolveModelShape gives all layers the same.
  std::vector<LayerRow> rows;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  // Parts of the activation function's input, each as wide as its output: gate and up for swiglu.
  int64_t ffn_parts() const { return activation == Activation::kSwiglu ? 2 : 1; }
  // Rows of the first feed-forward matrix.
  int64_t ffn_in_width() const { return ffn_parts() * ffn_hidden; }
};

// kInvalidArgument naming the first field that is unset (vocab included) or that the rules of
// validation forbid. Expects the spec after Resolve and ResolveWithFacts; `sequence_length` fills
// max_position where the spec has none.
absl::StatusOr<ModelShape> ResolveModelShape(const v1::ModelSpec& model, int64_t sequence_length);

// A Hugging Face class that a shape may map to.
struct HfClass {
  // "llama", "mistral", "phi3", "qwen2", "qwen3", "gpt2"; "hearth" when no class has this
  // combination.
  std::string_view model_type;
  std::string_view architecture;  // "LlamaForCausalLM", ...; "HearthForCausalLM"
};

// The names that model.hf_class takes.
std::vector<std::string_view> HfClassNames();

// Whether the class can express the model, whose sizes are set.
bool HfClassHolds(std::string_view name, const v1::ModelSpec& model);

// Every shape has a class: that of model.hf_class, else the first of the table that can express it.
// Learned positions and LayerNorm ask for GPT-2's whole set.
HfClass DetectHfClass(const ModelShape& shape);

}  // namespace hearth::spec
