// A plan over lines decides what a plan that looks at each waiting job decides, and its work does
// not grow with the jobs that wait.
#include <deque>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/scheduler/scheduler.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

// A random cluster; owns what its views point to.
class RandomCluster {
 public:
  explicit RandomCluster(uint32_t seed) : random_(seed) {
    const int workers = Below(12);
    for (int i = 0; i < workers; ++i) {
      AddWorker(i);
    }
    const int jobs = Below(24);
    for (int i = 0; i < jobs; ++i) {
      AddJob(i);
    }
    for (WorkerView& worker : view_.workers) {
      if (worker.busy_with.empty() && Chance(10)) {
        worker.busy_with = "gone";
      }
    }
  }

  // Each waiting job stands alone.
  const ClusterView& alone() const { return view_; }
  // The same with lines.
  ClusterView InLines(WaitingLines& lines) const {
    ClusterView view = view_;
    std::erase_if(view.jobs, [](const JobView& job) { return job.phase == JobPhase::kWaiting; });
    for (const JobView& job : view_.jobs) {
      if (job.phase == JobPhase::kWaiting) {
        lines.Put(
            DemandOf(*job.spec, job.root_uuid, job.checkpoint_step, job.too_small_bytes),
            PlaceInQueue(job.spec->resources().priority(), job.queue_time, job.job_id, view.aging));
      }
    }
    view.waiting = &lines;
    return view;
  }

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  bool Chance(int percent) { return Below(100) < percent; }

  void AddWorker(int i) {
    v1::Worker& worker = workers_.emplace_back();
    worker.set_worker_id(absl::StrCat("w", i));
    worker.set_host(absl::StrCat("h", Below(4)));
    worker.mutable_device()->set_kind(Chance(70) ? "cpu" : "cuda");
    worker.mutable_device()->set_index(Below(3));
    worker.mutable_device()->set_memory_bytes(1 + Below(3));
    worker.set_root_uuid(Chance(20) ? "" : absl::StrCat("root", Below(2)));
    if (Chance(40)) {
      (*worker.mutable_labels())["zone"] = Chance(50) ? "a" : "b";
    }
    WorkerView& view = view_.workers.emplace_back();
    view.worker = &worker;
    view.draining = Chance(8);
    worker.set_draining(view.draining);
    worker.set_cordoned(Chance(8));
    view.unhealthy = Chance(8);
    view.usable = !view.draining && !worker.cordoned() && !view.unhealthy && Chance(90);
    view.expected = !view.usable && Chance(50);
    view.idle_since = absl::Minutes(Below(60));
  }

  void AddJob(int i) {
    v1::JobSpec& spec = specs_.emplace_back();
    v1::ResourceSpec& resources = *spec.mutable_resources();
    const int wanted = 1 + Below(5);
    resources.set_workers(wanted);
    if (Chance(30)) {
      resources.set_min_workers(1 + Below(wanted));
    }
    if (Chance(80)) {
      resources.set_device(Chance(75) ? "cpu" : "cuda");
    }
    resources.set_priority(Below(3));
    if (Chance(25)) {
      (*resources.mutable_selector())["zone"] = Chance(50) ? "a" : "b";
    }
    if (Chance(25)) {
      resources.set_span_hosts(Chance(50));
    }
    if (Chance(15)) {
      spec.mutable_batch()->set_global_batch_tokens(int64_t{16} * (1 + Below(4)));
      spec.mutable_data()->set_sequence_length(16);
    }
    JobView job;
    job.job_id = absl::StrCat("j", Below(1000), "-", i);
    job.spec = &spec;
    // Days apart, so that some have aged past others of higher priority.
    job.queue_time = absl::FromUnixSeconds(Below(5) + (Chance(20) ? 86400 * Below(4) : 0));
    job.too_small_bytes = Chance(20) ? 1 + Below(3) : 0;
    if (Chance(20)) {
      job.root_uuid = absl::StrCat("root", Below(3));
      job.checkpoint_step = int64_t{10} * (1 + Below(2));
    }
    Occupy(job, wanted);
    view_.jobs.push_back(std::move(job));
  }

