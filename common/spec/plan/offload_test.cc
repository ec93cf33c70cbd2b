#include "common/spec/plan/offload.h"

#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

TEST(Offload, EachRow_IsAFieldOfItsName) {
  const auto* type = v1::OffloadSpec::descriptor();
  EXPECT_EQ(static_cast<size_t>(type->field_count()), OffloadRows().size());
  for (const OffloadRow& row : OffloadRows()) {
    const auto* field = type->FindFieldByName(std::string(row.name));
    ASSERT_NE(field, nullptr) << row.name;
    v1::JobSpec job;
    HostClasses away;
    away.Add(row.away);
    SetOffload(away, job);
    EXPECT_TRUE(job.offload().GetReflection()->GetBool(job.offload(), field));
    EXPECT_TRUE(HostClassesOf(job.offload()) == away);
    EXPECT_EQ(away.TierOf(row.away), MemoryTier::kPinnedHost);
  }
}

TEST(Offload, Nothing_IsNoMessage) {
  v1::JobSpec job;
  job.mutable_offload()->set_masters(true);
  SetOffload(HostClasses(), job);
  EXPECT_FALSE(job.has_offload());
  job.mutable_offload()->set_masters(false);
  EXPECT_FALSE(HostClassesOf(job.offload()).any());
  EXPECT_EQ(HostClasses().TierOf(BufferClass::kMasters), MemoryTier::kDevice);
}

TEST(Offload, LessOnHostAdvice_NamesWhatIsAway) {
  HostClasses away;
  away.Add(BufferClass::kMasters);
  EXPECT_EQ(LessOnHostAdvice(away), "move less to the host: offload.masters: false");
  away.Add(BufferClass::kOptimizer);
  EXPECT_EQ(LessOnHostAdvice(away),
            "move less to the host: offload.optimizer: false or offload.masters: false, or take a "
            "narrower optimizer.state");
  away.Add(BufferClass::kActivations);
  EXPECT_EQ(LessOnHostAdvice(away),
            "move less to the host: offload.optimizer: false or offload.masters: false or "
            "offload.activations: false, or take a narrower optimizer.state or a smaller "
            "micro-batch");
}

TEST(Offload, Slots_GrowWithWhatIsStreamed_BetweenTheirLimits) {
  int64_t before = 0;
  for (int64_t streamed = 1; streamed < int64_t{1} << 40; streamed *= 7) {
    const int64_t slot = OffloadSlotBytes(streamed);
    EXPECT_GE(slot, before);
    EXPECT_GE(slot, int64_t{16} << 10);
    EXPECT_LE(slot, int64_t{64} << 20);
    EXPECT_EQ(slot % 4096, 0);
    before = slot;
  }
  EXPECT_EQ(OffloadSlotBytes(int64_t{16} << 20), int64_t{1} << 20);
  EXPECT_EQ(before, int64_t{64} << 20);
}

}  // namespace
}  // namespace hearth::spec
