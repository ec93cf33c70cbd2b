#include "coordinator/scheduler/scheduler.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/scheduler/order.h"

namespace hearth::coordinator {
namespace {

enum class Use { kFree, kSoon, kBusy, kNone };

// What Plan knows about a worker while it decides.
struct Slot {
  const WorkerView* view = nullptr;
  Use use = Use::kNone;
  bool reserved = false;  // for a waiting job ahead of the one being looked at
  size_t root_group = 0;  // workers that share a checkpoint root have the same
  size_t host_group = 0;  // workers that share root and host have the same
};

struct Need {
  int64_t wanted = 0;
  int64_t least = 0;
};

Need NeedOf(const v1::JobSpec& spec) {
  const v1::ResourceSpec& resources = spec.resources();
  Need need;
  need.wanted = std::max(1, resources.has_workers() ? resources.workers() : 1);
  need.least = resources.has_min_workers()
                   ? std::clamp<int64_t>(resources.min_workers(), 1, need.wanted)
                   : need.wanted;
  need.wanted = std::max(need.least, std::min(need.wanted, MaxRanks(spec)));
  return need;
}

bool SpansHosts(const v1::JobSpec& spec) {
  return !spec.resources().has_span_hosts() || spec.resources().span_hosts();
}

// Workers with the same key may serve in one gang.
std::string GroupKey(const v1::Worker& worker, bool span_hosts) {
  // A worker that named no root shares only with its host.
  std::string root =
      worker.root_uuid().empty() ? absl::StrCat("host ", worker.host()) : worker.root_uuid();
  return span_hosts ? root : absl::StrCat(root, "\n", worker.host());
}

std::string Plural(int64_t n, const std::string& what) {
  return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
}

// "cuda worker with gpu=5090"
std::string Describe(const v1::ResourceSpec& resources, int64_t n) {
  std::string out = absl::StrCat(n, " ", resources.has_device() ? resources.device() + " " : "",
                                 n == 1 ? "worker" : "workers");
  const std::map<std::string, std::string> selector(resources.selector().begin(),
                                                    resources.selector().end());
  const char* separator = " with ";
  for (const auto& [key, value] : selector) {
    absl::StrAppend(&out, separator, key, "=", value);
    separator = ", ";
  }
  return out;
}

class Planner {
 public:
  Planner(const ClusterView& view, absl::Duration now) : view_(view), now_(now) {}

  Decisions Run();

 private:
  using Group = std::vector<size_t>;  // indices into slots_
  using Groups = std::vector<Group>;

  void Prepare();
  void Drain();
  void Place(const JobView& job);
  void Grow(const JobView& job);

  // Workers that suit the job and are there (or expected back): the groups that are large enough.
  // If there is none `wait` says why.
  Groups Existing(const JobView& job, const Need& need, WaitDecision& wait) const;
  bool TryStart(const JobView& job, const Need& need, const Groups& groups);
  // Asks jobs of lower priority to leave; false if that cannot help.
  bool Preempt(const JobView& job, const Need& need, const Groups& groups);
  std::vector<size_t> Victims(const JobView& job, const Need& need, const Group& group) const;
  void ExplainBusy(const Need& need, const Groups& groups, WaitDecision& wait) const;
  void Requeue(size_t job, const std::string& code, const std::string& reason);
  int64_t Count(const Group& group, Use use, bool with_reserved) const;

