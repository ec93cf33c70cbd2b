#include "coordinator/service/view/view.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace hearth::coordinator {
namespace {

constexpr size_t kSweepAfter = 256;  // subscriptions
constexpr absl::string_view kStatePrefix = "JOB_STATE_";

absl::string_view Sv(std::string_view s) {
  return {s.data(), s.size()};
}

std::string StateNames() {
  std::string names;
  for (int value = v1::JobState_MIN + 1; value <= v1::JobState_MAX; ++value) {
    absl::string_view name = v1::JobState_Name(static_cast<v1::JobState>(value));
    absl::ConsumePrefix(&name, kStatePrefix);
    absl::StrAppend(&names, names.empty() ? "" : ", ", absl::AsciiStrToLower(name));
  }
  return names;
}

int64_t OrderTime(const v1::Job& job) {
  return job.create_time().seconds() * 1'000'000'000 + job.create_time().nanos();
}

}  // namespace

absl::StatusOr<JobFilter> JobFilter::Parse(std::string_view text) {
  JobFilter filter;
  for (const absl::string_view term :
       absl::StrSplit(Sv(text), absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    const size_t equals = term.find('=');
    const absl::string_view key = term.substr(0, equals);
    absl::string_view label = key;
    const bool of_label = absl::ConsumePrefix(&label, "label.") && !label.empty();
    const bool has_value = equals != absl::string_view::npos;
    if (equals == 0 || (!has_value && !of_label)) {
      return absl::InvalidArgumentError(absl::StrCat("filter: \"", term, "\" is not key=value"));
    }
    const absl::string_view value = has_value ? term.substr(equals + 1) : "";
    if (key == "state") {
      for (const absl::string_view name : absl::StrSplit(value, ',', absl::SkipEmpty())) {
        v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
        if (!v1::JobState_Parse(absl::StrCat(kStatePrefix, absl::AsciiStrToUpper(name)), &state) ||
            state == v1::JOB_STATE_UNSPECIFIED) {
          return absl::InvalidArgumentError(
              absl::StrCat("filter: no state \"", name, "\"; states are ", StateNames()));
        }
        filter.states_.insert(state);
      }
    } else if (key == "name") {
      filter.names_.emplace_back(value);
    } else if (key == "owner") {
      filter.owners_.emplace_back(value);
    } else if (of_label) {
      filter.labels_.emplace_back(std::string(label),
                                  has_value ? std::optional(std::string(value)) : std::nullopt);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "filter: unknown key \"", key, "\"; keys are state, name, owner and label.KEY"));
    }
  }
  return filter;
}

bool JobFilter::Matches(const v1::Job& job) const {
  if (!states_.empty() && !states_.contains(job.state())) {
    return false;
  }
  for (const std::string& name : names_) {
    if (job.spec().name() != name) {
      return false;
    }
  }
  for (const std::string& owner : owners_) {
    if (job.owner() != owner) {
      return false;
    }
  }
  for (const auto& [key, value] : labels_) {
    const auto found = job.spec().labels().find(key);
    if (found == job.spec().labels().end() || (value.has_value() && found->second != *value)) {
      return false;
    }
  }
  return true;
}

void View::Load(const Core& core,
                const std::vector<v1::JobEvent>& events,
                const RestoredState& restored) {
  absl::MutexLock lock(&mu_);
  for (const v1::JobRecord* record : core.Jobs()) {
    PutJobLocked(std::make_shared<const v1::JobRecord>(*record));
  }
  for (const v1::JobEvent& event : events) {
    PutEventLocked(std::make_shared<const v1::JobEvent>(event));
  }
  for (auto& [job_id, entry] : jobs_) {
    // A full list may have lost events before this start, and how many is not stored.
    if (entry.events.size() >= entry.old_notes + bounds_.newest) {
      entry.compacted_through = entry.events[entry.old_notes]->revision() - 1;
    }
  }
  for (const v1::WorkerRecord* record : core.Workers()) {
    PutWorkerLocked(std::make_shared<const v1::Worker>(record->worker()));
  }
  for (const v1::WorkerRecord& record : restored.workers) {
    const v1::WorkerState state = record.worker().state();
    // These were there when the last coordinator ended: /sd/workers waits for them, rather than
    // give Prometheus a short list.
    if (state != v1::WORKER_STATE_OFFLINE && state != v1::WORKER_STATE_LOST) {
      expected_.insert(record.worker().worker_id());
    }
  }
  for (const v1::RequestRecord& request : restored.requests) {
    requests_[request.request_id()] = request.job_id();
  }
  revision_ = core.last_revision();
}

