#include "coordinator/core/core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "coordinator/core/parts.h"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kTickIdle = absl::Seconds(1);
constexpr absl::Duration kTickBusy = absl::Milliseconds(250);
}  // namespace

const std::vector<CommandRow>& CommandTable() {
  static const auto* const table = [] {
    auto* rows = new std::vector<CommandRow>;
    for (const auto& part : {JobCommands(), WorkerCommands(), IsolationCommands(), FolderCommands(),
                             AgentCommands(), ReportCommands(), TimeCommands()}) {
      rows->insert(rows->end(), part.begin(), part.end());
    }
    return rows;
  }();
  return *table;
}

const CommandRow& RowOf(std::type_index type) {
  const auto& table = CommandTable();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [type](const CommandRow& row) { return row.type == type; });
  HEARTH_CHECK(found != table.end(), type.name());
  return *found;
}

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
    : parts_(std::make_unique<CoreParts>(options, state, now)) {}
Core::~Core() = default;

Effects Core::Apply(const Command& command, Now now) {
  return parts_->Apply(command, now);
}

absl::Duration Core::NextDeadline() const {
  // From the last Tick, not from the last command: a steady stream of reports must not put it off.
  const absl::Duration tick =
      parts_->last_tick_ + (parts_->jobs_.active().empty() ? kTickIdle : kTickBusy);
  return std::min(tick, parts_->plan_.Deadline(parts_->Mono()));
}

const v1::JobRecord* Core::FindJob(const std::string& job_id) const {
  const JobState* job = parts_->jobs_.Find(job_id);
  return job == nullptr ? nullptr : &job->record();
}

const v1::WorkerRecord* Core::FindWorker(const std::string& worker_id) const {
  const WorkerState* worker = parts_->workers_.Find(worker_id);
  return worker == nullptr ? nullptr : &worker->record;
}

std::vector<const v1::JobRecord*> Core::Jobs() const {
  std::vector<const v1::JobRecord*> out;
  for (const auto& [id, job] : parts_->jobs_.all()) {
    out.push_back(&job.record());
  }
  return out;
}

std::vector<const v1::WorkerRecord*> Core::Workers() const {
  std::vector<const v1::WorkerRecord*> out;
  for (const auto& [id, worker] : parts_->workers_.all()) {
    out.push_back(&worker.record);
  }
  return out;
}

std::optional<Core::Eligible> Core::FindInspector(const v1::JobSpec& spec) const {
  for (const auto& [id, worker] : parts_->workers_.all()) {
    if (worker.connection != 0 && !worker.Unhealthy() && !parts_->Silent(worker) &&
        Suits(worker.worker(), spec.resources())) {
      return Eligible{id, worker.connection, worker.worker().root_uuid()};
    }
  }
  return std::nullopt;
}

int64_t Core::last_revision() const {
  return parts_->jobs_.revision();
}
const CoreOptions& Core::options() const {
  return parts_->options_;
}
bool Core::isolated() const {
  return parts_->liveness_.isolated();
}
const std::map<std::string, int64_t>& Core::reason_counts() const {
  return parts_->jobs_.reason_counts();
}

CoreParts::CoreParts(const CoreOptions& core_options, const RestoredState& state, Now now)
    : options_(core_options),
      now_(now),
      start_time_(now.monotonic),
      last_tick_(now.monotonic),
      plan_(now.monotonic),
      workers_(core_options, plan_),
      liveness_(core_options, now.monotonic),
      jobs_(plan_, state.last_revision),
      requests_(core_options) {
  Restore(state);
}

void CoreParts::Restore(const RestoredState& state) {
  for (const v1::WorkerRecord& record : state.workers) {
    workers_.Restore(record, Mono());
  }
  for (const v1::JobRecord& record : state.jobs) {
    RestoreJob(record);
  }
  requests_.Restore(state.requests, Mono());
  for (const v1::KvRecord& record : state.kv) {
    const JobState* job = jobs_.Find(record.job_id());
    if (job != nullptr && job->job().epoch() == record.epoch()) {
      rendezvous_.Restore(record);
    }
  }
  for (const auto& [id, worker] : workers_.all()) {
    UpdateWorkerView(worker);
  }
}

