#include "common/spec/plan/parameter_table.h"

#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "common/spec/model/linear_name.h"
#include "common/spec/model/presets.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/resolve/resolve.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

ModelShape ShapeOf(const v1::ModelSpec& model, int64_t sequence_length = 256) {
  v1::JobSpec job;
  *job.mutable_model() = model;
  job.mutable_data()->set_sequence_length(static_cast<int32_t>(sequence_length));
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  if (!job.model().has_vocab()) {
    job.mutable_model()->set_vocab(500);
  }
  const auto shape = ResolveModelShape(job.model(), sequence_length);
  EXPECT_TRUE(shape.ok()) << shape.status();
  return shape.ok() ? *shape : ModelShape();
}

ModelShape PresetShape(std::string_view name) {
  v1::ModelSpec model;
  model.set_preset(std::string(name));
  return ShapeOf(model);
}

std::vector<std::string> HfNames(const Parameter& parameter) {
  std::vector<std::string> names;
  for (const HfTensor& tensor : parameter.hf) {
    names.push_back(tensor.name);
  }
  return names;
}

const Parameter& Get(const std::vector<Parameter>& table, std::string_view name) {
  for (const Parameter& parameter : table) {
    if (parameter.name == name) {
      return parameter;
    }
  }
  ADD_FAILURE() << "no parameter " << name;
  return table.front();
}

TEST(CountParametersTest, Presets_MatchThePublishedCounts) {
  const std::map<std::string_view, int64_t> published = {
      {"hearth-112m", 112085760}, {"hearth-124m", 124668672},   {"hearth-355m", 353944576},
      {"hearth-774m", 776695040}, {"hearth-1.5b", 1553358400},  {"gpt2", 124439808},
      {"gpt2-124m", 124439808},   {"qwen2.5-0.5b", 494032768},  {"qwen2.5-1.5b", 1543714304},
      {"qwen3-0.6b", 596049920},  {"llama-3.2-1b", 1235814400},
  };
  for (const auto& [name, count] : published) {
    EXPECT_EQ(CountParameters(PresetShape(name)), count) << name;
  }
}

TEST(CountParametersTest, NamesAndCounts_Agree) {
  // The figures people know the shapes by, to 0.1 %.
  const std::map<std::string_view, double> millions = {
      {"hearth-112m", 112.09},  {"hearth-124m", 124.67},   {"hearth-355m", 353.94},
      {"hearth-774m", 776.70},  {"hearth-1.5b", 1553.4},   {"gpt2-124m", 124.44},
      {"qwen2.5-0.5b", 494.03}, {"qwen2.5-1.5b", 1543.71},
  };
  for (const auto& [name, count] : millions) {
    EXPECT_NEAR(static_cast<double>(CountParameters(PresetShape(name))) * 1e-6, count, count * 1e-3)
        << name;
  }
}

TEST(DetectHfClassTest, Presets_MapToTheirOwnClass) {
  const std::map<std::string_view, std::string_view> classes = {
      {"hearth-nano", "llama"},  {"hearth-tiny", "llama"},  {"hearth-112m", "llama"},
      {"hearth-124m", "llama"},  {"hearth-355m", "llama"},  {"hearth-774m", "llama"},
      {"hearth-1.5b", "llama"},  {"gpt2", "gpt2"},          {"gpt2-124m", "gpt2"},
      {"qwen2.5-0.5b", "qwen2"}, {"qwen2.5-1.5b", "qwen2"}, {"qwen3-0.6b", "qwen3"},
      {"llama-3.2-1b", "llama"},
  };
  for (const Preset& preset : Presets()) {
    ASSERT_EQ(classes.count(preset.name), 1u) << preset.name;
    EXPECT_EQ(DetectHfClass(PresetShape(preset.name)).model_type, classes.at(preset.name));
  }
}

TEST(DetectHfClassTest, MixedCombination_IsHearth) {
  v1::ModelSpec model;
  model.set_preset("hearth-nano");
  model.set_norm("layernorm");
  EXPECT_EQ(DetectHfClass(ShapeOf(model)).model_type, "hearth");
  model.Clear();
  model.set_preset("gpt2");
  model.set_kv_heads(4);
  EXPECT_EQ(DetectHfClass(ShapeOf(model)).model_type, "hearth");
}

