#include "common/spec/gpus/gpus.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

constexpr int64_t kTotal = int64_t{80} << 30;

// What a plan says of a GPU and what a trainer finds there must be the same: a job that fits by the
// plan would else be refused by the trainer.
TEST(PlannableBytesNow, GpuToItself_IsWhatThePlanPromises) {
  for (const GpuRow& gpu : Gpus()) {
    const int64_t total = gpu.memory_bytes();
    for (const int world_size : {1, 2, 8}) {
      for (const int64_t context : {int64_t{0}, kProcessOverheadBytes / 2, kProcessOverheadBytes}) {
        EXPECT_EQ(PlannableBytesNow(total, total - context, world_size),
                  PlannableBytes("cuda", total, world_size))
            << gpu.name << ", " << context << " bytes in use";
      }
    }
  }
}

TEST(PlannableBytesNow, OthersHoldMemory_LeavesTheWholeOverheadFree) {
  const int64_t free = kTotal - kProcessOverheadBytes - 1;
  const int64_t alone = free - kProcessOverheadBytes - kOverheadMarginBytes;
  EXPECT_EQ(PlannableBytesNow(kTotal, free, 1), alone);
  EXPECT_EQ(PlannableBytesNow(kTotal, free, 4), alone - kNcclOverheadBytes);
}

}  // namespace
}  // namespace hearth::spec