void View::Apply(absl::Span<Effects> batch) {
  std::set<std::string> changed;
  std::vector<std::shared_ptr<Waker>> wakers;
  // Tokens first: a call that sees a change of this batch must also see who may no longer make it.
  for (const Effects& effects : batch) {
    identity_.Apply(effects);
  }
  {
    absl::MutexLock lock(&mu_);
    for (Effects& effects : batch) {
      for (JobRow& row : effects.jobs) {
        changed.insert(row.record.job().job_id());
        PutJobLocked(std::make_shared<const v1::JobRecord>(std::move(row.record)));
      }
      for (v1::JobEvent& event : effects.events) {
        changed.insert(event.job_id());
        PutEventLocked(std::make_shared<const v1::JobEvent>(std::move(event)));
      }
      for (const HistoryAppend& append : effects.history) {
        changed.insert(append.job_id);
      }
      for (const LogAppend& append : effects.logs) {
        changed.insert(append.job_id);
      }
      for (WorkerRow& row : effects.workers) {
        PutWorkerLocked(
            std::make_shared<const v1::Worker>(std::move(*row.record.mutable_worker())));
      }
      for (const std::string& worker_id : effects.worker_deletes) {
        workers_.erase(worker_id);
        expected_.erase(worker_id);
      }
      for (const std::string& request_id : effects.request_deletes) {
        requests_.erase(request_id);
      }
      for (const v1::RequestRecord& request : effects.requests) {
        requests_[request.request_id()] = request.job_id();
      }
      for (const std::string& job_id : effects.job_deletes) {
        changed.insert(job_id);
        RemoveJobLocked(job_id);
      }
    }
    wakers = WakersLocked(changed);
  }
  // Outside the lock: a waker may run its stream at once, which reads this view.
  for (const std::shared_ptr<Waker>& waker : wakers) {
    waker->Wake();
  }
}

void View::PutJobLocked(JobPtr record) {
  const v1::Job& job = record->job();
  Entry& entry = jobs_[job.job_id()];
  if (entry.record == nullptr) {
    entry.order = OrderKey(OrderTime(job), job.job_id());
  }
  revision_ = std::max(revision_, job.revision());
  by_age_[entry.order] = record;
  entry.record = std::move(record);
}

void View::RemoveJobLocked(const std::string& job_id) {
  const auto found = jobs_.find(job_id);
  if (found != jobs_.end()) {
    by_age_.erase(found->second.order);
    jobs_.erase(found);
  }
}

void View::PutEventLocked(EventPtr event) {
  revision_ = std::max(revision_, event->revision());
  const auto found = jobs_.find(event->job_id());
  if (found == jobs_.end()) {
    return;  // of a job that the same command deleted
  }
  found->second.events.push_back(std::move(event));
  TrimEventsLocked(found->second);
}

void View::TrimEventsLocked(Entry& entry) {
  while (entry.events.size() > entry.old_notes + bounds_.newest) {
    const auto oldest = entry.events.begin() + static_cast<std::ptrdiff_t>(entry.old_notes);
    if (IsNote(**oldest)) {
      ++entry.old_notes;
    } else {
      entry.compacted_through = (*oldest)->revision();
      entry.events.erase(oldest);
    }
    if (entry.old_notes > bounds_.notes) {
      entry.compacted_through = std::max(entry.compacted_through, entry.events.front()->revision());
      entry.events.pop_front();
      --entry.old_notes;
    }
  }
}

void View::PutWorkerLocked(WorkerPtr worker) {
  if (worker->state() != v1::WORKER_STATE_OFFLINE) {
    expected_.erase(worker->worker_id());
  }
  workers_[worker->worker_id()] = std::move(worker);
}

std::vector<std::shared_ptr<Waker>> View::WakersLocked(const std::set<std::string>& jobs) {
  std::vector<std::shared_ptr<Waker>> out;
  for (const std::string& job_id : jobs) {
    const auto found = wakers_.find(job_id);
    if (found == wakers_.end()) {
      continue;
    }
    std::vector<std::weak_ptr<Waker>> alive;
    for (std::weak_ptr<Waker>& weak : found->second) {
      if (std::shared_ptr<Waker> waker = weak.lock()) {
        out.push_back(std::move(waker));
        alive.push_back(std::move(weak));
      }
    }
    if (alive.empty()) {
      wakers_.erase(found);
    } else {
      found->second = std::move(alive);
    }
  }
  return out;
}

