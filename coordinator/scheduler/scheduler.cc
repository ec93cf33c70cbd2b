#include "coordinator/scheduler/scheduler.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/units.h"
#include "common/reasons/reason_codes.h"
#include "coordinator/scheduler/order.h"

namespace hearth::coordinator {
namespace {

enum class Use { kFree, kSoon, kBusy, kNone };

constexpr size_t kNobody = SIZE_MAX;

// What Plan knows about a worker while it decides.
struct Slot {
  const WorkerView* view = nullptr;
  Use use = Use::kNone;
  bool reserved = false;  // for a waiting job ahead of the one being looked at
  size_t job = kNobody;   // the gang that is on it, as an index into ClusterView::jobs
  size_t root_group = 0;  // workers that share a checkpoint root have the same
  size_t host_group = 0;  // workers that share root and host have the same
};

using Group = std::vector<size_t>;  // indices of slots, ascending

// The workers that may serve demands of one kind: whether they exist does not change while a plan
// is made.
struct Pool {
  int64_t exist = 0;  // suitable, there or expected back
  int64_t cordoned = 0;
  int64_t unhealthy = 0;
  int64_t with_root = 0;           // of `exist`: they see the checkpoint's root
  int64_t largest_root = 0;        // size of the largest group that shares a root
  int64_t largest = 0;             // size of the largest of `groups`
  std::set<std::string> versions;  // of `exist`
  std::vector<Group> groups;
  // A job of this pool that needs so many has reserved all groups that are large enough.
  int64_t reserved_from = INT64_MAX;
};

// Workers with the same key may serve in one gang. Ranks of two versions may order their messages
// differently, so all are of one: in a rolling upgrade a gang waits for enough of either.
std::string GroupKey(const v1::Worker& worker, bool span_hosts) {
  // A worker that named no root shares only with its host.
  std::string root =
      worker.root_uuid().empty() ? absl::StrCat("host ", worker.host()) : worker.root_uuid();
  const std::string key = absl::StrCat(root, "\n", worker.version());
  return span_hosts ? key : absl::StrCat(key, "\n", worker.host());
}

// True if the worker can read the checkpoint that the job goes on from, or there is none.
bool SeesCheckpoint(const v1::Worker& worker, const Demand& demand) {
  return demand.root_uuid.empty() || worker.root_uuid() == demand.root_uuid;
}

std::string Plural(int64_t n, const std::string& what) {
  return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
}

// "2 cuda workers with gpu=5090, more than 24.0 GiB of memory"
std::string Describe(const Demand& demand, int64_t n) {
  std::string out = absl::StrCat(n, " ", demand.device.empty() ? "" : demand.device + " ",
                                 n == 1 ? "worker" : "workers");
  const char* separator = " with ";
  for (const auto& [key, value] : demand.selector) {
    absl::StrAppend(&out, separator, key, "=", value);
    separator = ", ";
  }
  if (demand.too_small_bytes > 0) {
    absl::StrAppend(&out, separator, "more than ", FormatBytes(demand.too_small_bytes),
                    " of memory");
  }
  return out;
}

// A job that is looked at.
struct Candidate {
  const Demand& demand;
  const QueuePlace& place;
};

// The jobs of a line that have not been looked at; or a job of its own.
struct Cursor {
  const Demand* demand = nullptr;
  const WaitingLines::Line* line = nullptr;  // null: one job
  std::set<QueuePlace>::const_iterator next;
  const QueuePlace* place = nullptr;
  size_t returns = kNobody;  // the job, if its ranks have not all ended
};

// A job of ClusterView::jobs that waits, or will.
struct Single {
  size_t job = kNobody;
  Demand demand;
};

// Orders a heap so that the first of the queue is on top.
bool Behind(const Cursor& a, const Cursor& b) {
  return *b.place < *a.place;
}

QueuePlace PlaceOf(const JobView& job, absl::Duration aging) {
  return PlaceInQueue(job.spec->resources().priority(), job.queue_time, job.job_id, aging);
}

class Planner {
 public:
  Planner(const ClusterView& view, absl::Duration now, Visits& visits)
      : view_(view), now_(now), visits_(visits) {}

  Decisions Run();

 private:
  void Prepare();
  void AddSlots();
  void Drain();
  std::vector<Single> Singles() const;
  void PlaceAll();
  // False when the job waits.
  bool Place(const Candidate& job);
  // Keeps free what the job will start on when its last ranks have ended.
  void Hold(size_t job, const Demand& demand);
  // All that a job could use that waits; later jobs do not get it.
  void Reserve(const Demand& demand, Pool& pool);
  void Grow(size_t index);