  const ClusterView& view_;
  const absl::Duration now_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, size_t> job_index_;
  std::unordered_map<std::string, size_t> slot_index_;
  std::vector<JobPhase> phases_;
  std::vector<size_t> order_;  // of jobs, by queue order
  std::map<std::string, size_t> root_groups_;
  std::map<std::string, size_t> host_groups_;
  bool any_free_ = false;
  Decisions out_;
};

void Planner::Prepare() {
  phases_.reserve(view_.jobs.size());
  for (size_t i = 0; i < view_.jobs.size(); ++i) {
    job_index_[view_.jobs[i].job_id] = i;
    phases_.push_back(view_.jobs[i].phase);
    order_.push_back(i);
  }
  std::sort(order_.begin(), order_.end(), [this](size_t a, size_t b) {
    const JobView& x = view_.jobs[a];
    const JobView& y = view_.jobs[b];
    return std::make_tuple(-x.spec->resources().priority(), x.create_time, std::cref(x.job_id)) <
           std::make_tuple(-y.spec->resources().priority(), y.create_time, std::cref(y.job_id));
  });
  for (const WorkerView& worker : view_.workers) {
    slot_index_[worker.worker->worker_id()] = slots_.size();
    Slot& slot = slots_.emplace_back();
    slot.view = &worker;
    slot.root_group =
        root_groups_.emplace(GroupKey(*worker.worker, true), root_groups_.size()).first->second;
    slot.host_group =
        host_groups_.emplace(GroupKey(*worker.worker, false), host_groups_.size()).first->second;
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
        Requeue(i, "drained", absl::StrCat("worker ", id, " is being drained"));
        break;
      }
    }
  }
  for (Slot& slot : slots_) {
    const WorkerView& worker = *slot.view;
    if (!worker.usable) {
      slot.use = worker.expected ? Use::kBusy : Use::kNone;
    } else if (worker.busy_with.empty()) {
      slot.use = Use::kFree;
      any_free_ = true;
    } else {
      auto job = job_index_.find(worker.busy_with);
      const bool stays = job != job_index_.end() && phases_[job->second] == JobPhase::kRunning;
      slot.use = stays ? Use::kBusy : Use::kSoon;
    }
  }
}

void Planner::Requeue(size_t job, const std::string& code, const std::string& reason) {
  out_.requeues.push_back({view_.jobs[job].job_id, code, reason});
  phases_[job] = JobPhase::kStopping;
  for (Slot& slot : slots_) {
    if (slot.use == Use::kBusy && slot.view->busy_with == view_.jobs[job].job_id) {
      slot.use = Use::kSoon;
    }
  }
}

int64_t Planner::Count(const Group& group, Use use, bool with_reserved) const {
  return std::count_if(group.begin(), group.end(), [&](size_t i) {
    return slots_[i].use == use && (with_reserved || !slots_[i].reserved);
  });
}

Planner::Groups Planner::Existing(const JobView& job, const Need& need, WaitDecision& wait) const {
  const v1::ResourceSpec& resources = job.spec->resources();
  const bool span = SpansHosts(*job.spec);
  Groups by_root(root_groups_.size());
  Groups groups(span ? 0 : host_groups_.size());
  int64_t exist = 0;
  int64_t cordoned = 0;
  int64_t unhealthy = 0;
  int64_t with_root = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const v1::Worker& worker = *slots_[i].view->worker;
    if (!Suits(worker, resources)) {
      continue;
    }
    if (slots_[i].use == Use::kNone) {
      const bool closed = worker.cordoned() || worker.draining();
      cordoned += closed ? 1 : 0;
      unhealthy += !closed && slots_[i].view->unhealthy ? 1 : 0;
      continue;
    }
    ++exist;
    if (!job.root_uuid.empty() && worker.root_uuid() != job.root_uuid) {
      continue;
    }
    ++with_root;
    by_root[slots_[i].root_group].push_back(i);
    if (!span) {
      groups[slots_[i].host_group].push_back(i);
    }
  }
  auto largest = [](const Groups& of) {
    size_t most = 0;
    for (const Group& group : of) {
      most = std::max(most, group.size());
    }
    return static_cast<int64_t>(most);
  };
  const int64_t largest_root = largest(by_root);
  if (span) {
    groups = std::move(by_root);
  }
  auto set = [&wait, &resources, &need](const char* code, const std::string& rest) {
    wait.reason_code = code;
    wait.reason = absl::StrCat("needs ", Describe(resources, need.least), rest);
  };
  if (exist < need.least) {
    set("insufficient_workers",
        absl::StrCat(", ", exist, exist == 1 ? " exists" : " exist",
                     cordoned == 0 ? "" : absl::StrCat(" and ", cordoned, " cordoned"),
                     unhealthy == 0 ? "" : absl::StrCat(" and ", unhealthy, " unhealthy")));
  } else if (with_root < need.least) {
    set("checkpoint_root",
        absl::StrCat(" that see the checkpoint root ", job.root_uuid, " of step ",
                     job.checkpoint_step, ", ", with_root, with_root == 1 ? " does" : " do"));
  } else if (largest_root < need.least) {
    set("no_shared_root",
        absl::StrCat(" that share one checkpoint root, at most ", largest_root, " do"));
  } else if (largest(groups) < need.least) {
    set("span_hosts",
        absl::StrCat(" on one host (span_hosts is false), the largest has ", largest(groups)));
  }
  std::erase_if(groups, [&need](const Group& group) {
    return static_cast<int64_t>(group.size()) < need.least;
  });
  return groups;
}

