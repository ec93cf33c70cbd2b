#include "coordinator/core/core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clip_text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/impl.h"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kTickIdle = absl::Seconds(1);
constexpr absl::Duration kTickBusy = absl::Milliseconds(250);
// The loop ticks at least once a second, so a longer gap means that the process itself stood still.
constexpr absl::Duration kStall = absl::Seconds(2);
// After that long agents' keepalives have closed the streams and they must dial again.
constexpr absl::Duration kLongStall = absl::Seconds(10);
// Of an event's message. It may quote what a user or a trainer said.
constexpr size_t kEventTextMax = 4096;
// Bounds what a store may hold after damage; far above what counts, far below an overflow.
constexpr int64_t kSeqMax = int64_t{1} << 60;

}  // namespace

bool Effects::NothingDurable() const {
  auto durable = [](const auto& row) { return row.durable; };
  return std::none_of(jobs.begin(), jobs.end(), durable) &&
         std::none_of(workers.begin(), workers.end(), durable) && job_deletes.empty() &&
         events.empty() && history.empty() && logs.empty() && worker_deletes.empty() &&
         requests.empty() && request_deletes.empty() && kv_clears.empty() && kv_deletes.empty() &&
         kv_puts.empty();
}

std::string MakeJobId(const std::string& name, const std::string& suffix) {
  return absl::StrCat(Slug(name, 62 - suffix.size()), "-", suffix);
}

Core::Core(const CoreOptions& options, const RestoredState& state, Now now)
    : impl_(std::make_unique<Impl>(options, state, now)) {}
Core::~Core() = default;

Effects Core::Apply(const Command& command, Now now) {
  return impl_->Apply(command, now);
}

absl::Duration Core::NextDeadline() const {
  // From the last Tick, not from the last command: a steady stream of reports must not put it off.
  const absl::Duration tick = impl_->last_tick_ + (impl_->active_.empty() ? kTickIdle : kTickBusy);
  return impl_->plan_due_ ? std::min(tick, std::max(impl_->Mono(), impl_->plan_not_before_)) : tick;
}

const v1::JobRecord* Core::FindJob(const std::string& job_id) const {
  auto it = impl_->jobs_.find(job_id);
  return it == impl_->jobs_.end() ? nullptr : &it->second.record;
}

const v1::WorkerRecord* Core::FindWorker(const std::string& worker_id) const {
  auto it = impl_->workers_.find(worker_id);
  return it == impl_->workers_.end() ? nullptr : &it->second.record;
}

std::vector<const v1::JobRecord*> Core::Jobs() const {
  std::vector<const v1::JobRecord*> out;
  for (const auto& [id, job] : impl_->jobs_) {
    out.push_back(&job.record);
  }
  return out;
}

std::vector<const v1::WorkerRecord*> Core::Workers() const {
  std::vector<const v1::WorkerRecord*> out;
  for (const auto& [id, worker] : impl_->workers_) {
    out.push_back(&worker.record);
  }
  return out;
}

std::optional<Core::Eligible> Core::FindInspector(const v1::JobSpec& spec) const {
  for (const auto& [id, worker] : impl_->workers_) {
    if (worker.connection != 0 && !worker.Unhealthy() && !impl_->Silent(worker) &&
        Suits(worker.worker(), spec.resources())) {
      return Eligible{id, worker.connection, worker.worker().root_uuid()};
    }
  }
  return std::nullopt;
}

int64_t Core::last_revision() const {
  return impl_->revision_;
}
const CoreOptions& Core::options() const {
  return impl_->options_;
}
bool Core::isolated() const {
  return impl_->isolated_;
}
const std::map<std::string, int64_t>& Core::reason_counts() const {
  return impl_->reason_counts_;
}

Core::Impl::Impl(const CoreOptions& core_options, const RestoredState& state, Now now)
    : options_(core_options),
      now_(now),
      start_time_(now.monotonic),
      last_tick_(now.monotonic),
      next_plan_(now.monotonic),
      plan_not_before_(now.monotonic),
      quiet_from_(now.monotonic),
      quiet_until_(now.monotonic + core_options.reattach_grace),
      isolated_until_(now.monotonic),
      isolation_mark_(-absl::InfiniteDuration()) {
  Restore(state);
}

void Core::Impl::Restore(const RestoredState& state) {
  revision_ = state.last_revision;
  for (const v1::WorkerRecord& record : state.workers) {
    WorkerState& worker = workers_[record.worker().worker_id()];
    worker.record = record;
    worker.last_seen = worker.gone_since = worker.idle_since = worker.connected_since = Mono();
  }
  for (const v1::JobRecord& record : state.jobs) {
    RestoreJob(record);
  }
  for (const v1::RequestRecord& record : state.requests) {
    requests_[record.request_id()] = record;
    request_order_.push_back(record.request_id());
  }
  std::sort(request_order_.begin(), request_order_.end(),
            [this](const std::string& a, const std::string& b) {
              return FromProto(requests_[a].time()) < FromProto(requests_[b].time());
            });
  for (const v1::KvRecord& record : state.kv) {
    const JobState* job = Find(record.job_id());
    if (job != nullptr && job->job().epoch() == record.epoch()) {
      KvSpace& space = kv_[record.job_id()];
      space.values[record.key()] = record.value();
      space.bytes += static_cast<int64_t>(record.key().size() + record.value().size());
    }
  }
  for (auto& [id, worker] : workers_) {
    UpdateWorkerView(worker);
  }
}

