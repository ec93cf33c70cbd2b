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
      for (const int64_t in_use :
           {int64_t{0}, int64_t{250'000'000}, int64_t{450'000'000}, kProcessOverheadBytes,
            OverheadBytes(world_size), OverheadBytes(world_size) + 5'000'000}) {
        EXPECT_EQ(PlannableBytesNow(total, total - in_use, world_size),
                  PlannableBytes("cuda", total, world_size))
            << gpu.name << ", " << in_use << " bytes in use by " << world_size;
      }
    }
  }
}

// `others` is what a desktop may hold; the context is there already, the rest is still to come.
TEST(PlannableBytesNow, OthersHoldMemory_WhatIsStillToComeFits) {
  constexpr int64_t kContext = 450'000'000;
  for (const int world_size : {1, 4}) {
    for (int64_t others = 0; others <= 800'000'000; others += 50'000'000) {
      const int64_t bytes = PlannableBytesNow(kTotal, kTotal - kContext - others, world_size);
      EXPECT_LE(bytes + OverheadBytes(world_size) + others, kTotal)
          << others << " bytes of others, " << world_size << " ranks";
    }
  }
}

}  // namespace
}  // namespace hearth::spec
