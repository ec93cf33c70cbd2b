#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/feasibility_text.h"
#include "common/spec/feasibility/largest.h"
#include "common/spec/fields/memory_tiers.h"
#include "common/spec/plan/plan_inputs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/assessed_job.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Where all that a plan proposes is not enough, it names the safest tier that is, with its bytes.
TEST(FeasibilityTest, ANo_NamesTheTierThatWouldFit) {
  const v1::JobSpec job = PlannedJob("hearth-1.5b", "bf16", 8, 2048);
  int named = 0;
  for (const MemoryTierRow& row : MemoryTierRows()) {
    const auto model = ModelInTier(job, 1, row);
    ASSERT_TRUE(model.ok()) << model.status();
    FeasibilityQuery query;
    query.memory_bytes = model->total_bytes + (int64_t{1} << 29);
    const Feasibility f = Assess(job, "RTX 3060", query);
    const std::string tier = absl::StrCat("memory_tier: ", row.tier, " with");
    const bool names = std::any_of(f.reasons.begin(), f.reasons.end(),
                                   [&](const auto& reason) { return reason.starts_with(tier); });
    EXPECT_EQ(names, f.verdict == Verdict::kNo) << tier << FeasibilityText(f, query, false);
    named += names ? 1 : 0;
    v1::JobSpec in_tier = WithMemoryTier(job, row);
    in_tier.set_recompute(std::string(RecomputeNames().back()));
    in_tier.mutable_batch()->set_micro_batch_size(1);
    EXPECT_NE(Assess(in_tier, "RTX 3060", query).verdict, Verdict::kNo) << tier;
  }
  EXPECT_GE(named, 1);
  FeasibilityQuery query;
  query.memory_bytes = int64_t{1} << 30;
  EXPECT_THAT(Assess(job, "RTX 3060", query).reasons, Not(Contains(HasSubstr("memory_tier"))));
  EXPECT_THAT(std::string(ModelInTier(PlannedJob("hearth-112m", "fp32"), 1, MemoryTierRows()[2])
                              .status()
                              .message()),
              Not(::testing::IsEmpty()));
}

}  // namespace
}  // namespace hearth::spec
