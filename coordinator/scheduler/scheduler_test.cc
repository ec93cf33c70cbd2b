#include "coordinator/scheduler/scheduler.h"

#include <deque>

#include "absl/strings/str_cat.h"
#include "common/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Owns what the view points to.
class Cluster {
 public:
  WorkerView& AddWorker(const std::string& id, const std::string& host = "host") {
    v1::Worker& worker = workers_.emplace_back();
    worker.set_worker_id(id);
    worker.set_host(host);
    worker.mutable_device()->set_kind("cpu");
    worker.set_root_uuid("root");
    WorkerView& added = view.workers.emplace_back();
    added.worker = &worker;
    added.usable = true;
    return added;
  }
  v1::Worker& worker(size_t i) { return workers_[i]; }

  // Submitted in the order of the calls.
  v1::JobSpec& AddJob(const std::string& id, int workers, int priority = 0) {
    v1::JobSpec& spec = specs_.emplace_back();
    spec.mutable_resources()->set_workers(workers);
    spec.mutable_resources()->set_device("cpu");
    spec.mutable_resources()->set_priority(priority);
    JobView job;
    job.job_id = id;
    job.spec = &spec;
    job.queue_time = absl::FromUnixSeconds(static_cast<int64_t>(specs_.size()));
    view.jobs.push_back(job);
    return spec;
  }
  v1::JobSpec& AddRunning(const std::string& id, const std::vector<size_t>& on, int priority = 0) {
    v1::JobSpec& spec = AddJob(id, static_cast<int>(on.size()), priority);
    JobView& job = view.jobs.back();
    job.phase = JobPhase::kRunning;
    for (size_t i : on) {
      view.workers[i].busy_with = id;
      job.workers.push_back(view.workers[i].worker->worker_id());
    }
    return spec;
  }
  Decisions Plan(absl::Duration now = absl::Hours(1)) const { return coordinator::Plan(view, now); }

  ClusterView view;

 private:
  std::deque<v1::Worker> workers_;
  std::deque<v1::JobSpec> specs_;
};

std::vector<std::string> Started(const Decisions& decisions) {
  std::vector<std::string> ids;
  for (const StartDecision& start : decisions.starts) {
    ids.push_back(start.job_id);
  }
  return ids;
}

// Nothing starts, and the first job says why.
void ExpectWaits(const Cluster& c, const std::string& reason) {
  const Decisions d = c.Plan();
  EXPECT_THAT(d.starts, IsEmpty());
  EXPECT_EQ(d.waits.at(0).reason, reason);
}

TEST(Plan, TooFewWorkers_StartsNobodyAndSaysHowManyExist) {
  Cluster c;
  c.AddWorker("a");
  c.AddWorker("b");
  c.AddJob("x", 3);
  const Decisions d = c.Plan();
  EXPECT_THAT(d.starts, IsEmpty());
  ASSERT_THAT(d.waits, SizeIs(1));
  EXPECT_EQ(d.waits[0].reason_code, "insufficient_workers");
  EXPECT_EQ(d.waits[0].reason, "needs 3 cpu workers, 2 exist");
}

TEST(Plan, DevicesWereTooSmall_TakesLargerOnesAndSaysWhatItNeeds) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  Cluster c;
  c.AddWorker("a");
  c.AddWorker("b");
  c.AddWorker("c");
  c.worker(0).mutable_device()->set_memory_bytes(24 * kGiB);
  c.worker(1).mutable_device()->set_memory_bytes(80 * kGiB);
  c.AddJob("x", 1);
  c.view.jobs.back().too_small_bytes = 24 * kGiB;
  const Decisions d = c.Plan();
  ASSERT_THAT(d.starts, SizeIs(1));
  EXPECT_THAT(d.starts[0].workers, ElementsAre("b"));
  c.view.jobs.back().too_small_bytes = 80 * kGiB;
  ExpectWaits(c, "needs 1 cpu worker with more than 80.0 GiB of memory, 0 exist");
}

