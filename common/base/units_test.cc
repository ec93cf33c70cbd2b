#include "common/base/units.h"

#include "gtest/gtest.h"

namespace hearth {
namespace {

TEST(FormatBytes, TableOfSizes_UsesBinaryUnits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{32} << 30), "32.0 GiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 30) - 1), "1.0 GiB");
  EXPECT_EQ(FormatBytes(-2048), "-2.0 KiB");
}

TEST(ParseBytes, TableOfTexts_GivesBytes) {
  EXPECT_EQ(ParseBytes("4096").value(), 4096);
  EXPECT_EQ(ParseBytes("9007199254740993").value(), 9007199254740993);  // not through a double
  EXPECT_EQ(ParseBytes("64KiB").value(), 65536);
  EXPECT_EQ(ParseBytes(" 1.5 GiB ").value(), 1610612736);
  EXPECT_EQ(ParseBytes("2GB").value(), 2000000000);
  EXPECT_EQ(ParseBytes("1g").value(), 1 << 30);
}

TEST(ParseBytes, Malformed_IsInvalidArgument) {
  for (const char* bad : {"", "x", "-1", "1.2.3", "1 lightyear", "1e30", "99999999 TiB"}) {
    EXPECT_EQ(ParseBytes(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(HumanDuration, TableOfDurations_HasTwoUnitsAtMost) {
  EXPECT_EQ(HumanDuration(absl::Milliseconds(850)), "850ms");
  EXPECT_EQ(HumanDuration(absl::Seconds(12)), "12s");
  EXPECT_EQ(HumanDuration(absl::Seconds(185)), "3m05s");
  EXPECT_EQ(HumanDuration(absl::Minutes(127)), "2h07m");
  EXPECT_EQ(HumanDuration(absl::Hours(123)), "5d03h");
  EXPECT_EQ(HumanDuration(-absl::Seconds(12)), "-12s");
  EXPECT_EQ(HumanDuration(absl::InfiniteDuration()), "inf");
}

TEST(ParseDuration, TableOfTexts_GivesDurations) {
  EXPECT_EQ(ParseDuration("90s").value(), absl::Seconds(90));
  EXPECT_EQ(ParseDuration("1h30m").value(), absl::Minutes(90));
  EXPECT_EQ(ParseDuration("2d").value(), absl::Hours(48));
  EXPECT_EQ(ParseDuration("1d12h").value(), absl::Hours(36));
  for (const char* bad : {"", "90", "-5s", "inf", "1x", "d", "1d-2h"}) {
    EXPECT_EQ(ParseDuration(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(FormatCount, TableOfValues_HasThreeDigits) {
  EXPECT_EQ(FormatCount(980), "980");
  EXPECT_EQ(FormatCount(12345), "12.3k");
  EXPECT_EQ(FormatCount(4560000), "4.56M");
  EXPECT_EQ(FormatCount(1.2e9), "1.20B");
  EXPECT_EQ(FormatCount(999600), "1.00M");
  EXPECT_EQ(FormatCount(1.25), "1.25");
  EXPECT_EQ(FormatTokensPerSecond(151234.0), "151k tok/s");
}

}  // namespace
}  // namespace hearth
