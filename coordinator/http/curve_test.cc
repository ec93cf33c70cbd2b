#include "coordinator/http/curve.h"

#include <stdlib.h>

#include <map>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/env.h"
#include "coordinator/store/store.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::coordinator {
namespace {

constexpr int64_t kAll = int64_t{1} << 40;

const CurveNumber& NumberOf(const CurvePoint& point, const std::string& field) {
  size_t i = 0;
  while (CurveRows()[i]->field() != field) {
    ++i;
  }
  return point.numbers[i];
}

class CurveTest : public testing::Test {
 protected:
  CurveTest() { log_ = NewLog(); }

  std::shared_ptr<SegmentLog> NewLog() {
    return std::make_shared<SegmentLog>(Env::Real(), absl::StrCat(root_, "/", ++logs_),
                                        SegmentLogOptions{}, SegmentLog::Position{});
  }

  // One record a step, whose loss tells step and epoch.
  void Steps(int64_t first, int64_t last, int64_t epoch = 1) {
    for (int64_t number = first; number <= last; ++number) {
      v1::StepReport step;
      step.set_step(number);
      step.set_epoch(epoch);
      step.set_loss(Loss(number, epoch));
      log_->Append(++cursor_, kStepRecord, step.SerializeAsString());
      expected_[number] = epoch;
    }
  }
  void RewindTo(int64_t to_step) {
    v1::Rewind rewind;
    rewind.set_to_step(to_step);
    log_->Append(++cursor_, kRewindRecord, rewind.SerializeAsString());
    expected_.erase(expected_.upper_bound(to_step), expected_.end());
  }
  void Publish() {
    ASSERT_TRUE(log_->Sync().ok());
    log_->Publish();
  }
  static double Loss(int64_t step, int64_t epoch) {
    return static_cast<double>(step) + 1e7 * static_cast<double>(epoch);
  }