TEST(LargestGang, CountsWhatMayServeTogetherInAnyState) {
  Cluster c;
  for (const char* id : {"a", "b", "c"}) {
    c.AddWorker(id);
  }
  c.worker(0).set_cordoned(true);
  c.worker(2).set_root_uuid("other");
  v1::ResourceSpec& resources = *c.AddJob("x", 1).mutable_resources();
  std::vector<const v1::Worker*> workers;
  for (const WorkerView& worker : c.view.workers) {
    workers.push_back(worker.worker);
  }
  const v1::JobSpec& spec = *c.view.jobs.back().spec;
  EXPECT_EQ(LargestGang(workers, DemandOf(spec, "", 0, 0)), 2);
  EXPECT_EQ(LargestGang(workers, DemandOf(spec, "other", 5, 0)), 1);
  c.worker(1).set_host("elsewhere");
  resources.set_span_hosts(false);
  EXPECT_EQ(LargestGang(workers, DemandOf(spec, "", 0, 0)), 1);
  c.worker(1).mutable_device()->set_memory_bytes(2);
  EXPECT_EQ(LargestGang(workers, DemandOf(spec, "", 0, 2)), 0);
}

TEST(Plan, PriorityThenSubmitTime_DecideWhoGoesFirst) {
  Cluster c;
  c.AddWorker("a");
  c.AddWorker("b");
  c.AddJob("old", 1);
  c.AddJob("young", 1);
  c.AddJob("urgent", 1, 5);
  EXPECT_THAT(Started(c.Plan()), ElementsAre("urgent", "old"));
}

TEST(Plan, RankOrder_IsHostThenPci) {
  Cluster c;
  c.AddWorker("w0", "h2");
  c.AddWorker("w1", "h1");
  c.AddWorker("w2", "h1");
  c.worker(1).mutable_device()->set_pci_bus_id("0000:09");
  c.worker(2).mutable_device()->set_pci_bus_id("0000:01");
  c.AddJob("x", 3);
  EXPECT_THAT(c.Plan().starts.at(0).workers, ElementsAre("w2", "w1", "w0"));
}

TEST(Plan, SeveralHosts_TakesTheTightestThatSufficesAlone) {
  Cluster c;
  for (const char* id : {"a0", "a1", "a2"}) {
    c.AddWorker(id, "a");
  }
  c.AddWorker("b0", "b");
  c.AddWorker("b1", "b");
  c.AddJob("x", 2);
  EXPECT_THAT(c.Plan().starts.at(0).workers, ElementsAre("b0", "b1"));
}

TEST(Plan, HeadWaitsForBusyWorkers_LaterJobsDoNotTakeTheFreeOnes) {
  Cluster c;
  c.AddWorker("a");
  c.AddWorker("b");
  c.AddRunning("busy", {0});
  c.AddJob("head", 2);
  c.AddJob("small", 1);
  const Decisions d = c.Plan();
  EXPECT_THAT(d.starts, IsEmpty());
  EXPECT_EQ(d.waits.at(0).reason_code, "workers_busy");
  EXPECT_EQ(d.waits.at(1).reason_code, "reserved");
}

TEST(Plan, WorkersThatTheHeadCannotUse_AreBackfilled) {
  Cluster c;
  c.AddWorker("a");
  c.AddWorker("b");
  c.AddWorker("g");
  c.worker(2).mutable_device()->set_kind("cuda");
  c.AddRunning("busy", {0});
  c.AddJob("head", 2);
  c.AddJob("gpu", 1).mutable_resources()->set_device("cuda");
  EXPECT_THAT(Started(c.Plan()), ElementsAre("gpu"));
}

TEST(Plan, CpuAndCudaJobs_GetWorkersOfTheirKindAlone) {
  Cluster c;
  c.AddWorker("c0");
  c.AddWorker("g0");
  c.AddWorker("g1");
  for (const size_t i : {1, 2}) {
    c.worker(i).mutable_device()->set_kind("cuda");
    c.worker(i).mutable_device()->set_index(static_cast<int>(i));
  }
  c.AddJob("gpu", 2).mutable_resources()->set_device("cuda");
  c.AddJob("cpu", 1);
  const Decisions d = c.Plan();
  ASSERT_THAT(Started(d), ElementsAre("gpu", "cpu"));
  EXPECT_THAT(d.starts[0].workers, ElementsAre("g0", "g1"));
  EXPECT_THAT(d.starts[1].workers, ElementsAre("c0"));
}

