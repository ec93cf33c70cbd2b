#include "common/spec/resolve/resolve.h"

#include <limits>

#include "common/spec/model/model_shape.h"
#include "common/spec/model/presets.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/rules/rules.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/support/common/valid_job.h"

namespace hearth::spec {
namespace {

using ::testing::HasSubstr;

std::vector<FieldViolation> ResolveAll(v1::JobSpec& job) {
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  return violations;
}

// The description for `field`, "" when it is not violated.
std::string Find(const std::vector<FieldViolation>& violations, std::string_view field) {
  for (const FieldViolation& violation : violations) {
    if (violation.field == field) {
      return violation.description;
    }
  }
  return "";
}

// The one violation that `change` makes of a valid job must be of `field` and contain `text`.
template <typename Change>
void ExpectOnly(std::string_view field, std::string_view text, Change change) {
  v1::JobSpec job = ValidJob();
  change(job);
  const auto violations = ResolveAll(job);
  ASSERT_EQ(violations.size(), 1u) << field << "\n" << Print(violations);
  EXPECT_EQ(violations[0].field, field);
  EXPECT_THAT(violations[0].description, HasSubstr(std::string(text)));
}

TEST(ResolveTest, Minimal_Job_GetsTheDocumentedDefaults) {
  v1::JobSpec job = ValidJob();
  job.mutable_batch()->set_micro_batch_size(4);
  job.mutable_resources()->set_workers(2);
  ASSERT_EQ(Print(ResolveAll(job)), "");
  EXPECT_EQ(job.task(), "pretrain");
  EXPECT_EQ(job.model().layers(), 12);
  EXPECT_EQ(job.model().head_dim(), 64);
  EXPECT_EQ(job.model().norm(), "rmsnorm");
  EXPECT_TRUE(job.model().tied());
  EXPECT_FALSE(job.model().has_max_position());
  EXPECT_DOUBLE_EQ(job.data().train(0).weight(), 1.0);
  EXPECT_EQ(job.data().sequence_length(), 1024);
  EXPECT_EQ(job.batch().global_batch_tokens(), 4 * 1024 * 2);
  EXPECT_EQ(job.precision().recipe(), "bf16");
  EXPECT_EQ(job.gradients().dtype(), "fp32");
  EXPECT_EQ(job.gradients().reduce_dtype(), "fp32");
  EXPECT_EQ(job.schedule().name(), "wsd");
  EXPECT_EQ(job.schedule().decay_steps(), 200);
  EXPECT_EQ(job.resources().min_workers(), 2);
  EXPECT_EQ(job.resources().device(), "cpu");
  EXPECT_EQ(job.checkpoint().every_steps(), 1000);
  EXPECT_EQ(job.train().seed(), 1234);
}

TEST(ResolveTest, Tasks_AllRows_GiveTheirPackingAndAttention) {
  for (const ObjectiveRow& row : Objectives()) {
    if (!row.trains) {
      continue;  // rules/evaluations_test.cc
    }
    v1::JobSpec job = ValidJob();
    job.set_task(std::string(row.name));
    ASSERT_EQ(Print(ResolveAll(job)), "") << row.name;
    EXPECT_EQ(job.data().packing(), row.packing) << row.name;
    EXPECT_EQ(job.data().attention(), row.attention) << row.name;
  }
  v1::JobSpec job = ValidJob();
  job.set_task("sft");
  job.mutable_data()->set_attention("causal");
  ASSERT_EQ(Print(ResolveAll(job)), "");
  EXPECT_EQ(job.data().attention(), "causal");
  ExpectOnly("data.packing", "task: sft needs best_fit", [](v1::JobSpec& j) {
    j.set_task("sft");
    j.mutable_data()->set_packing("concat");
  });
}

TEST(ResolveWithFactsTest, Sft_ListWithoutAnyMask_IsNamed) {
  for (const bool sft : {false, true}) {
    v1::JobSpec job = ValidJob();
    job.set_task(sft ? "sft" : "pretrain");
    ASSERT_EQ(Print(ResolveAll(job)), "");
    DataFacts facts;
    facts.vocab = 257;
    facts.masks = {{"data.train[0].path", "/chat", true},
                   {"data.train[1].path", "/text", false},
                   {"data.validation[0].path", "/held-out", false}};
    std::vector<FieldViolation> violations;
    ResolveWithFacts(job, facts, nullptr, violations);
    ASSERT_EQ(violations.size(), sft ? 1u : 0u) << Print(violations);
    EXPECT_EQ(Find(violations, "data.validation[0].path").substr(0, 26),
              sft ? "/held-out has no loss mask" : "");
  }
}

TEST(ResolveTest, ResolvedJob_Again_IsUnchanged) {
  for (const Preset& preset : Presets()) {
    v1::JobSpec job = ValidJob();
    job.mutable_model()->set_preset(std::string(preset.name));
    job.mutable_schedule()->set_name("cosine");
    ASSERT_EQ(Print(ResolveAll(job)), "") << preset.name;
    v1::JobSpec again = job;
    ASSERT_EQ(Print(ResolveAll(again)), "") << preset.name;
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, again)) << preset.name;
  }
}