  // The points cover exactly the steps that count, each once, with the values of its last epoch.
  void ExpectExact(const std::vector<CurvePoint>& points) {
    auto step = expected_.begin();
    for (const CurvePoint& point : points) {
      double sum = 0;
      ASSERT_NE(step, expected_.end());
      EXPECT_EQ(point.first_step, step->first);
      for (int64_t i = 0; i < point.count; ++i, ++step) {
        ASSERT_NE(step, expected_.end()) << "at " << point.first_step;
        sum += Loss(step->first, step->second);
      }
      EXPECT_EQ(point.last_step, std::prev(step)->first);
      EXPECT_EQ(point.epoch, std::prev(step)->second);
      EXPECT_NEAR(NumberOf(point, "loss").value, sum / static_cast<double>(point.count), 1e-3);
    }
    EXPECT_EQ(step, expected_.end());
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
  int logs_ = 0;
  int64_t cursor_ = 0;
  std::shared_ptr<SegmentLog> log_;
  std::map<int64_t, int64_t> expected_;  // step -> epoch
};

TEST_F(CurveTest, Read_FewSteps_KeepsEachAsItIs) {
  Steps(1, 10);
  Publish();
  Curve curve(16);
  ASSERT_TRUE(curve.Read(*log_, kAll).ok());
  EXPECT_TRUE(curve.complete());
  EXPECT_EQ(curve.points().size(), 10u);
  ExpectExact(curve.points());
  ExpectExact(curve.Sample(0, 3));
  EXPECT_EQ(curve.Sample(0, 3).size(), 3u);
}

TEST_F(CurveTest, Read_ManySteps_StaysWithinTheBound) {
  Curve curve(16);
  for (int64_t part = 0; part < 10; ++part) {
    Steps(part * 100 + 1, part * 100 + 100);
    Publish();
    ASSERT_TRUE(curve.Read(*log_, kAll).ok());
    EXPECT_LE(curve.points().size(), 16u);
    ExpectExact(curve.points());
  }
  EXPECT_EQ(curve.stride(), 64);
}

TEST_F(CurveTest, Read_BoundedBytes_GoesOnAtTheNextCall) {
  Steps(1, 40'000);
  Publish();
  Curve curve(64);
  int calls = 0;
  for (; !curve.complete() && calls < 100; ++calls) {
    ASSERT_TRUE(curve.Read(*log_, 1).ok());
  }
  EXPECT_GT(calls, 2);
  ExpectExact(curve.points());
}

TEST_F(CurveTest, Rewind_InsideAGroup_LeavesNoDuplicateAndNoGap) {
  Curve curve(16);
  Steps(1, 1000);
  Publish();
  ASSERT_TRUE(curve.Read(*log_, kAll).ok());
  RewindTo(777);
  Publish();
  ASSERT_TRUE(curve.Read(*log_, kAll).ok());
  ExpectExact(curve.points());
  EXPECT_EQ(curve.points().back().last_step, 777);
  Steps(778, 900, 2);
  Publish();
  ASSERT_TRUE(curve.Read(*log_, kAll).ok());
  ExpectExact(curve.points());
  EXPECT_EQ(curve.rewinds(), 1);
}

TEST_F(CurveTest, Rewind_ToTheBeginning_StartsAnew) {
  Curve curve(16);
  Steps(1, 100);
  RewindTo(0);
  Publish();
  ASSERT_TRUE(curve.Read(*log_, kAll).ok());
  EXPECT_TRUE(curve.points().empty());
  Steps(1, 5, 2);
  Publish();
  ASSERT_TRUE(curve.Read(*log_, kAll).ok());
  ExpectExact(curve.points());
}

TEST_F(CurveTest, Rewind_AnyNumberAnywhere_MatchesAModel) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    log_ = NewLog();
    cursor_ = 0;
    expected_.clear();
    Curve curve(8);
    int64_t step = 0;
    for (int64_t epoch = 1; epoch <= 12; ++epoch) {
      const int64_t to = step + static_cast<int64_t>(random() % 60);
      Steps(step + 1, to, epoch);
      step =
          random() % 4 == 0 ? to : static_cast<int64_t>(random() % static_cast<uint32_t>(to + 1));
      RewindTo(step);
      if (random() % 2 == 0) {  // else several rewinds are read at once
        Publish();
        ASSERT_TRUE(curve.Read(*log_, kAll).ok());
        ExpectExact(curve.points());
      }
    }
    Publish();
    ASSERT_TRUE(curve.Read(*log_, kAll).ok());
    EXPECT_TRUE(curve.complete());
    ExpectExact(curve.points());
  }
}

TEST_F(CurveTest, Sample_SinceStep_BeginsWithThePointThatHoldsIt) {
  Steps(1, 100);
  Publish();
  Curve curve(16);  // stride 8
  ASSERT_TRUE(curve.Read(*log_, kAll).ok());
  const auto points = curve.Sample(90, 1000);
  ASSERT_FALSE(points.empty());
  EXPECT_EQ(points.front().first_step, 89);
  EXPECT_EQ(points.back().last_step, 100);
  EXPECT_TRUE(curve.Sample(101, 1000).empty());
  EXPECT_EQ(curve.Sample(0, 1).size(), 1u);
}

TEST_F(CurveTest, Append_EachNumber_AsItsRowSays) {
  v1::StepReport report;
  report.set_validation_loss(3);
  report.set_memory_bytes(10);
  report.set_power_watts(100);
  const auto read = [this](const v1::StepReport& step, int64_t last) {
    log_ = NewLog();
    cursor_ = 0;
    v1::StepReport numbered = step;
    for (int64_t i = 1; i <= last; ++i) {
      numbered.set_step(i);
      log_->Append(++cursor_, kStepRecord, numbered.SerializeAsString());
    }
    Publish();
    Curve curve;
    EXPECT_TRUE(curve.Read(*log_, kAll).ok());
    return curve.Sample(0, 1).front();
  };
  CurvePoint a = read(report, 1);
  report.clear_validation_loss();
  report.mutable_time()->set_seconds(9);
  report.set_memory_bytes(5);
  report.set_power_watts(200);
  report.set_tokens(7);
  a.Append(read(report, 3));
  EXPECT_EQ(a.count, 4);
  EXPECT_EQ(NumberOf(a, "time").value, 9);
  EXPECT_EQ(NumberOf(a, "tokens").value, 7);
  EXPECT_EQ(NumberOf(a, "validation_loss").value, 3);
  EXPECT_EQ(NumberOf(a, "memory_bytes").value, 10);
  EXPECT_DOUBLE_EQ(NumberOf(a, "power_watts").value, 175);
  a.Append(read({}, 5));
  EXPECT_DOUBLE_EQ(NumberOf(a, "power_watts").value, 175) << "nothing measured in those";
  EXPECT_EQ(NumberOf(a, "power_watts").count, 4);
  EXPECT_EQ(NumberOf(a, "mfu").count, 0);
}

TEST_F(CurveTest, Append_Entries_ByTheirLabel) {
  for (const double loss : {2.0, 4.0, 0.0}) {
    v1::StepReport step;
    step.set_step(cursor_ + 1);
    v1::SourceReport& web = *step.add_sources();
    web.set_source("/web");
    web.set_passes(loss / 2);
    if (loss > 0) {
      web.set_loss(loss);
    }
    log_->Append(++cursor_, kStepRecord, step.SerializeAsString());
  }
  Publish();
  Curve curve;
  ASSERT_TRUE(curve.Read(*log_, kAll).ok());
  const CurvePoint all = curve.Sample(0, 1).front();
  ASSERT_EQ(all.entries.size(), EntryCurveRows().size());
  for (size_t i = 0; i < all.entries.size(); ++i) {
    const CurveNumber& number = all.entries[i].at("/web");
    const bool loss = EntryCurveRows()[i]->field() == "loss";
    // A mean over the two steps that have a loss, and the last number of passes.
    EXPECT_DOUBLE_EQ(number.value, loss ? 3 : 0);
    EXPECT_EQ(number.count, loss ? 2 : 3);
  }
}

TEST_F(CurveTest, Read_DamagedRecord_IsDataLoss) {
  log_->Append(1, kStepRecord, "\xff\xff");
  Publish();
  Curve curve;
  EXPECT_TRUE(absl::IsDataLoss(curve.Read(*log_, kAll)));
}

TEST_F(CurveTest, Cache_JobMadeAgain_ForgetsTheOldCurve) {
  CurveCache cache([this](std::string_view) { return log_; }, 2);
  Steps(1, 10);
  Publish();
  EXPECT_EQ(cache.Get("a", 0, 1000)->points.size(), 10u);
  EXPECT_EQ(cache.Get("b", 0, 1000)->points.size(), 10u);
  EXPECT_EQ(cache.Get("c", 0, 1000)->points.size(), 10u);  // one more than are kept
  log_ = NewLog();
  cursor_ = 0;
  Steps(1, 3);
  Publish();
  EXPECT_EQ(cache.Get("a", 0, 1000)->points.size(), 3u);
  log_ = nullptr;
  EXPECT_TRUE(cache.Get("a", 0, 1000)->points.empty());
}

}  // namespace
}  // namespace hearth::coordinator