TEST(Plan, CudaJobWithoutCudaWorkers_SaysSo) {
  Cluster c;
  c.AddWorker("c0");
  c.AddJob("gpu", 1).mutable_resources()->set_device("cuda");
  ExpectWaits(c, "needs 1 cuda worker, 0 exist");
}

TEST(Plan, CpuJobWithCudaWorkersAlone_SaysSo) {
  Cluster c;
  c.AddWorker("g0");
  c.worker(0).mutable_device()->set_kind("cuda");
  c.AddJob("cpu", 1);
  EXPECT_EQ(c.Plan().waits.at(0).reason, "needs 1 cpu worker, 0 exist");
}

TEST(Plan, UnhealthyGpu_IsNotUsedAndIsCounted) {
  Cluster c;
  WorkerView& gpu = c.AddWorker("g0");
  c.worker(0).mutable_device()->set_kind("cuda");
  gpu.usable = false;
  gpu.unhealthy = true;
  c.AddJob("gpu", 1).mutable_resources()->set_device("cuda");
  ExpectWaits(c, "needs 1 cuda worker, 0 exist and 1 unhealthy");
}

TEST(Plan, HeadThatNeedsMoreThanExists_BlocksNobody) {
  Cluster c;
  c.AddWorker("a");
  c.AddJob("huge", 8);
  c.AddJob("small", 1);
  EXPECT_THAT(Started(c.Plan()), ElementsAre("small"));
}

TEST(Plan, WorkerGoneForAMoment_StillCountsForTheHead) {
  Cluster c;
  c.AddWorker("a");
  WorkerView& gone = c.AddWorker("b");
  gone.usable = false;
  gone.expected = true;
  c.AddJob("head", 2);
  c.AddJob("small", 1);
  EXPECT_THAT(c.Plan().starts, IsEmpty());
}

TEST(Plan, StoppingWorkers_AreToldToTheJobThatWaitsForThem) {
  Cluster c;
  for (const char* id : {"a", "b", "c"}) {
    c.AddWorker(id).expected = true;
  }
  c.AddJob("x", 3);
  c.view.workers[0].usable = false;
  c.view.workers[0].stopping = true;
  EXPECT_EQ(c.Plan().waits.at(0).reason, "needs 3 workers, 2 of 3 are free, 1 is stopping");
  c.view.workers[1].usable = false;
  c.view.workers[1].stopping = true;
  EXPECT_EQ(c.Plan().waits.at(0).reason, "needs 3 workers, 1 of 3 is free, 2 are stopping");
}

TEST(Plan, WorkersOfTwoVersions_TheNumbersAreOfThoseThatComeNearest) {
  Cluster c;
  for (const char* id : {"a", "b", "c", "d"}) {
    c.AddWorker(id).expected = true;
    c.worker(c.view.workers.size() - 1).set_version("0.1.0 (old)");
    c.view.workers.back().usable = false;
    c.view.workers.back().stopping = true;
  }
  for (const char* id : {"e", "f", "g"}) {
    c.AddWorker(id).expected = true;
    c.worker(c.view.workers.size() - 1).set_version("0.1.0 (new)");
  }
  c.view.workers.back().usable = false;
  c.AddJob("x", 3);
  EXPECT_THAT(c.Plan().waits.at(0).reason, EndsWith(", 2 of 3 are free"));
}

TEST(Plan, HigherPriority_PreemptsLowestAndYoungestAndAsFewAsNeeded) {
  Cluster c;
  for (const char* id : {"a", "b", "c", "d"}) {
    c.AddWorker(id);
  }
  c.AddRunning("low-old", {0}, 0);
  c.AddRunning("low-young", {1}, 0);
  c.AddRunning("mid", {2}, 1);
  c.AddRunning("high", {3}, 9);
  c.view.jobs[0].started = absl::Seconds(1);
  c.view.jobs[1].started = absl::Seconds(2);
  c.AddJob("urgent", 1, 5);
  const Decisions d = c.Plan();
  ASSERT_THAT(d.requeues, SizeIs(1));
  EXPECT_EQ(d.requeues[0].job_id, "low-young");
  EXPECT_EQ(d.requeues[0].reason_code, "preempted");
  EXPECT_EQ(d.waits.at(0).reason_code, "waits_for_stop");
}