TEST(ResolveTest, AutoMicroBatch_WithoutGlobalBatch_LeavesItToTheWorkers) {
  v1::JobSpec job = ValidJob();
  ASSERT_EQ(Print(ResolveAll(job)), "");
  EXPECT_EQ(job.batch().micro_batch_size(), 0);
  EXPECT_FALSE(job.batch().has_global_batch_tokens());
}

TEST(ResolveTest, PresetWithOverrides_OverridesWin) {
  v1::JobSpec job = ValidJob();
  job.mutable_model()->set_layers(2);
  job.mutable_model()->set_tied(false);
  ASSERT_EQ(Print(ResolveAll(job)), "");
  EXPECT_EQ(job.model().layers(), 2);
  EXPECT_EQ(job.model().hidden(), 768);
  EXPECT_FALSE(job.model().tied());
}

TEST(ResolveTest, ManyMistakes_AreAllReportedAtOnce) {
  v1::JobSpec job = ValidJob();
  job.clear_name();
  job.mutable_model()->set_kv_heads(5);
  job.mutable_data()->clear_train();
  job.mutable_precision()->set_recipe("bf61");
  job.mutable_optimizer()->set_lr(-1);
  job.mutable_train()->set_steps(-3);
  job.mutable_resources()->set_min_workers(4);
  const auto violations = ResolveAll(job);
  EXPECT_EQ(violations.size(), 7u) << Print(violations);
  EXPECT_EQ(Find(violations, "name"), "required");
  EXPECT_THAT(Find(violations, "model.kv_heads"), HasSubstr("must divide heads"));
  EXPECT_THAT(Find(violations, "data.train"), HasSubstr("required"));
  EXPECT_THAT(Find(violations, "precision.recipe"), HasSubstr("did you mean bf16?"));
  EXPECT_THAT(Find(violations, "optimizer.lr"), HasSubstr("-1 is out of range"));
  EXPECT_THAT(Find(violations, "train.steps"), HasSubstr("-3 is out of range; must be 1.."));
  EXPECT_THAT(Find(violations, "resources.min_workers"), HasSubstr("1..workers = 1"));
}

TEST(ResolveTest, EmptySpec_NamesWhatIsRequired) {
  v1::JobSpec job;
  const auto violations = ResolveAll(job);
  for (const char* field : {"name", "model.layers", "model.hidden", "model.heads",
                            "model.ffn_hidden", "data.train", "train.steps"}) {
    EXPECT_THAT(Find(violations, field), HasSubstr("required")) << field;
  }
  EXPECT_EQ(violations.size(), 7u) << Print(violations);
}

