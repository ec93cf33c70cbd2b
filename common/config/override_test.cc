#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/config/config.h"
#include "common/spec/fields/rows.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/support/common/valid_job.h"

namespace hearth::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec Job() {
  v1::JobSpec job;
  job.set_name("x");
  job.mutable_train()->set_steps(100);
  job.mutable_data()->add_train()->set_path("/a");
  (*job.mutable_labels())["team"] = "red";
  job.mutable_resources()->set_workers(4);
  job.mutable_resources()->set_min_workers(4);
  return job;
}

v1::JobSpec Applied(std::string_view assignment) {
  v1::JobSpec job = Job();
  const absl::Status status = ApplyOverride(job, assignment);
  EXPECT_TRUE(status.ok()) << status;
  return job;
}

// The refusal's text; the job must be untouched.
std::string Refusal(std::string_view assignment) {
  v1::JobSpec job = Job();
  const absl::Status status = ApplyOverride(job, assignment);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << assignment;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, Job())) << assignment;
  return std::string(status.message());
}

TEST(ApplyOverrideTest, Scalars_OfEveryType_AreSet) {
  EXPECT_EQ(Applied("train.steps=2000").train().steps(), 2000);
  EXPECT_DOUBLE_EQ(Applied("optimizer.lr=3e-4").optimizer().lr(), 3e-4);
  EXPECT_FALSE(Applied("model.tied=false").model().tied());
  EXPECT_EQ(Applied("name=other").name(), "other");
  EXPECT_EQ(Applied("name=a=b").name(), "a=b");
  EXPECT_EQ(Applied("name=\"\"").name(), "");
  EXPECT_EQ(Applied("resources.time_limit=30m").resources().time_limit().seconds(), 1800);
  EXPECT_EQ(Applied("batch.micro_batch_size=auto").batch().micro_batch_size(), 0);
  EXPECT_EQ(Applied("precision.high_precision_layers.first=2")
                .precision()
                .high_precision_layers()
                .first(),
            2);
}

TEST(ApplyOverrideTest, MapEntries_AreAddedReplacedAndRemoved) {
  EXPECT_EQ(Applied("labels.owner=x").labels().at("owner"), "x");
  EXPECT_EQ(Applied("labels.owner=x").labels().at("team"), "red");
  EXPECT_EQ(Applied("labels.team=blue").labels().at("team"), "blue");
  EXPECT_EQ(Applied("labels.a.b/c=1").labels().at("a.b/c"), "1");
  EXPECT_EQ(Applied("labels.team=null").labels_size(), 0);
  EXPECT_EQ(Applied("labels={a: b}").labels_size(), 1);
  EXPECT_DOUBLE_EQ(
      Applied("optimizer.groups.norm.lr_scale=0.5").optimizer().groups().at("norm").lr_scale(),
      0.5);
  EXPECT_DOUBLE_EQ(Applied("optimizer.groups.norm={weight_decay: 0.2}")
                       .optimizer()
                       .groups()
                       .at("norm")
                       .weight_decay(),
                   0.2);
}

TEST(ApplyOverrideTest, ListsAndMessages_AreReplacedAsAWhole) {
  const v1::JobSpec job = Applied("data.train=[a,{path: b, weight: 2}]");
  ASSERT_EQ(job.data().train_size(), 2);
  EXPECT_EQ(job.data().train(0).path(), "a");
  EXPECT_DOUBLE_EQ(job.data().train(1).weight(), 2);
  EXPECT_EQ(Applied("data.train=/b").data().train_size(), 1);
  EXPECT_EQ(Applied("precision.fallback=[bf16]").precision().fallback(0), "bf16");
  EXPECT_FALSE(Applied("train={seed: 5}").train().has_steps());
  EXPECT_FALSE(Applied("train.steps=null").train().has_steps());
}