TEST(Plan, VictimThatIsStoppingAlready_IsNotFollowedByAnother) {
  Cluster c;
  c.AddWorker("a");
  c.AddWorker("b");
  c.AddRunning("victim", {0});
  c.view.jobs.back().phase = JobPhase::kStopping;
  c.AddRunning("other", {1});
  c.AddJob("urgent", 1, 5);
  EXPECT_THAT(c.Plan().requeues, IsEmpty());
}

// A job of two ranks lost one on "a"; the other still ends on "b". "c" is free.
Cluster Returning() {
  Cluster c;
  for (const char* id : {"a", "b", "c"}) {
    c.AddWorker(id);
  }
  c.AddRunning("old", {0, 1});
  c.view.jobs.back().phase = JobPhase::kReturns;
  c.view.workers[0].busy_with.clear();
  return c;
}

TEST(Plan, JobWhoseLastRankEnds_KeepsItsPlace) {
  Cluster c = Returning();
  c.AddJob("young", 2);
  const Decisions d = c.Plan();
  EXPECT_THAT(d.starts, IsEmpty())
      << "it would take what old needs, and old would wait for its end";
  ASSERT_THAT(d.waits, SizeIs(1)) << "old does not wait yet: nothing is said of it";
  EXPECT_EQ(d.waits[0].job_id, "young");
  EXPECT_EQ(d.waits[0].reason_code, "reserved");
  // Its last rank has ended.
  c.view.workers[1].busy_with.clear();
  c.view.jobs[0].phase = JobPhase::kWaiting;
  EXPECT_THAT(Started(c.Plan()), ElementsAre("old"));
}

TEST(Plan, JobWhoseLastRankEnds_HoldsNoMoreThanItTakes) {
  Cluster c = Returning();
  c.AddJob("small", 1);
  c.AddJob("another", 1);
  EXPECT_THAT(Started(c.Plan()), ElementsAre("small"));
  // A worker whose rank has not ended is held first: it is of no use to anybody now.
  c.AddWorker("d");
  EXPECT_THAT(Started(c.Plan()), ElementsAre("small", "another"));
}

TEST(Plan, JobWhoseLastRankEnds_GivesWayToWhoIsAhead) {
  Cluster c = Returning();
  c.AddJob("urgent", 2, 5);
  EXPECT_THAT(Started(c.Plan()), ElementsAre("urgent"));
}

TEST(Plan, JobWhoseLastRankEndsAndThatHasTooFewWorkers_ReservesAsOneThatWaits) {
  Cluster c = Returning();
  c.AddWorker("d");
  c.AddRunning("other", {2, 3});
  c.view.workers[0].usable = false;  // it went with its rank, and is expected back
  c.view.workers[0].expected = true;
  c.AddWorker("e", "host").busy_with = "other";
  c.AddJob("small", 1);
  EXPECT_THAT(c.Plan().starts, IsEmpty());
}

TEST(Plan, JobThatDoesNotReturn_HoldsNothing) {
  Cluster c = Returning();
  c.view.jobs[0].phase = JobPhase::kStopping;
  c.AddJob("young", 2);
  EXPECT_THAT(Started(c.Plan()), ElementsAre("young"));
}

TEST(Plan, DrainedJob_KeepsItsPlaceInThePlanThatMovesIt) {
  Cluster c;
  for (const char* id : {"a", "b", "c"}) {
    c.AddWorker(id);
  }
  c.AddRunning("old", {0, 1});
  c.view.workers[0].draining = true;
  c.view.workers[0].usable = false;
  c.AddJob("young", 1);
  const Decisions d = c.Plan();
  ASSERT_THAT(d.requeues, SizeIs(1));
  EXPECT_THAT(d.starts, IsEmpty());
}

TEST(Plan, EqualPriority_NeverPreempts) {
  Cluster c;
  c.AddWorker("a");
  c.AddRunning("first", {0}, 5);
  c.AddJob("second", 1, 5);
  EXPECT_THAT(c.Plan().requeues, IsEmpty());
}

