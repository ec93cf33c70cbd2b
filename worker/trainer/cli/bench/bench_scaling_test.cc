#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/system.h"
#include "common/spec/plan/plan_inputs.h"
#include "nlohmann/json.hpp"
#include "tests/support/trainer/job_file.h"
#include "worker/trainer/cli/verbs.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;

BenchOptions Options(const std::string& devices) {
  BenchOptions options;
  options.job.job_file = WriteJobFile("scaling", "fp32", 256);
  options.devices = devices;
  options.json = true;
  options.threads = 2;
  options.steps = 2;
  return options;
}

nlohmann::json Measured(const BenchOptions& options) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(ScalingBenchCommand(options), 0);
  return nlohmann::json::parse(testing::internal::GetCapturedStdout());
}

std::string Refusal(const BenchOptions& options) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(ScalingBenchCommand(options), 1);
  return testing::internal::GetCapturedStderr();
}

TEST(ScalingBench, TwoRanks_AgreeAndSayWhatTheySent) {
  BenchOptions options = Options("cpu,cpu");
  for (const spec::ShardRow& row : spec::ShardRows()) {
    const std::string shard(row.name);
    options.job.overrides = {"parallel.shard=" + shard};
    const nlohmann::json out = Measured(options);
    EXPECT_EQ(out["ranks"], 2);
    EXPECT_EQ(out["shard"], shard);
    EXPECT_EQ(out["shards"], row.optimizer ? 2 : 1);
    EXPECT_EQ(out["transport"], "threads");
    EXPECT_EQ(out["micro_batches"], 2);  // of each rank
    EXPECT_EQ(out["losses_agree"], true);
    EXPECT_GT(out["comm_bytes_per_step"].get<int64_t>(), 0);
    EXPECT_GT(out["exposed_comm_ms"].get<double>(), 0);
    EXPECT_LT(out["exposed_comm_ms"].get<double>(), out["step_ms"].get<double>());
    EXPECT_GT(out["exposed_comm_ms_least"].get<double>(), 0);
    EXPECT_LE(out["exposed_comm_ms_least"].get<double>(), out["exposed_comm_ms"].get<double>());
    const auto by_rank = out["step_ms_ranks"].get<std::vector<double>>();
    ASSERT_EQ(by_rank.size(), 2U);
    EXPECT_EQ(std::max(by_rank[0], by_rank[1]), out["step_ms"].get<double>());
    EXPECT_GT(out["step_ms_p10"].get<double>(), 0);
    EXPECT_LE(out["step_ms_p10"].get<double>(), out["step_ms_p90"].get<double>());
    EXPECT_LE(out["step_ms_alone_p10"].get<double>(), out["step_ms_alone_p90"].get<double>());
    EXPECT_GE(out["step_ms_apart_in_step"].get<double>(), 0.5 * out["step_ms_apart"].get<double>());
    EXPECT_EQ(out["steps"], options.steps);
    EXPECT_EQ(out["warm_up_steps"], 3);
    EXPECT_LE(out["tok_s_p10"].get<double>(), out["tok_s_p90"].get<double>());
    EXPECT_GT(out["step_ms_lockstep"].get<double>(), 0);
    EXPECT_GT(out["step_ms_lockstep_p10"].get<double>(), 0);
    EXPECT_LE(out["step_ms_lockstep_p10"].get<double>(), out["step_ms_lockstep_p90"].get<double>());
    EXPECT_DOUBLE_EQ(out["scaling_efficiency_lockstep"].get<double>(),
                     out["step_ms_lockstep"].get<double>() / out["step_ms"].get<double>());
    EXPECT_GE(out["skew_ms"].get<double>(), 0);
    EXPECT_LE(out["skew_ms"].get<double>(), out["skew_ms_p90"].get<double>());
    EXPECT_FALSE(out.contains("measured_bytes")) << "of GPUs alone";
    const double one = out["tok_s_alone"].get<double>();
    const double all = out["tok_s"].get<double>();
    EXPECT_GT(one, 0);
    EXPECT_DOUBLE_EQ(out["scaling_efficiency"].get<double>(), all / (2 * one));
    EXPECT_DOUBLE_EQ(all, 256 / out["step_ms"].get<double>() * 1e3);
  }
}

TEST(ScalingBench, FitsDividedAlone_TakesWhatFitsWhole) {
  BenchOptions options = Options("cpu,cpu");
  const auto bytes = [](int64_t micro_batch, int ranks) {
    v1::JobSpec job = *LoadJob(Options("cpu").job);
    job.mutable_resources()->set_workers(ranks);
    const auto inputs =
        spec::MakePlanInputs(job, micro_batch, 1, true, ranks, spec::ShardLevel::kOptimizer);
    return spec::PlanTraining((*inputs)->options)->arena_bytes();
  };
  ASSERT_GT(bytes(2, 1), bytes(2, 2));
  SetEnv("HEARTH_MEMORY_BYTES", std::to_string(bytes(2, 2)).c_str());
  options.job.overrides = {"parallel.shard=optimizer"};
  EXPECT_THAT(Refusal(options), testing::HasSubstr("holds the whole optimizer and needs"));
  options.job.overrides.push_back("batch.micro_batch_size=auto");
  const nlohmann::json out = Measured(options);
  UnsetEnv("HEARTH_MEMORY_BYTES");
  EXPECT_EQ(out["micro_batch_size"], 1);
  EXPECT_EQ(out["shards"], 2);
}

TEST(ScalingBench, OneRank_SendsNothing) {
  BenchOptions options = Options("cpu");
  const nlohmann::json out = Measured(options);
  EXPECT_EQ(out["ranks"], 1);
  EXPECT_EQ(out["comm_bytes_per_step"], 0);
  EXPECT_EQ(out["exposed_comm_ms"], 0);
}

TEST(ScalingBench, WhatCannotBe_IsRefusedInWords) {
  EXPECT_THAT(Refusal(Options("cpu,cpu,cpu")), HasSubstr("multiple of 192"));
  EXPECT_THAT(Refusal(Options("cpu,0")), HasSubstr("not on both"));
  EXPECT_THAT(Refusal(Options("1,1")), HasSubstr("cuda:1 is named twice"));
  EXPECT_THAT(Refusal(Options("gpu")), HasSubstr("neither a GPU's number nor cpu"));
}

}  // namespace
}  // namespace hearth::trainer
