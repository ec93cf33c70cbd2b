#include "worker/daemon/supervise/trainer_child.h"

#include <poll.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"

namespace hearth::worker {
namespace {

class Recorder : public TrainerListener {
 public:
  void OnTrainerMessage(const TaskKey& /*key*/, v1::FromTrainer message) override {
    said.push_back(message.ShortDebugString());
  }
  void OnTrainerOutput(const TaskKey& /*key*/, std::string_view level, std::string text) override {
    said.push_back(std::string(level) + ": " + text);
  }
  void OnTrainerDying(const TaskKey& /*key*/,
                      const ExitFacts& /*facts*/,
                      bool /*known*/,
                      absl::Duration dying_for) override {
    said.push_back(absl::StrCat("dying for ", absl::FormatDuration(dying_for)));
  }
  void OnTrainerExit(const TaskKey& /*key*/, const ExitFacts& facts) override {
    exits.push_back(facts);
  }

  std::vector<std::string> said;
  std::vector<ExitFacts> exits;
};

// Processes are real, the time is not.
class TrainerChildTest : public ::testing::Test {
 protected:
  TrainerChild& Start(const std::string& script) {
    SpawnOptions spawn;
    spawn.program = "/bin/sh";
    spawn.arguments = {"-c", script};
    absl::StatusOr<ChildProcess> process = Spawn(spawn);
    EXPECT_TRUE(process.ok()) << process.status();
    options_.read_stat = [](pid_t pid) -> absl::StatusOr<ProcessStat> {
      ProcessStat stat;
      stat.pid = pid;
      stat.state = 'S';
      return stat;
    };
    child_ = std::make_unique<TrainerChild>(options_, clock_, recorder_, buffer_, TaskKey{"job", 1},
                                            0, *std::move(process), std::nullopt);
    return *child_;
  }

  // Serves one descriptor that is ready, waiting for it.
  void ServeOnce() {
    auto watched = child_->Watched();
    ASSERT_GT(poll(watched.data(), watched.size(), 30000), 0);
    child_->Serve(watched);
  }
  // Serves until it has ended, and forgets it.
  void ServeToTheEnd() {
    while (!child_->Advance()) {
      auto watched = child_->Watched();
      poll(watched.data(), watched.size(), 1);
      child_->Serve(watched);
    }
  }

  FakeClock clock_;
  TrainerChild::Options options_;
  Recorder recorder_;
  std::string buffer_ = std::string(4096, '\0');
  std::unique_ptr<TrainerChild> child_;
};

TEST_F(TrainerChildTest, Look_SilentForTooLong_KillsItAndSaysWhy) {
  TrainerChild& child = Start("exec sleep 1000");
  clock_.Advance(options_.silence.first - absl::Seconds(1));
  child.Look(absl::ZeroDuration());
  EXPECT_FALSE(child.Advance());
  clock_.Advance(absl::Seconds(1));
  child.Look(absl::ZeroDuration());
  ServeToTheEnd();
  ASSERT_EQ(recorder_.exits.size(), 1U);
  EXPECT_EQ(recorder_.exits[0].wait_status, -SIGKILL);
  EXPECT_EQ(recorder_.exits[0].silent, options_.silence.first);
  EXPECT_TRUE(recorder_.exits[0].clean);
}

TEST_F(TrainerChildTest, Look_TimeInWhichWeStoodStill_IsNoSilence) {
  TrainerChild& child = Start("exec sleep 1000");
  clock_.Advance(absl::Hours(1));
  child.Look(absl::Hours(1));
  EXPECT_FALSE(child.Advance());
  EXPECT_THAT(recorder_.exits, ::testing::IsEmpty());
  child.Kill(absl::ZeroDuration());
  ServeToTheEnd();
  EXPECT_EQ(recorder_.exits[0].hung, "");
}

TEST_F(TrainerChildTest, Kill_LaterOne_ShortensTheGraceAndNeverMakesItLonger) {
  TrainerChild& child = Start("trap '' TERM; echo up; while :; do sleep 1000; done");
  ServeOnce();
  EXPECT_THAT(recorder_.said, ::testing::ElementsAre("info: up"));
  child.Kill(absl::Seconds(2));
  child.Kill(absl::Seconds(9));
  clock_.Advance(absl::Seconds(1));
  EXPECT_FALSE(child.Advance());
  clock_.Advance(absl::Seconds(1));
  EXPECT_FALSE(child.Advance());  // it is killed now
  ServeToTheEnd();
  ASSERT_EQ(recorder_.exits.size(), 1U);
  EXPECT_EQ(recorder_.exits[0].wait_status, -SIGKILL);
}

TEST_F(TrainerChildTest, End_OutputWrittenBeforeIt_ComesFirst) {
  Start("echo one; echo two >&2; exit 3");
  ServeToTheEnd();
  EXPECT_THAT(recorder_.said, ::testing::UnorderedElementsAre("info: one", "warning: two"));
  ASSERT_EQ(recorder_.exits.size(), 1U);
  EXPECT_EQ(recorder_.exits[0].wait_status, 3);
  EXPECT_EQ(recorder_.exits[0].last_words, "two");
  EXPECT_TRUE(recorder_.exits[0].before_kill);  // it ended by itself
}

TEST_F(TrainerChildTest, Send_TrainerThatReadsNothing_IsKilledAtTheBound) {
  options_.outgoing_bytes_max = 1 << 20;
  TrainerChild& child = Start("exec sleep 1000");
  v1::ToTrainer message;
  message.mutable_kv_value()->set_value(std::string(4 << 20, 'x'));
  child.Send(message);
  ServeToTheEnd();
  ASSERT_EQ(recorder_.exits.size(), 1U);
  EXPECT_THAT(recorder_.exits[0].protocol_error, ::testing::HasSubstr("does not read"));
}

}  // namespace
}  // namespace hearth::worker
