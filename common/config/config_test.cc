#include "common/config/config.h"

#include "common/spec/fields/rows.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace hearth::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDesignExample[] = R"(name: fineweb-112m
labels: {team: research}
task: pretrain
model: {preset: hearth-112m}            # from: FOLDER to start from weights
data: {train: /data/fineweb, validation: /data/fineweb-val, sequence_length: 2048}
batch: {micro_batch_size: 18, global_batch_tokens: 589824}
precision: {recipe: fp8, warmup_steps: 100, fallback: [bf16], lm_head: bf16, bf16_tail: 0, high_precision_layers: {first: 0, last: 0}, emulate: true}
optimizer: {name: adamw, lr: 3.0e-4, beta1: 0.9, beta2: 0.95, weight_decay: 0.1, grad_clip: 1.0}
schedule: {name: wsd, warmup_steps: 2000, decay_steps: 20000}
gradients: {dtype: bf16, reduce_dtype: bf16}
recompute: none                          # norm_act | ffn | attention | block
parallel: {shard: auto}
train: {steps: 100000, seed: 1234, eval_every: 250, eval_batches: 20, deterministic: auto}
checkpoint: {every_steps: 1000, keep_last: 3, grace_seconds: 60}
resources: {workers: 8, min_workers: 4, device: cuda, priority: 0, max_restarts: 3, time_limit: 48h, selector: {}, span_hosts: true}
)";