bool Planner::TryStart(const JobView& job, const Need& need, const Groups& groups) {
  const Group* best = nullptr;
  int64_t best_free = 0;
  for (const Group& group : groups) {
    const int64_t free = std::min(need.wanted, Count(group, Use::kFree, false));
    if (free >= need.least && free > best_free) {
      best = &group;
      best_free = free;
    }
  }
  if (best == nullptr) {
    return false;
  }
  std::vector<const v1::Worker*> candidates;
  for (size_t i : *best) {
    if (slots_[i].use == Use::kFree && !slots_[i].reserved) {
      candidates.push_back(slots_[i].view->worker);
    }
  }
  StartDecision start{job.job_id, PackedRankOrder(std::move(candidates), best_free)};
  for (const std::string& id : start.workers) {
    slots_[slot_index_.at(id)].use = Use::kBusy;
  }
  out_.starts.push_back(std::move(start));
  any_free_ = std::any_of(slots_.begin(), slots_.end(),
                          [](const Slot& slot) { return slot.use == Use::kFree; });
  return true;
}

// Fewest jobs of lower priority whose workers, with those that are free or soon will be, make a
// gang out of `group`. Empty: none needed or not enough (the caller knows which).
std::vector<size_t> Planner::Victims(const JobView& job,
                                     const Need& need,
                                     const Group& group) const {
  int64_t have = Count(group, Use::kFree, false) + Count(group, Use::kSoon, false);
  std::map<size_t, int64_t> yields;
  for (size_t i : group) {
    const Slot& slot = slots_[i];
    auto other = job_index_.find(slot.view->busy_with);
    if (slot.use != Use::kBusy || slot.reserved || !slot.view->usable ||
        other == job_index_.end()) {
      continue;
    }
    const JobView& victim = view_.jobs[other->second];
    if (phases_[other->second] == JobPhase::kRunning && victim.movable &&
        victim.spec->resources().priority() < job.spec->resources().priority()) {
      ++yields[other->second];
    }
  }
  std::vector<size_t> victims;
  for (const auto& [index, count] : yields) {
    victims.push_back(index);
  }
  std::sort(victims.begin(), victims.end(), [this](size_t a, size_t b) {
    const JobView& x = view_.jobs[a];
    const JobView& y = view_.jobs[b];
    return std::make_tuple(x.spec->resources().priority(), -x.started, std::cref(x.job_id)) <
           std::make_tuple(y.spec->resources().priority(), -y.started, std::cref(y.job_id));
  });
  size_t taken = 0;
  while (taken < victims.size() && have < need.least) {
    have += yields[victims[taken++]];
  }
  victims.resize(taken);
  if (have < need.least) {
    return {};
  }
  // A later, larger victim may have made an earlier one needless.
  for (auto it = victims.begin(); it != victims.end();) {
    if (have - yields[*it] >= need.least) {
      have -= yields[*it];
      it = victims.erase(it);
    } else {
      ++it;
    }
  }
  return victims;
}

bool Planner::Preempt(const JobView& job, const Need& need, const Groups& groups) {
  std::vector<size_t> best;
  for (const Group& group : groups) {
    if (Count(group, Use::kFree, false) + Count(group, Use::kSoon, false) >= need.least) {
      return true;  // enough is on its way already
    }
    std::vector<size_t> victims = Victims(job, need, group);
    if (!victims.empty() && (best.empty() || victims.size() < best.size())) {
      best = std::move(victims);
    }
  }
  for (size_t victim : best) {
    Requeue(victim, "preempted",
            absl::StrCat("makes room for ", job.job_id, " (priority ",
                         job.spec->resources().priority(), ")"));
  }
  return !best.empty();
}

