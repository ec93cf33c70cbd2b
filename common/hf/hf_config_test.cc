#include "common/hf/hf_config.h"

#include <random>
#include <utility>
#include <vector>

#include "common/spec/fields/rows.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/support/common/llama3_rope.h"

namespace hearth::hf {
namespace {

using ::google::protobuf::FieldDescriptor;
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

v1::ModelSpec Named(const char* hf_class) {
  v1::ModelSpec m = Llama();
  m.set_hf_class(hf_class);
  return m;
}

v1::ModelSpec Llama3Scaled() {
  v1::ModelSpec m = Llama();
  SetLlama3Rope(m);
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
  } cases[] = {{Llama(), "llama"},
               {Qwen3(), "qwen3"},
               {Qwen2(), "qwen2"},
               {Llama3Scaled(), "llama"},
               {Gpt2(), "gpt2"},
               {Odd(), "hearth"},
               {Named("mistral"), "mistral"},
               {Named("phi3"), "phi3"}};
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

// Values of a field of ModelSpec other than those that `base` has.
std::vector<v1::ModelSpec> Varied(const v1::ModelSpec& base, const FieldDescriptor& field) {
  std::vector<v1::ModelSpec> models;
  const auto& reflection = *base.GetReflection();
  const auto add = [&](const auto& set) { set(models.emplace_back(base)); };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      add([&](v1::ModelSpec& m) {
        reflection.SetInt32(&m, &field, 2 * reflection.GetInt32(base, &field));
      });
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      add([&](v1::ModelSpec& m) {
        reflection.SetDouble(&m, &field, 0.5 * reflection.GetDouble(base, &field));
      });
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      add([&](v1::ModelSpec& m) {
        reflection.SetBool(&m, &field, !reflection.GetBool(base, &field));
      });
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      for (const std::string_view name : spec::NamesOf(spec::RowOf(field))) {
        add([&](v1::ModelSpec& m) { reflection.SetString(&m, &field, std::string(name)); });
      }
      break;
    default:
      break;  // rope_scaling: EveryClass_RoundTrips
  }
  return models;
}

// A field that config.json forgets would be lost to everyone who reads the folder without the job.
TEST(HfConfig, EveryFieldThatSaysWhatTheModelComputes_RoundTrips) {
  const FieldDescriptor* const positions =
      v1::ModelSpec::descriptor()->FindFieldByName("max_position");
  int tried = 0;
  for (const v1::ModelSpec& base : {Llama(), Odd(), Qwen3(), Gpt2()}) {
    for (int i = 0; i < v1::ModelSpec::descriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *v1::ModelSpec::descriptor()->field(i);
      if (spec::RowOf(field).same_model() || &field == positions) {
        continue;
      }
      for (const v1::ModelSpec& model : Varied(base, field)) {
        const auto shape = spec::ResolveModelShape(model, model.max_position());
        if (!shape.ok()) {
          continue;  // not together with the other fields of `base`
        }
        const std::string text = HfConfig(*shape, model.max_position(), "bfloat16");
        const auto back = ModelSpecFromHfConfig(text, "config.json");
        ASSERT_TRUE(back.ok()) << back.status() << text;
        google::protobuf::util::MessageDifferencer differ;
        EXPECT_TRUE(differ.CompareWithFields(model, *back, {&field}, {&field}))
            << field.name() << text;
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 40);
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

// The sizes of a tiny model, to put keys of a class behind.
std::string Tiny(const std::string& type, const std::string& more) {
  return R"({"hidden_size":8,"num_attention_heads":2,"num_hidden_layers":1,"intermediate_size":8,"vocab_size":9,
             "model_type":")" +
         type + "\"" + more + "}";
}

TEST(ModelSpecFromHfConfig, WindowThatCoversTheContext_ChangesNothing) {
  for (const char* more :
       {R"(,"sliding_window":null)", R"(,"sliding_window":64,"max_position_embeddings":64)",
        R"(,"sliding_window":4096,"max_position_embeddings":4096)"}) {
    const auto model = ModelSpecFromHfConfig(Tiny("mistral", more), "config.json");
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->hf_class(), "mistral");
  }
  const struct {
    const char* type;
    const char* more;
    const char* error;
  } cases[] = {
      {"mistral", R"(,"sliding_window":63,"max_position_embeddings":64)",
       "sliding_window: 63 is shorter than max_position_embeddings 64"},
      // Mistral's class has a window of its own.
      {"mistral", "", "sliding_window: 4096 (the class's default) is shorter than"},
      {"phi3", R"(,"sliding_window":2047)", "sliding_window: 2047 is shorter than"},
      {"qwen2", R"(,"use_sliding_window":true)", "sliding_window"},
  };
  for (const auto& c : cases) {
    const auto model = ModelSpecFromHfConfig(Tiny(c.type, c.more), "/m/config.json");
    EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented) << model.status();
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(c.error));
  }
}

TEST(ModelSpecFromHfConfig, Phi3_IsReadWithWholeHeadsRotated) {
  for (const char* more : {"", R"(,"partial_rotary_factor":1.0)", R"(,"partial_rotary_factor":1)",
                           R"(,"rope_scaling":null,"sliding_window":null)"}) {
    const auto model = ModelSpecFromHfConfig(Tiny("phi3", more), "config.json");
    ASSERT_TRUE(model.ok()) << more << model.status();
    EXPECT_EQ(model->hf_class(), "phi3");
    EXPECT_EQ(model->max_position(), 4096);
    EXPECT_FALSE(model->tied());
  }
  for (const auto& [more, error] :
       {std::pair{R"(,"partial_rotary_factor":0.75)",
                  "partial_rotary_factor 0.75: only whole heads"},
        {R"(,"rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[1]})",
         "longrope"}}) {
    const auto model = ModelSpecFromHfConfig(Tiny("phi3", more), "config.json");
    EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(error));
  }
}

