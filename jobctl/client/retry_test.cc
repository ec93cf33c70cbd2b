#include "jobctl/client/retry.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::jobctl {
namespace {

using Progressed = std::function<void()>;

const absl::Status kDown = absl::UnavailableError("the coordinator is stopping");

struct Notice : OutageNotice {
  Notice() : OutageNotice([this](const std::string& line) { lines.push_back(line); }) {}
  std::vector<std::string> lines;
};

TEST(RetryStream, CoordinatorRestarts_GoesOnAndSaysSo) {
  int calls = 0;
  Notice notice;
  const absl::Status status = RetryStream(
      [&calls](const Progressed& progressed) {
        if (++calls == 1 || calls == 4) {
          progressed();
        }
        return calls < 4 ? kDown : absl::OkStatus();
      },
      [](absl::Duration) { return true; }, notice);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(notice.lines,
            (std::vector<std::string>{"reconnecting, 0 s: the coordinator is stopping",
                                      "connected again"}));
}

TEST(RetryStream, NoCoordinator_GivesUpAfterTwoMinutesOfPauses) {
  absl::Duration paused;
  Notice notice;
  const absl::Status status = RetryStream([](const Progressed&) { return kDown; },
                                          [&paused](absl::Duration wait) {
                                            paused += wait;
                                            return true;
                                          },
                                          notice);
  EXPECT_EQ(status, kDown);
  EXPECT_GT(paused, absl::Minutes(2));
  EXPECT_LT(paused, absl::Minutes(3));
  EXPECT_GT(notice.lines.size(), 10U);
  EXPECT_LT(notice.lines.size(), 40U);
}

TEST(RetryStream, Progress_BeginsTheTimeAnewAndShortensThePauses) {
  int calls = 0;
  std::vector<absl::Duration> pauses;
  Notice notice;
  const absl::Status status = RetryStream(
      [&calls](const Progressed& progressed) {
        progressed();
        return ++calls < 200 ? kDown : absl::NotFoundError("no job");
      },
      [&pauses](absl::Duration wait) {
        pauses.push_back(wait);
        return true;
      },
      notice);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_LT(pauses.back(), absl::Seconds(1));
}

TEST(RetryStream, NoMoreNeed_IsOk) {
  Notice notice;
  EXPECT_TRUE(RetryStream([](const Progressed&) { return kDown; },
                          [](absl::Duration) { return false; }, notice)
                  .ok());
}

TEST(OutageNotice, TwoStreams_AreOneOutage) {
  Notice notice;
  notice.Back();
  notice.Away(absl::ZeroDuration(), kDown);
  notice.Away(absl::Milliseconds(20), kDown);
  notice.Away(absl::Seconds(12), kDown);
  notice.Away(absl::Seconds(13), kDown);
  notice.Back();
  notice.Back();
  EXPECT_EQ(notice.lines,
            (std::vector<std::string>{"reconnecting, 0 s: the coordinator is stopping",
                                      "reconnecting, 12 s", "connected again"}));
}

}  // namespace
}  // namespace hearth::jobctl