TEST(ResolveTest, Names_OutsideTheirTables_SuggestTheNearest) {
  ExpectOnly("model.preset", "did you mean hearth-112m?",
             [](v1::JobSpec& job) { job.mutable_model()->set_preset("hearth-112"); });
  ExpectOnly("model.activation", "did you mean swiglu?",
             [](v1::JobSpec& job) { job.mutable_model()->set_activation("swigul"); });
  ExpectOnly("optimizer.name", "did you mean adamw?",
             [](v1::JobSpec& job) { job.mutable_optimizer()->set_name("adam"); });
  ExpectOnly("optimizer.newton_schulz", "one of tuned, standard", [](v1::JobSpec& job) {
    job.mutable_optimizer()->set_name("muon");
    job.mutable_optimizer()->set_newton_schulz("quintic");
  });
  ExpectOnly("parallel.shard",
             "muon keeps its momentum in int4 matrix by matrix, so workers cannot divide it; must be "
             "off or auto",
             [](v1::JobSpec& job) {
               job.mutable_optimizer()->set_name("muon");
               job.mutable_optimizer()->set_state("int4");
               job.mutable_parallel()->set_shard("optimizer");
             });
  ExpectOnly("offload.optimizer",
             "muon keeps its momentum in int4 matrix by matrix, so it cannot pass through a GPU in "
             "parts",
             [](v1::JobSpec& job) {
               job.mutable_optimizer()->set_name("muon");
               job.mutable_optimizer()->set_state("int4");
               job.mutable_resources()->set_device("cuda");
               job.mutable_offload()->set_optimizer(true);
             });
  ExpectOnly("gradients.dtype", "did you mean gradients.reduce_dtype: fp8? (one of fp32, bf16)",
             [](v1::JobSpec& job) { job.mutable_gradients()->set_dtype("fp8"); });
  ExpectOnly("gradients.reduce_dtype", "did you mean fp8? (one of fp32, bf16, fp8)",
             [](v1::JobSpec& job) { job.mutable_gradients()->set_reduce_dtype("e4m3"); });
  ExpectOnly("schedule.name", "did you mean cosine?",
             [](v1::JobSpec& job) { job.mutable_schedule()->set_name("cosin"); });
  ExpectOnly("task", "pretrain", [](v1::JobSpec& job) { job.set_task("dpo"); });
  ExpectOnly("recompute", "norm_act", [](v1::JobSpec& job) { job.set_recompute("everything"); });
  ExpectOnly("optimizer.groups.biases", "did you mean bias?", [](v1::JobSpec& job) {
    (*job.mutable_optimizer()->mutable_groups())["biases"].set_lr_scale(1);
  });
  ExpectOnly("parallel.shard", "one of auto, off, optimizer, gradients, weights",
             [](v1::JobSpec& job) { job.mutable_parallel()->set_shard("maybe"); });
}

TEST(ResolveTest, Ranges_AtAndBeyondTheEdges) {
  ExpectOnly("model.layers", "1..1024",
             [](v1::JobSpec& job) { job.mutable_model()->set_layers(1025); });
  ExpectOnly("model.dropout", "< 1",
             [](v1::JobSpec& job) { job.mutable_model()->set_dropout(1.0); });
  ExpectOnly("model.norm_eps", "must be > 0", [](v1::JobSpec& job) {
    job.mutable_model()->set_norm_eps(std::numeric_limits<double>::quiet_NaN());
  });
  ExpectOnly("data.sequence_length", "2..1048576",
             [](v1::JobSpec& job) { job.mutable_data()->set_sequence_length(1); });
  ExpectOnly("data.train[0].weight", "> 0",
             [](v1::JobSpec& job) { job.mutable_data()->mutable_train(0)->set_weight(0); });
  ExpectOnly("optimizer.beta2", "< 1",
             [](v1::JobSpec& job) { job.mutable_optimizer()->set_beta2(1); });
  ExpectOnly("optimizer.lr", "> 0", [](v1::JobSpec& job) {
    job.mutable_optimizer()->set_lr(std::numeric_limits<double>::infinity());
  });
  ExpectOnly("checkpoint.keep_last", ">= 1",
             [](v1::JobSpec& job) { job.mutable_checkpoint()->set_keep_last(0); });
  ExpectOnly("train.spike_window", ">= 8",
             [](v1::JobSpec& job) { job.mutable_train()->set_spike_window(7); });
  ExpectOnly("resources.priority", "-1000..1000",
             [](v1::JobSpec& job) { job.mutable_resources()->set_priority(1001); });
  ExpectOnly("resources.time_limit", "must be > 0", [](v1::JobSpec& job) {
    job.mutable_resources()->mutable_time_limit()->set_seconds(-5);
  });
  ExpectOnly("batch.micro_batch_size", "auto or 1..65536",
             [](v1::JobSpec& job) { job.mutable_batch()->set_micro_batch_size(-1); });
  ExpectOnly("name", "lower-case", [](v1::JobSpec& job) { job.set_name("A job"); });
  ExpectOnly("labels.Bad Key", "lower-case",
             [](v1::JobSpec& job) { (*job.mutable_labels())["Bad Key"] = "x"; });
}