void Planner::ExplainBusy(const Need& need, const Groups& groups, WaitDecision& wait) const {
  int64_t free = 0;
  int64_t exist = 0;
  for (const Group& group : groups) {
    free = std::max(free, Count(group, Use::kFree, true));
    exist = std::max(exist, static_cast<int64_t>(group.size()));
  }
  if (free >= need.least) {
    wait.reason_code = "reserved";
    wait.reason = absl::StrCat("needs ", Plural(need.least, "worker"),
                               "; the free ones are reserved for jobs ahead of it in the queue");
  } else {
    wait.reason_code = "workers_busy";
    wait.reason = absl::StrCat("needs ", Plural(need.least, "worker"), ", ", free, " of ", exist,
                               free == 1 ? " is free" : " are free");
  }
}

void Planner::Place(const JobView& job) {
  const Need need = NeedOf(*job.spec);
  WaitDecision wait{job.job_id, "", ""};
  if (need.least > MaxRanks(*job.spec)) {
    wait.reason_code = "batch";
    wait.reason = absl::StrCat("min_workers is ", need.least, ", but a global batch has only ",
                               MaxRanks(*job.spec), " micro-batches to share");
    out_.waits.push_back(std::move(wait));
    return;
  }
  const Groups groups = Existing(job, need, wait);
  if (groups.empty()) {
    out_.waits.push_back(std::move(wait));
    return;  // reserves nothing, because it cannot start in any case
  }
  if (any_free_ && TryStart(job, need, groups)) {
    return;
  }
  const bool coming = Preempt(job, need, groups);
  ExplainBusy(need, groups, wait);
  if (coming && wait.reason_code == "workers_busy") {
    wait.reason_code = "waits_for_stop";
    absl::StrAppend(&wait.reason, "; others are being stopped for it");
  }
  for (const Group& group : groups) {
    for (size_t i : group) {
      slots_[i].reserved = true;
    }
  }
  out_.waits.push_back(std::move(wait));
}

void Planner::Grow(const JobView& job) {
  const Need need = NeedOf(*job.spec);
  const int64_t size = static_cast<int64_t>(job.workers.size());
  if (!any_free_ || !job.movable || !job.at_checkpoint || size >= need.wanted || size == 0 ||
      now_ - job.started < view_.resize_interval) {
    return;
  }
  auto first = slot_index_.find(job.workers.front());
  if (first == slot_index_.end()) {
    return;
  }
  const bool span = SpansHosts(*job.spec);
  const Slot& own = slots_[first->second];
  int64_t spare = 0;
  for (Slot& slot : slots_) {
    if (size + spare < need.wanted && slot.use == Use::kFree && !slot.reserved &&
        now_ - slot.view->idle_since >= view_.resize_settle &&
        (span ? slot.root_group == own.root_group : slot.host_group == own.host_group) &&
        Suits(*slot.view->worker, job.spec->resources())) {
      slot.use = Use::kBusy;
      ++spare;
    }
  }
  if (spare > 0) {
    Requeue(job_index_.at(job.job_id), "resized",
            absl::StrCat("grows from ", size, " to ", Plural(size + spare, "worker")));
  }
}

Decisions Planner::Run() {
  Prepare();
  Drain();
  for (size_t i : order_) {
    if (phases_[i] == JobPhase::kWaiting) {
      Place(view_.jobs[i]);
    }
  }
  for (size_t i : order_) {
    if (phases_[i] == JobPhase::kRunning) {
      Grow(view_.jobs[i]);
    }
  }
  return std::move(out_);
}

}  // namespace

Decisions Plan(const ClusterView& view, absl::Duration now) {
  return Planner(view, now).Run();
}

int64_t MaxRanks(const v1::JobSpec& spec) {
  const int64_t sequence = std::max(1, spec.data().sequence_length());
  const int64_t micro = std::max(1, spec.batch().micro_batch_size());
  const int64_t tokens = spec.batch().global_batch_tokens();
  if (tokens <= 0) {
    return INT32_MAX;  // by default a global batch is one micro-batch for each rank wanted
  }
  return std::max<int64_t>(1, tokens / (sequence * micro));
}

bool Suits(const v1::Worker& worker, const v1::ResourceSpec& resources) {
  const std::string kind = resources.has_device() ? resources.device() : "cpu";
  if (worker.device().kind() != kind) {
    return false;
  }
  for (const auto& [key, value] : resources.selector()) {
    auto label = worker.labels().find(key);
    if (label == worker.labels().end() || label->second != value) {
      return false;
    }
  }
  return true;
}

}  // namespace hearth::coordinator
