#include "common/spec/model/presets.h"

#include <cstdint>

#include "common/base/table_rows.h"

namespace hearth::spec {
namespace {

struct Dims {
  int32_t layers, hidden, heads, kv_heads, ffn_hidden, vocab;  // vocab 0 = the dataset's
};

v1::ModelSpec Base(const Dims& dims) {
  v1::ModelSpec model;
  model.set_layers(dims.layers);
  model.set_hidden(dims.hidden);
  model.set_heads(dims.heads);
  model.set_kv_heads(dims.kv_heads);
  model.set_ffn_hidden(dims.ffn_hidden);
  if (dims.vocab > 0) {
    model.set_vocab(dims.vocab);
  }
  return model;
}

v1::ModelSpec Untied(const Dims& dims) {
  v1::ModelSpec model = Base(dims);
  model.set_tied(false);
  return model;
}

v1::ModelSpec Gpt2(const Dims& dims) {
  v1::ModelSpec model = Base(dims);
  model.set_norm("layernorm");
  model.set_position("learned");
  model.set_max_position(1024);
  model.set_activation("gelu_tanh");
  model.set_attention_bias("all");
  model.set_mlp_bias(true);
  return model;
}

v1::ModelSpec Qwen2(const Dims& dims) {
  v1::ModelSpec model = Base(dims);
  model.set_norm_eps(1e-6);
  model.set_rope_theta(1e6);
  model.set_attention_bias("qkv");
  return model;
}

v1::ModelSpec Qwen3(const Dims& dims, int32_t head_dim) {
  v1::ModelSpec model = Base(dims);
  model.set_head_dim(head_dim);
  model.set_norm_eps(1e-6);
  model.set_rope_theta(1e6);
  model.set_qk_norm(true);
  return model;
}

v1::ModelSpec Llama32(const Dims& dims) {
  v1::ModelSpec model = Base(dims);
  model.set_rope_theta(500000.0);
  v1::RopeScaling& scaling = *model.mutable_rope_scaling();
  scaling.set_type("llama3");
  scaling.set_factor(32.0);
  scaling.set_low_freq_factor(1.0);
  scaling.set_high_freq_factor(4.0);
  scaling.set_original_max_position(8192);
  return model;
}

const std::vector<Preset>& Table() {
  static const std::vector<Preset>& rows = *new std::vector<Preset>{
      {"hearth-nano", "smallest that learns, for tests; vocabulary of the dataset",
       Base({2, 32, 4, 2, 64, 0})},
      {"hearth-tiny", "about 1 M parameters at 2048 tokens, for CPUs; vocabulary of the dataset",
       Base({4, 128, 4, 2, 352, 0})},
      {"hearth-112m", "reference model: Llama shape, 112.1 M parameters",
       Base({12, 768, 12, 3, 2048, 49152})},
      {"hearth-124m", "untied, 124.7 M parameters", Untied({12, 768, 12, 3, 2048, 32768})},
      {"hearth-355m", "354.0 M parameters", Base({24, 1024, 16, 4, 3264, 49152})},
      {"hearth-774m", "776.7 M parameters", Base({36, 1280, 20, 5, 4096, 49152})},
      {"hearth-1.5b", "1.55 B parameters", Base({48, 1600, 25, 5, 5120, 49152})},
      {"gpt2", "GPT-2 124M", Gpt2({12, 768, 12, 12, 3072, 50257})},
      {"gpt2-124m", "the same by its longer name", Gpt2({12, 768, 12, 12, 3072, 50257})},
      {"qwen2.5-0.5b", "Qwen2.5-0.5B", Qwen2({24, 896, 14, 2, 4864, 151936})},
      {"qwen2.5-1.5b", "Qwen2.5-1.5B", Qwen2({28, 1536, 12, 2, 8960, 151936})},
      {"qwen3-0.6b", "Qwen3-0.6B", Qwen3({28, 1024, 16, 8, 3072, 151936}, 128)},
      {"llama-3.2-1b", "Llama-3.2-1B", Llama32({16, 2048, 32, 8, 8192, 128256})},
  };
  return rows;
}

}  // namespace

absl::Span<const Preset> Presets() {
  return Table();
}

const Preset* FindPreset(std::string_view name) {
  return FindRow(Table(), &Preset::name, name);
}

std::vector<std::string_view> PresetNames() {
  return ColumnOf(Table(), &Preset::name);
}

}  // namespace hearth::spec
