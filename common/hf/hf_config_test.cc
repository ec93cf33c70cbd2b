#include "common/hf/hf_config.h"

#include <random>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace hearth::hf {
namespace {

using ::testing::HasSubstr;

v1::ModelSpec Llama() {
  v1::ModelSpec m;
  m.set_layers(2);
  m.set_hidden(64);
  m.set_heads(4);
  m.set_kv_heads(2);
  m.set_head_dim(16);
  m.set_ffn_hidden(96);
  m.set_vocab(300);
  m.set_norm("rmsnorm");
  m.set_norm_eps(1e-5);
  m.set_qk_norm(false);
  m.set_position("rope");
  m.set_rope_theta(500000);
  m.mutable_rope_scaling()->set_type("none");
  m.set_max_position(128);
  m.set_activation("swiglu");
  m.set_attention_bias("none");
  m.set_mlp_bias(false);
  m.set_tied(true);
  return m;
}

v1::ModelSpec Qwen3() {
  v1::ModelSpec m = Llama();
  m.set_qk_norm(true);
  m.set_tied(false);
  m.set_head_dim(32);
  return m;
}

v1::ModelSpec Qwen2() {
  v1::ModelSpec m = Llama();
  m.set_attention_bias("qkv");
  return m;
}

v1::ModelSpec Llama3Scaled() {
  v1::ModelSpec m = Llama();
  v1::RopeScaling& s = *m.mutable_rope_scaling();
  s.set_type("llama3");
  s.set_factor(8);
  s.set_low_freq_factor(1);
  s.set_high_freq_factor(4);
  s.set_original_max_position(64);
  return m;
}

v1::ModelSpec Gpt2() {
  v1::ModelSpec m = Llama();
  m.set_kv_heads(4);
  m.set_norm("layernorm");
  m.set_position("learned");
  m.clear_rope_theta();
  m.clear_rope_scaling();
  m.set_activation("gelu_tanh");
  m.set_attention_bias("all");
  m.set_mlp_bias(true);
  return m;
}

v1::ModelSpec Odd() {
  v1::ModelSpec m = Llama();
  m.set_norm("layernorm");
  m.set_activation("gelu");
  m.set_qk_norm(true);
  return m;
}

TEST(HfConfig, EveryClass_RoundTrips) {
  const struct {
    v1::ModelSpec model;
    const char* type;
  } cases[] = {{Llama(), "llama"},        {Qwen3(), "qwen3"}, {Qwen2(), "qwen2"},
               {Llama3Scaled(), "llama"}, {Gpt2(), "gpt2"},   {Odd(), "hearth"}};
  for (const auto& c : cases) {
    const auto shape = spec::ResolveModelShape(c.model, 128);
    ASSERT_TRUE(shape.ok()) << shape.status();
    const std::string text = HfConfig(*shape, 128, "bfloat16");
    EXPECT_THAT(text, HasSubstr(std::string("\"model_type\": \"") + c.type + "\""));
    const auto back = ModelSpecFromHfConfig(text, "config.json");
    ASSERT_TRUE(back.ok()) << back.status() << text;
    std::string difference;
    google::protobuf::util::MessageDifferencer differ;
    differ.ReportDifferencesToString(&difference);
    EXPECT_TRUE(differ.Compare(c.model, *back)) << c.type << difference;
  }
}

TEST(ModelSpecFromHfConfig, PublishedGpt2Config_IsUnderstood) {
  const auto model = ModelSpecFromHfConfig(
      R"({"model_type":"gpt2","n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"n_ctx":1024,
          "vocab_size":50257,"layer_norm_epsilon":1e-05,"activation_function":"gelu_new","n_inner":null})",
      "config.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->ffn_hidden(), 3072);
  EXPECT_EQ(model->activation(), "gelu_tanh");
  EXPECT_TRUE(model->tied());
}

TEST(ModelSpecFromHfConfig, RopeParametersForm_IsUnderstood) {
  const auto model = ModelSpecFromHfConfig(
      R"({"model_type":"qwen3","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,"intermediate_size":96,
          "vocab_size":300,"rope_parameters":{"rope_theta":1000000.0,"rope_type":"default"}})",
      "config.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->rope_theta(), 1e6);
  EXPECT_EQ(model->head_dim(), 128);
}

TEST(ModelSpecFromHfConfig, BadConfig_NamesTheField) {
  const struct {
    const char* text;
    absl::StatusCode code;
    const char* error;
  } cases[] = {
      {"{", absl::StatusCode::kInvalidArgument, "not a JSON object"},
      {R"({"model_type":"bert"})", absl::StatusCode::kUnimplemented, "\"bert\" is not one of"},
      {R"({"model_type":"gpt2"})", absl::StatusCode::kInvalidArgument, "n_embd: missing"},
      {R"({"model_type":"gpt2","n_embd":-1})", absl::StatusCode::kInvalidArgument,
       "n_embd: must be"},
      {R"({"model_type":"gpt2","n_embd":8,"n_head":0})", absl::StatusCode::kInvalidArgument,
       "n_head: must be"},
      {R"({"model_type":"llama","hidden_size":8,"num_attention_heads":2,"num_hidden_layers":1,"intermediate_size":8,
           "vocab_size":9,"hidden_act":"relu"})",
       absl::StatusCode::kUnimplemented, "hidden_act"},
      {R"({"model_type":"llama","hidden_size":8,"num_attention_heads":2,"num_hidden_layers":1,"intermediate_size":8,
           "vocab_size":9,"rope_scaling":{"rope_type":"yarn"}})",
       absl::StatusCode::kUnimplemented, "yarn"},
      {R"({"model_type":"mistral","hidden_size":8,"num_attention_heads":2,"num_hidden_layers":1,"intermediate_size":8,
           "vocab_size":9,"sliding_window":4096})",
       absl::StatusCode::kUnimplemented, "sliding"},
  };
  for (const auto& c : cases) {
    const auto model = ModelSpecFromHfConfig(c.text, "/m/config.json");
    EXPECT_EQ(model.status().code(), c.code) << model.status();
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(c.error));
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("/m/config.json"));
  }
}

TEST(ModelSpecFromHfConfig, MutatedText_NeverCrashes) {
  std::mt19937 random(7);
  const std::string good = HfConfig(*spec::ResolveModelShape(Llama3Scaled(), 128), 128, "float32");
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int i = 0; i < 2; ++i) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    (void)ModelSpecFromHfConfig(text, "f").ok();
  }
}

TEST(ReadHfConfig, NoFile_IsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(ReadHfConfig("/nowhere").status()));
}

}  // namespace
}  // namespace hearth::hf
