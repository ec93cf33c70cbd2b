#include "coordinator/core/gangs/stragglers.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StragglersTest : public ::testing::Test {
 protected:
  StragglersTest() { h_.Running(2); }

  // Heartbeats for so long, with the times of the ranks' own work.
  void Pass(absl::Duration by, double rank0, double rank1) {
    for (absl::Duration done; done < by; done += absl::Seconds(1)) {
      h_.now.monotonic += absl::Seconds(1);
      h_.now.wall += absl::Seconds(1);
      Beat(0, rank0);
      Beat(1, rank1);
      h_.Tick();
    }
  }
  void Beat(int rank, double seconds) {
    AgentHeartbeat beat;
    beat.connection_id = h_.connections[h_.Job("job").workers(rank)];
    beat.heartbeat.set_job_id("job");
    beat.heartbeat.set_epoch(h_.Job("job").epoch());
    beat.heartbeat.set_step(++step_);
    beat.heartbeat.set_compute_seconds(seconds);
    h_.Do(beat);
  }
  std::vector<std::string> Events() const {
    std::vector<std::string> texts;
    for (const v1::JobEvent& event : h_.events) {
      if (event.type() == "straggler") {
        texts.push_back(event.message());
      }
    }
    return texts;
  }

  Harness h_;
  int64_t step_ = 1;
};

TEST_F(StragglersTest, SlowRank_IsNamedInTheJobAndAsAnEvent) {
  Pass(absl::Seconds(30), 0.10, 0.11);
  EXPECT_THAT(h_.Job("job").stragglers(), IsEmpty());
  Pass(StragglerWatch::kPersists + absl::Seconds(1), 0.10, 0.14);
  ASSERT_EQ(h_.Job("job").stragglers_size(), 1);
  const v1::Straggler& slow = h_.Job("job").stragglers(0);
  EXPECT_EQ(slow.rank(), 1);
  EXPECT_EQ(slow.worker_id(), h_.Job("job").workers(1));
  EXPECT_NEAR(slow.ratio(), 1.4, 1e-9);
  EXPECT_TRUE(slow.has_since());
  const std::string named = "rank 1 on " + h_.Job("job").workers(1);
  EXPECT_THAT(Events(), ElementsAre(named + " is 1.4 x slower than the median of the others"));
  Pass(absl::Seconds(2), 0.10, 0.10);
  EXPECT_THAT(h_.Job("job").stragglers(), IsEmpty());
  EXPECT_EQ(Events().back(), named + " is no longer slower than the others");
}

TEST_F(StragglersTest, EndOfTheGang_ForgetsIt) {
  Pass(absl::Seconds(15), 0.10, 0.30);
  ASSERT_EQ(h_.Job("job").stragglers_size(), 1);
  h_.Exit("job", 0, v1::EXIT_REASON_INTERNAL);
  h_.Exit("job", 1, v1::EXIT_REASON_KILLED);
  EXPECT_THAT(h_.Job("job").stragglers(), IsEmpty());
  h_.Tick();
  ASSERT_EQ(h_.Job("job").epoch(), 2);
  EXPECT_EQ(Events().size(), 1u);
}

}  // namespace
}  // namespace hearth::coordinator
