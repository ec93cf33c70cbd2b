#include "coordinator/core/liveness/liveness.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using Cause = Liveness::Cause;

class LivenessTest : public testing::Test {
 protected:
  // Workers that hold ranks and were heard just now, each on a host of its own.
  void Add(int count) {
    for (int i = 0; i < count; ++i) {
      const std::string name = absl::StrCat("w", i);
      WorkerState& worker = workers_[name];
      worker.worker().set_worker_id(name);
      worker.worker().set_host(absl::StrCat("host", i));
      worker.connection = static_cast<uint64_t>(i) + 1;
      worker.seen = true;
      worker.job_id = "job";
      worker.last_seen = now_;
      worker.connected_since = now_ - absl::Minutes(1);
    }
  }
  // Time passes, and the named workers are heard at its end.
  void Pass(absl::Duration by, const std::vector<std::string>& heard = {}) {
    now_ += by;
    for (const std::string& name : heard) {
      workers_[name].last_seen = now_;
    }
  }
  Cause CauseOf(const std::string& name) {
    return liveness_.CauseOf(workers_[name], workers_, now_);
  }

  // The worker is part of what was cut off until the others have had their time to dial in.
  void ExpectGoneAfterTheGrace(const std::string& name) {
    Pass(options_.reattach_grace - absl::Seconds(1));
    EXPECT_EQ(CauseOf(name), Cause::kCutOff);
    Pass(absl::Seconds(1));
    EXPECT_EQ(CauseOf(name), Cause::kGone);
  }

  const CoreOptions options_ = {};
  absl::Duration now_ = absl::Seconds(1000);
  Liveness liveness_{options_, absl::Seconds(100)};
  WorkerMap workers_;
};

TEST_F(LivenessTest, Patience_IsShorterOnceTheStreamHasEnded) {
  Add(1);
  EXPECT_EQ(liveness_.Patience(workers_["w0"]), options_.silence);
  workers_["w0"].connection = 0;
  EXPECT_EQ(liveness_.Patience(workers_["w0"]), options_.disconnect_silence);
  Pass(options_.silence - absl::Milliseconds(1));
  EXPECT_FALSE(liveness_.Silent(workers_["w0"], now_));
  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(liveness_.Silent(workers_["w0"], now_));
}

TEST_F(LivenessTest, Excused_IsShortForFastSteps_AndNeverLongerThanThePatience) {
  Add(1);
  const WorkerState& worker = workers_["w0"];
  EXPECT_EQ(liveness_.Excused(worker, absl::Milliseconds(5)),
            options_.disconnect_silence + absl::Milliseconds(10));
  EXPECT_EQ(liveness_.Excused(worker, absl::Seconds(2)), options_.silence);
  EXPECT_EQ(liveness_.Excused(worker, absl::InfiniteDuration()), options_.silence);
  workers_["w0"].connection = 0;
  EXPECT_EQ(liveness_.Excused(worker, absl::Seconds(2)), options_.disconnect_silence);
}

TEST_F(LivenessTest, CauseOf_OneElsewhereAnswers_IsGone) {
  Add(4);
  Pass(absl::Seconds(5), {"w3"});
  EXPECT_EQ(CauseOf("w0"), Cause::kGone);
}

TEST_F(LivenessTest, CauseOf_ThreeFallSilentTogether_IsCutOff) {
  Add(3);
  Pass(absl::Seconds(5));
  EXPECT_EQ(CauseOf("w0"), Cause::kCutOff);
}

TEST_F(LivenessTest, CauseOf_TwoFallSilent_IsGone) {
  Add(2);
  Pass(absl::Seconds(5));
  EXPECT_EQ(CauseOf("w0"), Cause::kGone);
}

TEST_F(LivenessTest, CauseOf_OneHasJustDialledAgain_IsUnclear) {
  Add(3);
  Pass(absl::Seconds(5), {"w2"});
  workers_["w2"].connected_since = now_ - absl::Seconds(1);
  EXPECT_EQ(CauseOf("w0"), Cause::kUnclear);
}

TEST_F(LivenessTest, CauseOf_EarlierLosses_CountUntilTheyDialIn) {
  Add(3);
  liveness_.NoteLoss(workers_["w2"], now_);
  workers_["w2"].lost = true;
  Pass(absl::Seconds(5));
  EXPECT_EQ(CauseOf("w0"), Cause::kCutOff);
  liveness_.NoteReturn("w2", now_);
  EXPECT_EQ(CauseOf("w0"), Cause::kGone);
}

