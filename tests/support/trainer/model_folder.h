// A tiny model with weights, for the tests of this folder.
#pragma once

#include <string>
#include <vector>

#include "common/spec/model/model_shape.h"
#include "common/spec/plan/parameter_table.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"

namespace hearth::trainer {

struct TestModel {
  v1::ModelSpec spec;
  spec::ModelShape shape;
  std::vector<spec::Parameter> table;
  std::vector<std::vector<float>> weights;  // padding zero

  std::vector<const float*> pointers() const {
    std::vector<const float*> p;
    for (const auto& w : weights) {
      p.push_back(w.data());
    }
    return p;
  }
};

// `type`: llama | qwen2 | qwen3 | gpt2 | hearth.
inline TestModel MakeTestModel(const std::string& type) {
  TestModel m;
  v1::ModelSpec& s = m.spec;
  const bool gpt2 = type == "gpt2";
  s.set_layers(2);
  s.set_hidden(16);
  s.set_heads(4);
  s.set_kv_heads(gpt2 ? 4 : 2);
  s.set_head_dim(4);
  s.set_ffn_hidden(24);
  s.set_vocab(133);
  s.set_norm(gpt2 || type == "hearth" ? "layernorm" : "rmsnorm");
  s.set_norm_eps(1e-5);
  s.set_qk_norm(type == "qwen3");
  s.set_position(gpt2 ? "learned" : "rope");
  s.set_rope_theta(10000);
  s.set_max_position(32);
  s.set_activation(gpt2 ? "gelu_tanh" : "swiglu");
  s.set_attention_bias(gpt2 ? "all" : type == "qwen2" ? "qkv" : "none");
  s.set_mlp_bias(gpt2);
  s.set_tied(type != "llama");
  const auto shape = spec::ResolveModelShape(s, 32);
  EXPECT_TRUE(shape.ok()) << shape.status();
  m.shape = *shape;
  m.table = spec::BuildParameterTable(m.shape);
  float next = 1.0f;
  for (const spec::Parameter& p : m.table) {
    std::vector<float> w(static_cast<size_t>(p.elements()), 0.0f);
    for (int64_t i = 0; i < p.logical_elements(); ++i) {
      w[static_cast<size_t>(i)] = next += 0.0078125f;
    }
    m.weights.push_back(std::move(w));
  }
  return m;
}

}  // namespace hearth::trainer
