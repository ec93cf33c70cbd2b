#include "common/spec/gpus/gpus.h"

#include <cstdint>
#include <string>

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

// All names of the table would hide the one that was meant.
TEST(GpuByName, UnknownName_GetsTheNearestAlone) {
  struct Case {
    const char* name;
    const char* error;
  };
  constexpr Case kCases[] = {
      {"RTX 5091",
       "\"RTX 5091\" is not a known GPU; the nearest are RTX 5090, RTX 3090 and RTX 4090; "
       "configs/gpus.yaml has all"},
      {"h300",
       "\"h300\" is not a known GPU; the nearest are H100 PCIe, H100 SXM and H200; "
       "configs/gpus.yaml has all"},
      {"", "\"\" is not a known GPU; configs/gpus.yaml has all"},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(GpuByName(c.name).status().message(), c.error) << c.name;
  }
}

// It ends the names of two rows.
TEST(GpuByName, AmbiguousName_GetsBothFirst) {
  const std::string error(GpuByName("6000").status().message());
  EXPECT_EQ(error.find("\"6000\" is not a known GPU; the nearest are RTX PRO 6000, RTX A6000 and "),
            0U)
      << error;
}

// A name that is longer than any slip can be is compared with none.
TEST(GpuByName, HostileName_IsRefusedWithoutNames) {
  const std::string error(GpuByName(std::string(1 << 20, 'x')).status().message());
  EXPECT_EQ(error.find("nearest"), std::string::npos);
}

}  // namespace
}  // namespace hearth::spec
