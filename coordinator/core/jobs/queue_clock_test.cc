#include "coordinator/core/jobs/queue_clock.h"

#include <string>
#include <vector>

#include "coordinator/core/errors.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);

class QueueClockTest : public testing::Test {
 protected:
  // A job is submitted now.
  absl::Time Submit() {
    v1::JobRecord& job = jobs_.emplace_back();
    *job.mutable_job()->mutable_create_time() = ToProto(now_.wall);
    *job.mutable_queue_time() = ToProto(clock_.Read(now_));
    *job.mutable_queue_moment() = MomentOf(now_);
    return QueueTimeOf(job);
  }
  void Pass(absl::Duration time) {
    now_.wall += time;
    now_.monotonic += time;
  }
  void Restart() {
    clock_ = QueueClock();
    for (const v1::JobRecord& job : jobs_) {
      clock_.Restore(job, now_);
    }
  }
  // The machine; the clock of the queue is restarted with it.
  void Boot(absl::Duration away) {
    boots_.push_back(std::string("boot ") + std::to_string(boots_.size()));
    now_ = {now_.wall + away, absl::Seconds(20), boots_.back()};
    Restart();
  }

  std::vector<std::string> boots_ = {"boot"};
  Now now_{absl::FromUnixSeconds(1700000000), absl::Seconds(1000), "boot"};
  QueueClock clock_;
  std::vector<v1::JobRecord> jobs_;
};

TEST_F(QueueClockTest, Read_OfANewStore_IsTheWallClocks) {
  EXPECT_EQ(Submit(), now_.wall);
  Pass(absl::Seconds(5));
  EXPECT_EQ(Submit(), now_.wall);
}

TEST_F(QueueClockTest, Read_AfterAJumpOfTheWallClock_GoesOnByTheMonotonicOne) {
  const absl::Time first = Submit();
  for (const absl::Duration jump : {kDay, -2 * kDay, kDay}) {
    now_.wall += jump;
    Pass(absl::Seconds(7));
    Submit();
  }
  EXPECT_EQ(Submit() - first, absl::Seconds(21));
}

TEST_F(QueueClockTest, Restore_OnTheSameBoot_GoesOnByTheMonotonicClock) {
  const absl::Time first = Submit();
  for (const absl::Duration jump : {kDay, -2 * kDay, kDay}) {
    now_.wall += jump;
    Pass(absl::Seconds(7));
    Restart();
    Submit();
  }
  EXPECT_EQ(Submit() - first, absl::Seconds(21));
}

TEST_F(QueueClockTest, Restore_AfterABoot_GoesOnByTheWallClock) {
  const absl::Time first = Submit();
  Pass(absl::Seconds(100));
  Submit();
  Boot(absl::Hours(3));
  EXPECT_EQ(Submit() - first, absl::Seconds(100) + absl::Hours(3));
  // That job is of this boot: from here on no jump matters.
  now_.wall += kDay;
  Pass(absl::Seconds(1));
  Restart();
  EXPECT_EQ(Submit() - first, absl::Seconds(101) + absl::Hours(3));
}

TEST_F(QueueClockTest, Restore_AfterABootWithTheWallClockSetBack_PutsNobodyAheadOfTheOthers) {
  Submit();
  Pass(absl::Seconds(100));
  const absl::Time last = Submit();
  Boot(-kDay);
  const absl::Time after = Submit();
  EXPECT_GT(after, last);
  EXPECT_LT(after - last, absl::Seconds(1));
  Pass(absl::Seconds(5));
  EXPECT_EQ(Submit() - last, absl::Seconds(5));
}

// A store of version 0.1.0 before queue times: the submit times stand, and later jobs come later.
TEST_F(QueueClockTest, Restore_JobsWithoutAQueueTime_StandWhereTheyWereSubmitted) {
  for (const absl::Duration ago : {absl::Hours(30), absl::Hours(2), -kDay}) {
    *jobs_.emplace_back().mutable_job()->mutable_create_time() = ToProto(now_.wall - ago);
  }
  Restart();
  EXPECT_EQ(QueueTimeOf(jobs_[0]), now_.wall - absl::Hours(30));
  EXPECT_GT(Submit(), now_.wall + kDay) << "one of them was submitted a day ahead of the clock";
  jobs_.erase(jobs_.begin() + 2, jobs_.end());
  Restart();
  EXPECT_EQ(Submit(), now_.wall);
}

// The first submitted stands first, and a day of waiting is a day.
TEST(Queue, WallTimeJumps_ItKeepsItsOrder) {
  for (const bool restarts : {false, true}) {
    for (const absl::Duration jump : {absl::Hours(24), -absl::Hours(24)}) {
      Harness h;
      h.now.boot_id = "boot";
      h.Create(1, "z-first");
      h.Create(1, "z-urgent", 1);
      h.now.wall += jump;
      const auto pass = [&](absl::Duration time) {
        h.now.wall += time;
        h.now.monotonic += time;
        if (restarts) {
          h.Restart();
        }
      };
      pass(absl::Hours(1));
      h.Create(1, "b-second");
      pass(absl::Hours(25));
      h.Create(1, "a-urgent-a-day-later", 1);
      const std::vector<std::string> order = {"z-urgent", "z-first", "b-second",
                                              "a-urgent-a-day-later"};
      for (const std::string& job : order) {
        h.Connect("w-" + job);
        h.Tick();
        EXPECT_EQ(h.State(job), v1::JOB_STATE_STARTING) << job << " " << jump << restarts;
      }
    }
  }
}

}  // namespace
}  // namespace hearth::coordinator