TEST(ApplyOverrideTest, Mistakes_AreRefusedAndChangeNothing) {
  EXPECT_EQ(Refusal("train.step=5"), "train.step: unknown key; did you mean steps?");
  EXPECT_EQ(Refusal("steps=5"), "steps: unknown key; did you mean train.steps or evaluate.steps?");
  EXPECT_EQ(Refusal("train.steps=many"), "train.steps: expected an integer, got \"many\"");
  EXPECT_THAT(Refusal("train.steps"), HasSubstr("not of the form path=value"));
  EXPECT_THAT(Refusal("=5"), HasSubstr("not of the form path=value"));
  EXPECT_THAT(Refusal("name=\"\\\xc3\xa9\""), HasSubstr("escape character: ?"));
  EXPECT_THAT(Refusal("data.train=,a"), HasSubstr("stray ','"));
  EXPECT_THAT(Refusal("name=\xff"), HasSubstr("not UTF-8"));
  EXPECT_THAT(Refusal("train.steps=" + std::string(59, 'x') + "\xc3\xa9\xc3\xa9"),
              HasSubstr("xxx\"..."));
  EXPECT_THAT(Refusal("train.steps="), HasSubstr("has no value"));
  EXPECT_THAT(Refusal("train.=5"), HasSubstr("ends in a dot"));
  EXPECT_THAT(Refusal("name.first=5"), HasSubstr("no fields of its own"));
  EXPECT_THAT(Refusal("data.train.path=5"), HasSubstr("no fields of its own"));
  EXPECT_THAT(Refusal("resources.time_limit.seconds=5"), HasSubstr("no fields of its own"));
  EXPECT_THAT(Refusal("data.train=[a"), HasSubstr("not valid YAML"));
  EXPECT_THAT(Refusal("optimizer.groups.norm.lr_scal=1"), HasSubstr("did you mean lr_scale?"));
  EXPECT_THAT(Refusal("train={steps: 1, steps: 2}"), HasSubstr("duplicate key"));
}

TEST(ApplyOverrideTest, Refusal_CarriesAFieldViolation) {
  v1::JobSpec job = Job();
  const absl::Status status = ApplyOverride(job, "train.steps=many");
  google::rpc::BadRequest details;
  ASSERT_TRUE(details.ParseFromString(std::string(*status.GetPayload(spec::kBadRequestUrl))));
  EXPECT_EQ(details.field_violations(0).field(), "train.steps");
}

TEST(ApplyResumeOverrideTest, AllowedField_IsSetAndTheChangeIsSaid) {
  v1::JobSpec job = Job();
  std::vector<std::string> changes;
  ASSERT_TRUE(ApplyResumeOverride(job, "train.steps=2000", changes).ok());
  ASSERT_TRUE(ApplyResumeOverride(job, "optimizer.lr=1e-4", changes).ok());
  ASSERT_TRUE(ApplyResumeOverride(job, "labels.team=blue", changes).ok());
  ASSERT_TRUE(ApplyResumeOverride(job, "checkpoint={keep_last: 5}", changes).ok());
  ASSERT_TRUE(ApplyResumeOverride(job, "train.steps=2000", changes).ok());
  EXPECT_EQ(job.train().steps(), 2000);
  EXPECT_THAT(changes,
              ElementsAre("train.steps: 100 -> 2000", "optimizer.lr: unset -> 0.0001",
                          "labels.team: red -> blue", "checkpoint: unset -> {keep_last: 5}"));
}

TEST(ApplyResumeOverrideTest, Workers_EqualToMinWorkers_TakeItAlong) {
  v1::JobSpec job = Job();
  std::vector<std::string> changes;
  ASSERT_TRUE(ApplyResumeOverride(job, "resources.workers=2", changes).ok());
  EXPECT_EQ(job.resources().min_workers(), 2);
  EXPECT_THAT(changes, ElementsAre("resources.workers: 4 -> 2", "resources.min_workers: 4 -> 2"));
  job.mutable_resources()->set_min_workers(1);
  ASSERT_TRUE(ApplyResumeOverride(job, "resources.workers=3", changes).ok());
  EXPECT_EQ(job.resources().min_workers(), 1);
}

TEST(ApplyResumeOverrideTest, OtherFields_AreRefusedWithAReason) {
  for (const char* assignment :
       {"model.layers=3", "model={preset: x}", "data.sequence_length=8", "data.train=/b",
        "train.seed=1", "batch.global_batch_tokens=8", "precision.recipe=fp32",
        "gradients.dtype=bf16", "optimizer.beta1=0.5", "optimizer={lr: 1}", "train={steps: 5}",
        "name=y", "task=pretrain"}) {
    v1::JobSpec job = Job();
    std::vector<std::string> changes;
    const absl::Status status = ApplyResumeOverride(job, assignment, changes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << assignment;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be changed on resume"));
    EXPECT_TRUE(changes.empty());
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, Job())) << assignment;
  }
}