TEST(ModelSpecFromHfConfig, ClassesThatDoNotFit_NameEveryField) {
  const struct {
    const char* type;
    const char* more;
    std::vector<const char*> errors;
  } cases[] = {
      {"olmo2",
       "",
       {"\"olmo2\" does not fit", "norms behind them", "q_norm and k_norm span all heads"}},
      {"gemma2",
       R"(,"attn_logit_softcapping":50.0,"final_logit_softcapping":30.0,"query_pre_attn_scalar":256)",
       {"attn_logit_softcapping 50.0", "final_logit_softcapping 30.0", "query_pre_attn_scalar 256",
        "1 + weight", "sqrt(hidden_size)"}},
      {"gemma3_text",
       R"(,"attn_logit_softcapping":null,"sliding_window":512,"rope_local_base_freq":10000.0)",
       {"sliding_window 512", "rope_local_base_freq 10000.0", "1 + weight"}},
      {"gemma3", R"(,"vision_config":{})", {"vision_config {}: it has an image model"}},
  };
  for (const auto& c : cases) {
    const auto model = ModelSpecFromHfConfig(Tiny(c.type, c.more), "/m/config.json");
    EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented) << model.status();
    for (const char* error : c.errors) {
      EXPECT_THAT(std::string(model.status().message()), HasSubstr(error));
    }
    EXPECT_EQ(model.status().message().find("softcapping null"), absl::string_view::npos);
  }
}

TEST(HfConfig, OfPhi3_HasNullsWhereItsClassHasDefaults) {
  const std::string text = HfConfig(*spec::ResolveModelShape(Named("phi3"), 128), 128, "bfloat16");
  EXPECT_THAT(text, HasSubstr("\"sliding_window\": null"));
  EXPECT_THAT(text, HasSubstr("\"pad_token_id\": null"));
  EXPECT_THAT(text, HasSubstr("Phi3ForCausalLM"));
}

TEST(HfClass, ThatCannotHoldTheModel_IsRefused) {
  v1::ModelSpec model = Named("phi3");
  model.set_attention_bias("qkv");
  const auto shape = spec::ResolveModelShape(model, 128);
  EXPECT_THAT(std::string(shape.status().message()),
              HasSubstr("model.hf_class: phi3 cannot hold this model"));
  model.set_hf_class("qwen2");
  EXPECT_TRUE(spec::ResolveModelShape(model, 128).ok());
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
