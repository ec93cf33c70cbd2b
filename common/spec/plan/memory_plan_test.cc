#include "common/spec/plan/memory_plan.h"

#include <cstdint>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

PlannedBuffer Buffer(std::string name, int64_t bytes, int32_t first, int32_t last) {
  PlannedBuffer buffer;
  buffer.name = std::move(name);
  buffer.bytes = bytes;
  buffer.first_use = first;
  buffer.last_use = last;
  return buffer;
}

int64_t ArenaBytesOf(const PlannedBuffer& a, const PlannedBuffer& b) {
  MemoryPlan plan;
  EXPECT_TRUE(plan.Add(a).ok());
  EXPECT_TRUE(plan.Add(b).ok());
  plan.Place();
  return plan.arena_bytes();
}

TEST(MemoryPlan, Place_BuffersNeverAliveTogether_ShareBytes) {
  EXPECT_EQ(ArenaBytesOf(Buffer("a", 1024, 0, 1), Buffer("b", 1024, 2, 3)), 1024);
}

TEST(MemoryPlan, Place_LifetimesTouchAtOneMoment_DoNotShare) {
  EXPECT_EQ(ArenaBytesOf(Buffer("a", 1024, 0, 2), Buffer("b", 1024, 2, 3)), 2048);
}

TEST(MemoryPlan, Add_BadBuffers_AreRefused) {
  MemoryPlan plan;
  ASSERT_TRUE(plan.Add(Buffer("a", 8, 0, 2)).ok());
  EXPECT_EQ(plan.Add(Buffer("a", 8, 0, 2)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(plan.Add(Buffer("b", 0, 0, 2)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(plan.Add(Buffer("c", 8, 3, 2)).code(), absl::StatusCode::kInvalidArgument);
  PlannedBuffer odd = Buffer("d", 8, 0, 2);
  odd.alignment = 48;
  EXPECT_EQ(plan.Add(odd).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(plan.Find("e").status().code(), absl::StatusCode::kNotFound);
}

TEST(MemoryPlan, Place_RandomPlans_LiveBuffersNeverOverlap) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    MemoryPlan plan;
    const int count = 2 + static_cast<int>(random() % 60);
    int64_t live_peak[41] = {};
    for (int i = 0; i < count; ++i) {
      const auto first = static_cast<int32_t>(random() % 40);
      const auto last = first + static_cast<int32_t>(random() % (41 - first));
      PlannedBuffer buffer =
          Buffer("b" + std::to_string(i), 1 + static_cast<int64_t>(random() % 5000), first, last);
      buffer.alignment = int64_t{1} << (random() % 9);
      buffer.tier = random() % 4 == 0 ? MemoryTier::kPinnedHost : MemoryTier::kDevice;
      ASSERT_TRUE(plan.Add(buffer).ok());
      for (int32_t t = first; t <= last && buffer.tier == MemoryTier::kDevice; ++t) {
        live_peak[t] += buffer.bytes;
      }
    }
    plan.Place();
    for (const PlannedBuffer& a : plan.buffers()) {
      EXPECT_EQ(a.offset % a.alignment, 0);
      EXPECT_GE(a.offset, 0);
      EXPECT_LE(a.offset + a.bytes, plan.arena_bytes(a.tier));
      for (const PlannedBuffer& b : plan.buffers()) {
        const bool together =
            a.tier == b.tier && a.first_use <= b.last_use && b.first_use <= a.last_use;
        if (&a == &b || !together) {
          continue;
        }
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
            << a.name << " and " << b.name;
      }
    }
    for (const int64_t live : live_peak) {
      EXPECT_GE(plan.arena_bytes(), live);
    }
  }
}

}  // namespace
}  // namespace hearth::spec