  Pool& PoolOf(const Demand& demand);
  void Fill(const Demand& demand, Pool& pool);
  // Why no group is large enough; its code is empty when one is.
  WaitText WhyTooFew(const Demand& demand, const Pool& pool) const;
  bool TryStart(const Candidate& job, const Pool& pool);
  // Asks jobs of lower priority to leave; false if that cannot help.
  bool Preempt(const Candidate& job, const Pool& pool);
  std::vector<size_t> Victims(const Candidate& job, const Group& group) const;
  WaitText ExplainBusy(const Demand& demand, const Pool& pool) const;
  void Wait(const Candidate& job, const WaitText& text) {
    out_.waits.push_back({job.place.job_id, text.code, text.reason});
  }
  void Requeue(size_t job, const std::string& code, const std::string& reason);
  int64_t Count(const Group& group, Use use, bool with_reserved) const;

  const ClusterView& view_;
  const absl::Duration now_;
  Visits& visits_;
  std::vector<Slot> slots_;
  std::vector<size_t> by_rank_;  // slots in rank order; empty until a job starts
  std::unordered_map<std::string_view, size_t> job_index_;
  std::unordered_map<std::string_view, size_t> slot_index_;
  std::vector<JobPhase> phases_;
  std::vector<size_t> order_;  // of view_.jobs, by queue order
  std::vector<QueuePlace> places_;
  std::unordered_map<std::string, size_t> root_groups_;
  std::unordered_map<std::string, size_t> host_groups_;
  std::map<Demand, Pool> pools_;  // by the demand's kind: its numbers are 0
  WaitText rest_;                 // of Place: what the jobs behind it in its line say
  int64_t free_ = 0;
  Decisions out_;
};

void Planner::Prepare() {
  for (size_t i = 0; i < view_.jobs.size(); ++i) {
    const JobView& job = view_.jobs[i];
    job_index_[job.job_id] = i;
    phases_.push_back(job.phase);
    order_.push_back(i);
    places_.push_back(PlaceOf(job, view_.aging));
  }
  std::sort(order_.begin(), order_.end(),
            [this](size_t a, size_t b) { return places_[a] < places_[b]; });
  AddSlots();
}

void Planner::AddSlots() {
  slots_.reserve(view_.workers.size());
  for (const WorkerView& worker : view_.workers) {
    slot_index_[worker.worker->worker_id()] = slots_.size();
    Slot& slot = slots_.emplace_back();
    slot.view = &worker;
    slot.root_group =
        root_groups_.emplace(GroupKey(*worker.worker, true), root_groups_.size()).first->second;
    slot.host_group =
        host_groups_.emplace(GroupKey(*worker.worker, false), host_groups_.size()).first->second;
    if (const auto job = job_index_.find(worker.busy_with); job != job_index_.end()) {
      slot.job = job->second;
    }
  }
}

// A worker's use follows from what its job does, which changes as jobs are told to stop.
void Planner::Drain() {
  for (size_t i : order_) {
    const JobView& job = view_.jobs[i];
    if (phases_[i] != JobPhase::kRunning || !job.movable) {
      continue;
    }
    for (const std::string& id : job.workers) {
      auto slot = slot_index_.find(id);
      if (slot != slot_index_.end() && slots_[slot->second].view->draining) {
        Requeue(i, reasons::kDrained, absl::StrCat("worker ", id, " is being drained"));
        break;
      }
    }
  }
  // After the moves above: workers of a job that was just told to leave are soon free.
  for (Slot& slot : slots_) {
    const WorkerView& worker = *slot.view;
    if (!worker.usable) {
      // It will be back: jobs may count on it, but not start on it.
      slot.use = worker.expected ? Use::kBusy : Use::kNone;
    } else if (worker.busy_with.empty()) {
      slot.use = Use::kFree;
      ++free_;
    } else {
      const bool stays = slot.job != kNobody && phases_[slot.job] == JobPhase::kRunning;
      slot.use = stays ? Use::kBusy : Use::kSoon;
    }
  }
}

void Planner::Requeue(size_t job, const std::string& code, const std::string& reason) {
  out_.requeues.push_back({view_.jobs[job].job_id, code, reason});
  phases_[job] = JobPhase::kReturns;
  for (Slot& slot : slots_) {
    if (slot.use == Use::kBusy && slot.job == job) {
      slot.use = Use::kSoon;
    }
  }
}

int64_t Planner::Count(const Group& group, Use use, bool with_reserved) const {
  return std::count_if(group.begin(), group.end(), [&](size_t i) {
    return slots_[i].use == use && (with_reserved || !slots_[i].reserved);
  });
}

Pool& Planner::PoolOf(const Demand& demand) {
  Demand key;
  key.device = demand.device;
  key.selector = demand.selector;
  key.span_hosts = demand.span_hosts;
  key.root_uuid = demand.root_uuid;
  key.too_small_bytes = demand.too_small_bytes;
  const auto [pool, made] = pools_.try_emplace(std::move(key));
  if (made) {
    Fill(demand, pool->second);
  }
  return pool->second;
}

void Planner::Fill(const Demand& demand, Pool& pool) {
  std::vector<Group> by_root(root_groups_.size());
  std::vector<Group> by_host(demand.span_hosts ? 0 : host_groups_.size());
  visits_.workers += static_cast<int64_t>(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    const v1::Worker& worker = *slots_[i].view->worker;
    if (!Suits(worker, demand)) {
      continue;
    }
    // Cannot serve now and is not expected back: it is counted only to explain why a job waits.
    if (slots_[i].use == Use::kNone) {
      const bool closed = worker.cordoned() || worker.draining();
      pool.cordoned += closed ? 1 : 0;
      pool.unhealthy += !closed && slots_[i].view->unhealthy ? 1 : 0;
      continue;
    }
    ++pool.exist;
    pool.versions.insert(worker.version());
    // Right for this kind of job, but it does not see the checkpoint that the job goes on from.
    if (!SeesCheckpoint(worker, demand)) {
      continue;
    }
    ++pool.with_root;
    by_root[slots_[i].root_group].push_back(i);
    if (!demand.span_hosts) {
      by_host[slots_[i].host_group].push_back(i);
    }
  }
  auto largest = [](const std::vector<Group>& groups) {
    size_t most = 0;
    for (const Group& group : groups) {
      most = std::max(most, group.size());
    }
    return static_cast<int64_t>(most);
  };
  pool.largest_root = largest(by_root);
  pool.groups = demand.span_hosts ? std::move(by_root) : std::move(by_host);
  pool.largest = largest(pool.groups);
  std::erase_if(pool.groups, [](const Group& group) { return group.empty(); });
}

// "one version of hearth-worker (0.1.0, 0.2.0)", or "" if the pool's workers have the same or one
// is enough.
std::string OneVersion(const Demand& demand, const Pool& pool) {
  return demand.least < 2 || pool.versions.size() < 2
             ? ""
             : absl::StrCat("one version of hearth-worker (", absl::StrJoin(pool.versions, ", "),
                            ")");
}

WaitText Planner::WhyTooFew(const Demand& demand, const Pool& pool) const {
  const auto text = [&demand](const char* code, const std::string& rest) {
    return WaitText{code, absl::StrCat("needs ", Describe(demand, demand.least), rest)};
  };
  if (pool.exist < demand.least) {
    return text(
        reasons::kInsufficientWorkers,
        absl::StrCat(
            ", ", pool.exist, pool.exist == 1 ? " exists" : " exist",
            pool.cordoned == 0 ? "" : absl::StrCat(" and ", pool.cordoned, " cordoned"),
            pool.unhealthy == 0 ? "" : absl::StrCat(" and ", pool.unhealthy, " unhealthy")));
  }
  if (pool.with_root < demand.least) {
    return text(reasons::kCheckpointRoot,
                absl::StrCat(" that see the checkpoint root ", demand.root_uuid, " of step ",
                             demand.checkpoint_step, ", ", pool.with_root,
                             pool.with_root == 1 ? " does" : " do"));
  }
  if (pool.largest_root < demand.least) {
    const std::string version = OneVersion(demand, pool);
    return text(reasons::kNoSharedRoot,
                absl::StrCat(" that share one checkpoint root", version.empty() ? "" : " and ",
                             version, ", at most ", pool.largest_root, " do"));
  }
  if (pool.largest < demand.least) {
    return text(reasons::kSpanHosts,
                absl::StrCat(" on one host (span_hosts is false), the largest has ", pool.largest));
  }
  return {};
}

bool Planner::TryStart(const Candidate& job, const Pool& pool) {
  const Group* best = nullptr;
  int64_t best_free = 0;
  for (const Group& group : pool.groups) {
    visits_.workers += static_cast<int64_t>(group.size());
    const int64_t free = std::min(job.demand.wanted, Count(group, Use::kFree, false));
    // The group that gives most of what is wanted. On a tie the first, so that equal views give
    // equal plans.
    if (free >= job.demand.least && free > best_free) {
      best = &group;
      best_free = free;
    }
  }
  if (best == nullptr) {
    return false;
  }
  // Sorted once a plan, and only if a job starts: most plans start none.
  if (by_rank_.empty()) {
    by_rank_.resize(slots_.size());
    std::iota(by_rank_.begin(), by_rank_.end(), size_t{0});
    std::sort(by_rank_.begin(), by_rank_.end(), [this](size_t a, size_t b) {
      return RankBefore(*slots_[a].view->worker, *slots_[b].view->worker);
    });
  }
  // Rank order is one for the whole cluster; the group says which workers of it count.
  std::vector<bool> usable(slots_.size());
  for (size_t i : *best) {
    usable[i] = slots_[i].use == Use::kFree && !slots_[i].reserved;
  }
  std::vector<const v1::Worker*> candidates;
  for (size_t i : by_rank_) {
    if (usable[i]) {
      candidates.push_back(slots_[i].view->worker);
    }
  }
  StartDecision start{job.place.job_id, PackedRankOrder(candidates, best_free)};
  for (const std::string& id : start.workers) {
    slots_[slot_index_.at(id)].use = Use::kBusy;
    --free_;
  }
  out_.starts.push_back(std::move(start));
  return true;
}

// Fewest jobs of lower priority and behind this one in the queue whose workers, with those that are
// free or soon will be, make a gang out of `group`. Empty: none needed or not enough (the caller
// knows which).
std::vector<size_t> Planner::Victims(const Candidate& job, const Group& group) const {
  const int64_t least = job.demand.least;
  int64_t have = Count(group, Use::kFree, false) + Count(group, Use::kSoon, false);
  std::map<size_t, int64_t> yields;
  for (size_t i : group) {
    const Slot& slot = slots_[i];
    // A reserved worker is promised to a job ahead in the queue: freeing it would not help this
    // one.
    if (slot.use != Use::kBusy || slot.reserved || !slot.view->usable || slot.job == kNobody) {
      continue;
    }
    const JobView& victim = view_.jobs[slot.job];
    // Both conditions: by aging a job of lower priority may stand ahead in the queue, and then it
    // keeps its workers.
    if (phases_[slot.job] == JobPhase::kRunning && victim.movable &&
        victim.spec->resources().priority() < job.place.priority && job.place < places_[slot.job]) {
      ++yields[slot.job];
    }
  }
  std::vector<size_t> victims;
  for (const auto& [index, count] : yields) {
    victims.push_back(index);
  }
  // The lowest priority first; of equal ones the job that started last, which loses least.
  std::sort(victims.begin(), victims.end(), [this](size_t a, size_t b) {
    const JobView& x = view_.jobs[a];
    const JobView& y = view_.jobs[b];
    return std::make_tuple(x.spec->resources().priority(), -x.started, std::cref(x.job_id)) <
           std::make_tuple(y.spec->resources().priority(), -y.started, std::cref(y.job_id));
  });
  size_t taken = 0;
  while (taken < victims.size() && have < least) {
    have += yields[victims[taken++]];
  }
  victims.resize(taken);
  if (have < least) {
    return {};
  }
  // A later, larger victim may have made an earlier one needless.
  for (auto it = victims.begin(); it != victims.end();) {
    if (have - yields[*it] >= least) {
      have -= yields[*it];
      it = victims.erase(it);
    } else {
      ++it;
    }
  }
  return victims;
}

bool Planner::Preempt(const Candidate& job, const Pool& pool) {
  std::vector<size_t> best;
  for (const Group& group : pool.groups) {
    if (static_cast<int64_t>(group.size()) < job.demand.least) {
      continue;
    }
    visits_.workers += static_cast<int64_t>(group.size());
    if (Count(group, Use::kFree, false) + Count(group, Use::kSoon, false) >= job.demand.least) {
      return true;  // enough is on its way already
    }
    std::vector<size_t> victims = Victims(job, group);
    if (!victims.empty() && (best.empty() || victims.size() < best.size())) {
      best = std::move(victims);
    }
  }
  // From here on their workers count as soon free, for the jobs behind this one as well.
  for (size_t victim : best) {
    Requeue(
        victim, reasons::kPreempted,
        absl::StrCat("makes room for ", job.place.job_id, " (priority ", job.place.priority, ")"));
  }
  return !best.empty();
}

WaitText Planner::ExplainBusy(const Demand& demand, const Pool& pool) const {
  int64_t free = 0;  // all three: of the group that comes nearest
  int64_t exist = 0;
  int64_t stopping = 0;
  for (const Group& group : pool.groups) {
    const auto size = static_cast<int64_t>(group.size());
    if (size < demand.least) {
      continue;
    }
    visits_.workers += size;
    const int64_t free_here = Count(group, Use::kFree, true);
    if (std::pair(free_here, size) > std::pair(free, exist)) {
      free = free_here;
      exist = size;
      stopping = std::count_if(group.begin(), group.end(),
                               [this](size_t i) { return slots_[i].view->stopping; });
    }
  }
  // Reserved ones were counted, so enough are free and only the reservations are in the way.
  if (free >= demand.least) {
    return {reasons::kReserved,
            absl::StrCat("needs ", Plural(demand.least, "worker"),
                         "; the free ones are reserved for jobs ahead of it in the queue")};
  }
  const std::string version = OneVersion(demand, pool);
  return {
      reasons::kWorkersBusy,
      absl::StrCat("needs ", Plural(demand.least, "worker"), version.empty() ? "" : " of ", version,
                   ", ", free, " of ", exist, free == 1 ? " is free" : " are free",
                   stopping == 0 ? ""
                                 : absl::StrCat(", ", stopping,
                                                stopping == 1 ? " is stopping" : " are stopping"))};
}

bool Planner::Place(const Candidate& job) {
  ++visits_.jobs;
  const Demand& demand = job.demand;
  if (demand.batch_ranks > 0) {
    rest_ = {reasons::kBatch,
             absl::StrCat("min_workers is ", demand.least, ", but a global batch has only ",
                          demand.batch_ranks, " micro-batches to share")};
    Wait(job, rest_);
    return false;
  }
  Pool& pool = PoolOf(demand);
  rest_ = WhyTooFew(demand, pool);
  if (!rest_.code.empty()) {
    Wait(job, rest_);
    return false;  // reserves nothing, because it cannot start in any case
  }
  const bool closed = demand.least >= pool.reserved_from;  // nothing is left to take or to reserve
  if (!closed && free_ > 0 && TryStart(job, pool)) {
    return true;
  }
  const bool coming = !closed && Preempt(job, pool);
  rest_ = ExplainBusy(demand, pool);
  WaitText text = rest_;
  if (coming && text.code == reasons::kWorkersBusy) {
    text.code = reasons::kWaitsForStop;
    absl::StrAppend(&text.reason, "; others are being stopped for it");
  }
  Wait(job, text);
  Reserve(demand, pool);
  return false;
}

void Planner::Reserve(const Demand& demand, Pool& pool) {
  if (demand.least >= pool.reserved_from) {
    return;
  }
  pool.reserved_from = demand.least;
  for (const Group& group : pool.groups) {
    for (size_t i : group) {
      slots_[i].reserved = slots_[i].reserved || static_cast<int64_t>(group.size()) >= demand.least;
    }
  }
}

void Planner::Hold(size_t job, const Demand& demand) {
  ++visits_.jobs;
  Pool& pool = PoolOf(demand);
  if (demand.batch_ranks > 0 || !WhyTooFew(demand, pool).code.empty()) {
    return;  // it will not start
  }
  const auto own = [&](size_t i) { return slots_[i].use == Use::kSoon && slots_[i].job == job; };
  const auto takes = [&](size_t i) {
    return !slots_[i].reserved && (own(i) || slots_[i].use == Use::kFree);
  };
  const Group* best = nullptr;
  int64_t most = demand.least - 1;
  for (const Group& group : pool.groups) {
    visits_.workers += static_cast<int64_t>(group.size());
    const int64_t count = std::count_if(group.begin(), group.end(), takes);
    if (std::min(count, demand.wanted) > most) {
      best = &group;
      most = std::min(count, demand.wanted);
    }
  }
  if (best == nullptr) {
    Reserve(demand, pool);
    return;
  }
  Group held;
  std::copy_if(best->begin(), best->end(), std::back_inserter(held), takes);
  std::stable_partition(held.begin(), held.end(), own);
  held.resize(static_cast<size_t>(most));
  for (size_t i : held) {
    slots_[i].reserved = true;
  }
}

void Planner::Grow(size_t index) {
  const JobView& job = view_.jobs[index];
  // Moving a gang costs a restart: only with free workers, right after a checkpoint, and not often.
  if (free_ == 0 || !job.movable || !job.at_checkpoint ||
      now_ - job.started < view_.resize_interval) {
    return;
  }
  const Demand demand =
      DemandOf(*job.spec, job.root_uuid, job.checkpoint_step, job.too_small_bytes);
  const int64_t size = static_cast<int64_t>(job.workers.size());
  if (size >= demand.wanted || size == 0) {
    return;
  }
  auto first = slot_index_.find(job.workers.front());
  if (first == slot_index_.end()) {
    return;
  }
  const Slot& own = slots_[first->second];
  int64_t spare = 0;
  // Free for a while already (resize_settle): one that comes and goes is not worth a restart.
  for (Slot& slot : slots_) {
    if (size + spare < demand.wanted && slot.use == Use::kFree && !slot.reserved &&
        now_ - slot.view->idle_since >= view_.resize_settle &&
        (demand.span_hosts ? slot.root_group == own.root_group
                           : slot.host_group == own.host_group) &&
        Suits(*slot.view->worker, demand)) {
      // Counted as taken within this plan, or the next job would grow onto it as well.
      slot.use = Use::kBusy;
      ++spare;
    }
  }
  if (spare > 0) {
    Requeue(index, reasons::kResized,
            absl::StrCat("grows from ", size, " to ", Plural(size + spare, "worker")));
  }
}

std::vector<Single> Planner::Singles() const {
  std::vector<Single> out;
  for (size_t i = 0; i < view_.jobs.size(); ++i) {
    const JobView& job = view_.jobs[i];
    if (phases_[i] == JobPhase::kWaiting || phases_[i] == JobPhase::kReturns) {
      out.push_back(
          {i, DemandOf(*job.spec, job.root_uuid, job.checkpoint_step, job.too_small_bytes)});
    }
  }
  return out;
}

// A job that waits reserves all that its line could take, so the jobs behind it in its line wait,
// too: they need not be looked at.
void Planner::PlaceAll() {
  const std::vector<Single> singles = Singles();
  std::vector<Cursor> heads;
  for (const auto& [job, demand] : singles) {
    const bool returns = phases_[job] == JobPhase::kReturns;
    heads.push_back({&demand, nullptr, {}, &places_[job], returns ? job : kNobody});
  }
  if (view_.waiting != nullptr) {
    for (const auto& [demand, line] : view_.waiting->lines()) {
      heads.push_back({&demand, &line, line.places().begin(), &*line.places().begin(), kNobody});
    }
  }
  std::make_heap(heads.begin(), heads.end(), Behind);
  while (!heads.empty()) {
    std::pop_heap(heads.begin(), heads.end(), Behind);
    Cursor& head = heads.back();
    if (head.returns != kNobody) {
      Hold(head.returns, *head.demand);
      heads.pop_back();
      continue;
    }
    const bool started = Place({*head.demand, *head.place});
    const bool last = head.line == nullptr || ++head.next == head.line->places().end();
    // The rest of the line asks for the same, so it waits for the same reason.
    if (!started && !last) {
      out_.lines.push_back({*head.demand, rest_});
    }
    if (!started || last) {
      heads.pop_back();
      continue;
    }
    head.place = &*head.next;
    std::push_heap(heads.begin(), heads.end(), Behind);
  }
}

Decisions Planner::Run() {
  visits_.jobs += static_cast<int64_t>(view_.jobs.size());
  visits_.workers += static_cast<int64_t>(view_.workers.size());
  Prepare();
  Drain();
  PlaceAll();
  // Growth comes last: what waits goes before what runs already.
  for (size_t i : order_) {
    if (phases_[i] == JobPhase::kRunning) {
      Grow(i);
    }
  }
  return std::move(out_);
}

}  // namespace

Decisions Plan(const ClusterView& view, absl::Duration now, Visits& visits) {
  return Planner(view, now, visits).Run();
}

int64_t LargestGang(const std::vector<const v1::Worker*>& workers, const Demand& demand) {
  std::map<std::string, int64_t> gangs;  // by what their workers share
  int64_t largest = 0;
  for (const v1::Worker* worker : workers) {
    if (Suits(*worker, demand) && SeesCheckpoint(*worker, demand)) {
      largest = std::max(largest, ++gangs[GroupKey(*worker, demand.span_hosts)]);
    }
  }
  return largest;
}

Decisions Plan(const ClusterView& view, absl::Duration now) {
  Visits visits;
  return Plan(view, now, visits);
}

}  // namespace hearth::coordinator
