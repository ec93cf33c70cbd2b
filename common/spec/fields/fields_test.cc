// The rows that fields state, and what is made of them: defaults, ranges, conditions, idle keys,
// resume rules.
#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/idle.h"
#include "common/spec/fields/resume.h"
#include "common/spec/fields/rows.h"
#include "common/spec/fields/tables.h"
#include "common/spec/model/parameter.h"
#include "common/spec/model/presets.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/resolve/resolve.h"
#include "common/spec/violations/text.h"
#include "common/spec/weights/weight_store.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/support/common/valid_job.h"

namespace hearth::spec {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::testing::HasSubstr;

std::string Idle(const v1::JobSpec& job) {
  std::vector<FieldViolation> violations;
  CheckIdleKeys(job, violations);
  return Print(violations);
}

// `change` makes a job in which `field` alone changes nothing; without the field nothing is wrong
// with it.
template <typename Change>
void ExpectIdle(std::string_view field, std::string_view why, Change change) {
  v1::JobSpec job = ValidJob();
  change(job);
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  ASSERT_EQ(Print(violations), "") << field;
  job = ValidJob();
  change(job);
  CheckIdleKeys(job, violations);
  ASSERT_EQ(violations.size(), 1u) << field << "\n" << Print(violations);
  EXPECT_EQ(violations[0].field, field);
  EXPECT_THAT(violations[0].description, HasSubstr(std::string(why)));
}

TEST(FieldRows, Rows_ReferToWhatExists) {
  const v1::JobSpec job;
  int rows = 0;
  ForEachField([&](const std::string& path, const FieldDescriptor& field) {
    const v1::FieldRow& row = RowOf(field);
    rows += row.ByteSizeLong() > 0 ? 1 : 0;
    if (!row.table().empty()) {
      EXPECT_FALSE(TableNames(row.table()).empty()) << path;
    }
    // A term or a path that does not exist ends the program.
    for (const std::string& condition : {row.default_when(), row.applies_when()}) {
      if (!condition.empty()) {
        Evaluate(condition, job);
        WhyNot(condition, job);
      }
    }
    EXPECT_TRUE(row.resume().empty() || row.fixed().empty()) << path;
    if (!field.is_repeated() || field.is_map() || field.message_type() == nullptr) {
      return;
    }
    const std::unique_ptr<google::protobuf::Message> entry(
        google::protobuf::MessageFactory::generated_factory()
            ->GetPrototype(field.message_type())
            ->New());
    const ListEntry about{path, 1, entry.get()};
    for (int i = 0; i < field.message_type()->field_count(); ++i) {
      const FieldDescriptor& inner = *field.message_type()->field(i);
      EXPECT_EQ(RowOf(inner).default_when(), "") << inner.full_name() << ": not of an entry";
      if (const std::string& condition = RowOf(inner).applies_when(); !condition.empty()) {
        Evaluate(condition, job, &about);
        WhyNot(condition, job, &about);
      }
    }
  });
  EXPECT_GT(rows, 80);
}

TEST(FieldRows, Defaults_LieInTheirRanges) {
  v1::JobSpec job = ValidJob();
  job.mutable_model()->mutable_rope_scaling()->set_type("llama3");
  job.mutable_precision()->set_recipe("fp8");
  job.mutable_precision()->mutable_trial();
  job.mutable_precision()->add_remedies()->set_clip(0.5);
  job.mutable_resources()->set_device("cuda");
  ApplyPreset(*job.mutable_model());
  FillRowDefaults(job);
  std::vector<FieldViolation> violations;
  Checker check(violations);
  CheckRows(job, "", check);
  EXPECT_EQ(Print(violations), "");
  EXPECT_DOUBLE_EQ(job.model().rope_scaling().high_freq_factor(), 4.0);
  EXPECT_EQ(job.model().rope_scaling().original_max_position(), 8192);
  EXPECT_EQ(job.precision().trial().steps(), 1000);
  EXPECT_EQ(job.precision().remedies(0).steps(), 100);
  EXPECT_EQ(job.parallel().bucket_mib(), 25);
  EXPECT_DOUBLE_EQ(job.optimizer().eps(), 1e-8);
}

TEST(FieldRows, IntOrDefault_IsTheRowsUntilTheFieldIsSet) {
  v1::CheckpointSpec checkpoint;
  EXPECT_EQ(IntOrDefault(checkpoint, v1::CheckpointSpec::kGraceSecondsFieldNumber), 60);
  checkpoint.set_grace_seconds(0);
  EXPECT_EQ(IntOrDefault(checkpoint, v1::CheckpointSpec::kGraceSecondsFieldNumber), 0);
  const v1::ResourceSpec resources;
  EXPECT_EQ(IntOrDefault(resources, v1::ResourceSpec::kMaxRestartsFieldNumber), 3);
}

TEST(FieldRows, Ranges_SayWhatIsAllowed) {
  v1::JobSpec job;
  job.mutable_batch()->set_micro_batch_size(-1);
  job.mutable_precision()->set_stats_every(1);
  job.mutable_optimizer()->set_beta1(1.0);
  job.mutable_train()->set_steps(int64_t{1} << 41);
  job.mutable_resources()->mutable_time_limit()->set_nanos(-1);
  (*job.mutable_optimizer()->mutable_groups())["head"].set_lr_scale(-2);
  std::vector<FieldViolation> violations;
  Checker check(violations);
  CheckRows(job, "", check);
  const std::string text = Print(violations);
  EXPECT_THAT(text,
              HasSubstr("batch.micro_batch_size: -1 is out of range; must be auto or 1..65536\n"));
  EXPECT_THAT(text, HasSubstr("precision.stats_every: 1 is out of range; must be 0 or >= 2\n"));
  EXPECT_THAT(text, HasSubstr("optimizer.beta1: 1 is out of range; must be >= 0 and < 1\n"));
  EXPECT_THAT(text,
              HasSubstr("train.steps: 2199023255552 is out of range; must be 1..1099511627776\n"));
  EXPECT_THAT(
      text,
      HasSubstr("resources.time_limit: -1e-09 s is out of range; must be > 0 and <= 3153600000\n"));
  EXPECT_THAT(text,
              HasSubstr("optimizer.groups.head.lr_scale: -2 is out of range; must be >= 0\n"));
}

TEST(FieldRows, NamesInLists_AreChecked) {
  v1::JobSpec job;
  job.set_name("names");
  job.mutable_precision()->add_fallback("none");
  job.mutable_precision()->add_fallback("bf61");
  job.mutable_precision()->add_remedies()->set_layers_recipe("fp9");
  job.mutable_model()->set_preset("hearth-112");
  std::vector<FieldViolation> violations;
  Checker check(violations);
  CheckRows(job, "", check);
  ASSERT_EQ(violations.size(), 3u) << Print(violations);
  EXPECT_EQ(violations[0].field, "model.preset");
  EXPECT_EQ(violations[1].field, "precision.fallback[1]");
  EXPECT_THAT(violations[1].description, HasSubstr("is not a recipe; did you mean bf16?"));
  EXPECT_EQ(violations[2].field, "precision.remedies[0].layers_recipe");
}

TEST(Conditions, Terms_AreEvaluatedWithDefaults) {
  v1::JobSpec job;
  EXPECT_EQ(Evaluate("precision.recipe has hadamard", job), Truth::kNo) << "bf16";
  job.mutable_precision()->set_recipe("nvfp4");
  EXPECT_EQ(Evaluate("precision.recipe has hadamard", job), Truth::kYes);
  EXPECT_EQ(Evaluate("precision.recipe has four_over_six", job), Truth::kNo);
  job.mutable_precision()->set_recipe("fp9");
  EXPECT_EQ(Evaluate("precision.recipe has hadamard", job), Truth::kUnknown);
  job.clear_precision();
  EXPECT_EQ(Evaluate("schedule.name = wsd", job), Truth::kYes) << "its default";
  EXPECT_EQ(Evaluate("schedule.name != wsd", job), Truth::kNo);
  EXPECT_EQ(Evaluate("model.layers > 2", job), Truth::kUnknown);
  EXPECT_EQ(Evaluate("data.validation is set", job), Truth::kNo);
  job.mutable_evaluate()->set_job("");
  EXPECT_EQ(Evaluate("evaluate.job is set", job), Truth::kNo) << "empty text asks for nothing";
  EXPECT_EQ(Evaluate("evaluates", job), Truth::kNo);
  job.mutable_schedule()->set_name("cosine");
  job.mutable_train()->set_spike_grad_sigma(0.5);
  EXPECT_EQ(Evaluate("schedule.name = wsd|cosine", job), Truth::kYes);
  EXPECT_EQ(Evaluate("train.spike_sigma > 0 or train.spike_grad_sigma > 0", job), Truth::kYes);
  EXPECT_EQ(Evaluate("train.spike_sigma > 0 and train.spike_grad_sigma > 0", job), Truth::kNo);
  EXPECT_EQ(Evaluate("schedule.name = wsd and model.layers > 2", job), Truth::kNo);
  EXPECT_EQ(WhyNot("schedule.name = wsd", job),
            "it acts only with schedule.name wsd; here schedule.name is cosine");
  EXPECT_EQ(WhyNot("quantised", job),
            "it acts only with a quantised recipe; here precision.recipe is bf16");
}

TEST(IdleKeys, KeysThatChangeNothing_AreRefusedAndSayWhy) {
  ExpectIdle("optimizer.groups.head", "no parameter in the group head; model.tied is true",
             [](v1::JobSpec& job) {
               (*job.mutable_optimizer()->mutable_groups())["head"].set_lr_scale(2);
             });
  ExpectIdle("optimizer.groups.head", "model.tied is true", [](v1::JobSpec& job) {
    job.mutable_optimizer()->set_weight_decay(0.05);
    (*job.mutable_optimizer()->mutable_groups())["head"].set_weight_decay(0.1);
  });
  ExpectIdle("optimizer.groups.bias",
             "no parameter in the group bias; model.attention_bias is none, model.mlp_bias is "
             "false and model.norm is rmsnorm",
             [](v1::JobSpec& job) {
               (*job.mutable_optimizer()->mutable_groups())["bias"].set_weight_decay(0.1);
             });
  ExpectIdle("precision.techniques.hadamard",
             "only with precision.recipe nvfp4 or nvfp4_eden; here precision.recipe is fp8",
             [](v1::JobSpec& job) {
               job.mutable_precision()->set_recipe("fp8");
               job.mutable_precision()->mutable_techniques()->set_hadamard(false);
             });
  ExpectIdle("schedule.decay_shape", "only with schedule.name wsd; here schedule.name is cosine",
             [](v1::JobSpec& job) {
               job.mutable_schedule()->set_name("cosine");
               job.mutable_schedule()->set_decay_shape("sqrt");
             });
  ExpectIdle("schedule.decay_steps", "other than constant", [](v1::JobSpec& job) {
    job.mutable_schedule()->set_name("constant");
    job.mutable_schedule()->set_decay_steps(10);
  });
  ExpectIdle("schedule.decay_shape", "schedule.decay_steps > 0; here schedule.decay_steps is 0",
             [](v1::JobSpec& job) {
               job.mutable_schedule()->set_decay_steps(0);
               job.mutable_schedule()->set_decay_shape("sqrt");
             });
  ExpectIdle("schedule.min_lr_ratio", "schedule.decay_steps > 0; here schedule.decay_steps is 0",
             [](v1::JobSpec& job) {
               job.mutable_schedule()->set_name("cosine");
               job.mutable_schedule()->set_decay_steps(0);
               job.mutable_schedule()->set_min_lr_ratio(0.2);
             });
  ExpectIdle("model.init_std", "only without model.from; here model.from is given",
             [](v1::JobSpec& job) {
               job.mutable_model()->clear_preset();
               job.mutable_model()->set_from("/models/llama");
               job.mutable_model()->set_init_std(0.1);
             });
  ExpectIdle("model.rope_theta", "only with model.position rope", [](v1::JobSpec& job) {
    job.mutable_model()->set_position("learned");
    job.mutable_model()->set_rope_theta(5e5);
  });
  ExpectIdle("train.spike_window", "train.spike_sigma > 0 or with train.spike_grad_sigma > 0",
             [](v1::JobSpec& job) { job.mutable_train()->set_spike_window(16); });
  ExpectIdle("gradients.reduce_dtype", "resources.workers > 1; here resources.workers is 1",
             [](v1::JobSpec& job) { job.mutable_gradients()->set_reduce_dtype("fp8"); });
  ExpectIdle("parallel.bucket_mib", "resources.workers > 1; here resources.workers is 1",
             [](v1::JobSpec& job) { job.mutable_parallel()->set_bucket_mib(50); });
  ExpectIdle("precision.warmup_steps", "quantised recipe",
             [](v1::JobSpec& job) { job.mutable_precision()->set_warmup_steps(5); });
  ExpectIdle("precision.warmup_steps", "none is left to fp8", [](v1::JobSpec& job) {
    job.mutable_precision()->set_recipe("fp8");
    job.mutable_precision()->set_warmup_steps(1000);
  });
  ExpectIdle("precision.bf16_tail", "none is left to fp8", [](v1::JobSpec& job) {
    job.mutable_precision()->set_recipe("fp8");
    job.mutable_precision()->set_bf16_tail(1.0);
  });
  ExpectIdle("train.eval_every", "data.validation is not given",
             [](v1::JobSpec& job) { job.mutable_train()->set_eval_every(10); });
}

TEST(IdleKeys, OffloadOfWhatIsNotThere_IsRefused) {
  ExpectIdle("offload.optimizer", "only with resources.device cuda; here resources.device is cpu",
             [](v1::JobSpec& job) { job.mutable_offload()->set_optimizer(true); });
  ExpectIdle("offload.activations", "only with resources.device cuda; here resources.device is cpu",
             [](v1::JobSpec& job) { job.mutable_offload()->set_activations(true); });
  ExpectIdle("offload.activations", "only with model.layers > 2; here model.layers is 2",
             [](v1::JobSpec& job) {
               job.mutable_resources()->set_device("cuda");
               job.mutable_model()->set_layers(2);
               job.mutable_offload()->set_activations(true);
             });
  ExpectIdle("offload.masters", "only with optimizer.master fp32; here optimizer.master is none",
             [](v1::JobSpec& job) {
               job.mutable_resources()->set_device("cuda");
               job.mutable_precision()->set_recipe("bf16");
               job.mutable_optimizer()->set_master("none");
               job.mutable_offload()->set_masters(true);
             });
  ExpectIdle("offload.masters", "with a recipe whose weights are narrower than FP32",
             [](v1::JobSpec& job) {
               job.mutable_precision()->set_recipe("fp32");
               job.mutable_offload()->set_masters(true);
             });
}

TEST(IdleKeys, FieldsOfEntries_AreRefusedWithTheirPlace) {
  ExpectIdle("data.train[0].weight", "only in a list of more than 1; here data.train has 1",
             [](v1::JobSpec& job) { job.mutable_data()->mutable_train(0)->set_weight(2); });
  ExpectIdle("data.validation[0].weight", "here data.validation has 1", [](v1::JobSpec& job) {
    v1::DataSource& source = *job.mutable_data()->add_validation();
    source.set_path("/data/v");
    source.set_weight(0.5);
  });
  const auto sampled = [](v1::JobSpec& job) -> v1::TextRequest& {
    job.mutable_data()->add_validation()->set_path("/data/v");
    job.mutable_train()->add_samples();
    return *job.mutable_train()->add_samples();
  };
  const char* const greedy = "only with temperature > 0; here temperature is 0";
  ExpectIdle("train.samples[1].top_k", greedy, [&](v1::JobSpec& job) {
    v1::TextRequest& text = sampled(job);
    text.set_temperature(0);
    text.set_top_k(5);
  });
  ExpectIdle("train.samples[1].seed", greedy, [&](v1::JobSpec& job) {
    v1::TextRequest& text = sampled(job);
    text.set_temperature(0);
    text.set_seed(5);
  });
  ExpectIdle("train.samples[1].ema", "only on request (jobctl sample)",
             [&](v1::JobSpec& job) { sampled(job).set_ema(true); });
  v1::JobSpec job = ValidJob();
  job.mutable_data()->mutable_train(0)->set_weight(1);
  v1::TextRequest& text = sampled(job);
  text.set_temperature(0);
  text.set_top_p(1);
  text.set_seed(0);
  text.set_ema(false);
  EXPECT_EQ(Idle(job), "") << "defaults";
  job.mutable_data()->mutable_train(0)->set_weight(3);
  job.mutable_data()->add_train()->set_path("/data/y");
  text.set_temperature(0.5);
  text.set_seed(7);
  EXPECT_EQ(Idle(job), "") << "they act";
}

TEST(IdleKeys, SamplesWithoutAnEvaluation_AreRefused) {
  ExpectIdle("train.samples",
             "only with data.validation or with train.evaluations; here data.validation is not "
             "given and train.evaluations is not given",
             [](v1::JobSpec& job) { job.mutable_train()->add_samples()->set_prompt("Once"); });
  v1::JobSpec job = ValidJob();
  job.mutable_train()->add_samples()->set_prompt("Once");
  v1::EvaluationSpec& evaluation = *job.mutable_train()->add_evaluations();
  evaluation.set_task("piqa");
  evaluation.set_items("/data/piqa.jsonl");
  EXPECT_EQ(Idle(job), "");
}

TEST(IdleKeys, OptionsOfAnotherOptimizer_AreRefused) {
  ExpectIdle("optimizer.momentum", "only with optimizer.name muon",
             [](v1::JobSpec& job) { job.mutable_optimizer()->set_momentum(0.9); });
  ExpectIdle("optimizer.newton_schulz", "only with optimizer.name muon",
             [](v1::JobSpec& job) { job.mutable_optimizer()->set_newton_schulz("standard"); });
}

// All kernels of the CPU give the same bits in each run: a job may ask for that, and for nothing
// else.
TEST(IdleKeys, Deterministic_IsAChoiceOnGpusAlone) {
  ExpectIdle("train.deterministic", "only with resources.device cuda; here resources.device is cpu",
             [](v1::JobSpec& job) { job.mutable_train()->set_deterministic("false"); });
  for (const char* value : {"auto", "true"}) {
    v1::JobSpec job = ValidJob();
    job.mutable_train()->set_deterministic(value);
    EXPECT_EQ(Idle(job), "") << value;
  }
  for (const char* value : {"auto", "true", "false"}) {
    v1::JobSpec job = ValidJob();
    job.mutable_resources()->set_device("cuda");
    job.mutable_train()->set_deterministic(value);
    EXPECT_EQ(Idle(job), "") << value;
  }
}

TEST(IdleKeys, Bf16Tail_ActsOnQuantisedRecipesAlone) {
  for (const Recipe& recipe : Recipes()) {
    v1::JobSpec job = ValidJob();
    job.mutable_precision()->set_recipe(std::string(recipe.name));
    job.mutable_precision()->set_bf16_tail(0.1);
    EXPECT_EQ(Idle(job).empty(), recipe.quantised()) << Idle(job);
  }
}

TEST(IdleKeys, OptionsOfQuantisedSteps_ActOnQuantisedRecipesAlone) {
  for (const Recipe& recipe : Recipes()) {
    v1::JobSpec counting = ValidJob();
    counting.mutable_precision()->set_recipe(std::string(recipe.name));
    v1::JobSpec wide = counting;
    counting.mutable_precision()->set_stats_every(10);
    wide.mutable_precision()->set_narrow_activations(false);
    EXPECT_EQ(Idle(counting).empty(), recipe.quantised()) << recipe.name << Idle(counting);
    EXPECT_EQ(Idle(wide).empty(), recipe.quantised()) << recipe.name << Idle(wide);
  }
}

TEST(IdleKeys, Emulate_ActsOnRecipesThatADeviceMayEmulate) {
  for (const Recipe& recipe : Recipes()) {
    for (const char* device : {"cpu", "cuda"}) {
      v1::JobSpec job = ValidJob();
      job.mutable_resources()->set_device(device);
      job.mutable_precision()->set_recipe(std::string(recipe.name));
      job.mutable_precision()->set_emulate(false);
      const bool acts = RecipeExecution(recipe, device) == Execution::kEmulated;
      EXPECT_EQ(Idle(job).empty(), acts) << recipe.name << " on " << device << Idle(job);
    }
  }
  v1::JobSpec falls_back = ValidJob();
  falls_back.mutable_resources()->set_device("cuda");
  falls_back.mutable_precision()->set_recipe("nvfp4");
  falls_back.mutable_precision()->add_fallback("fp8");
  falls_back.mutable_precision()->set_emulate(false);
  EXPECT_EQ(Idle(falls_back), "");
}

TEST(IdleKeys, ValuesThatLeaveEverythingAsItIs_AreRefused) {
  ExpectIdle("model.rope_scaling.type", "linear with factor 1", [](v1::JobSpec& job) {
    job.mutable_model()->mutable_rope_scaling()->set_type("linear");
  });
  ExpectIdle("optimizer.state", "at least 4096 elements", [](v1::JobSpec& job) {
    v1::ModelSpec& model = *job.mutable_model();
    model.set_layers(1);
    model.set_hidden(32);
    model.set_heads(2);
    model.set_kv_heads(2);
    model.set_head_dim(16);
    model.set_ffn_hidden(32);
    job.mutable_optimizer()->set_state("int8");
  });
  ExpectIdle("optimizer.groups.norm.weight_decay", "changes nothing with lr_scale 0",
             [](v1::JobSpec& job) {
               v1::OptimizerGroup& group = (*job.mutable_optimizer()->mutable_groups())["norm"];
               group.set_lr_scale(0);
               group.set_weight_decay(0.1);
             });
  ExpectIdle("schedule.decay_steps", "ends as it begins", [](v1::JobSpec& job) {
    job.mutable_schedule()->set_decay_steps(10);
    job.mutable_schedule()->set_min_lr_ratio(1.0);
  });
  ExpectIdle("precision.warmup_steps", "always runs in BF16", [](v1::JobSpec& job) {
    job.mutable_precision()->set_recipe("fp8");
    job.mutable_precision()->set_warmup_steps(1);
  });
  ExpectIdle("precision.bf16_tail", "less than half a step", [](v1::JobSpec& job) {
    job.mutable_precision()->set_recipe("fp8");
    job.mutable_precision()->set_bf16_tail(0.0001);
  });
  ExpectIdle("precision.fallback_window", "fallback_after 1", [](v1::JobSpec& job) {
    job.mutable_precision()->set_recipe("fp8");
    job.mutable_precision()->add_fallback("bf16");
    job.mutable_precision()->set_fallback_after(1);
    job.mutable_precision()->set_fallback_window(50);
  });
  ExpectIdle("precision.fallback_window", "3 refused steps (fallback_after) cannot lie within 2",
             [](v1::JobSpec& job) {
               job.mutable_precision()->set_recipe("fp8");
               job.mutable_precision()->set_fallback_window(2);
             });
  ExpectIdle("precision.fallback_after", "201 refused steps (fallback_after) cannot lie within 200",
             [](v1::JobSpec& job) {
               job.mutable_precision()->set_recipe("fp8");
               job.mutable_precision()->set_fallback_after(201);
             });
  ExpectIdle("precision.narrow_activations", "no multiple of 32", [](v1::JobSpec& job) {
    job.mutable_precision()->set_recipe("fp8");
    job.mutable_precision()->set_narrow_activations(false);
    job.mutable_model()->set_ffn_hidden(2064);
  });
  ExpectIdle("precision.high_precision_layers.layers[0]", "among the first or last",
             [](v1::JobSpec& job) {
               job.mutable_precision()->set_recipe("fp8");
               v1::LayerSet& set = *job.mutable_precision()->mutable_high_precision_layers();
               set.set_first(2);
               set.add_layers(1);
             });
}

TEST(IdleKeys, WeightsThatNoBlockHolds_AreRefused) {
  ExpectIdle("weights.store", "only with a recipe whose weights are narrower than FP32",
             [](v1::JobSpec& job) {
               job.mutable_precision()->set_recipe("fp32");
               job.mutable_weights()->set_store("int8");
             });
  for (const WeightStoreRow& row : WeightStoreRows()) {
    if (!row.in_blocks() || !row.refusal.empty()) {
      continue;
    }
    ExpectIdle("weights.store",
               Text("no matrix of the layers has rows of whole blocks, ",
                    formats::RowOf(row.codec).block, " weights"),
               [&row](v1::JobSpec& job) {
                 v1::ModelSpec& model = *job.mutable_model();
                 model.set_hidden(40);
                 model.set_heads(5);
                 model.set_kv_heads(5);
                 model.set_head_dim(8);
                 model.set_ffn_hidden(72);
                 job.mutable_precision()->set_recipe("bf16");
                 job.mutable_weights()->set_store(std::string(row.name));
               });
  }
}

// What a job resolves to can be submitted again, also where a derived default would be idle.
TEST(IdleKeys, DerivedDefaultsOfIdleValues_AreNotRefused) {
  v1::JobSpec job = ValidJob();
  job.mutable_schedule()->set_min_lr_ratio(1.0);
  job.mutable_precision()->set_recipe("fp8");
  job.mutable_precision()->add_fallback("bf16");
  job.mutable_precision()->set_fallback_after(1);
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  ASSERT_EQ(Print(violations), "");
  EXPECT_EQ(Idle(job), "");
}

// Each is close to one that is refused.
TEST(IdleKeys, ValuesThatActAfterAll_AreNotRefused) {
  v1::JobSpec job = ValidJob();
  v1::OptimizerGroup& group = (*job.mutable_optimizer()->mutable_groups())["norm"];
  group.set_lr_scale(0);
  group.set_weight_decay(0);  // its default
  job.mutable_precision()->set_recipe("fp8");
  job.mutable_precision()->set_fallback_after(10);
  job.mutable_precision()->set_fallback_window(10);
  EXPECT_EQ(Idle(job), "");
}

// A row's default counts as such even where a condition keeps it out of the resolved spec.
TEST(IdleKeys, DefaultsOfRows_AreNeverRefused) {
  int tried = 0;
  ForEachField([&tried](const std::string& path, const FieldDescriptor& field) {
    const std::string& value = RowOf(field).default_value();
    if (value.empty()) {
      return;
    }
    for (const char* position : {"rope", "learned"}) {
      v1::JobSpec job = ValidJob();
      job.mutable_model()->set_position(position);
      google::protobuf::Message* message = &job;
      for (const absl::string_view name : absl::StrSplit(path, '.')) {
        const FieldDescriptor& part = *message->GetDescriptor()->FindFieldByName(std::string(name));
        if (&part != &field) {
          message = message->GetReflection()->MutableMessage(message, &part);
        }
      }
      const bool text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
      ASSERT_TRUE(google::protobuf::TextFormat::ParseFieldValueFromString(
          text ? '"' + value + '"' : value, &field, message))
          << path;
      EXPECT_EQ(Idle(job), "") << path;
      ++tried;
    }
  });
  EXPECT_GT(tried, 100);
}

TEST(IdleKeys, GroupsThatAskForTheirDefaults_AreNeverRefused) {
  v1::JobSpec job = ValidJob();
  auto& groups = *job.mutable_optimizer()->mutable_groups();
  groups["bias"].set_weight_decay(0);
  groups["head"].set_weight_decay(0.1);
  EXPECT_EQ(Idle(job), "");
  job.mutable_optimizer()->set_weight_decay(0.05);
  groups["head"].set_weight_decay(0.05);
  EXPECT_EQ(Idle(job), "");
}

TEST(IdleKeys, DefaultsAndPresets_AreNoKeysOfTheUser) {
  v1::JobSpec job = ValidJob();
  job.mutable_train()->set_spike_window(64);
  job.mutable_parallel()->set_shard("auto");
  job.mutable_precision()->set_warmup_steps(0);
  (*job.mutable_optimizer()->mutable_groups())["head"].set_lr_scale(1);
  EXPECT_EQ(Idle(job), "");
  // What asks for nothing gets it.
  job.mutable_train()->set_eval_every(0);
  job.mutable_parallel()->set_shard("off");
  EXPECT_EQ(Idle(job), "");
  job.mutable_offload()->set_optimizer(false);
  EXPECT_EQ(Idle(job), "");
  v1::JobSpec away = ValidJob();
  away.mutable_resources()->set_device("cuda");
  away.mutable_precision()->set_recipe("bf16");
  away.mutable_offload()->set_optimizer(true);
  away.mutable_offload()->set_masters(true);
  away.mutable_offload()->set_activations(true);
  EXPECT_EQ(Idle(away), "");
  // Folders of rope models say how many positions they were made for, and a resolved spec keeps it.
  v1::JobSpec folder = ValidJob();
  folder.mutable_model()->clear_preset();
  folder.mutable_model()->set_from("/models/llama");
  folder.mutable_model()->set_position("rope");
  folder.mutable_model()->set_max_position(2048);
  EXPECT_EQ(Idle(folder), "");
  // The preset has a rope_theta of its own.
  job.mutable_model()->set_preset("llama-3.2-1b");
  job.mutable_model()->set_position("learned");
  EXPECT_EQ(Idle(job), "");
}

TEST(IdleKeys, ResolvedSpecs_CanBeSubmittedAgain) {
  const std::vector<std::string_view> optimizers = TableNames("optimizer");
  size_t tried = 0;
  for (const Preset& preset : Presets()) {
    for (const Recipe& recipe : Recipes()) {
      for (const std::string_view schedule : TableNames("schedule")) {
        v1::JobSpec job = ValidJob();
        job.mutable_model()->set_preset(std::string(preset.name));
        job.mutable_precision()->set_recipe(std::string(recipe.name));
        job.mutable_schedule()->set_name(std::string(schedule));
        job.mutable_resources()->set_device(preset.model.layers() % 2 == 0 ? "cpu" : "cuda");
        job.mutable_resources()->set_workers(1 + static_cast<int>(tried / 2 % 2));
        job.mutable_optimizer()->set_name(std::string(optimizers[tried++ % optimizers.size()]));
        job.mutable_optimizer()->set_weight_decay(0.05);
        job.mutable_precision()->mutable_techniques();
        for (const std::string_view name : ParameterGroupNames()) {
          v1::OptimizerGroup& group =
              (*job.mutable_optimizer()->mutable_groups())[std::string(name)];
          group.set_lr_scale(1);
          group.set_weight_decay(name == "norm" || name == "bias" ? 0 : 0.05);
        }
        ASSERT_EQ(Idle(job), "") << preset.name << ' ' << recipe.name << ' ' << schedule;
        std::vector<FieldViolation> ignored;
        Resolve(job, ignored);
        EXPECT_EQ(Idle(job), "") << preset.name << ' ' << recipe.name << ' ' << schedule;
        const v1::JobSpec resolved = job;
        Resolve(job, ignored);
        EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, resolved))
            << preset.name << ' ' << recipe.name << ' ' << schedule;
      }
    }
  }
}

TEST(ResumeRules, TheNearestRow_Counts) {
  EXPECT_TRUE(FindResumeRule("train.steps").allowed);
  EXPECT_TRUE(FindResumeRule("checkpoint").allowed);
  EXPECT_TRUE(FindResumeRule("checkpoint.keep_last").allowed);
  EXPECT_TRUE(FindResumeRule("labels.team").allowed);
  EXPECT_TRUE(FindResumeRule("data.validation").allowed);
  EXPECT_FALSE(FindResumeRule("data.train").allowed);
  EXPECT_FALSE(FindResumeRule("data").allowed);
  EXPECT_TRUE(FindResumeRule("offload.masters").allowed);
  EXPECT_THAT(std::string(FindResumeRule("train.seed").why), HasSubstr("order of the data"));
  EXPECT_FALSE(FindResumeRule("train.stepz").known);
  EXPECT_FALSE(FindResumeRule("optimizer.groups.head.lr_scale").allowed);
  EXPECT_TRUE(FindResumeRule("optimizer.groups.head.lr_scale").known);
}

}  // namespace
}  // namespace hearth::spec
