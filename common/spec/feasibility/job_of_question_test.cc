// A question about N GPUs is answered for the job with N workers.
#include <optional>
#include <string>

#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/plan_messages.h"
#include "common/spec/fields/idle.h"
#include "common/spec/plan/shard_levels.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

TEST(JobOfQuestionTest, WorkersAreTheGpus_AndMinWorkersFollow) {
  struct Row {
    std::optional<int> workers, min_workers;  // of the job file
    int gpus;                                 // of the question; 0: none
    std::optional<int> then, then_min;
  };
  for (const Row& row : {
           Row{{}, {}, 0, {}, {}},
           Row{4, 2, 0, 4, 2},
           Row{{}, {}, 4, 4, {}},
           Row{{}, 1, 4, 4, 4},
           Row{4, 4, 8, 8, 8},
           Row{4, 2, 8, 8, 2},
           Row{4, 2, 1, 1, 1},
       }) {
    SCOPED_TRACE(testing::Message() << row.workers.value_or(0) << ", "
                                    << row.min_workers.value_or(0) << " for " << row.gpus);
    v1::JobSpec job;
    if (row.workers.has_value()) {
      job.mutable_resources()->set_workers(*row.workers);
    }
    if (row.min_workers.has_value()) {
      job.mutable_resources()->set_min_workers(*row.min_workers);
    }
    FeasibilityQuery query;
    query.gpus = row.gpus;
    const v1::ResourceSpec asked = JobOfQuestion(job, query).resources();
    EXPECT_EQ(asked.has_workers(), row.then.has_value());
    EXPECT_EQ(asked.workers(), row.then.value_or(0));
    EXPECT_EQ(asked.has_min_workers(), row.then_min.has_value());
    EXPECT_EQ(asked.min_workers(), row.then_min.value_or(0));
  }
}

// jobctl and PlanJob answer so.
absl::StatusOr<v1::PlanJudgement> Answer(v1::JobSpec file, int gpus) {
  FeasibilityQuery query;
  query.gpus = gpus;
  v1::JobSpec job = JobOfQuestion(std::move(file), query);
  const absl::Status resolved = ResolveSubmitted(job);
  if (!resolved.ok()) {
    return resolved;
  }
  const GpuRow& gpu = GpuNamed("H200");
  const absl::StatusOr<Feasibility> f = AssessFeasibility(job, gpu, CalibrationFor(gpu), query);
  return f.ok() ? absl::StatusOr<v1::PlanJudgement>(JudgementOf(*f)) : f.status();
}

// What a job of one worker may not say is judged with the question's GPUs, and so are defaults.
TEST(JobOfQuestionTest, FourGpus_AreAnsweredAsFourWorkers) {
  for (const ShardRow& row : ShardRows()) {
    for (const bool own_batch : {true, false}) {
      SCOPED_TRACE(testing::Message() << row.name << (own_batch ? ", with a global batch" : ""));
      v1::JobSpec file = PlannedJobFile("hearth-112m", "bf16", 4, 1024);
      file.mutable_parallel()->set_shard(std::string(row.name));
      file.mutable_gradients()->set_reduce_dtype("bf16");
      if (!own_batch) {
        file.mutable_batch()->clear_global_batch_tokens();
      }
      const auto asked = Answer(file, 4);
      ASSERT_TRUE(asked.ok()) << asked.status();
      EXPECT_EQ(asked->shard(), row.name);
      EXPECT_EQ(asked->micro_batches(), 4);
      file.mutable_resources()->set_workers(4);
      const auto written = Answer(file, 0);
      ASSERT_TRUE(written.ok()) << written.status();
      EXPECT_TRUE(MessageDifferencer::Equals(*asked, *written));
    }
  }
}

TEST(JobOfQuestionTest, WhatOneGpuCannotHave_IsRefusedForOne) {
  v1::JobSpec file = PlannedJobFile("hearth-112m", "bf16");
  file.mutable_parallel()->set_shard("optimizer");
  file.mutable_resources()->set_workers(4);
  EXPECT_TRUE(Answer(file, 0).ok());
  const auto one = Answer(file, 1);
  EXPECT_EQ(one.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(one.status().message()), HasSubstr("here resources.workers is 1"));
}

}  // namespace
}  // namespace hearth::spec