TEST(ApplyResumeOverridesTest, AllMistakes_AreToldAtOnceAndNothingIsChanged) {
  v1::JobSpec job = spec::ValidJob();
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(job, violations);
  ASSERT_TRUE(violations.empty()) << spec::Print(violations);
  const v1::JobSpec before = job;
  std::vector<std::string> changes;
  const absl::Status status = ApplyResumeOverrides(
      job, {"train.stepz=1", "train.steps=5", "optimizer.lr=-1", "model.layers=3", "steps"},
      changes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::vector<std::string> lines = absl::StrSplit(std::string(status.message()), '\n');
  EXPECT_THAT(lines, ElementsAre("train.stepz: unknown key; did you mean steps?",
                                 HasSubstr("model.layers: cannot be changed on resume"),
                                 "overrides: \"steps\" is not of the form path=value",
                                 "optimizer.lr: -1 is out of range; must be > 0"));
  google::rpc::BadRequest details;
  ASSERT_TRUE(details.ParseFromString(std::string(*status.GetPayload(spec::kBadRequestUrl))));
  EXPECT_EQ(details.field_violations_size(), 4);
  EXPECT_TRUE(changes.empty());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, before));
  EXPECT_TRUE(ApplyResumeOverrides(job, {"train.steps=5", "optimizer.lr=1e-4"}, changes).ok());
  EXPECT_EQ(changes.size(), 2U);
  EXPECT_EQ(job.train().steps(), 5);
}

TEST(ApplyResumeOverridesTest, OverridesThatChangeNothing_AreRefusedAndStoredKeysStay) {
  v1::JobSpec job = spec::ValidJob();
  job.mutable_schedule()->set_decay_steps(100);
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(job, violations);
  ASSERT_TRUE(violations.empty()) << spec::Print(violations);
  const v1::JobSpec before = job;
  std::vector<std::string> changes;
  EXPECT_THAT(std::string(ApplyResumeOverrides(job, {"train.spike_window=32"}, changes).message()),
              HasSubstr("train.spike_window: changes nothing: it acts only with"));
  EXPECT_TRUE(changes.empty());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, before));
  const std::vector<std::string> acts = {"train.spike_window=32", "train.spike_sigma=6"};
  EXPECT_TRUE(ApplyResumeOverrides(job, acts, changes).ok());
  // It leaves the job's own decay_steps without effect, which is no mistake of the caller.
  EXPECT_TRUE(ApplyResumeOverrides(job, {"schedule.name=constant"}, changes).ok());
}

TEST(ApplyResumeOverridesTest, VeryManyMistakes_AreCounted) {
  v1::JobSpec job = Job();
  std::vector<std::string> changes;
  const std::vector<std::string> assignments(256, "model.layers=3");
  const absl::Status status = ApplyResumeOverrides(job, assignments, changes);
  EXPECT_LT(status.message().size(), 2300U);
  EXPECT_TRUE(absl::EndsWith(status.message(), " more mistakes")) << status;
}

TEST(ApplyResumeOverrideTest, UnknownField_IsCalledUnknown) {
  v1::JobSpec job = Job();
  std::vector<std::string> changes;
  EXPECT_THAT(std::string(ApplyResumeOverride(job, "train.stepz=1", changes).message()),
              HasSubstr("did you mean steps?"));
  // Under an allowed prefix too.
  EXPECT_THAT(std::string(ApplyResumeOverride(job, "checkpoint.keep=1", changes).message()),
              HasSubstr("did you mean keep_last?"));
  EXPECT_FALSE(ApplyResumeOverride(job, "train.stepsize=1", changes).ok());
}

TEST(ApplyResumeOverrideTest, FieldsWithAResumeRow_AreAllTaken) {
  int rows = 0;
  spec::ForEachField([&](const std::string& path, const google::protobuf::FieldDescriptor& field) {
    if (spec::RowOf(field).resume().empty()) {
      return;
    }
    ++rows;
    v1::JobSpec job = Job();
    std::vector<std::string> changes;
    // null fits every type.
    const absl::Status status = ApplyResumeOverride(job, path + "=null", changes);
    EXPECT_TRUE(status.ok()) << path << ": " << status;
  });
  EXPECT_GT(rows, 20);
}

}  // namespace
}  // namespace hearth::config