TEST(DetectHfClassTest, NamedClass_IsTakenWhereItHoldsTheModel) {
  v1::ModelSpec model;
  model.set_preset("hearth-nano");
  model.set_hf_class("mistral");
  EXPECT_EQ(DetectHfClass(ShapeOf(model)).model_type, "mistral");
  model.set_hf_class("phi3");
  const ModelShape shape = ShapeOf(model);
  EXPECT_EQ(DetectHfClass(shape).architecture, "Phi3ForCausalLM");
  // Its files have q, k and v in one tensor, and gate and up.
  const std::vector<Parameter> table = BuildParameterTable(shape);
  const Parameter& qkv = table[static_cast<size_t>(FindParameter(table, Slot::kQkv, 1))];
  ASSERT_EQ(qkv.hf.size(), 1U);
  EXPECT_EQ(qkv.hf[0].name, "model.layers.1.self_attn.qkv_proj.weight");
  EXPECT_EQ(qkv.hf[0].rows, shape.qkv_width());
  const Parameter& in = table[static_cast<size_t>(FindParameter(table, Slot::kFfnIn, 1))];
  ASSERT_EQ(in.hf.size(), 1U);
  EXPECT_EQ(in.hf[0].name, "model.layers.1.mlp.gate_up_proj.weight");
  const Parameter& out = table[static_cast<size_t>(FindParameter(table, Slot::kAttnOut, 1))];
  EXPECT_EQ(out.hf[0].name, "model.layers.1.self_attn.o_proj.weight");
}

TEST(FlopsPerTokenTest, TiedAndUntied_FollowTheFormula) {
  v1::ModelSpec model;
  model.set_preset("hearth-112m");
  const double attention = 6.0 * 12 * 12 * 64 * 2048;
  EXPECT_DOUBLE_EQ(FlopsPerToken(ShapeOf(model), 2048), 6.0 * 112085760 + attention);
  model.set_tied(false);
  EXPECT_EQ(CountParameters(ShapeOf(model)), 112085760 + 49152 * 768);
  EXPECT_DOUBLE_EQ(FlopsPerToken(ShapeOf(model), 2048), 6.0 * 112085760 + attention);
}

TEST(FlopsPerTokenTest, LearnedPositions_AreLookedUpAndNotMultiplied) {
  v1::ModelSpec model;
  model.set_preset("gpt2");
  EXPECT_EQ(CountParameters(ShapeOf(model)), 124439808);
  EXPECT_DOUBLE_EQ(FlopsPerToken(ShapeOf(model), 1024),
                   6.0 * (124439808 - 1024 * 768) + 6.0 * 12 * 12 * 64 * 1024);
}

TEST(BuildParameterTableTest, AllPresets_TensorsAreCoveredByHfTensorsAndMatrices) {
  for (const Preset& preset : Presets()) {
    const ModelShape shape = PresetShape(preset.name);
    std::set<std::string> names;
    std::set<std::string> hf_names;
    for (const Parameter& p : BuildParameterTable(shape)) {
      EXPECT_TRUE(names.insert(p.name).second) << p.name;
      int64_t rows = 0;
      for (const HfTensor& tensor : p.hf) {
        EXPECT_TRUE(hf_names.insert(tensor.name).second) << tensor.name;
        EXPECT_EQ(tensor.row_offset, rows) << p.name;
        rows += tensor.rows;
      }
      EXPECT_EQ(rows, p.logical_rows) << p.name;
      int64_t matrix_rows = 0;
      for (const LogicalMatrix& matrix : p.matrices) {
        EXPECT_EQ(matrix.row_offset, matrix_rows);
        EXPECT_EQ(matrix.cols, p.shape[1]);
        matrix_rows += matrix.rows;
      }
      const bool linear = p.group == ParameterGroup::kMatrix || p.group == ParameterGroup::kHead;
      EXPECT_EQ(matrix_rows, linear ? p.logical_rows : 0) << p.name;
      EXPECT_EQ(DecaysByDefault(p.group), p.shape.size() == 2) << p.name;
      EXPECT_LE(p.logical_elements(), p.elements());
    }
  }
}

