// Differences of job files.
#include "jobctl/views/jobs/spec_difference.h"

#include "common/spec/resolve/resolve.h"
#include "gtest/gtest.h"
#include "jobctl/commands/job_file/load_job_file.h"
#include "jobctl/views/output/output.h"
#include "nlohmann/json.hpp"
#include "tests/support/common/valid_job.h"

namespace hearth::jobctl {
namespace {

v1::JobSpec Resolved(v1::JobSpec job) {
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(job, violations);
  EXPECT_EQ(spec::Print(violations), "");
  return job;
}

std::string Print(const std::vector<KeyDifference>& differences) {
  std::string text;
  for (const KeyDifference& row : differences) {
    text += row.path + ": " + row.a + " | " + row.b + "\n";
  }
  return text;
}

TEST(SpecDifferences, WhatWasChangedAndWhatFollows_IsNamed) {
  const v1::JobSpec a = Resolved(spec::ValidJob());
  EXPECT_EQ(Print(SpecDifferences(a, a)), "");
  v1::JobSpec b = spec::ValidJob();
  b.mutable_optimizer()->set_lr(1e-3);
  b.mutable_data()->add_train()->set_path("/data/y");
  b.mutable_train()->set_steps(2000);
  (*b.mutable_labels())["team"] = "x";
  EXPECT_EQ(Print(SpecDifferences(a, Resolved(b))),
            "labels: unset | {team: x}\n"
            "data.train: [{path: /data/x, weight: 1}] | [{path: /data/x, weight: 1}, {path: "
            "/data/y, weight: 1}]\n"
            "optimizer.lr: 0.0003 | 0.001\n"
            "schedule.decay_steps: 200 | 400\n"
            "train.steps: 1000 | 2000\n");
}

TEST(RenderDifferences, AWindowThatIsTooNarrow_CutsNoValue) {
  const std::vector<KeyDifference> rows = {
      {"optimizer.lr", "0.0003", "0.001"},
      {"data.train", "[{path: /data/x, weight: 1}]", "[{path: /data/x/y, weight: 1}]"}};
  EXPECT_EQ(RenderDifferences("run-a", "job.yaml", rows, 80),
            "KEY           run-a                         job.yaml\n"
            "optimizer.lr  0.0003                        0.001\n"
            "data.train    [{path: /data/x, weight: 1}]  [{path: /data/x/y, weight: 1}]\n");
  EXPECT_EQ(RenderDifferences("run-a", "job.yaml", rows, 0),
            RenderDifferences("run-a", "job.yaml", rows, 80));
  EXPECT_EQ(RenderDifferences("run-a", "job.yaml", rows, 30),
            "- run-a\n"
            "+ job.yaml\n"
            "\n"
            "optimizer.lr\n"
            "  - 0.0003\n"
            "  + 0.001\n"
            "\n"
            "data.train\n"
            "  - [{path: /data/x, weight:\n"
            "    1}]\n"
            "  + [{path: /data/x/y, weight:\n"
            "    1}]\n");
}

TEST(ChangeStoredSpec, FewestWorkersFollow_OtherDefaultsStay) {
  v1::JobSpec job = spec::ValidJob();
  job.mutable_resources()->set_workers(2);
  job = Resolved(job);
  ASSERT_EQ(job.resources().min_workers(), 2);
  ASSERT_TRUE(ChangeStoredSpec({"resources.workers=1", "train.steps=500"}, job).ok());
  EXPECT_EQ(job.resources().min_workers(), 1);
  EXPECT_EQ(job.schedule().decay_steps(), 200);
  ASSERT_TRUE(ChangeStoredSpec({"schedule.decay_steps=null"}, job).ok());
  EXPECT_EQ(Resolved(job).schedule().decay_steps(), 100);
  const absl::Status refused = ChangeStoredSpec({"optimizer.learning_rate=1"}, job);
  EXPECT_EQ(refused.message(),
            "--set optimizer.learning_rate=1: optimizer.learning_rate: unknown key; did you mean "
            "lr?");
}

TEST(SpecDifferences, AsYaml_ValuesAreText) {
  const std::vector<KeyDifference> differences = {{"optimizer.lr", "0.003", "0.5"},
                                                  {"notify", "unset", "[{on: [failed]}]"}};
  EXPECT_EQ(ToYaml(DifferencesJson("first", "on", differences)),
            "- key: \"optimizer.lr\"\n"
            "  first: \"0.003\"\n"
            "  \"on\": \"0.5\"\n"
            "- key: \"notify\"\n"
            "  first: \"unset\"\n"
            "  \"on\": \"[{on: [failed]}]\"\n");
  EXPECT_EQ(ToYaml(DifferencesJson("a", "b", {})), "[]\n");
}

}  // namespace
}  // namespace hearth::jobctl
