// A tiny model with weights, and its Hugging Face folder written without the code that tests look
// at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/hf/hf_config.h"
#include "common/io/env.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/plan/parameter_table.h"
#include "common/weights/safetensors.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"

namespace hearth {

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

// `type`: llama | mistral | phi3 | qwen2 | qwen3 | gpt2 | hearth.
inline v1::ModelSpec TestModelSpec(const std::string& type) {
  v1::ModelSpec s;
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
  s.set_tied(type != "llama" && type != "phi3");
  if (type == "mistral" || type == "phi3") {
    s.set_hf_class(type);
  }
  return s;
}

inline TestModel MakeTestModel(const v1::ModelSpec& model) {
  TestModel m;
  m.spec = model;
  const auto shape = spec::ResolveModelShape(model, 32);
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
inline TestModel MakeTestModel(const std::string& type) {
  return MakeTestModel(TestModelSpec(type));
}

// A tensor of the folder by name, fp32, row-major as the file has it.
struct TestTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
inline std::map<std::string, TestTensor> TestTensors(const TestModel& m) {
  std::map<std::string, TestTensor> tensors;
  for (size_t k = 0; k < m.table.size(); ++k) {
    const spec::Parameter& p = m.table[k];
    const int64_t columns = p.shape.size() > 1 ? p.shape[1] : 1;
    for (const spec::HfTensor& t : p.hf) {
      TestTensor& tensor = tensors[t.name];
      tensor.shape = p.shape.size() < 2 ? std::vector<int64_t>{t.rows}
                     : t.transpose      ? std::vector<int64_t>{columns, t.rows}
                                        : std::vector<int64_t>{t.rows, columns};
      for (int64_t i = 0; i < t.rows * columns; ++i) {
        const int64_t row = t.transpose ? i % t.rows : i / columns;
        const int64_t column = t.transpose ? i / t.rows : i % columns;
        tensor.values.push_back(
            m.weights[k][static_cast<size_t>((t.row_offset + row) * columns + column)]);
      }
    }
  }
  return tensors;
}

// config.json and model.safetensors in fp32.
inline void WriteTestFolder(const std::string& dir,
                            const TestModel& m,
                            const std::map<std::string, TestTensor>& tensors) {
  EXPECT_TRUE(Env::Real().CreateDirs(dir).ok());
  EXPECT_TRUE(Env::Real()
                  .WriteFileAtomically(dir + "/config.json", hf::HfConfig(m.shape, 32, "float32"))
                  .ok());
  std::vector<weights::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    views.push_back({name, weights::TensorDType::kF32, tensor.shape, tensor.values.data()});
  }
  const auto written =
      weights::WriteSafetensors(Env::Real(), dir + "/model.safetensors", views, {{"format", "pt"}});
  EXPECT_TRUE(written.ok()) << written.status();
}

}  // namespace hearth