TEST(ResolveTest, CrossFieldRules_AreChecked) {
  ExpectOnly("model.head_dim", "not a multiple of heads",
             [](v1::JobSpec& job) { job.mutable_model()->set_hidden(500); });
  ExpectOnly("model.head_dim", "odd",
             [](v1::JobSpec& job) { job.mutable_model()->set_head_dim(63); });
  ExpectOnly("model.max_position", "smaller than data.sequence_length", [](v1::JobSpec& job) {
    job.mutable_model()->set_preset("gpt2");
    job.mutable_data()->set_sequence_length(2048);
  });
  ExpectOnly("batch.global_batch_tokens", "nearest: 4096 or 8192", [](v1::JobSpec& job) {
    job.mutable_batch()->set_micro_batch_size(4);
    job.mutable_batch()->set_global_batch_tokens(5000);
  });
  ExpectOnly("batch.global_batch_tokens", "for 3 workers", [](v1::JobSpec& job) {
    job.mutable_batch()->set_micro_batch_size(4);
    job.mutable_batch()->set_global_batch_tokens(8192);
    job.mutable_resources()->set_workers(3);
  });
  ExpectOnly("batch.global_batch_tokens", "positive multiple", [](v1::JobSpec& job) {
    job.mutable_batch()->set_global_batch_tokens(std::numeric_limits<int64_t>::max());
  });
  ExpectOnly("schedule.warmup_steps", "more than train.steps",
             [](v1::JobSpec& job) { job.mutable_schedule()->set_warmup_steps(2000); });
  ExpectOnly("schedule.decay_steps", "together more than", [](v1::JobSpec& job) {
    job.mutable_schedule()->set_warmup_steps(600);
    job.mutable_schedule()->set_decay_steps(600);
  });
  ExpectOnly("precision.high_precision_layers", "12 layers", [](v1::JobSpec& job) {
    job.mutable_precision()->mutable_high_precision_layers()->set_first(10);
    job.mutable_precision()->mutable_high_precision_layers()->set_last(3);
  });
  ExpectOnly("model.rope_scaling.high_freq_factor", "greater than low_freq_factor",
             [](v1::JobSpec& job) {
               job.mutable_model()->mutable_rope_scaling()->set_type("llama3");
               job.mutable_model()->mutable_rope_scaling()->set_low_freq_factor(8);
             });
  ExpectOnly("model.from", "not both",
             [](v1::JobSpec& job) { job.mutable_model()->set_from("/models/x"); });
}

// What needs all gradients of a step at one time, or its weights of before.
TEST(ResolveTest, UpdatesByBucket_RefuseWhatTheyCannotDo) {
  const auto fused = [](v1::JobSpec& job, int64_t tokens, int micro, int workers) {
    job.mutable_optimizer()->set_fused(true);
    job.mutable_batch()->set_global_batch_tokens(tokens);
    job.mutable_batch()->set_micro_batch_size(micro);
    job.mutable_resources()->set_workers(workers);
  };
  for (const int micro : {0, 4}) {
    v1::JobSpec job = ValidJob();
    fused(job, 8192, micro, 2);
    EXPECT_EQ(Print(ResolveAll(job)), "") << micro;
  }
  v1::JobSpec open = ValidJob();
  open.mutable_optimizer()->set_fused(true);
  EXPECT_EQ(Print(ResolveAll(open)), "");
  ExpectOnly("optimizer.fused",
             "batch.global_batch_tokens 16384 is not workers * micro_batch_size * "
             "data.sequence_length = 2 * 4 * 1024",
             [&](v1::JobSpec& job) { fused(job, 16384, 4, 2); });
  ExpectOnly("optimizer.fused", "= 2 * n * 1024",
             [&](v1::JobSpec& job) { fused(job, 3072, 0, 2); });
  ExpectOnly("optimizer.fused", "resources.min_workers 1", [&](v1::JobSpec& job) {
    fused(job, 8192, 4, 2);
    job.mutable_resources()->set_min_workers(1);
  });
  ExpectOnly("train.spike_grad_sigma", "must be 0", [&](v1::JobSpec& job) {
    fused(job, 4096, 4, 1);
    job.mutable_train()->set_spike_grad_sigma(6);
  });
  ExpectOnly("gradients.store", "2 * 4 * 1024", [&](v1::JobSpec& job) {
    fused(job, 16384, 4, 2);
    job.mutable_optimizer()->set_fused(false);
    job.mutable_gradients()->set_store("fp8");
  });
  ExpectOnly("gradients.store", "no gradient waits", [&](v1::JobSpec& job) {
    fused(job, 4096, 4, 1);
    job.mutable_gradients()->set_store("fp8");
  });
  ExpectOnly("precision.stats_every", "must be 0", [&](v1::JobSpec& job) {
    fused(job, 4096, 4, 1);
    job.mutable_precision()->set_recipe("fp8");
    job.mutable_precision()->set_stats_every(10);
  });
}

