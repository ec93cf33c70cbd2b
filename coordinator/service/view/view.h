// What readers see: jobs, events and workers as of the last commit. Readers hold a lock for as long
// as it takes to copy some pointers, the writer for as long as it takes to swap some in; neither
// ever waits for the disk or for the event loop.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "coordinator/core/core.h"
#include "coordinator/core/event_bounds.h"
#include "coordinator/core/transitions.h"
#include "coordinator/service/identity/identity_view.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/store.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {

using JobPtr = std::shared_ptr<const v1::JobRecord>;
using WorkerPtr = std::shared_ptr<const v1::Worker>;
using EventPtr = std::shared_ptr<const v1::JobEvent>;

// The filter of ListJobs: "state=running,queued name=x owner=alice label.team=research label.run";
// all terms must hold, an empty filter matches all. A label without a value: jobs that have it.
class JobFilter {
 public:
  // kInvalidArgument: the text says which term and what is allowed.
  static absl::StatusOr<JobFilter> Parse(std::string_view text);
  bool Matches(const v1::Job& job) const;

 private:
  std::set<v1::JobState> states_;  // empty = any
  std::vector<std::string> names_;
  std::vector<std::string> owners_;
  std::vector<std::pair<std::string, std::optional<std::string>>> labels_;
};

// Called after each commit that touched the job; must return at once and may be called from any
// thread.
class Waker {
 public:
  virtual ~Waker() = default;
  virtual void Wake() = 0;
};

// Thread-safe. Load and Apply belong to the event loop.
class View {
 public:
  // `bounds`: of the events of each job.
  explicit View(const EventBounds& bounds) : bounds_(bounds) {}

  IdentityView& identity() { return identity_; }
  const IdentityView& identity() const { return identity_; }

  // State at the start. `restored_workers` are those that the store knew.
  void Load(const Core& core,
            const std::vector<v1::JobEvent>& events,
            const RestoredState& restored) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the rows out of committed effects and wakes the watchers of the jobs in them.
  void Apply(absl::Span<Effects> batch) ABSL_LOCKS_EXCLUDED(mu_);

  // Null when there is no such job.
  JobPtr FindJob(std::string_view job_id) const ABSL_LOCKS_EXCLUDED(mu_);
  WorkerPtr FindWorker(std::string_view worker_id) const ABSL_LOCKS_EXCLUDED(mu_);
  // Ordered by id.
  std::vector<WorkerPtr> Workers() const ABSL_LOCKS_EXCLUDED(mu_);
  // True when an earlier request with this id was answered.
  bool KnowsRequest(std::string_view request_id) const ABSL_LOCKS_EXCLUDED(mu_);

  struct Page {
    std::vector<JobPtr> jobs;  // newest first
    std::string next_token;    // empty on the last page
  };
  // kInvalidArgument: bad token.
  absl::StatusOr<Page> List(const JobFilter& filter, std::string_view token, size_t page_size) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // The token of a page that ends with this job.
  static std::string PageToken(const v1::Job& job);
  // All jobs, newest first.
  std::vector<JobPtr> AllJobs() const ABSL_LOCKS_EXCLUDED(mu_);

  struct Changes {
    JobPtr job;                    // null: no such job
    std::vector<EventPtr> events;  // with revision > the cursor
    bool compacted = false;        // events after the cursor are no longer all kept
  };
  Changes ChangesSince(std::string_view job_id, int64_t cursor) const ABSL_LOCKS_EXCLUDED(mu_);

  // `waker` is held weakly; it is told about changes of the job from now on.
  void Subscribe(const std::string& job_id, std::weak_ptr<Waker> waker) ABSL_LOCKS_EXCLUDED(mu_);

  // Jobs, existing or not, that somebody subscribed to and that were not swept since.
  size_t subscribed_jobs() const ABSL_LOCKS_EXCLUDED(mu_);

  // Workers that were online when the last coordinator stopped and have not been heard of since
  // this one started.
  std::vector<std::string> MissingWorkers() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t revision() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using OrderKey = std::pair<int64_t, std::string>;  // create time in ns, id
  struct Entry {
    JobPtr record;
    OrderKey order;
    std::deque<EventPtr> events;    // by revision: old notes, then the newest of any type
    size_t old_notes = 0;           // how many of those at the front
    int64_t compacted_through = 0;  // events up to this revision may be missing
  };

  void PutJobLocked(JobPtr record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveJobLocked(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutEventLocked(EventPtr event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TrimEventsLocked(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutWorkerLocked(WorkerPtr worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<std::shared_ptr<Waker>> WakersLocked(const std::set<std::string>& jobs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const EventBounds bounds_;
  IdentityView identity_;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<std::string, Entry> jobs_ ABSL_GUARDED_BY(mu_);
  std::map<OrderKey, JobPtr, std::greater<>> by_age_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, WorkerPtr, std::less<>> workers_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> expected_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::string> requests_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::vector<std::weak_ptr<Waker>>> wakers_ ABSL_GUARDED_BY(mu_);
  size_t subscribed_ ABSL_GUARDED_BY(mu_) = 0;  // since the last sweep
  size_t swept_ ABSL_GUARDED_BY(mu_) = 0;       // jobs with subscriptions after it
  int64_t revision_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace hearth::coordinator
