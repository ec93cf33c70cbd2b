#include "jobctl/commands/arguments.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::jobctl {
namespace {

using ::testing::HasSubstr;

absl::TimeZone Zone(const char* name) {
  absl::TimeZone zone;
  EXPECT_TRUE(absl::LoadTimeZone(name, &zone)) << name << ": the package tzdata has it";
  return zone;
}

absl::Time At(const char* rfc3339) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, rfc3339, &time, &error)) << error;
  return time;
}

// In UTC; or the error.
std::string Read(const std::string& text, const char* now, const char* zone = "Europe/Berlin") {
  const auto time = ParseStartTime(text, At(now), Zone(zone), "--at");
  return time.ok() ? absl::FormatTime(absl::RFC3339_sec, *time, absl::UTCTimeZone())
                   : std::string(time.status().message());
}

TEST(ParseStartTime, TimeOfDay_IsTheNextOfItInTheZone) {
  EXPECT_EQ(Read("22:00", "2026-11-26T20:00:00Z"), "2026-11-26T21:00:00+00:00");
  EXPECT_EQ(Read("22:00", "2026-11-26T21:30:00Z"), "2026-11-27T21:00:00+00:00");
  EXPECT_EQ(Read("22:00", "2026-11-26T21:00:00Z"), "2026-11-27T21:00:00+00:00") << "not now";
  EXPECT_EQ(Read("06:30:15", "2026-12-31T23:00:00Z"), "2027-01-01T05:30:15+00:00");
  EXPECT_EQ(Read("22:00", "2026-11-26T20:00:00Z", "America/New_York"), "2026-11-27T03:00:00+00:00");
  // A night in which the clocks go back has 25 hours.
  EXPECT_EQ(Read("22:00", "2026-10-24T21:00:00Z"), "2026-10-25T21:00:00+00:00");
}

TEST(ParseStartTime, LocalAndFullTimes_AreTaken) {
  EXPECT_EQ(Read("2026-12-01 08:00", "2026-11-26T20:00:00Z"), "2026-12-01T07:00:00+00:00");
  EXPECT_EQ(Read("2026-07-01 08:00:30", "2026-06-26T20:00:00Z"), "2026-07-01T06:00:30+00:00");
  EXPECT_EQ(Read("2026-12-01T08:00:00-05:00", "2026-11-26T20:00:00Z"), "2026-12-01T13:00:00+00:00");
}

TEST(ParseStartTime, Duration_CountsFromNow) {
  EXPECT_EQ(Read("+2h", "2026-11-26T20:00:00Z"), "2026-11-26T22:00:00+00:00");
  EXPECT_EQ(Read("+1d12h", "2026-11-26T20:00:00Z"), "2026-11-28T08:00:00+00:00");
  // Two hours, whatever the clocks on the wall do meanwhile.
  EXPECT_EQ(Read("+2h", "2026-10-25T00:30:00Z"), "2026-10-25T02:30:00+00:00");
  EXPECT_THAT(Read("+0s", "2026-11-26T20:00:00Z"), HasSubstr("is over"));
}

TEST(ParseStartTime, ClocksThatChange_NeedAnOffset) {
  EXPECT_THAT(Read("02:30", "2026-03-28T20:00:00Z"),
              HasSubstr("--at: 2026-03-29T02:30:00 does not exist in Europe/Berlin"));
  EXPECT_THAT(Read("2026-10-25 02:30", "2026-10-24T20:00:00Z"),
              HasSubstr("comes twice in Europe/Berlin"));
}

TEST(ParseStartTime, AnythingElse_IsRefused) {
  EXPECT_THAT(Read("2020-01-01T00:00:00Z", "2026-11-26T20:00:00Z"), HasSubstr("is over"));
  for (const char* bad :
       {"", "tonight", "25:00", "22", "2026-12-01", "10m", "+", "+soon", "+-2h"}) {
    EXPECT_THAT(Read(bad, "2026-11-26T20:00:00Z"), HasSubstr("expected a time of day (22:00)"))
        << bad;
  }
}

std::string Since(const std::string& text) {
  const auto time = ParseSince(text, At("2026-11-26T20:00:00Z"), Zone("Europe/Berlin"), "--since");
  return time.ok() ? absl::FormatTime(absl::RFC3339_sec, *time, absl::UTCTimeZone())
                   : std::string(time.status().message());
}

TEST(ParseSince, DurationsDatesAndTimes_AreTaken) {
  EXPECT_EQ(Since("2h"), "2026-11-26T18:00:00+00:00");
  EXPECT_EQ(Since("2026-11-20"), "2026-11-19T23:00:00+00:00") << "midnight in the zone";
  for (const char* time : {"2026-11-20 17:05", "2026-11-20 17:05:00", "2026-11-20T17:05",
                           "2026-11-20T17:05:00", "2026-11-20T16:05:00Z"}) {
    EXPECT_EQ(Since(time), "2026-11-20T16:05:00+00:00") << time;
  }
}

TEST(ParseSince, AnythingElse_SaysWhatIsTaken) {
  for (const char* bad : {"", "yesterday", "2026-13-01", "2026-11-20 25:00", "11-20"}) {
    EXPECT_THAT(Since(bad), HasSubstr("expected how long ago (10m), a date (2026-01-31), or"))
        << bad;
  }
}

}  // namespace
}  // namespace hearth::jobctl