TEST(ResolveTest, AllRecipes_OnTheCpu_RunOrAreRefusedOnce) {
  for (const Recipe& recipe : Recipes()) {
    v1::JobSpec job = ValidJob();
    job.mutable_precision()->set_recipe(std::string(recipe.name));
    const auto violations = ResolveAll(job);
    if (RecipeExecution(recipe, "cpu") != Execution::kNone) {
      EXPECT_EQ(Print(violations), "") << recipe.name;
    } else {
      ASSERT_EQ(violations.size(), 1u) << Print(violations);
      EXPECT_EQ(violations[0].field, "precision.recipe");
      EXPECT_EQ(violations[0].description,
                std::string(recipe.name) + " is not implemented on cpu in this version");
    }
  }
}

TEST(ResolveTest, Parallel_SeveralGpus_BucketsAndShardingAreTaken) {
  v1::JobSpec job = ValidJob();
  job.mutable_resources()->set_device("cuda");
  job.mutable_resources()->set_workers(4);
  job.mutable_parallel()->set_shard("on");  // of an older version
  EXPECT_EQ(Print(ResolveAll(job)), "");
  EXPECT_EQ(job.parallel().shard(), "optimizer");
  EXPECT_EQ(job.parallel().bucket_mib(), 25);
  v1::JobSpec cpu = ValidJob();
  EXPECT_EQ(Print(ResolveAll(cpu)), "");
  EXPECT_FALSE(cpu.parallel().has_bucket_mib());
  EXPECT_EQ(cpu.parallel().shard(), "auto");
  for (const int mib : {0, 4097}) {
    ExpectOnly("parallel.bucket_mib", "1..4096",
               [mib](v1::JobSpec& bad) { bad.mutable_parallel()->set_bucket_mib(mib); });
  }
}

TEST(ResolveTest, Device_NoFp8OrNoEmulation_IsRefusedOnce) {
  ExpectOnly("precision.lm_head", "needs a recipe with one scale a tensor (fp8 and fp8_current)",
             [](v1::JobSpec& job) { job.mutable_precision()->set_lm_head("fp8"); });
  ExpectOnly("precision.recipe", "only emulated on cpu",
             [](v1::JobSpec& job) { job.mutable_precision()->set_emulate(false); });
}

TEST(ResolveWithFactsTest, Vocabulary_Unset_IsTheDatasets) {
  v1::JobSpec job = ValidJob();
  job.mutable_model()->set_preset("hearth-tiny");
  ASSERT_EQ(Print(ResolveAll(job)), "");
  EXPECT_FALSE(job.model().has_vocab());
  std::vector<FieldViolation> violations;
  ResolveWithFacts(job, {.vocab = 2048, .train_tokens = 100000}, nullptr, violations);
  EXPECT_EQ(Print(violations), "");
  EXPECT_EQ(job.model().vocab(), 2048);
  const auto shape = ResolveModelShape(job.model(), 1024);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->padded_vocab, 2048);
}