void Core::Impl::RestoreJob(const v1::JobRecord& record) {
  JobState& job = jobs_[record.job().job_id()];
  job.record = record;
  for (v1::RankRecord& rank : *job.record.mutable_ranks()) {
    rank.set_applied_seq(std::clamp<int64_t>(rank.applied_seq(), 0, kSeqMax));
  }
  job.job().clear_isolation();
  job.progress_step = record.job().step();
  job.last_progress = job.running_since = job.gang_start = Mono();
  if (job.state() == v1::JOB_STATE_QUEUED) {
    waiting_.insert(job.job().job_id());
  }
  if (!HasGang(job.state())) {
    return;
  }
  active_.insert(job.job().job_id());
  if (job.state() == v1::JOB_STATE_RUNNING) {
    job.running_since -=
        std::max(absl::ZeroDuration(), now_.wall - FromProto(record.job().state_time()));
  }
  for (const v1::RankRecord& rank : record.ranks()) {
    WorkerState& worker = workers_[rank.worker_id()];
    if (worker.worker().worker_id().empty()) {  // its row is missing: it will say Hello, or be lost
      worker.worker().set_worker_id(rank.worker_id());
      worker.worker().set_incarnation(rank.incarnation());
      worker.last_seen = worker.gone_since = worker.idle_since = worker.connected_since = Mono();
    }
    if (!rank.gone()) {
      worker.job_id = job.job().job_id();
    }
  }
  const bool some_gone = std::any_of(record.ranks().begin(), record.ranks().end(),
                                     [](const v1::RankRecord& rank) { return rank.gone(); });
  if (record.has_stop() || some_gone) {
    job.stop_deadline = Mono() + Grace(job);
  }
}

Effects Core::Impl::Apply(const Command& command, Now now) {
  NoticeStall(now);
  now_ = now;
  effects_ = Effects();
  std::visit([this](const auto& c) { On(c); }, command);
  Flush();
  return std::move(effects_);
}

void Core::Impl::NoticeStall(Now now) {
  HEARTH_CHECK(now.monotonic >= now_.monotonic, "monotonic time never goes back");
  const absl::Duration gap = now.monotonic - now_.monotonic;
  if (gap > kStall) {
    // Nobody was heard because nobody listened.
    quiet_from_ = now.monotonic;
    quiet_until_ =
        std::max(quiet_until_,
                 now.monotonic + (gap > kLongStall ? options_.reattach_grace : options_.silence));
  }
}

void Core::Impl::Flush() {
  // Views first: they may add rows.
  for (auto& [id, durable] : dirty_workers_) {
    auto it = workers_.find(id);
    if (it != workers_.end()) {
      UpdateWorkerView(it->second);
      effects_.workers.push_back({it->second.record, durable});
    }
  }
  for (const auto& [id, durable] : dirty_jobs_) {
    auto it = jobs_.find(id);
    if (it != jobs_.end()) {
      effects_.jobs.push_back({it->second.record, durable});
    }
  }
  dirty_workers_.clear();
  dirty_jobs_.clear();
}

JobState* Core::Impl::Find(const std::string& job_id) {
  auto it = jobs_.find(job_id);
  return it == jobs_.end() ? nullptr : &it->second;
}

WorkerState* Core::Impl::FindWorker(const std::string& worker_id) {
  auto it = workers_.find(worker_id);
  return it == workers_.end() ? nullptr : &it->second;
}

WorkerState* Core::Impl::OnConnection(uint64_t connection_id) {
  auto it = connections_.find(connection_id);
  return it == connections_.end() ? nullptr : FindWorker(it->second);
}

void Core::Impl::MarkJob(JobState& job, bool durable) {
  bool& mark = dirty_jobs_[job.job().job_id()];
  mark = mark || durable;
}

void Core::Impl::MarkWorker(WorkerState& worker, bool durable) {
  bool& mark = dirty_workers_[worker.worker().worker_id()];
  mark = mark || durable;
}