TEST(Plan, JobThatHasAged_GoesAheadAndIsNotPreempted) {
  Cluster c;
  c.AddWorker("a");
  c.AddJob("old", 1);
  c.AddJob("urgent", 1, 2);
  c.view.jobs[1].queue_time = c.view.jobs[0].queue_time + 2 * c.view.aging - absl::Seconds(1);
  EXPECT_THAT(Started(c.Plan()), ElementsAre("urgent"));
  c.view.jobs[1].queue_time += absl::Seconds(2);
  EXPECT_THAT(Started(c.Plan()), ElementsAre("old"));
  // It runs: the urgent one waits for its end.
  c.view.jobs[0].phase = JobPhase::kRunning;
  c.view.jobs[0].workers = {"a"};
  c.view.workers[0].busy_with = "old";
  EXPECT_THAT(c.Plan().requeues, IsEmpty());
  c.view.jobs[1].queue_time -= absl::Seconds(2);
  EXPECT_THAT(c.Plan().requeues, SizeIs(1));
}

TEST(Plan, AgingOff_PriorityAloneDecides) {
  Cluster c;
  c.view.aging = absl::ZeroDuration();
  c.AddWorker("a");
  c.AddJob("old", 1);
  c.AddJob("urgent", 1, 1);
  c.view.jobs[1].queue_time += absl::Hours(24 * 365);
  EXPECT_THAT(Started(c.Plan()), ElementsAre("urgent"));
}

// One worker; a job of higher priority comes every minute and runs for two. Returns when the job of
// priority 0, submitted at 0, has started, or `end`.
absl::Duration FirstStart(absl::Duration aging, int priority, absl::Duration end) {
  Cluster c;
  c.view.aging = aging;
  c.AddWorker("a");
  c.AddJob("patient", 1);
  c.view.jobs[0].queue_time = absl::UnixEpoch();
  absl::Duration busy_until;
  for (absl::Duration now; now < end; now += absl::Minutes(1)) {
    c.AddJob(absl::StrCat("urgent", absl::ToInt64Minutes(now)), 1, priority);
    c.view.jobs.back().queue_time = absl::UnixEpoch() + now;
    std::string& running = c.view.workers[0].busy_with;
    if (now >= busy_until) {
      std::erase_if(c.view.jobs, [&](const JobView& job) { return job.job_id == running; });
      running.clear();
    }
    const Decisions d = c.Plan(now);
    EXPECT_THAT(d.requeues, IsEmpty());
    if (d.starts.empty()) {
      continue;
    }
    if (d.starts[0].job_id == "patient") {
      return now;
    }
    running = d.starts[0].job_id;
    busy_until = now + absl::Minutes(2);
    for (JobView& job : c.view.jobs) {
      if (job.job_id == running) {
        job.phase = JobPhase::kRunning;
        job.workers = {"a"};
      }
    }
  }
  return end;
}

// Those submitted less than `priority` hours after it go ahead: 60 an hour, two minutes each.
TEST(Plan, EndlessJobsOfHigherPriority_StarveNobody) {
  for (const int priority : {1, 3}) {
    const absl::Duration hour = absl::Hours(1);
    const absl::Duration started = FirstStart(hour, priority, 10 * hour);
    EXPECT_GE(started, priority * hour);
    EXPECT_LE(started, 2 * priority * hour + absl::Minutes(2));
  }
  EXPECT_EQ(FirstStart(absl::ZeroDuration(), 1, absl::Hours(10)), absl::Hours(10)) << "it starves";
}

TEST(Plan, PreemptionThatCannotHelp_IsNotDone) {
  Cluster c;
  c.AddWorker("a");
  c.AddWorker("b");
  c.AddRunning("low", {0}, 0);
  c.AddRunning("high", {1}, 9);
  c.AddJob("urgent", 2, 5);
  EXPECT_THAT(c.Plan().requeues, IsEmpty());
}

TEST(Plan, Elastic_StartsWithWhatIsFreeButNotBelowMin) {
  Cluster c;
  for (const char* id : {"a", "b", "c"}) {
    c.AddWorker(id);
  }
  c.AddJob("x", 8).mutable_resources()->set_min_workers(2);
  EXPECT_THAT(c.Plan().starts.at(0).workers, SizeIs(3));
  c.view.workers[0].usable = c.view.workers[1].usable = false;
  EXPECT_THAT(c.Plan().starts, IsEmpty());
}