TEST(ResolveWithFactsTest, BadFacts_AreViolations) {
  v1::JobSpec job = ValidJob();
  ASSERT_EQ(Print(ResolveAll(job)), "");
  std::vector<FieldViolation> violations;
  ResolveWithFacts(job, {.vocab = 60000, .train_tokens = 1024}, nullptr, violations);
  EXPECT_THAT(Find(violations, "model.vocab"), HasSubstr("smaller than the datasets' vocabulary"));
  EXPECT_THAT(Find(violations, "data.train"), HasSubstr("fewer than one sample of 1025"));
  violations.clear();
  job.mutable_model()->clear_vocab();
  ResolveWithFacts(job, {}, nullptr, violations);
  EXPECT_THAT(Find(violations, "model.vocab"), HasSubstr("required"));
}

v1::JobSpec JobFrom(const std::string& folder) {
  v1::JobSpec job = ValidJob();
  job.mutable_model()->clear_preset();
  job.mutable_model()->set_from(folder);
  return job;
}

TEST(ResolveWithFactsTest, From_FolderWithAFieldThatDiffers_NamesTheField) {
  v1::JobSpec job = JobFrom("/models/gpt2");
  job.mutable_model()->set_layers(3);
  ASSERT_EQ(Print(ResolveAll(job)), "");
  const v1::ModelSpec folder = FindPreset("gpt2")->model;
  std::vector<FieldViolation> violations;
  ResolveWithFacts(job, {.vocab = 50257}, &folder, violations);
  EXPECT_THAT(Find(violations, "model.layers"), HasSubstr("3 differs from 12"));
}

TEST(ResolveWithFactsTest, From_Folder_LayersInHighPrecisionFollowItsNumber) {
  v1::JobSpec job = JobFrom("/models/small");
  job.mutable_precision()->set_recipe("nvfp4");
  ASSERT_EQ(Print(ResolveAll(job)), "");
  v1::ModelSpec folder = FindPreset("gpt2")->model;
  folder.set_layers(4);
  v1::JobSpec named = job;
  std::vector<FieldViolation> violations;
  ResolveWithFacts(job, {.vocab = 50257}, &folder, violations);
  EXPECT_EQ(Print(violations), "");
  EXPECT_EQ(job.precision().high_precision_layers().first(), 1);

  named.mutable_precision()->mutable_high_precision_layers()->add_layers(4);
  auto& remedy = *named.mutable_precision()->add_remedies();
  remedy.set_layers_recipe("bf16");
  remedy.mutable_high_precision_layers()->set_last(5);
  ResolveWithFacts(named, {.vocab = 50257}, &folder, violations);
  EXPECT_EQ(named.precision().high_precision_layers().first(), 0) << "who names layers means those";
  EXPECT_THAT(Find(violations, "precision.high_precision_layers.layers[0]"), HasSubstr("0..3"));
  EXPECT_THAT(Find(violations, "precision.remedies[0].high_precision_layers"),
              HasSubstr("more than the model's 4 layers"));
}

TEST(ResolveWithFactsTest, From_Folder_GivesTheShapeAndRefusesAnother) {
  v1::JobSpec job = JobFrom("/models/gpt2");
  job.mutable_model()->set_dropout(0.1);
  ASSERT_EQ(Print(ResolveAll(job)), "");
  const v1::ModelSpec folder = FindPreset("gpt2")->model;
  std::vector<FieldViolation> violations;
  ResolveWithFacts(job, {.vocab = 50257}, &folder, violations);
  EXPECT_EQ(Print(violations), "");
  EXPECT_EQ(job.model().layers(), 12);
  EXPECT_EQ(job.model().vocab(), 50257);
  EXPECT_DOUBLE_EQ(job.model().dropout(), 0.1);
  EXPECT_TRUE(ResolveModelShape(job.model(), 1024).ok());
  // Resolving what was resolved, as the trainer does, changes nothing.
  v1::JobSpec again = job;
  EXPECT_EQ(Print(ResolveAll(again)), "");
  ResolveWithFacts(again, {.vocab = 50257}, &folder, violations);
  EXPECT_EQ(Print(violations), "");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, again));
  again.mutable_model()->set_layers(6);
  ResolveWithFacts(again, {}, &folder, violations);
  EXPECT_THAT(Find(violations, "model.layers"), HasSubstr("6 differs from 12"));
}