v1::JobSpec Parse(std::string_view text) {
  auto job = ParseJobSpec(text, "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : v1::JobSpec();
}

std::string ParseError(std::string_view text) {
  const auto job = ParseJobSpec(text, "job.yaml");
  EXPECT_FALSE(job.ok()) << text;
  if (job.ok()) {
    return "";
  }
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(job.status().message());
}

TEST(ParseJobSpecTest, DesignExample_EveryField_IsRead) {
  const v1::JobSpec job = Parse(kDesignExample);
  EXPECT_EQ(job.name(), "fineweb-112m");
  EXPECT_EQ(job.labels().at("team"), "research");
  EXPECT_EQ(job.model().preset(), "hearth-112m");
  ASSERT_EQ(job.data().train_size(), 1);
  EXPECT_EQ(job.data().train(0).path(), "/data/fineweb");
  EXPECT_FALSE(job.data().train(0).has_weight());
  EXPECT_EQ(job.data().validation(0).path(), "/data/fineweb-val");
  EXPECT_EQ(job.batch().global_batch_tokens(), 589824);
  EXPECT_EQ(job.precision().fallback(0), "bf16");
  EXPECT_TRUE(job.precision().high_precision_layers().has_last());
  EXPECT_DOUBLE_EQ(job.optimizer().lr(), 3e-4);
  EXPECT_EQ(job.train().deterministic(), "auto");
  EXPECT_EQ(job.resources().time_limit().seconds(), 48 * 3600);
  EXPECT_TRUE(job.resources().span_hosts());
  EXPECT_FALSE(job.model().has_layers());
}

TEST(ParseJobSpecTest, UnknownKey_NamesFileLinePathAndNearest) {
  EXPECT_EQ(ParseError("name: x\nbatch:\n  micro_batch_sizes: 4\n"),
            "job.yaml:3: batch.micro_batch_sizes: unknown key; did you mean micro_batch_size?");
  EXPECT_EQ(ParseError("steps: 10"),
            "job.yaml:1: steps: unknown key; did you mean train.steps or evaluate.steps?");
  EXPECT_EQ(ParseError("zzzzzz: 10"), "job.yaml:1: zzzzzz: unknown key");
}

TEST(ParseJobSpecTest, DuplicateKey_IsRefusedInMessagesAndMaps) {
  EXPECT_EQ(ParseError("train:\n  steps: 1\n  seed: 2\n  steps: 3\n"),
            "job.yaml:4: train.steps: duplicate key; first given on line 2");
  EXPECT_THAT(ParseError("labels: {a: x, a: y}"), HasSubstr("labels.a: duplicate key"));
  EXPECT_THAT(ParseError("train: {steps: 1}\ntrain: {seed: 1}"), HasSubstr("2: train: duplicate"));
}

TEST(ParseJobSpecTest, ManyErrors_AreAllReportedInLineOrder) {
  EXPECT_EQ(ParseError("nam: x\ntrain: {steps: many}\nmodel: {tied: yes}\n"),
            "job.yaml:1: nam: unknown key; did you mean name?\n"
            "job.yaml:2: train.steps: expected an integer, got \"many\"\n"
            "job.yaml:3: model.tied: expected true or false, got \"yes\"");
}

TEST(ParseJobSpecTest, Yaml11Traps_AreRefused) {
  EXPECT_THAT(ParseError("train: {steps: 010}"), HasSubstr("leading zero"));
  EXPECT_THAT(ParseError("train: {steps: 0x10}"), HasSubstr("expected an integer"));
  EXPECT_THAT(ParseError("train: {steps: 1_000}"), HasSubstr("expected an integer"));
  EXPECT_THAT(ParseError("train: {steps: \"10\"}"), HasSubstr("remove the quotes"));
  EXPECT_THAT(ParseError("train: {steps: 10.5}"), HasSubstr("expected an integer"));
  EXPECT_THAT(ParseError("train: {steps: 1e30}"), HasSubstr("expected an integer"));
  EXPECT_THAT(ParseError("train: {steps: 99999999999999999999}"), HasSubstr("64 bits"));
  EXPECT_THAT(ParseError("resources: {workers: 3000000000}"), HasSubstr("32 bits"));
  EXPECT_THAT(ParseError("optimizer: {lr: 1e999}"), HasSubstr("too large"));
  EXPECT_THAT(ParseError("optimizer: {lr: fast}"), HasSubstr("expected a number"));
  for (const char* word : {"no", "on", "off", "True", "1", "\"true\""}) {
    EXPECT_THAT(ParseError(std::string("model: {tied: ") + word + "}"),
                HasSubstr("expected true or false"));
  }
}

// PyYAML reads the key `on` as true, and json.dumps writes that as "true".
TEST(ParseJobSpecTest, KeyThatYaml11TakesForTrue_IsRead) {
  for (const char* key : {"on", "\"on\"", "true", "\"true\"", "True", "TRUE"}) {
    const v1::JobSpec job = Parse(std::string("notify: [{") + key + ": failed, command: mail}]");
    ASSERT_EQ(job.notify_size(), 1) << key;
    EXPECT_EQ(job.notify(0).on(0), "failed") << key;
  }
  EXPECT_THAT(ParseError("notify: [{on: failed, true: failed, command: mail}]"),
              HasSubstr("notify[0].on: duplicate key"));
  EXPECT_THAT(ParseError("notify: [{false: failed, command: mail}]"), HasSubstr("unknown key"));
  EXPECT_THAT(ParseError("train: {true: 1}"), HasSubstr("train.true: unknown key"));
  EXPECT_EQ(Parse("labels: {true: a, on: b}").labels_size(), 2);
}

// It reads the values on and off as true and false, too.
TEST(ParseJobSpecTest, ValueThatYaml11TakesForATruthValue_IsReadWhereOneIsAName) {
  for (const char* value : {"false", "False", "\"false\"", "off"}) {
    EXPECT_EQ(Parse(std::string("parallel: {shard: ") + value + "}").parallel().shard(), "off")
        << value;
  }
  v1::JobSpec old = Parse("parallel: {shard_optimizer: true}");
  spec::ModerniseValues(old);
  EXPECT_EQ(old.parallel().shard(), "optimizer");
  // true is a name of its own there, and other texts have no names.
  EXPECT_EQ(Parse("train: {deterministic: true}").train().deterministic(), "true");
  EXPECT_EQ(Parse("labels: {gpu: false}").labels().at("gpu"), "false");
  EXPECT_EQ(Parse("name: true").name(), "true");
  EXPECT_EQ(Parse("task: true").task(), "true") << "the rules refuse it";
}

TEST(ParseJobSpecTest, WrongShapes_AreRefused) {
  EXPECT_THAT(ParseError("train: 5"), HasSubstr("expected a map of fields, got a single value"));
  EXPECT_THAT(ParseError("train: [1]"), HasSubstr("got a list"));
  EXPECT_THAT(ParseError("name: {a: b}"), HasSubstr("expected a single value, got a map"));
  EXPECT_THAT(ParseError("labels: team"), HasSubstr("expected a map of key: value"));
  EXPECT_THAT(ParseError("name:\n"), HasSubstr("name: has no value"));
  EXPECT_THAT(ParseError("data: {train: [a, }"), HasSubstr("not valid YAML"));
  EXPECT_THAT(ParseError("data: {train: [a, ~]}"), HasSubstr("data.train[1]: has no value"));
  EXPECT_THAT(ParseError("data: {train: [{paht: a}]}"),
              HasSubstr("data.train[0].paht: unknown key; did you mean path?"));
  EXPECT_THAT(ParseError("name: !!int 5"), HasSubstr("tags are not supported"));
  EXPECT_THAT(ParseError("[a]: b"), HasSubstr("expected a key, got a list"));
  EXPECT_THAT(ParseError("name: a\n---\nname: b\n"),
              HasSubstr("job.yaml:2: not one YAML document"));
  EXPECT_THAT(ParseError(""), HasSubstr("empty"));
  EXPECT_THAT(ParseError("# only a comment\n"), HasSubstr("empty"));
  EXPECT_THAT(ParseError("just text"), HasSubstr("expected a map of fields"));
}

TEST(ParseJobSpecTest, BadBytes_AreRefused) {
  EXPECT_THAT(ParseError("name: \xff\xfe"), HasSubstr("not UTF-8"));
  EXPECT_THAT(ParseError(std::string(2 << 20, 'a')), HasSubstr("larger than 256 KiB"));
  EXPECT_THAT(ParseError(std::string(100000, '[')), HasSubstr("not valid YAML"));
  EXPECT_THAT(ParseError("name: \"unclosed"), HasSubstr("job.yaml:1: not valid YAML"));
}

// yaml-cpp's LoadAll never comes back from these.
TEST(ParseJobSpecTest, StrayComma_IsRefusedAtOnce) {
  EXPECT_THAT(ParseError(","), HasSubstr("not one YAML document"));
  EXPECT_THAT(ParseError(",a: b"), HasSubstr("not one YAML document"));
  EXPECT_THAT(ParseError("name: a\n,"), HasSubstr("YAML"));
}

TEST(ParseJobSpecTest, HugeOrRepeatedMaps_StayCheap) {
  std::string labels = "labels: {";
  for (int i = 0; i < 20000; ++i) {
    labels += "a" + std::to_string(i) + ": b, ";
  }
  EXPECT_THAT(ParseError(labels + "}"), HasSubstr("more than 10000 keys"));
  // Every alias repeats a map of bad keys.
  std::string groups = "optimizer: {groups: {a: &m {";
  for (int i = 0; i < 5000; ++i) {
    groups += "k" + std::to_string(i) + ": 1, ";
  }
  groups += "}, ";
  for (int i = 0; i < 5000; ++i) {
    groups += "g" + std::to_string(i) + ": *m, ";
  }
  EXPECT_THAT(ParseError(groups + "}}"), HasSubstr("optimizer.groups.a.k0: unknown key"));
}

TEST(ParseJobSpecTest, IntegralForms_AreIntegers) {
  EXPECT_EQ(Parse("train: {steps: 1e3}").train().steps(), 1000);
  EXPECT_EQ(Parse("train: {seed: -7}").train().seed(), -7);
  EXPECT_EQ(Parse("train: {steps: 2.0}").train().steps(), 2);
  EXPECT_DOUBLE_EQ(Parse("optimizer: {lr: 1}").optimizer().lr(), 1.0);
}

TEST(ParseJobSpecTest, DataSources_TakeAllForms) {
  EXPECT_EQ(Parse("data: {train: a}").data().train(0).path(), "a");
  const v1::DataSpec list = Parse("data:\n  train:\n  - a\n  - {path: b, weight: 2}\n").data();
  ASSERT_EQ(list.train_size(), 2);
  EXPECT_EQ(list.train(0).path(), "a");
  EXPECT_EQ(list.train(1).path(), "b");
  EXPECT_DOUBLE_EQ(list.train(1).weight(), 2.0);
  EXPECT_DOUBLE_EQ(Parse("data: {train: {path: b, weight: 2}}").data().train(0).weight(), 2.0);
}

TEST(ParseJobSpecTest, SpecialValues_AreRead) {
  EXPECT_EQ(Parse("batch: {micro_batch_size: auto}").batch().micro_batch_size(), 0);
  EXPECT_TRUE(Parse("batch: {micro_batch_size: auto}").batch().has_micro_batch_size());
  EXPECT_THAT(ParseError("batch: {micro_batch_size: atuo}"), HasSubstr("(or auto)"));
  EXPECT_EQ(Parse("parallel: {shard: off}").parallel().shard(), "off");
  EXPECT_EQ(Parse("train: {deterministic: true}").train().deterministic(), "true");
  EXPECT_EQ(Parse("labels: {gpu: 4090, zip: 010, ok: no}").labels().at("zip"), "010");
  EXPECT_EQ(Parse("precision: {fallback: bf16}").precision().fallback_size(), 1);
  EXPECT_DOUBLE_EQ(Parse("optimizer: {groups: {norm: {lr_scale: 0.5}}}")
                       .optimizer()
                       .groups()
                       .at("norm")
                       .lr_scale(),
                   0.5);
}

// Job files of older versions.
TEST(ParseJobSpecTest, OldNames_AreTheField_OnceInAFile) {
  EXPECT_EQ(Parse("parallel: {shard_optimizer: off}").parallel().shard(), "off");
  v1::JobSpec job = Parse("parallel: {shard_optimizer: on}");
  spec::ModerniseValues(job);
  EXPECT_EQ(job.parallel().shard(), "optimizer");
  EXPECT_THAT(ToYaml(job), HasSubstr("shard: optimizer"));
  EXPECT_THAT(ParseError("parallel: {shard_optimizer: on, shard: gradients}"),
              HasSubstr("parallel.shard: is the same field as shard_optimizer"));
  EXPECT_THAT(ParseError("parallel: {zero_stage: 2}"), HasSubstr("did you mean shard?"));
}

TEST(ParseJobSpecTest, Durations_NeedAUnit) {
  const auto seconds = [](const std::string& text) {
    return Parse("resources: {time_limit: " + text + "}").resources().time_limit().seconds();
  };
  EXPECT_EQ(seconds("48h"), 172800);
  EXPECT_EQ(seconds("1h30m"), 5400);
  EXPECT_EQ(seconds("90s"), 90);
  for (const char* bad : {"90", "inf", "2d", "h", "abc", "1e300h", "[1]"}) {
    EXPECT_THAT(ParseError(std::string("resources: {time_limit: ") + bad + "}"),
                HasSubstr("resources.time_limit: expected a"));
  }
}

TEST(ParseJobSpecTest, Times_NeedTheirOffset) {
  const auto seconds = [](const std::string& text) {
    return Parse("start: {not_before: " + text + "}").start().not_before().seconds();
  };
  EXPECT_EQ(seconds("2026-11-26T22:00:00+01:00"), 1795726800);
  EXPECT_EQ(seconds("\"2026-11-26T21:00:00Z\""), 1795726800);
  EXPECT_EQ(ToYaml(Parse("start: {not_before: 2026-11-26T22:00:00.5+01:00}")),
            "start:\n  not_before: \"2026-11-26T21:00:00.5Z\"\n");
  for (const char* bad : {"22:00", "2026-11-26", "2026-11-26T22:00:00", "2026-13-26T22:00:00Z",
                          "infinite-future", "12026-11-26T22:00:00Z", "[1]"}) {
    EXPECT_THAT(ParseError(std::string("start: {not_before: \"") + bad + "\"}"),
                HasSubstr("start.not_before: expected a time with its offset from UTC"));
  }
}

TEST(ToYamlTest, DesignExample_ReadsBackEqual) {
  const v1::JobSpec job = Parse(kDesignExample);
  const std::string yaml = ToYaml(job);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(Parse(yaml), job)) << yaml;
  EXPECT_THAT(yaml, HasSubstr("time_limit: 48h"));
  EXPECT_THAT(yaml, HasSubstr("  train: [/data/fineweb]\n"));
  EXPECT_THAT(yaml, HasSubstr("fallback: [bf16]"));
  EXPECT_THAT(yaml, Not(HasSubstr("micro_batch_size: auto")));
}

