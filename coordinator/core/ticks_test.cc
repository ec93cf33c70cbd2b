// What a Tick costs, counted: it may look at each worker and at each job with a gang a few times,
// and neither at each pair of them nor at each job that waits.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

struct Size {
  int workers = 0;
  int running = 0;
  int queued = 0;
};

class TicksTest : public testing::Test {
 protected:
  // All workers but `spare` are busy with jobs of one rank; the rest of the jobs wait.
  void Build(const Size& size) {
    for (int i = 0; i < size.workers; ++i) {
      h_.roots[Worker(i)] = absl::StrCat("root", i);
      h_.hosts[Worker(i)] = absl::StrCat("host", i);
      h_.Connect(Worker(i));
    }
    for (int i = 0; i < size.running; ++i) {
      h_.Create(1, absl::StrCat("run", i));
    }
    h_.Tick();
    for (int i = 0; i < size.running; ++i) {
      h_.Step(absl::StrCat("run", i), 1);
    }
    for (int i = 0; i < size.queued; ++i) {
      h_.Create(2, absl::StrCat("wait", i));
    }
    Settle();
  }
  static std::string Worker(int i) { return absl::StrCat("w", i); }

  // Until all who wait have been told why.
  void Settle() {
    for (int i = 0; i < 30; ++i) {
      h_.Pass(absl::Milliseconds(500), AllWorkers());
    }
  }
  std::vector<std::string> AllWorkers() const {
    std::vector<std::string> all;
    for (const auto& [worker, connection] : h_.connections) {
      all.push_back(worker);
    }
    return all;
  }

  // The most that a Tick looked at in the next minute, in which `alive` are heard.
  int64_t MostVisits(const std::vector<std::string>& alive, absl::Duration time) {
    int64_t most = 0;
    bool planned = false;
    for (absl::Duration done; done < time; done += absl::Milliseconds(500)) {
      h_.Pass(absl::Milliseconds(500), alive);
      most = std::max(most, h_.last.visits.jobs + h_.last.visits.workers);
      planned = planned || h_.last.planned;
    }
    EXPECT_TRUE(planned);
    return most;
  }

  Harness h_;
};

TEST_F(TicksTest, FullCluster_LooksAtEachWorkerAndGangAFewTimes) {
  Build({.workers = 60, .running = 60, .queued = 300});
  EXPECT_EQ(h_.Job("wait299").reason_code(), "no_shared_root");
  // 60 workers: silence, states, expiry, the plan and its pool; 60 gangs: deadlines, the plan.
  EXPECT_LE(MostVisits(AllWorkers(), absl::Minutes(11)), 10 * (60 + 60));
}

TEST_F(TicksTest, WorkersThatAreGoneForLong_AreNotComparedWithEachGang) {
  Build({.workers = 60, .running = 30, .queued = 0});
  std::vector<std::string> alive;
  for (int i = 0; i < 60; ++i) {
    if (h_.core->FindWorker(Worker(i))->worker().job_id().empty()) {
      h_.Disconnect(Worker(i));  // 30 of them, to be forgotten some day
    } else {
      alive.push_back(Worker(i));
    }
  }
  ASSERT_EQ(alive.size(), 30);
  h_.now.monotonic += absl::Hours(25);  // past CoreOptions::worker_ttl
  h_.now.wall += absl::Hours(25);
  EXPECT_LE(MostVisits(alive, absl::Minutes(1)), 10 * (60 + 30));
  EXPECT_EQ(h_.core->Workers().size(), 30) << "the others were forgotten";
}

TEST_F(TicksTest, Isolation_DoesNotCompareEachWorkerWithEach) {
  Build({.workers = 60, .running = 60, .queued = 0});
  EXPECT_LE(MostVisits({}, absl::Seconds(60)), 10 * (60 + 60));
  EXPECT_TRUE(h_.core->isolated());
}

TEST_F(TicksTest, LongQueue_IsToldInPieces_AndCostsNoMoreThanAShortOne) {
  Build({.workers = 4, .running = 4, .queued = 3000});
  EXPECT_EQ(h_.Job("wait2999").reason_code(), "no_shared_root");
  EXPECT_LE(MostVisits(AllWorkers(), absl::Minutes(1)), 10 * (4 + 4));
  // Another worker: the text of all changes, for some hundred in a Tick.
  h_.Connect("w4");
  EXPECT_LE(MostVisits(AllWorkers(), absl::Minutes(1)), 500 + 10 * (5 + 4));
}

}  // namespace
}  // namespace hearth::coordinator