TEST(Plan, Elastic_NeverMoreRanksThanMicroBatches) {
  Cluster c;
  for (const char* id : {"a", "b", "c", "d"}) {
    c.AddWorker(id);
  }
  v1::JobSpec& spec = c.AddJob("x", 4);
  spec.mutable_resources()->set_min_workers(1);
  spec.mutable_data()->set_sequence_length(128);
  spec.mutable_batch()->set_micro_batch_size(2);
  spec.mutable_batch()->set_global_batch_tokens(768);
  EXPECT_EQ(MaxRanks(spec), 3);
  EXPECT_THAT(c.Plan().starts.at(0).workers, SizeIs(3));
  spec.mutable_resources()->set_min_workers(4);
  EXPECT_EQ(c.Plan().waits.at(0).reason_code, "batch");
}

TEST(Plan, Elastic_GrowsOnlyWithHysteresisAndAtACheckpoint) {
  Cluster c;
  c.AddWorker("a");
  c.AddWorker("b");
  v1::JobSpec& spec = c.AddRunning("x", {0});
  spec.mutable_resources()->set_workers(2);
  spec.mutable_resources()->set_min_workers(1);
  JobView& job = c.view.jobs[0];
  job.at_checkpoint = true;
  job.started = absl::Minutes(10);
  c.view.workers[1].idle_since = absl::Minutes(14);
  EXPECT_THAT(c.Plan(absl::Minutes(14)).requeues, IsEmpty()) << "the gang is too young";
  c.view.workers[1].idle_since = absl::Minutes(16) - absl::Seconds(1);
  EXPECT_THAT(c.Plan(absl::Minutes(16)).requeues, IsEmpty()) << "the worker has just come";
  job.at_checkpoint = false;
  EXPECT_THAT(c.Plan(absl::Minutes(20)).requeues, IsEmpty()) << "much would be repeated";
  job.at_checkpoint = true;
  const Decisions d = c.Plan(absl::Minutes(20));
  ASSERT_THAT(d.requeues, SizeIs(1));
  EXPECT_EQ(d.requeues[0].reason_code, "resized");
}

TEST(Plan, Elastic_DoesNotGrowIntoWorkersThatAJobWaitsFor) {
  Cluster c;
  for (const char* id : {"a", "b", "c"}) {
    c.AddWorker(id);
  }
  v1::JobSpec& spec = c.AddRunning("x", {0});
  spec.mutable_resources()->set_workers(2);
  spec.mutable_resources()->set_min_workers(1);
  c.view.jobs[0].at_checkpoint = true;
  c.AddRunning("y", {1});
  c.AddJob("waiting", 2);
  EXPECT_THAT(c.Plan().requeues, IsEmpty());
}

TEST(Plan, DrainingWorker_MovesItsJobAway) {
  Cluster c;
  c.AddWorker("a");
  c.AddRunning("x", {0});
  c.view.workers[0].draining = true;
  c.view.workers[0].usable = false;
  const Decisions d = c.Plan();
  ASSERT_THAT(d.requeues, SizeIs(1));
  EXPECT_EQ(d.requeues[0].reason_code, "drained");
}

TEST(Plan, CordonedWorkers_AreNamedAsTheReason) {
  Cluster c;
  c.AddWorker("a");
  c.AddJob("x", 1);
  c.worker(0).set_cordoned(true);
  c.view.workers[0].usable = false;
  EXPECT_EQ(c.Plan().waits.at(0).reason, "needs 1 cpu worker, 0 exist and 1 cordoned");
}

TEST(Plan, Selector_NeedsEveryLabel) {
  Cluster c;
  c.AddWorker("a");
  (*c.AddJob("x", 1).mutable_resources()->mutable_selector())["gpu"] = "5090";
  EXPECT_EQ(c.Plan().waits.at(0).reason, "needs 1 cpu worker with gpu=5090, 0 exist");
  (*c.worker(0).mutable_labels())["gpu"] = "5090";
  EXPECT_THAT(Started(c.Plan()), ElementsAre("x"));
}

