#include <vector>

#include "gtest/gtest.h"
#include "jobctl/command.h"

namespace hearth::jobctl {
namespace {

const absl::Status kDown = absl::UnavailableError("the coordinator is stopping");

TEST(RetryStream, CoordinatorRestarts_GoesOn) {
  int calls = 0;
  const absl::Status status = RetryStream(
      [&calls](bool& progressed) {
        progressed = ++calls == 1;
        return calls < 4 ? kDown : absl::OkStatus();
      },
      [](absl::Duration) { return true; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 4);
}

TEST(RetryStream, NoCoordinator_GivesUpAfterTwoMinutesOfPauses) {
  absl::Duration paused;
  const absl::Status status = RetryStream([](bool&) { return kDown; },
                                          [&paused](absl::Duration wait) {
                                            paused += wait;
                                            return true;
                                          });
  EXPECT_EQ(status, kDown);
  EXPECT_GT(paused, absl::Minutes(2));
  EXPECT_LT(paused, absl::Minutes(3));
}

TEST(RetryStream, Progress_BeginsTheTimeAnewAndShortensThePauses) {
  int calls = 0;
  std::vector<absl::Duration> pauses;
  const absl::Status status = RetryStream(
      [&calls](bool& progressed) {
        progressed = true;
        return ++calls < 200 ? kDown : absl::NotFoundError("no job");
      },
      [&pauses](absl::Duration wait) {
        pauses.push_back(wait);
        return true;
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_LT(pauses.back(), absl::Seconds(1));
}

TEST(RetryStream, NoMoreNeed_IsOk) {
  EXPECT_TRUE(RetryStream([](bool&) { return kDown; }, [](absl::Duration) { return false; }).ok());
}

}  // namespace
}  // namespace hearth::jobctl