TEST(BuildParameterTableTest, Qwen3_NamesAndOrder_AreThoseOfHuggingFace) {
  v1::ModelSpec model;
  model.set_preset("qwen3-0.6b");
  model.set_layers(1);
  model.set_tied(false);
  const auto table = BuildParameterTable(ShapeOf(model));
  const std::vector<std::string> expected = {"wte.weight",
                                             "layers.0.attn_norm.weight",
                                             "layers.0.qkv.weight",
                                             "layers.0.q_norm.weight",
                                             "layers.0.k_norm.weight",
                                             "layers.0.attn_out.weight",
                                             "layers.0.ffn_norm.weight",
                                             "layers.0.gate_up.weight",
                                             "layers.0.down.weight",
                                             "final_norm.weight",
                                             "lm_head.weight"};
  std::vector<std::string> names;
  for (const Parameter& parameter : table) {
    names.push_back(parameter.name);
  }
  EXPECT_EQ(names, expected);
  EXPECT_EQ(HfNames(table[0]), std::vector<std::string>{"model.embed_tokens.weight"});
  EXPECT_EQ(HfNames(table[2]),
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj.weight",
                                      "model.layers.0.self_attn.k_proj.weight",
                                      "model.layers.0.self_attn.v_proj.weight"}));
  EXPECT_EQ(HfNames(table[3]), std::vector<std::string>{"model.layers.0.self_attn.q_norm.weight"});
  EXPECT_EQ(table[3].shape, std::vector<int64_t>{128});
  EXPECT_EQ(HfNames(table[6]),
            std::vector<std::string>{"model.layers.0.post_attention_layernorm.weight"});
  EXPECT_EQ(HfNames(table[7]), (std::vector<std::string>{"model.layers.0.mlp.gate_proj.weight",
                                                         "model.layers.0.mlp.up_proj.weight"}));
  EXPECT_EQ(HfNames(table[9]), std::vector<std::string>{"model.norm.weight"});
  EXPECT_EQ(table[2].shape, (std::vector<int64_t>{int64_t{16 + 2 * 8} * 128, 1024}));
  EXPECT_EQ(table[5].shape, (std::vector<int64_t>{1024, 2048}));
}

TEST(BuildParameterTableTest, Gpt2_Conv1D_IsOneTransposedTensor) {
  const auto table = BuildParameterTable(PresetShape("gpt2"));
  const Parameter& qkv = Get(table, "layers.3.qkv.weight");
  EXPECT_EQ(HfNames(qkv), std::vector<std::string>{"transformer.h.3.attn.c_attn.weight"});
  EXPECT_TRUE(qkv.hf[0].transpose);
  EXPECT_EQ(qkv.hf[0].rows, 3 * 768);
  EXPECT_EQ(qkv.matrices.size(), 3u);
  const Parameter& bias = Get(table, "layers.3.qkv.bias");
  EXPECT_EQ(HfNames(bias), std::vector<std::string>{"transformer.h.3.attn.c_attn.bias"});
  EXPECT_FALSE(bias.hf[0].transpose);
  EXPECT_EQ(Get(table, "layers.0.fc.weight").shape, (std::vector<int64_t>{3072, 768}));
  EXPECT_EQ(HfNames(Get(table, "layers.0.ffn_norm.bias"))[0], "transformer.h.0.ln_2.bias");
  EXPECT_EQ(HfNames(Get(table, "wpe.weight"))[0], "transformer.wpe.weight");
  EXPECT_FALSE(Get(table, "wpe.weight").hf[0].transpose);
  EXPECT_EQ(HfNames(Get(table, "final_norm.weight"))[0], "transformer.ln_f.weight");
}

TEST(BuildParameterTableTest, Vocabulary_IsPaddedInMemoryAlone) {
  const auto table = BuildParameterTable(PresetShape("gpt2"));
  EXPECT_EQ(table[0].shape, (std::vector<int64_t>{50304, 768}));
  EXPECT_EQ(table[0].logical_rows, 50257);
  EXPECT_EQ(table[0].hf[0].rows, 50257);
  EXPECT_TRUE(table[0].roles.lookup && table[0].roles.fprop_w && table[0].roles.head);
}

TEST(BuildParameterTableTest, Init_ResidualOutputs_AreScaledDown) {
  const auto table = BuildParameterTable(PresetShape("gpt2"));
  const double scaled = 0.02 / std::sqrt(24.0);
  for (const Parameter& p : table) {
    if (p.shape.size() == 2) {
      const bool residual = p.slot == Slot::kAttnOut || p.slot == Slot::kFfnDown;
      EXPECT_EQ(p.init, Init::kNormal);
      EXPECT_DOUBLE_EQ(p.init_std, residual ? scaled : 0.02) << p.name;
    } else {
      EXPECT_EQ(p.init, p.is_bias ? Init::kZeros : Init::kOnes) << p.name;
    }
  }
}

TEST(BuildParameterTableTest, Formats_AreTheRecipes) {
  const ModelShape shape = PresetShape("hearth-nano");
  for (const Recipe& recipe : Recipes()) {
    for (const Parameter& p : BuildParameterTable(shape, recipe.parameters)) {
      EXPECT_EQ(p.storage, recipe.parameters.storage);
      EXPECT_EQ(p.master, DType::kF32);
      EXPECT_EQ(p.gradient, recipe.parameters.gradient);
    }
  }
}