  // Some jobs run: on workers that are free.
  void Occupy(JobView& job, int wanted) {
    if (!Chance(35)) {
      return;
    }
    for (WorkerView& worker : view_.workers) {
      if (static_cast<int>(job.workers.size()) < wanted && worker.busy_with.empty() && Chance(60)) {
        worker.busy_with = job.job_id;
        job.workers.push_back(worker.worker->worker_id());
      }
    }
    const JobPhase ends = Chance(50) ? JobPhase::kStopping : JobPhase::kReturns;
    job.phase = Chance(80) ? JobPhase::kRunning : ends;
    job.started = absl::Minutes(Below(60));
    job.at_checkpoint = Chance(60);
    job.movable = Chance(85);
  }

  std::mt19937 random_;
  std::deque<v1::Worker> workers_;
  std::deque<v1::JobSpec> specs_;
  ClusterView view_;
};

// All that a plan has decided, a line each; `lines`: those of the view.
std::map<std::string, std::string> WaitsOf(const Decisions& decisions, const WaitingLines& lines) {
  std::map<std::string, std::string> waits;
  std::map<std::string, bool> started;
  for (const StartDecision& start : decisions.starts) {
    started[start.job_id] = true;
  }
  for (const LineDecision& line : decisions.lines) {
    for (const QueuePlace& place : lines.lines().at(line.demand).places()) {
      if (!started.contains(place.job_id)) {
        waits[place.job_id] = absl::StrCat(line.text.code, ": ", line.text.reason);
      }
    }
  }
  for (const WaitDecision& wait : decisions.waits) {
    waits[wait.job_id] = absl::StrCat(wait.reason_code, ": ", wait.reason);
  }
  return waits;
}

std::string MovesOf(const Decisions& decisions) {
  std::string out;
  for (const RequeueDecision& requeue : decisions.requeues) {
    absl::StrAppend(&out, "requeue ", requeue.job_id, " ", requeue.reason_code, " ", requeue.reason,
                    "\n");
  }
  for (const StartDecision& start : decisions.starts) {
    absl::StrAppend(&out, "start ", start.job_id, " on ", absl::StrJoin(start.workers, ","), "\n");
  }
  return out;
}

TEST(PlanLines, RandomClusters_DecideAsJobByJob) {
  int64_t behind = 0;
  for (uint32_t seed = 1; seed <= 20'000; ++seed) {
    const RandomCluster cluster(seed);
    WaitingLines lines;
    const ClusterView view = cluster.InLines(lines);
    const Decisions by_line = Plan(view, absl::Hours(1));
    const Decisions by_job = Plan(cluster.alone(), absl::Hours(1));
    ASSERT_EQ(MovesOf(by_line), MovesOf(by_job)) << "seed " << seed;
    ASSERT_EQ(WaitsOf(by_line, lines), WaitsOf(by_job, WaitingLines())) << "seed " << seed;
    behind += static_cast<int64_t>(by_job.waits.size() - by_line.waits.size());
  }
  EXPECT_GT(behind, 5'000) << "the clusters have lines of several jobs";
}

// Visits of a plan for 20 busy workers and so many waiting jobs of three sizes.
Visits VisitsOf(int waiting) {
  std::deque<v1::Worker> workers;
  ClusterView view;
  for (int i = 0; i < 20; ++i) {
    v1::Worker& worker = workers.emplace_back();
    worker.set_worker_id(absl::StrCat("w", i));
    worker.mutable_device()->set_kind("cpu");
    worker.set_root_uuid("root");
    WorkerView& added = view.workers.emplace_back();
    added.worker = &worker;
    added.usable = true;
    added.busy_with = "gone";
  }
  WaitingLines lines;
  for (int i = 0; i < waiting; ++i) {
    v1::JobSpec spec;
    spec.mutable_resources()->set_workers(1 + i % 3);
    lines.Put(DemandOf(spec, "", 0, 0),
              PlaceInQueue(0, absl::UnixEpoch(), absl::StrCat("job", i), kDefaultAging));
  }
  view.waiting = &lines;
  Visits visits;
  EXPECT_EQ(Plan(view, absl::Hours(1), visits).starts.size(), 0);
  return visits;
}

TEST(PlanLines, Visits_DoNotGrowWithTheQueue) {
  const Visits few = VisitsOf(30);
  const Visits many = VisitsOf(30'000);
  EXPECT_EQ(few.jobs, 3);
  EXPECT_EQ(many.jobs, 3);
  EXPECT_EQ(many.workers, few.workers);
}

}  // namespace
}  // namespace hearth::coordinator
