#include "worker/trainer/pulse/pulse_thread.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/trainer/test_link.h"
#include "worker/trainer/exit_codes.h"
#include "worker/trainer/pulse/stacks.h"

namespace hearth::trainer {
namespace {

// What a rank says, on whichever thread.
class SafeLink : public FakeLink {
 public:
  using FakeLink::FakeLink;
  void SendLog(std::string_view level, std::string_view text) override {
    absl::MutexLock lock(&mu_);
    FakeLink::SendLog(level, text);
  }
  // Waits for a line that contains `text`.
  std::string AwaitLog(const std::string& text) {
    absl::MutexLock lock(&mu_);
    std::string found;
    const auto said = [&] {
      for (const std::string& line : logs) {
        found = absl::StrContains(line, text) ? line : found;
      }
      return !found.empty();
    };
    mu_.Await(absl::Condition(&said));
    return found;
  }

 private:
  absl::Mutex mu_;
};

// What a rank's threads use lives to the end of the process, as they may.
template <typename T, typename... Args>
T& Kept(Args&&... args) {
  static auto* const kept = new std::vector<std::unique_ptr<T>>;
  return *kept->emplace_back(std::make_unique<T>(std::forward<Args>(args)...));
}

// A rank whose threads outlive the test.
struct Rank {
  Rank(int rank, int world_size, KeyValueStore& store) : link(Task(rank, world_size), store) {
    options.on_gpu = true;
    options.link = &link;
    options.pulse = &pulse;
    options.clock = &clock;
    options.leave = [this](int exit_code) {
      code = exit_code;
      left.Notify();
    };
  }
  static v1::Task Task(int rank, int world_size) {
    v1::Task task;
    task.set_rank(rank);
    task.set_world_size(world_size);
    return task;
  }
  // Lets time go by until the rank has left.
  void AdvanceUntilLeft() {
    do {
      clock.Advance(HangWatch::kPeriod);
    } while (!left.WaitForNotificationWithTimeout(absl::Microseconds(200)));
  }

  FakeClock clock;
  Pulse pulse;
  SafeLink link;
  PulseThreadOptions options;
  absl::Notification left;
  int code = 0;
};

TEST(PulseThreadTest, StartPulseThread_StepHangs_SaysSoAndLeaves) {
  PrepareStacks();
  auto& store = Kept<LocalKeyValueStore>();
  auto& rank = Kept<Rank>(0, 1, store);
  StartPulseThread(rank.options);
  rank.pulse.StepDone(12, absl::Milliseconds(5));
  rank.pulse.Begin(Activity::kStep, "launching a step");
  rank.AdvanceUntilLeft();
  EXPECT_EQ(rank.code, ExitCodeOf(v1::EXIT_REASON_HUNG).code);
  ASSERT_EQ(rank.link.exits.size(), 1U);
  const v1::TrainerExit& exit = rank.link.exits[0];
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_HUNG);
  EXPECT_EQ(exit.step(), 12);
  EXPECT_TRUE(absl::StartsWith(exit.message(), "rank 0 hangs: no progress for ")) << exit.message();
  EXPECT_EQ(rank.link.logs.at(0), "error: " + exit.message());
  EXPECT_TRUE(absl::StrContains(absl::StrJoin(rank.link.logs, "\n"), "warning: thread "));
}

TEST(PulseThreadTest, StartPulseThread_PeerHangs_SaysWhatItWaitsFor) {
  PrepareStacks();
  auto& store = Kept<LocalKeyValueStore>();
  auto& hangs = Kept<Rank>(1, 2, store);
  auto& waits = Kept<Rank>(0, 2, store);
  StartPulseThread(waits.options);
  waits.pulse.StepDone(3, absl::Milliseconds(5));
  waits.pulse.Begin(Activity::kPeers, "all-reduce of gradients");
  StartPulseThread(hangs.options);
  hangs.pulse.StepDone(3, absl::Milliseconds(5));
  hangs.pulse.Begin(Activity::kStep, "computing a step");
  hangs.AdvanceUntilLeft();
  const std::string line = waits.link.AwaitLog("rank 0 was at");
  EXPECT_TRUE(absl::StrContains(
      line, "rank 0 was at: all-reduce of gradients (after step 3) when rank 1 hangs: "))
      << line;
  waits.link.AwaitLog("warning: thread ");
  EXPECT_TRUE(store.Wait("hang/0", absl::InfiniteDuration()).ok()) << "the other waits for it";
  EXPECT_TRUE(waits.link.exits.empty());
  EXPECT_FALSE(waits.left.HasBeenNotified());
}

}  // namespace
}  // namespace hearth::trainer