// The network comes long after the coordinator's start and goes again before all have dialled in.
TEST_F(LivenessTest, CauseOf_OneThatIsKnownHasNotDialledInYet_IsCutOff) {
  Add(3);
  workers_["w2"].job_id = "";
  workers_["w2"].connection = 0;
  workers_["w2"].seen = false;
  workers_["w2"].last_seen = absl::Seconds(100);
  EXPECT_EQ(CauseOf("w0"), Cause::kCutOff) << "nobody at all has dialled in";
  liveness_.NoteReturn("w0", now_);
  ExpectGoneAfterTheGrace("w0");
}

TEST_F(LivenessTest, CauseOf_HeardForAMomentAfterAnIsolation_IsStillPartOfIt) {
  Add(4);
  for (const char* idle : {"w1", "w2", "w3"}) {
    workers_[idle].job_id = "";
    workers_[idle].connection = 0;
  }
  const absl::Duration silent_since = now_;
  Pass(absl::Seconds(5));
  liveness_.BeginIsolation(silent_since, now_);
  Pass(absl::Seconds(10), {"w0"});
  ASSERT_EQ(liveness_.ReviewIsolation(workers_, now_), Liveness::Change::kContactIsBack);
  ExpectGoneAfterTheGrace("w0");
}

TEST_F(LivenessTest, NoticeGap_HoldsSilenceUp_UntilPeersAreBack) {
  Add(2);
  const absl::Duration before = now_;
  now_ += absl::Seconds(20);
  EXPECT_EQ(liveness_.QuietOf(workers_["w0"], now_), Liveness::Quiet::kOver);
  liveness_.NoticeGap(before, now_);
  EXPECT_EQ(liveness_.QuietOf(workers_["w0"], now_), Liveness::Quiet::kHolds);
  EXPECT_FALSE(liveness_.JudgesSilence(now_));
  Pass(options_.reattach_prompt, {"w1"});
  EXPECT_EQ(liveness_.QuietOf(workers_["w0"], now_), Liveness::Quiet::kUnlessPeersAreBack);
  const std::vector<const WorkerState*> peers = {&workers_["w1"]};
  EXPECT_TRUE(
      liveness_.PeersAreBack(workers_["w0"], peers, liveness_.ReturnsOf(workers_, now_), now_));
  workers_["w1"].connected_since = now_ - absl::Seconds(1);
  EXPECT_FALSE(
      liveness_.PeersAreBack(workers_["w0"], peers, liveness_.ReturnsOf(workers_, now_), now_));
  Pass(options_.reattach_grace);
  EXPECT_EQ(liveness_.QuietOf(workers_["w0"], now_), Liveness::Quiet::kOver);
}

// Workers that have dialled in since the start do not get its long grace a second time.
TEST_F(LivenessTest, NoticeGap_SoonAfterAStart_HoldsNoLongerThanLater) {
  Add(1);
  Liveness young(options_, now_ - absl::Seconds(10));
  young.NoticeGap(now_ - absl::Seconds(3), now_);
  Pass(options_.silence - absl::Milliseconds(1));
  EXPECT_EQ(young.QuietOf(workers_["w0"], now_), Liveness::Quiet::kHolds);
  Pass(absl::Milliseconds(1));
  EXPECT_EQ(young.QuietOf(workers_["w0"], now_), Liveness::Quiet::kOver);
  workers_["w0"].seen = false;
  EXPECT_EQ(young.QuietOf(workers_["w0"], now_), Liveness::Quiet::kUnlessPeersAreBack);
}

TEST_F(LivenessTest, Isolation_EndsWhenOneIsHeardOrItsTimeIsOver) {
  Add(3);
  Pass(absl::Seconds(5));
  liveness_.BeginIsolation(workers_["w0"].last_seen, now_);
  EXPECT_TRUE(liveness_.HoldsLosses(now_));
  EXPECT_EQ(liveness_.ReviewIsolation(workers_, now_), Liveness::Change::kNone);
  Pass(absl::Seconds(5), {"w0"});
  EXPECT_EQ(liveness_.ReviewIsolation(workers_, now_), Liveness::Change::kContactIsBack);
  EXPECT_FALSE(liveness_.isolated());
  EXPECT_EQ(liveness_.QuietOf(workers_["w1"], now_), Liveness::Quiet::kHolds);

  Pass(absl::Minutes(1));
  liveness_.BeginIsolation(workers_["w0"].last_seen, now_);
  Pass(options_.isolation_grace);
  EXPECT_EQ(liveness_.ReviewIsolation(workers_, now_), Liveness::Change::kRanOut);
  EXPECT_EQ(CauseOf("w1"), Cause::kGone) << "its silence is part of what has run out";
}

}  // namespace
}  // namespace hearth::coordinator