void Core::Impl::UpdateWorkerView(WorkerState& worker) {
  v1::Worker& view = worker.worker();
  view.clear_job_id();
  view.clear_epoch();
  view.clear_rank();
  view.clear_reason();
  if (const JobState* job = worker.job_id.empty() ? nullptr : Find(worker.job_id)) {
    view.set_job_id(worker.job_id);
    view.set_epoch(job->job().epoch());
    view.set_rank(RankOf(*job, job->job().epoch(), worker));
  }
  const bool judged = Mono() >= quiet_until_;
  if (worker.lost) {
    view.set_state(v1::WORKER_STATE_LOST);
    view.set_reason("silent");
  } else if (worker.connection != 0 && worker.Unhealthy()) {
    view.set_state(v1::WORKER_STATE_UNHEALTHY);
    view.set_reason(worker.record.unhealthy().empty() ? worker.reported_unhealthy
                                                      : worker.record.unhealthy());
  } else if (worker.connection != 0 && !(judged && Silent(worker))) {
    view.set_state(worker.job_id.empty() ? v1::WORKER_STATE_IDLE : v1::WORKER_STATE_BUSY);
    if (!worker.foreign.empty()) {
      view.set_reason("an old task is being killed");
    }
  } else if (!worker.job_id.empty()) {
    view.set_state(v1::WORKER_STATE_UNREACHABLE);
    view.set_reason("silent; its job is believed to go on");
  } else {
    view.set_state(v1::WORKER_STATE_OFFLINE);
  }
  if (view.draining() && view.reason().empty()) {
    view.set_reason("draining");
  }
}

void Core::Impl::AddEvent(JobState& job,
                          const std::string& type,
                          const std::string& actor,
                          const std::string& code,
                          const std::string& message,
                          v1::JobState from,
                          v1::JobState to) {
  v1::JobEvent event;
  event.set_revision(++revision_);
  event.set_job_id(job.job().job_id());
  *event.mutable_time() = ToProto(now_.wall);
  event.set_type(type);
  event.set_actor(actor);
  event.set_from_state(from);
  event.set_to_state(to);
  event.set_reason_code(code);
  event.set_message(ClipText(message, kEventTextMax));
  event.set_epoch(job.job().epoch());
  event.set_step(job.job().step());
  effects_.events.push_back(std::move(event));
  job.job().set_revision(revision_);
  job.job().set_etag(absl::StrCat(absl::Hex(revision_)));
  *job.job().mutable_update_time() = ToProto(now_.wall);
  MarkJob(job, true);
}

void Core::Impl::Note(JobState& job,
                      const std::string& type,
                      const std::string& actor,
                      const std::string& message) {
  AddEvent(job, type, actor, job.job().reason_code(), message, job.state(), job.state());
}

void Core::Impl::Transition(JobState& job,
                            v1::JobState to,
                            const std::string& actor,
                            const std::string& code,
                            const std::string& reason) {
  const v1::JobState from = job.state();
  const std::string edge = absl::StrCat(StateName(from), " -> ", StateName(to));
  HEARTH_CHECK(IsLegalTransition(from, to), edge.c_str());
  HEARTH_CHECK(IsReasonCode(code), code.c_str());
  v1::Job& view = job.job();
  if (from == v1::JOB_STATE_RUNNING) {
    view.set_running_seconds(job.record.running_base() +
                             absl::ToDoubleSeconds(Mono() - job.running_since));
  }
  if (to == v1::JOB_STATE_RUNNING) {
    job.running_since = Mono();
    job.record.set_running_base(view.running_seconds());
    if (!view.has_start_time()) {
      *view.mutable_start_time() = ToProto(now_.wall);
    }
  }
  view.set_state(to);
  view.set_reason_code(code);
  view.set_reason(reason);
  *view.mutable_state_time() = ToProto(now_.wall);
  view.clear_end_time();
  if (IsTerminal(to)) {
    *view.mutable_end_time() = ToProto(now_.wall);
  }
  if ((IsTerminal(to) || to == v1::JOB_STATE_PAUSED) && view.recovery().seconds() == 0.0) {
    view.clear_recovery();  // nothing will come of it
  }
  if (!HasGang(to)) {
    view.clear_workers();
    job.record.clear_stop();
    if (HasGang(from)) {
      ClearKv(view.job_id());
      view.clear_isolation();
      LookAtRootsOf(job);
    }
  }
  HasGang(to) ? void(active_.insert(view.job_id())) : void(active_.erase(view.job_id()));
  to == v1::JOB_STATE_QUEUED ? void(waiting_.insert(view.job_id()))
                             : void(waiting_.erase(view.job_id()));
  ++reason_counts_[code];
  plan_due_ = true;
  AddEvent(job, "state", actor, code, reason, from, to);
}

void Core::Impl::Send(const WorkerState& worker, v1::CoordinatorMessage message) {
  if (worker.connection == 0) {
    return;  // said again when it is back
  }
  message.set_generation(options_.generation);
  effects_.messages.push_back({worker.connection, worker.worker().worker_id(),
                               worker.worker().incarnation(), std::move(message)});
}

void Core::Impl::Close(WorkerState& worker, const absl::Status& status) {
  if (worker.connection != 0) {
    effects_.closes.push_back({worker.connection, status});
    Disconnect(worker);
  }
}

}  // namespace hearth::coordinator