TEST(FindParameterTest, SlotLayerBias_FindsTheTensorOrSaysNo) {
  const auto table = BuildParameterTable(PresetShape("qwen2.5-0.5b"));
  const int index = FindParameter(table, Slot::kQkv, 5, true);
  ASSERT_GE(index, 0);
  EXPECT_EQ(table[static_cast<size_t>(index)].name, "layers.5.qkv.bias");
  EXPECT_EQ(FindParameter(table, Slot::kLmHead, -1), -1);
  EXPECT_EQ(FindParameter(table, Slot::kAttnOut, 5, true), -1);
}

TEST(LinearNameTest, Weights_AreNamedWithoutTheirLayer) {
  for (const bool tied : {false, true}) {
    v1::ModelSpec model;
    model.set_preset("qwen3-0.6b");
    model.set_tied(tied);
    const auto table = BuildParameterTable(ShapeOf(model));
    EXPECT_EQ(LinearName(Get(table, "layers.3.qkv.weight")), "qkv");
    EXPECT_EQ(LinearName(table[static_cast<size_t>(FindHead(table))]), "head");
  }
}

TEST(OptimizersTest, AllRows_HaveANameAndStatesOfDifferentNamesForEachParameter) {
  std::set<std::string_view> rows;
  for (const OptimizerRow& row : Optimizers()) {
    EXPECT_TRUE(rows.insert(row.name).second) << row.name;
    EXPECT_EQ(FindOptimizer(row.name), &row);
    for (const Parameter& p : BuildParameterTable(PresetShape("gpt2"), {}, &row)) {
      EXPECT_EQ(p.states, StatesOf(row, p));
      std::set<std::string_view> states;
      for (const ParameterState& state : p.states) {
        EXPECT_TRUE(states.insert(state.name).second) << p.name << ' ' << state.name;
      }
    }
  }
}

// Code written for floats never gets another format, unless its row asks for it.
TEST(OptimizersTest, StateThatIsNotNarrow_StaysInFp32InEveryStateFormat) {
  const OptimizerRow plain{"plain", "", "", {StateSpec{"exp_avg"}}};
  const OptimizerRow narrow{"narrow", "", "", {StateSpec{.name = "exp_avg", .narrow = true}}};
  EXPECT_TRUE(plain.needs_master());
  EXPECT_FALSE(narrow.needs_master());
  for (const StateFormatRow& format : StateFormatRows()) {
    int differ = 0;
    for (const Parameter& p : BuildParameterTable(PresetShape("gpt2"))) {
      const std::vector<ParameterState> states = StatesOf(plain, p, &format);
      ASSERT_EQ(states.size(), 1u) << format.name;
      EXPECT_EQ(states[0].dtype, DType::kF32) << format.name << ' ' << p.name;
      differ += StatesOf(narrow, p, &format) != states ? 1 : 0;
    }
    EXPECT_EQ(differ > 0, &format != &StateFormatRows()[0]) << format.name;
  }
}

TEST(ResolveGroupOptionsTest, Overrides_ReplaceTheDefaultsOfTheirGroup) {
  const auto table = BuildParameterTable(PresetShape("gpt2"));
  v1::OptimizerSpec optimizer;
  optimizer.set_weight_decay(0.1);
  (*optimizer.mutable_groups())["embedding"].set_weight_decay(0.0);
  (*optimizer.mutable_groups())["norm"].set_lr_scale(0.5);
  EXPECT_DOUBLE_EQ(ResolveGroupOptions(optimizer, table[0].group).weight_decay, 0.0);
  const GroupOptions matrix =
      ResolveGroupOptions(optimizer, Get(table, "layers.0.qkv.weight").group);
  EXPECT_DOUBLE_EQ(matrix.weight_decay, 0.1);
  EXPECT_DOUBLE_EQ(matrix.lr_scale, 1.0);
  const GroupOptions norm = ResolveGroupOptions(optimizer, Get(table, "final_norm.weight").group);
  EXPECT_DOUBLE_EQ(norm.weight_decay, 0.0);
  EXPECT_DOUBLE_EQ(norm.lr_scale, 0.5);
  EXPECT_DOUBLE_EQ(ResolveGroupOptions(optimizer, Get(table, "final_norm.bias").group).weight_decay,
                   0.0);
}

}  // namespace
}  // namespace hearth::spec
