// What plans say of offload: bytes, time, and whether the host has the memory.
#include <algorithm>
#include <cstdint>

#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/feasibility_text.h"
#include "common/spec/plan/offload.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/assessed_job.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(OffloadPlanTest, Offload_MovesBytesToTheHost_AndTakesTheTimeOfItsLink) {
  v1::JobSpec job = PlannedJob("hearth-774m", "bf16", 8, 1024);
  const Feasibility device = Assess(job, "H200");
  EXPECT_EQ(device.time.offload_seconds, 0);
  job.mutable_offload()->set_optimizer(true);
  job.mutable_offload()->set_masters(true);
  const Feasibility host = Assess(job, "H200");
  const int64_t moved = host.host_bytes - device.host_bytes;
  EXPECT_NEAR(static_cast<double>(moved) / (12.0 * static_cast<double>(host.parameters)), 1, 0.02)
      << "masters and two moments of 4 bytes";
  // Two slots stay, at the most.
  EXPECT_LE(device.total_bytes - host.total_bytes, moved);
  EXPECT_GE(device.total_bytes - host.total_bytes, moved - (int64_t{128} << 20));
  const double over_the_link = static_cast<double>(moved) / (63e9 * 0.74);
  EXPECT_NEAR((host.time.update_seconds + host.time.offload_seconds) / over_the_link, 1, 0.02)
      << "the kernels go beside the copies";
  EXPECT_NEAR(host.time.seconds - device.time.seconds, host.time.offload_seconds, 1e-9);
  EXPECT_LT(Assess(job, "GH200").time.offload_seconds, host.time.offload_seconds / 2);
  EXPECT_GT(Assess(job, "A100 80GB").time.offload_seconds, 1.9 * host.time.offload_seconds);
  const std::string text = FeasibilityText(host, {}, false);
  EXPECT_THAT(text, HasSubstr("pinned, of the host"));
  EXPECT_THAT(text, HasSubstr("host memory not hidden"));
  for (const Saving& saving : host.savings) {
    EXPECT_FALSE(saving.change.starts_with("offload.optimizer")) << "it has that already";
    EXPECT_FALSE(saving.change.starts_with("offload.masters")) << "it has that already";
  }
}

// 36 layers of 1280, of which two stay; each keeps its input in BF16 alone.
TEST(OffloadPlanTest, Activations_TakeTheTimeThatTheLayersDoNotHide) {
  v1::JobSpec job = PlannedJob("hearth-774m", "bf16", 8, 1024);
  job.set_recompute("block");
  const Feasibility device = Assess(job, "GH200");
  job.mutable_offload()->set_activations(true);
  const Feasibility host = Assess(job, "GH200");
  const int64_t moved = int64_t{34} * 8 * 1024 * 1280 * 2;
  EXPECT_NEAR(static_cast<double>(host.host_bytes - device.host_bytes), static_cast<double>(moved),
              256);
  EXPECT_LE(device.total_bytes - host.total_bytes, moved);
  EXPECT_GT(device.total_bytes - host.total_bytes, moved / 2);
  EXPECT_EQ(host.time.offload_seconds, 0) << "450 GB/s: a layer takes longer than its input's copy";
  EXPECT_EQ(host.time.seconds, device.time.seconds);
  // Without recomputation layers keep about 16 times as much, and compute less.
  job.set_recompute("none");
  const Feasibility all = Assess(job, "H200");
  EXPECT_GT(all.host_bytes, 10 * moved);
  const double micro_batches = static_cast<double>(all.micro_batches);
  const double ways = 2 * micro_batches * static_cast<double>(all.host_bytes) / (63e9 * 0.74);
  EXPECT_GT(all.time.offload_seconds, 0);
  EXPECT_LT(all.time.offload_seconds, ways);
  job.clear_offload();
  EXPECT_NEAR(all.time.seconds - Assess(job, "H200").time.seconds, all.time.offload_seconds, 1e-9);
}

// 28 GB of weights, masters, gradients and states on 24 GiB.
TEST(OffloadPlanTest, IsProposed_WhereTheHostIsKnownToHaveTheMemory) {
  const v1::JobSpec job = PlannedJob("hearth-1.5b", "bf16", 8, 1024);
  FeasibilityQuery query;
  query.memory_bytes = int64_t{24} << 30;
  const auto offloads = [](const Feasibility& f) {
    return std::count_if(f.changes.begin(), f.changes.end(),
                         [](const Change& change) { return change.field.starts_with("offload."); });
  };
  for (const int64_t little : {int64_t{0}, int64_t{1} << 30}) {
    query.host_memory_bytes = little;
    EXPECT_EQ(offloads(Assess(job, "H200", query)), 0) << little;
  }
  query.host_memory_bytes = int64_t{100} << 30;
  const Feasibility host = Assess(job, "H200", query);
  EXPECT_EQ(host.verdict, Verdict::kYesWithChanges);
  EXPECT_GT(offloads(host), 0);
  for (const Change& change : host.changes) {
    EXPECT_TRUE(change.field.starts_with("offload.") || change.field == "recompute" ||
                change.field == "batch.micro_batch_size")
        << change.field << ": the loss stays the same";
  }
  EXPECT_LE(host.host_bytes, query.host_memory_bytes);
  const v1::JobSpec changed = Changed(job, host.changes);
  const Feasibility after = Assess(changed, "H200", query);
  EXPECT_EQ(after.verdict, Verdict::kYes);
  EXPECT_EQ(after.total_bytes, host.total_bytes);
}

TEST(OffloadPlanTest, WhatAJobOffloadsItself_HasToFitTheHost) {
  v1::JobSpec job = PlannedJob("hearth-1.5b", "bf16", 8, 1024);
  job.mutable_offload()->set_optimizer(true);
  FeasibilityQuery query;
  EXPECT_EQ(Assess(job, "H200", query).verdict, Verdict::kYes) << "not known";
  query.host_memory_bytes = int64_t{100} << 30;
  EXPECT_EQ(Assess(job, "H200", query).verdict, Verdict::kYes);
  // No format makes the state of 1.5 B parameters as small.
  query.host_memory_bytes = int64_t{100} << 20;
  const Feasibility refused = Assess(job, "H200", query);
  EXPECT_EQ(refused.verdict, Verdict::kNo);
  ASSERT_GE(refused.reasons.size(), 2U);
  EXPECT_THAT(refused.reasons[0], Not(HasSubstr("does not fit")));
  EXPECT_THAT(refused.reasons[1],
              AllOf(HasSubstr("offload needs "), HasSubstr("it has 0.10 GB for it"),
                    HasSubstr("move less to the host: offload.optimizer: false")));
}

}  // namespace
}  // namespace hearth::spec
