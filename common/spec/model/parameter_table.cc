#include "common/spec/model/parameter_table.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "common/spec/text.h"

namespace hearth::spec {
namespace {

struct HfNames {
  std::string_view prefix;  // of everything but lm_head
  std::string_view layers;
  std::string_view token_embedding, position_embedding, attn_norm, attn_out, ffn_norm, ffn_in,
      ffn_down, final_norm;
};

constexpr HfNames kLlamaNames = {"model.",
                                 "layers.",
                                 "embed_tokens",
                                 "embed_positions",
                                 "input_layernorm",
                                 "self_attn.o_proj",
                                 "post_attention_layernorm",
                                 "mlp.up_proj",
                                 "mlp.down_proj",
                                 "norm"};
constexpr HfNames kGpt2Names = {"transformer.", "h.",   "wte",      "wpe",        "ln_1",
                                "attn.c_proj",  "ln_2", "mlp.c_fc", "mlp.c_proj", "ln_f"};

// A part of a fused tensor: its logical name, its Hugging Face module and its rows.
struct Part {
  std::string name;
  std::string hf_module;
  int64_t rows;
};

class TableBuilder {
 public:
  TableBuilder(const ModelShape& shape, const ParameterFormats& formats)
      : shape_(shape),
        formats_(formats),
        gpt2_(DetectHfClass(shape).model_type == "gpt2"),
        names_(gpt2_ ? kGpt2Names : kLlamaNames) {}

  std::vector<Parameter> Build() {
    AddEmbeddings();
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      layer_ = static_cast<int>(layer);
      hf_prefix_ = Text(names_.prefix, names_.layers, layer, '.');
      AddAttention();
      AddFeedForward();
    }
    layer_ = -1;
    hf_prefix_ = names_.prefix;
    AddNorm(Slot::kFinalNorm, "final_norm", names_.final_norm, shape_.hidden, shape_.norm);
    AddHead();
    return std::move(table_);
  }

 private:
  Parameter& Add(Slot slot, std::string_view name, bool is_bias) {
    Parameter& parameter = table_.emplace_back();
    parameter.name = layer_ < 0 ? Text(name) : Text("layers.", layer_, '.', name);
    parameter.name += is_bias ? ".bias" : ".weight";
    parameter.slot = slot;
    parameter.layer = layer_;
    parameter.is_bias = is_bias;
    parameter.storage = formats_.storage;
    parameter.master = formats_.master;
    parameter.gradient = formats_.gradient;
    return parameter;
  }

  void SetNormal(Parameter& parameter, double scale) {
    parameter.init = Init::kNormal;
    parameter.init_std = shape_.spec.init_std() * scale;
    parameter.decay = true;
  }

  void AddEmbeddings() {
    hf_prefix_ = names_.prefix;
    Parameter& wte = Add(Slot::kTokenEmbedding, "wte", false);
    wte.shape = {shape_.padded_vocab, shape_.hidden};
    wte.logical_rows = shape_.vocab;
    wte.hf = {{Text(hf_prefix_, names_.token_embedding, ".weight"), 0, shape_.vocab, false}};
    wte.group = ParameterGroup::kEmbedding;
    wte.roles = {.lookup = true, .fprop_w = shape_.spec.tied(), .head = shape_.spec.tied()};
    SetNormal(wte, 1.0);
    if (shape_.position == Position::kLearned) {
      Parameter& wpe = Add(Slot::kPositionEmbedding, "wpe", false);
      wpe.shape = {shape_.max_position, shape_.hidden};
      wpe.logical_rows = shape_.max_position;
      wpe.hf = {
          {Text(hf_prefix_, names_.position_embedding, ".weight"), 0, shape_.max_position, false}};
      wpe.group = ParameterGroup::kEmbedding;
      wpe.roles = {.lookup = true};
      SetNormal(wpe, 1.0);
    }
  }

  void AddNorm(
      Slot slot, std::string_view name, std::string_view hf_module, int64_t width, Norm norm) {
    Parameter& weight = Add(slot, name, false);
    weight.shape = {width};
    weight.logical_rows = width;
    weight.hf = {{Text(hf_prefix_, hf_module, ".weight"), 0, width, false}};
    weight.group = ParameterGroup::kNorm;
    weight.init = Init::kOnes;
    if (norm == Norm::kLayerNorm) {
      Parameter& bias = Add(slot, name, true);
      bias.shape = {width};
      bias.logical_rows = width;
      bias.hf = {{Text(hf_prefix_, hf_module, ".bias"), 0, width, false}};
      bias.group = ParameterGroup::kBias;
    }
  }

  void AddLinear(Slot slot,
                 std::string_view name,
                 const std::vector<Part>& parts,
                 int64_t in,
                 bool bias,
                 double init_scale) {
    int64_t out = 0;
    for (const Part& part : parts) {
      out += part.rows;
    }
    Parameter& weight = Add(slot, name, false);
    weight.shape = {out, in};
    weight.logical_rows = out;
    weight.hf = HfTensors(parts, ".weight", gpt2_);
    int64_t row = 0;
    for (const Part& part : parts) {
      weight.matrices.push_back({part.name, row, part.rows, in});
      row += part.rows;
    }
    weight.group = ParameterGroup::kMatrix;
    weight.roles = {.fprop_w = true};
    SetNormal(weight, init_scale);
    if (bias) {
      Parameter& vector = Add(slot, name, true);
      vector.shape = {out};
      vector.logical_rows = out;
      vector.hf = HfTensors(parts, ".bias", false);
      vector.group = ParameterGroup::kBias;
    }
  }

