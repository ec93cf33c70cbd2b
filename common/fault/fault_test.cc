#include "common/fault/fault.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "common/base/system.h"
#include "common/fault/hold.h"
#include "gtest/gtest.h"

namespace hearth::fault {
namespace {

class FaultTest : public testing::Test {
 protected:
  ~FaultTest() override { EXPECT_TRUE(Configure("").ok()); }
};

TEST_F(FaultTest, Check_NothingConfigured_IsOkAndUncounted) {
  EXPECT_TRUE(Check("store.before_commit").ok());
  EXPECT_EQ(Hits("store.before_commit"), 0);
}

TEST_F(FaultTest, Check_ErrorEachTime_ReturnsErrorThatNamesThePoint) {
  ASSERT_TRUE(Configure("store.before_commit=error").ok());
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = Check("store.before_commit");
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("store.before_commit"), absl::string_view::npos);
  }
  EXPECT_TRUE(Check("store.after_commit").ok());
  EXPECT_EQ(Hits("store.before_commit"), 2);
}

TEST_F(FaultTest, Check_Full_ReturnsTheErrorOfAFullDisk) {
  ASSERT_TRUE(Configure("io.write=full").ok());
  const absl::Status status = Check("io.write");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("No space left"), absl::string_view::npos);
}

TEST_F(FaultTest, Check_ErrorAtSecondHit_FailsOnlyThen) {
  ASSERT_TRUE(Configure("agent.send=error@2").ok());
  EXPECT_TRUE(Check("agent.send").ok());
  EXPECT_FALSE(Check("agent.send").ok());
  EXPECT_TRUE(Check("agent.send").ok());
}

TEST_F(FaultTest, Check_ErrorFromSecondHitOn_FailsFromThen) {
  ASSERT_TRUE(Configure("agent.send=error@2+, trainer.step=delay:1ms").ok());
  EXPECT_TRUE(Check("agent.send").ok());
  EXPECT_FALSE(Check("agent.send").ok());
  EXPECT_FALSE(Check("agent.send").ok());
  EXPECT_TRUE(Check("trainer.step").ok());
}

TEST_F(FaultTest, CheckStep_ByStepAndAttempt_ActsWhereAsked) {
  const auto acts = [](int64_t step, int attempt) {
    return !CheckStep("trainer.nan_gradient", step, attempt).ok();
  };
  ASSERT_TRUE(Configure("trainer.nan_gradient=error@7").ok());
  EXPECT_FALSE(acts(6, 0));
  EXPECT_TRUE(acts(7, 0));
  EXPECT_TRUE(acts(7, 0)) << "a replay meets it again";
  EXPECT_FALSE(acts(7, 1));
  EXPECT_FALSE(acts(8, 0));
  ASSERT_TRUE(Configure("trainer.nan_gradient=error@7x2").ok());
  EXPECT_TRUE(acts(7, 1));
  EXPECT_FALSE(acts(7, 2));
  ASSERT_TRUE(Configure("trainer.nan_gradient=error@7-9").ok());
  EXPECT_FALSE(acts(6, 0));
  EXPECT_TRUE(acts(9, 0));
  EXPECT_FALSE(acts(10, 0));
  ASSERT_TRUE(Configure("trainer.nan_gradient=error@7+x9").ok());
  EXPECT_TRUE(acts(100, 8));
  EXPECT_EQ(Configure("trainer.nan_gradient=error@7x0").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Configure("agent.send=error@7x2").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FaultTest, Configure_Malformed_IsInvalidArgumentAndKeepsTheOldOnes) {
  ASSERT_TRUE(Configure("agent.send=error").ok());
  for (const char* bad : {"nowhere=crash", "agent.send", "agent.send=explode", "agent.send=error@0",
                          "agent.send=error@x", "agent.send=delay:soon", "agent.send=delay:-1s",
                          "agent.send=hold:", "agent.send=hang:1s"}) {
    EXPECT_EQ(Configure(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(Check("agent.send").ok());
}

TEST_F(FaultTest, InitFromEnvironment_CrashAtThirdHit_KillsTheProcessThen) {
  const pid_t child = fork();
  if (child == 0) {
    SetEnv("HEARTH_FAULTS", "trainer.step=crash@3");
    if (!InitFromEnvironment().ok()) {
      _exit(9);
    }
    for (int i = 0; i < 5; ++i) {
      HEARTH_FAULT_POINT("trainer.step");
      if (i == 2) {
        _exit(8);
      }
    }
    _exit(7);
  }
  int wait_status = 0;
  ASSERT_EQ(waitpid(child, &wait_status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(wait_status)) << WEXITSTATUS(wait_status);
  EXPECT_EQ(WTERMSIG(wait_status), SIGKILL);
}

TEST_F(FaultTest, Check_Stop_StopsTheProcessUntilContinued) {
  const pid_t child = fork();
  if (child == 0) {
    const bool ok = Configure("trainer.step=stop@1").ok();
    HEARTH_FAULT_POINT("trainer.step");
    _exit(ok ? 3 : 4);
  }
  int wait_status = 0;
  ASSERT_EQ(waitpid(child, &wait_status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(wait_status));
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &wait_status, 0), child);
  EXPECT_EQ(WEXITSTATUS(wait_status), 3);
}

TEST_F(FaultTest, Check_Hold_GoesOnWhenTheFileExists) {
  const std::string file = testing::TempDir() + "/fault_test_hold";
  ASSERT_TRUE(Configure("trainer.step=hold:" + file + "@2").ok());
  std::atomic<int> passed{0};
  std::thread held([&passed] {
    for (int i = 0; i < 3; ++i) {
      HEARTH_FAULT_POINT("trainer.step");
      ++passed;
    }
  });
  while (Hits("trainer.step") < 2) {
    std::this_thread::yield();
  }
  EXPECT_EQ(passed, 1);
  std::ofstream(file).put('\n');
  held.join();
  EXPECT_EQ(passed, 3);
  std::remove(file.c_str());
}

TEST(HoldPause, LongHold_LooksSeldomAndWaitsNotMuchLonger) {
  int looks = 0;
  for (absl::Duration held; held < absl::Seconds(4); held += HoldPause(held)) {
    EXPECT_LE(HoldPause(held), std::max(held / 10, absl::Milliseconds(2)));
    ++looks;
  }
  EXPECT_LT(looks, 80);
  EXPECT_EQ(HoldPause(absl::Hours(1)), absl::Milliseconds(200));
}

TEST_F(FaultTest, Check_Hang_NeverGoesOn) {
  const pid_t child = fork();
  if (child == 0) {
    const bool ok = Configure("trainer.step=hang@2").ok();
    HEARTH_FAULT_POINT("trainer.step");
    ualarm(50'000, 0);  // ends what hangs
    HEARTH_FAULT_POINT("trainer.step");
    _exit(ok ? 3 : 4);
  }
  int wait_status = 0;
  ASSERT_EQ(waitpid(child, &wait_status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(wait_status)) << WEXITSTATUS(wait_status);
  EXPECT_EQ(WTERMSIG(wait_status), SIGALRM);
}

TEST(Points, Table_NamesAreUniqueAndDescribed) {
  std::set<std::string_view> names;
  for (const Point& point : Points()) {
    EXPECT_TRUE(names.insert(point.name).second) << point.name;
    EXPECT_FALSE(point.where.empty()) << point.name;
    EXPECT_NE(PointList().find("\n" + std::string(point.name) + " "), std::string::npos);
  }
}

}  // namespace
}  // namespace hearth::fault
