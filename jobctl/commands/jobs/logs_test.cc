#include "jobctl/commands/jobs/logs.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNow = 1'800'000'000;

v1::LogLine Line(int64_t seconds, const std::string& text) {
  v1::LogLine line;
  line.mutable_time()->set_seconds(seconds);
  line.mutable_time()->set_nanos(250'000'000);
  line.set_epoch(2);
  line.set_rank(3);
  line.set_level("warning");
  line.set_text(text);
  line.set_cursor(17);
  return line;
}

LogFilter Filter(const std::string& since, const std::string& grep) {
  auto filter = LogFilter::Make(since, grep, absl::FromUnixSeconds(kNow));
  EXPECT_TRUE(filter.ok()) << filter.status();
  return *std::move(filter);
}

TEST(LogLine, BothForms_NameJobEpochAndRank) {
  EXPECT_EQ(LogLineText("run-1", Line(kNow, "slow"), false), "[run-1 e2 r3 warning] slow\n");
  const std::string json = LogLineJson("run-1", Line(kNow, "a \"b\""));
  EXPECT_EQ(json.find('\n'), json.size() - 1);
  const auto parsed = nlohmann::json::parse(json);
  EXPECT_EQ(parsed["job_id"], "run-1");
  EXPECT_EQ(parsed["epoch"], 2);
  EXPECT_EQ(parsed["rank"], 3);
  EXPECT_EQ(parsed["level"], "warning");
  EXPECT_EQ(parsed["text"], "a \"b\"");
  EXPECT_EQ(parsed["time"], "2027-01-15T08:00:00.25+00:00");
}

TEST(LogLine, TextThatIsNotUtf8_IsPrintedAllTheSame) {
  EXPECT_TRUE(nlohmann::json::accept(LogLineJson("run-1", Line(kNow, "a\xff"))));
}

TEST(LogFilter, Since_DurationOrTime_LeavesOlderLinesOut) {
  EXPECT_TRUE(Filter("", "").Wants(Line(0, "x")));
  EXPECT_FALSE(Filter("10m", "").Wants(Line(kNow - 601, "x")));
  EXPECT_TRUE(Filter("10m", "").Wants(Line(kNow - 599, "x")));
  const LogFilter from = Filter("2027-01-15T08:00:00Z", "");
  EXPECT_TRUE(from.Wants(Line(kNow, "x")));
  EXPECT_FALSE(from.Wants(Line(kNow - 1, "x")));
}

TEST(LogFilter, Epoch_LeavesOtherGangStartsOut) {
  const auto filter = [](int64_t epoch) {
    return *LogFilter::Make("", "", absl::FromUnixSeconds(kNow), epoch);
  };
  EXPECT_TRUE(filter(0).Wants(Line(kNow, "x")));
  EXPECT_TRUE(filter(2).Wants(Line(kNow, "x")));
  EXPECT_FALSE(filter(1).Wants(Line(kNow, "x")));
}

TEST(LogFilter, Grep_Expression_MatchesTheTextAlone) {
  const LogFilter filter = Filter("", "check(point)? of step \\d+");
  EXPECT_TRUE(filter.Wants(Line(kNow, "checkpoint of step 10: /x")));
  EXPECT_FALSE(filter.Wants(Line(kNow, "step 10: held-out loss 2.1")));
  EXPECT_FALSE(Filter("", "warning").Wants(Line(kNow, "slow")));
}

TEST(LogLineText, HostileLine_IsOneLineOfText) {
  const std::string text =
      LogLineText("job", Line(kNow, "\033[31mred\n[job e1 r0 info] faked\r"), false);
  EXPECT_THAT(text, HasSubstr("] \\u001b[31mred\\u000a[job e1 r0 info] faked\\u000d\n"));
}

TEST(LogFilter, BadOptions_SayWhatIsWrong) {
  const absl::Time now = absl::FromUnixSeconds(kNow);
  EXPECT_THAT(std::string(LogFilter::Make("soon", "", now).status().message()),
              HasSubstr("--since soon"));
  EXPECT_THAT(std::string(LogFilter::Make("", "a(", now).status().message()),
              HasSubstr("--grep a("));
}

}  // namespace
}  // namespace hearth::jobctl