  // Parts that name the same module are one tensor there (GPT-2's c_attn).
  std::vector<HfTensor> HfTensors(const std::vector<Part>& parts,
                                  std::string_view suffix,
                                  bool transpose) const {
    std::vector<HfTensor> tensors;
    int64_t row = 0;
    for (const Part& part : parts) {
      std::string name = Text(hf_prefix_, part.hf_module, suffix);
      if (!tensors.empty() && tensors.back().name == name) {
        tensors.back().rows += part.rows;
      } else {
        tensors.push_back({std::move(name), row, part.rows, transpose});
      }
      row += part.rows;
    }
    return tensors;
  }

  double ResidualScale() const { return 1.0 / std::sqrt(2.0 * static_cast<double>(shape_.layers)); }

  void AddAttention() {
    AddNorm(Slot::kAttnNorm, "attn_norm", names_.attn_norm, shape_.hidden, shape_.norm);
    const auto module = [this](std::string_view name) {
      return gpt2_ ? std::string("attn.c_attn") : Text("self_attn.", name, "_proj");
    };
    AddLinear(Slot::kQkv, "qkv",
              {{"q", module("q"), shape_.q_width()},
               {"k", module("k"), shape_.kv_width()},
               {"v", module("v"), shape_.kv_width()}},
              shape_.hidden, shape_.attention_bias != AttentionBias::kNone, 1.0);
    if (shape_.spec.qk_norm()) {
      AddNorm(Slot::kQNorm, "q_norm", "self_attn.q_norm", shape_.head_dim, Norm::kRmsNorm);
      AddNorm(Slot::kKNorm, "k_norm", "self_attn.k_norm", shape_.head_dim, Norm::kRmsNorm);
    }
    AddLinear(Slot::kAttnOut, "attn_out",
              {{"attn_out", std::string(names_.attn_out), shape_.hidden}}, shape_.q_width(),
              shape_.attention_bias == AttentionBias::kAll, ResidualScale());
  }

  void AddFeedForward() {
    AddNorm(Slot::kFfnNorm, "ffn_norm", names_.ffn_norm, shape_.hidden, shape_.norm);
    if (shape_.activation == Activation::kSwiglu) {
      AddLinear(
          Slot::kFfnIn, "gate_up",
          {{"gate", "mlp.gate_proj", shape_.ffn_hidden}, {"up", "mlp.up_proj", shape_.ffn_hidden}},
          shape_.hidden, shape_.spec.mlp_bias(), 1.0);
    } else {
      AddLinear(Slot::kFfnIn, "fc", {{"fc", std::string(names_.ffn_in), shape_.ffn_hidden}},
                shape_.hidden, shape_.spec.mlp_bias(), 1.0);
    }
    AddLinear(Slot::kFfnDown, "down", {{"down", std::string(names_.ffn_down), shape_.hidden}},
              shape_.ffn_hidden, shape_.spec.mlp_bias(), ResidualScale());
  }

  void AddHead() {
    if (shape_.spec.tied()) {
      return;
    }
    Parameter& head = Add(Slot::kLmHead, "lm_head", false);
    head.shape = {shape_.padded_vocab, shape_.hidden};
    head.logical_rows = shape_.vocab;
    head.hf = {{"lm_head.weight", 0, shape_.vocab, false}};
    head.matrices = {{"lm_head", 0, shape_.vocab, shape_.hidden}};
    head.group = ParameterGroup::kHead;
    head.roles = {.fprop_w = true, .head = true};
    SetNormal(head, 1.0);
  }

  const ModelShape& shape_;
  const ParameterFormats formats_;
  const bool gpt2_;
  const HfNames& names_;
  int layer_ = -1;
  std::string hf_prefix_;
  std::vector<Parameter> table_;
};

int64_t Cols(const Parameter& parameter) {
  return parameter.shape.size() > 1 ? parameter.shape[1] : 1;
}

}  // namespace

const std::vector<std::string_view>& ParameterGroupNames() {
  static const auto& names =
      *new std::vector<std::string_view>{"embedding", "matrix", "norm", "bias", "head"};
  return names;
}

int64_t Parameter::elements() const {
  return shape.empty() ? 0 : shape[0] * Cols(*this);
}

int64_t Parameter::logical_elements() const {
  return logical_rows * Cols(*this);
}

std::vector<Parameter> BuildParameterTable(const ModelShape& shape,
                                           const ParameterFormats& formats) {
  return TableBuilder(shape, formats).Build();
}

int FindParameter(const std::vector<Parameter>& table, Slot slot, int layer, bool is_bias) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].slot == slot && table[i].layer == layer && table[i].is_bias == is_bias) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace hearth::spec