TEST(Plan, Gang_SharesOneCheckpointRoot) {
  Cluster c;
  c.AddWorker("a");
  c.AddWorker("b");
  c.worker(1).set_root_uuid("other");
  c.AddJob("x", 2);
  EXPECT_EQ(c.Plan().waits.at(0).reason_code, "no_shared_root");
}

TEST(Plan, Resume_RunsOnlyWhereItsCheckpointIsSeen) {
  Cluster c;
  c.AddWorker("a");
  c.AddJob("x", 1);
  c.view.jobs[0].root_uuid = "elsewhere";
  c.view.jobs[0].checkpoint_step = 40;
  const Decisions d = c.Plan();
  EXPECT_EQ(d.waits.at(0).reason_code, "checkpoint_root");
  EXPECT_THAT(d.waits.at(0).reason, testing::HasSubstr("step 40"));
  c.worker(0).set_root_uuid("elsewhere");
  EXPECT_THAT(Started(c.Plan()), ElementsAre("x"));
}

TEST(Plan, SpanHostsFalse_KeepsTheGangOnOneHost) {
  Cluster c;
  c.AddWorker("a", "h1");
  c.AddWorker("b", "h2");
  c.AddJob("x", 2).mutable_resources()->set_span_hosts(false);
  EXPECT_EQ(c.Plan().waits.at(0).reason_code, "span_hosts");
}

TEST(Plan, TenThousandWaitingJobs_ArePlannedQuickly) {
  Cluster c;
  for (int i = 0; i < 16; ++i) {
    c.AddWorker(absl::StrCat("w", i));
    c.AddRunning(absl::StrCat("r", i), {static_cast<size_t>(i)});
  }
  for (int i = 0; i < 10000; ++i) {
    c.AddJob(absl::StrCat("j", i), 1 + i % 4);
  }
  const absl::Duration start = Clock::Real().Monotonic();
  EXPECT_THAT(c.Plan().waits, SizeIs(10000));
  const absl::Duration took = Clock::Real().Monotonic() - start;
  RecordProperty("milliseconds", static_cast<int>(absl::ToInt64Milliseconds(took)));
  std::printf("10,000 waiting jobs, 16 workers: %s\n", absl::FormatDuration(took).c_str());
  EXPECT_LT(took, absl::Seconds(2));
}

// A rolling upgrade: no gang has ranks of two versions, whatever that makes it wait for.
TEST(Plan, TwoVersions_NeverShareAGang) {
  Cluster c;
  for (const char* id : {"a", "b", "c"}) {
    c.AddWorker(id);
  }
  c.worker(0).set_version("0.1.0 (new)");
  c.worker(1).set_version("0.1.0 (old)");
  c.worker(2).set_version("0.1.0 (old)");
  c.AddJob("three", 3);
  c.AddJob("two", 2);
  Decisions d = c.Plan();
  ASSERT_THAT(Started(d), ElementsAre("two"));
  EXPECT_THAT(d.starts[0].workers, ElementsAre("b", "c"));
  ASSERT_THAT(d.waits, SizeIs(1));
  EXPECT_EQ(d.waits[0].reason,
            "needs 3 cpu workers that share one checkpoint root and one version of hearth-worker "
            "(0.1.0 (new), 0.1.0 (old)), at most 2 do");
  c.worker(1).set_version("0.1.0 (new)");
  c.worker(2).set_version("0.1.0 (new)");
  d = c.Plan();
  EXPECT_THAT(Started(d), ElementsAre("three"));
}

// Two workers are free, but not two that may serve in one gang.
TEST(Plan, FreeWorkersOfTwoVersions_TheReasonNamesThem) {
  Cluster c;
  for (const char* id : {"a", "b", "c"}) {
    c.AddWorker(id);
    c.worker(c.view.workers.size() - 1).set_version("0.1.0 (old)");
  }
  c.worker(2).set_version("0.1.0 (new)");
  c.AddRunning("x", {0});
  c.AddJob("two", 2);
  const Decisions d = c.Plan();
  EXPECT_THAT(d.starts, IsEmpty());
  ASSERT_THAT(d.waits, SizeIs(1));
  EXPECT_EQ(d.waits[0].reason,
            "needs 2 workers of one version of hearth-worker (0.1.0 (new), 0.1.0 (old)), 1 of 2 is "
            "free");
}

}  // namespace
}  // namespace hearth::coordinator