void CoreParts::RestoreJob(const v1::JobRecord& record) {
  const std::string& id = record.job().job_id();
  jobs_.Restore(record, now_);
  gangs_.Start(id, record.job().step(), Mono());
  if (!HasGang(record.job().state())) {
    return;
  }
  for (const v1::RankRecord& rank : record.ranks()) {
    workers_.RestoreRank(rank, id, Mono());
  }
  const bool some_gone = std::any_of(record.ranks().begin(), record.ranks().end(),
                                     [](const v1::RankRecord& rank) { return rank.gone(); });
  if (record.has_stop() || some_gone) {
    gangs_.of(id).EndBy(Mono() + Grace(record.job()));
  }
}

Effects CoreParts::Apply(const Command& command, Now now) {
  HEARTH_CHECK(now.monotonic >= now_.monotonic, "monotonic time never goes back");
  liveness_.NoticeGap(Mono(), now.monotonic);
  now_ = now;
  effects_ = Effects();
  const CommandRow& row = command.row();
  const RequestKey key = row.key == nullptr ? RequestKey() : row.key(command.args());
  if (!AnsweredBefore(key, row)) {
    row.apply(*this, command.args());
    // Only what was done: a refused call may be sent again under its request_id.
    if (effects_.reply.has_value() && effects_.reply->job.has_value() &&
        !command.changes_nothing()) {
      Remember(key.request_id, row, effects_.reply->job->job_id());
    }
  }
  Flush();
  return std::move(effects_);
}

void CoreParts::Flush() {
  // Views first: they may add rows.
  workers_.Flush([this](const WorkerState& worker) { return FactsOf(worker); }, effects_);
  jobs_.Flush(effects_);
}

Workers::Facts CoreParts::FactsOf(const WorkerState& worker) const {
  Workers::Facts facts;
  if (!worker.job_id.empty()) {
    const JobState& job = jobs_.at(worker.job_id);
    facts.epoch = job.job().epoch();
    facts.rank = RankOf(job, facts.epoch, worker);
  }
  facts.silent = liveness_.JudgesSilence(Mono()) && Silent(worker);
  return facts;
}

void CoreParts::AddEvent(JobState& job,
                         const std::string& type,
                         const std::string& actor,
                         const std::string& code,
                         const std::string& message,
                         v1::JobState from,
                         v1::JobState to) {
  jobs_.AddEvent(job, {type, actor, code, message}, from, to, now_, effects_);
}

void CoreParts::Note(JobState& job,
                     const std::string& type,
                     const std::string& actor,
                     const std::string& message) {
  AddEvent(job, type, actor, job.job().reason_code(), message, job.state(), job.state());
}

void CoreParts::Transition(JobState& job,
                           v1::JobState to,
                           const std::string& actor,
                           const std::string& code,
                           const std::string& reason) {
  const bool had_gang = HasGang(job.state());
  jobs_.Transition(job, to, actor, code, reason, now_, effects_);
  if (had_gang && !HasGang(to)) {
    rendezvous_.Clear(job.job().job_id(), effects_);
    LookAtRootsOf(job);  // the gang may have left folders behind
  }
}

void CoreParts::Send(const WorkerState& worker, v1::CoordinatorMessage message) {
  if (worker.connection == 0) {
    return;  // said again when it is back
  }
  message.set_generation(options_.generation);
  effects_.messages.push_back({worker.connection, worker.worker().worker_id(),
                               worker.worker().incarnation(), std::move(message)});
}

void CoreParts::Close(const WorkerState& worker, const absl::Status& status) {
  if (worker.connection != 0) {
    effects_.closes.push_back({worker.connection, status});
    workers_.Disconnect(worker, Mono());
  }
}

}  // namespace hearth::coordinator