JobPtr View::FindJob(std::string_view job_id) const {
  absl::ReaderMutexLock lock(&mu_);
  const auto found = jobs_.find(Sv(job_id));
  return found == jobs_.end() ? nullptr : found->second.record;
}

WorkerPtr View::FindWorker(std::string_view worker_id) const {
  absl::ReaderMutexLock lock(&mu_);
  const auto found = workers_.find(worker_id);
  return found == workers_.end() ? nullptr : found->second;
}

std::vector<WorkerPtr> View::Workers() const {
  absl::ReaderMutexLock lock(&mu_);
  std::vector<WorkerPtr> out;
  out.reserve(workers_.size());
  for (const auto& [worker_id, worker] : workers_) {
    out.push_back(worker);
  }
  return out;
}

bool View::KnowsRequest(std::string_view request_id) const {
  absl::ReaderMutexLock lock(&mu_);
  return requests_.contains(Sv(request_id));
}

std::string View::PageToken(const v1::Job& job) {
  return absl::WebSafeBase64Escape(absl::StrCat(OrderTime(job), "/", job.job_id()));
}

absl::StatusOr<View::Page> View::List(const JobFilter& filter,
                                      std::string_view token,
                                      size_t page_size) const {
  // The token is the place of the last job of the page before: "ns/id" in web-safe base64.
  OrderKey last;
  if (!token.empty()) {
    std::string decoded;
    const bool readable = absl::WebSafeBase64Unescape(Sv(token), &decoded);
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(decoded, absl::MaxSplits('/', 1));
    if (!readable || !absl::SimpleAtoi(parts.first, &last.first) || parts.second.empty()) {
      return absl::InvalidArgumentError("page_token is not one that ListJobs returned");
    }
    last.second = parts.second;
  }
  Page page;
  absl::ReaderMutexLock lock(&mu_);
  // The token is a place and no number, so jobs that come and go between two pages move nothing.
  auto entry = token.empty() ? by_age_.begin() : by_age_.upper_bound(last);
  for (; entry != by_age_.end(); ++entry) {
    if (!filter.Matches(entry->second->job())) {
      continue;
    }
    if (page.jobs.size() == page_size) {
      page.next_token = PageToken(page.jobs.back()->job());
      break;
    }
    page.jobs.push_back(entry->second);
  }
  return page;
}

std::vector<JobPtr> View::AllJobs() const {
  absl::ReaderMutexLock lock(&mu_);
  std::vector<JobPtr> out;
  out.reserve(by_age_.size());
  for (const auto& [order, record] : by_age_) {
    out.push_back(record);
  }
  return out;
}

View::Changes View::ChangesSince(std::string_view job_id, int64_t cursor) const {
  Changes changes;
  absl::ReaderMutexLock lock(&mu_);
  const auto found = jobs_.find(Sv(job_id));
  if (found == jobs_.end()) {
    return changes;
  }
  const Entry& entry = found->second;
  changes.job = entry.record;
  changes.compacted = cursor < entry.compacted_through;
  const auto first = std::upper_bound(
      entry.events.begin(), entry.events.end(), cursor,
      [](int64_t value, const EventPtr& event) { return value < event->revision(); });
  changes.events.assign(first, entry.events.end());
  return changes;
}

void View::Subscribe(const std::string& job_id, std::weak_ptr<Waker> waker) {
  absl::MutexLock lock(&mu_);
  const auto ended = [](const std::weak_ptr<Waker>& weak) { return weak.expired(); };
  // Streams that have ended on jobs that no longer change, or never were, are swept here: of this
  // job at once, of all when as many have come as there were at the last sweep.
  if (++subscribed_ > std::max(swept_, kSweepAfter)) {
    for (auto entry = wakers_.begin(); entry != wakers_.end();) {
      std::erase_if(entry->second, ended);
      entry = entry->second.empty() ? wakers_.erase(entry) : std::next(entry);
    }
    subscribed_ = 0;
    swept_ = wakers_.size();
  }
  std::vector<std::weak_ptr<Waker>>& list = wakers_[job_id];
  std::erase_if(list, ended);
  list.push_back(std::move(waker));
}

size_t View::subscribed_jobs() const {
  absl::ReaderMutexLock lock(&mu_);
  return wakers_.size();
}

std::vector<std::string> View::MissingWorkers() const {
  absl::ReaderMutexLock lock(&mu_);
  return {expected_.begin(), expected_.end()};
}

int64_t View::revision() const {
  absl::ReaderMutexLock lock(&mu_);
  return revision_;
}

}  // namespace hearth::coordinator