PathTokenizer Tokens(const std::string& field, const std::string& kind, const std::string& sha) {
  PathTokenizer path{field, "/" + field, 1000, {}};
  path.tokenizer.set_kind(kind);
  path.tokenizer.set_sha256(sha);
  path.tokenizer.set_vocab(1000);
  return path;
}

std::string Compared(const PathTokenizer& data, const PathTokenizer& model) {
  std::vector<FieldViolation> violations;
  Checker check(violations);
  CheckTokenizers(v1::JobSpec(), {.datasets = {data}, .model = model}, check);
  return Print(violations);
}

TEST(TokenizersTest, SameFileOrSameTokens_AreOne) {
  PathTokenizer data = Tokens("data.train[0].path", "bpe", "aa");
  PathTokenizer model = Tokens("model.from", "bpe", "aa");
  EXPECT_EQ(Compared(data, model), "");
  model.tokenizer.set_sha256("bb");
  EXPECT_THAT(Compared(data, model), HasSubstr("data.train[0].path")) << "no probe says more";
  for (const int32_t token : {5, 6, 7}) {
    data.tokenizer.add_probe(token);
    model.tokenizer.add_probe(token);
  }
  EXPECT_EQ(Compared(data, model), "") << "the same tokenizer, written otherwise";
  model.tokenizer.add_probe(8);
  EXPECT_NE(Compared(data, model), "");
  data.tokenizer.add_probe(8);
  model.tokenizer.set_vocab(1001);
  EXPECT_NE(Compared(data, model), "");
  EXPECT_EQ(Compared(Tokens("d", "bytes", ""), Tokens("model.from", "bytes", "")), "");
  EXPECT_NE(Compared(Tokens("d", "sentencepiece", "aa"), Tokens("model.from", "bytes", "")), "");
  EXPECT_NE(Compared(Tokens("d", "sentencepiece", "a"), Tokens("model.from", "sentencepiece", "b")),
            "");
}

TEST(TokenizersTest, WithoutATokenizer_VocabulariesMayDifferByPadding) {
  const PathTokenizer data = Tokens("data.train[0].path", "bytes", "");
  PathTokenizer model = Tokens("model.from", "", "");
  model.vocab = 1000 + 1024;
  EXPECT_EQ(Compared(data, model), "");
  model.vocab += 1;
  EXPECT_THAT(Compared(data, model), HasSubstr("no tokenizer and a vocabulary of 2025"));
  PathTokenizer raw = Tokens("data.train[0].path", "", "");
  raw.vocab = 0;
  EXPECT_EQ(Compared(raw, model), "") << "a .bin file says nothing";
}

TEST(ResolveModelShapeTest, FieldOfALaterVersion_HasItsRowsDefault) {
  v1::JobSpec job;
  job.mutable_model()->set_preset("hearth-nano");
  std::vector<FieldViolation> violations;
  Resolve(job, violations);
  job.mutable_model()->set_vocab(500);
  job.mutable_model()->clear_init_std();
  job.mutable_model()->set_norm_eps(1e-6);
  const auto shape = ResolveModelShape(job.model(), 128);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->spec.init_std(), 0.02);
  EXPECT_EQ(shape->spec.norm_eps(), 1e-6);
}

TEST(ResolveModelShapeTest, Unresolved_Model_IsRefused) {
  v1::ModelSpec model;
  model.set_preset("hearth-112m");
  EXPECT_EQ(ResolveModelShape(model, 128).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ViolationsToStatusTest, Violations_AreTextAndPayload) {
  EXPECT_TRUE(ViolationsToStatus({}).ok());
  const absl::Status status = ViolationsToStatus({{"a.b", "bad"}, {"c", "worse"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "a.b: bad\nc: worse");
  const auto payload = status.GetPayload(kBadRequestUrl);
  ASSERT_TRUE(payload.has_value());
  google::rpc::BadRequest details;
  ASSERT_TRUE(details.ParseFromString(std::string(*payload)));
  ASSERT_EQ(details.field_violations_size(), 2);
  EXPECT_EQ(details.field_violations(1).field(), "c");
  EXPECT_EQ(details.field_violations(1).description(), "worse");
}

}  // namespace
}  // namespace hearth::spec