TEST(ToYamlTest, ResolvedJob_ReadsBackEqual) {
  v1::JobSpec job =
      Parse("name: a\nmodel: {preset: llama-3.2-1b}\ndata: {train: x}\ntrain: {steps: 9}");
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(job, violations);
  ASSERT_TRUE(violations.empty());
  const std::string yaml = ToYaml(job);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(Parse(yaml), job)) << yaml;
  EXPECT_THAT(yaml, HasSubstr("micro_batch_size: auto"));
}

// Plain, YAML 1.1 readers would see true, false and null, as keys and as values.
TEST(ToYamlTest, WordsThatYaml11TakesForOthers_AreQuoted) {
  EXPECT_EQ(ToYaml(Parse("notify: [{on: [failed], command: mail}]")),
            "notify: [{\"on\": [failed], command: mail}]\n");
  for (const char* word : {"on", "off", "yes", "no", "y", "n", "true", "Null", "OFF", "010"}) {
    const std::string quoted = std::string("\"") + word + "\"";
    EXPECT_THAT(ToYaml(Parse("labels: {k: " + quoted + "}")), HasSubstr("k: " + quoted));
    EXPECT_THAT(ToYaml(Parse("labels: {" + quoted + ": a}")), HasSubstr(quoted + ": a"));
  }
}

TEST(ToYamlTest, NothingSet_IsAnEmptyMap) {
  EXPECT_EQ(ToYaml(v1::JobSpec()), "{}\n");
  EXPECT_FALSE(Parse("{}").has_name());
}

}  // namespace
}  // namespace hearth::config
