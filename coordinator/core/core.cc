// The core: its parts put together, and the way of a command to the one that applies it.
#include "coordinator/core/core.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "coordinator/core/agents/agent_sessions.h"
#include "coordinator/core/agents/heartbeats.h"
#include "coordinator/core/gangs/deadlines.h"
#include "coordinator/core/gangs/stragglers.h"
#include "coordinator/core/gangs/stuck_jobs.h"
#include "coordinator/core/identity/token_commands.h"
#include "coordinator/core/jobs/inspections.h"
#include "coordinator/core/jobs/job_commands.h"
#include "coordinator/core/jobs/job_deletion.h"
#include "coordinator/core/jobs/notifications.h"
#include "coordinator/core/jobs/start_conditions.h"
#include "coordinator/core/liveness/loss_declaration.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/reports/reports.h"
#include "coordinator/core/ticks.h"
#include "coordinator/core/transitions.h"
#include "coordinator/core/workers/worker_commands.h"

namespace hearth::coordinator {
namespace {

// The parts with rows in the command table: a part that is named here has its rows in it, and
// cannot be left out of CoreAssembly.
using CommandParts = std::tuple<JobCommands*,
                                JobDeletion*,
                                Checkpoints*,
                                Inspections*,
                                Notifications*,
                                WorkerCommands*,
                                LossDeclaration*,
                                TokenCommands*,
                                CheckpointFolders*,
                                AgentSessions*,
                                Heartbeats*,
                                Reports*,
                                KeyValues*,
                                Ticks*>;

template <typename... Part>
std::vector<CommandRow> RowsOf(const std::tuple<Part*...>* /*parts*/) {
  std::vector<CommandRow> rows;
  for (const auto& part : {Part::Rows()...}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

// The part of a row.
void* PartOf(const CommandParts& parts, std::type_index type) {
  void* found = nullptr;
  std::apply(
      [&found, type](auto*... part) {
        ((found = type == typeid(*part) ? static_cast<void*>(part) : found), ...);
      },
      parts);
  HEARTH_CHECK(found != nullptr, type.name());
  return found;
}

// Workers that FindIdleReaders gives a reason for.
constexpr size_t kReasonsMax = 8;

Core::Reader ReaderOn(const WorkerState& worker, const v1::Checkpoint& checkpoint) {
  return {worker.worker().worker_id(), worker.connection, FolderOn(worker.worker(), checkpoint),
          worker.worker().device().model()};
}

}  // namespace

const std::vector<CommandRow>& CommandTable() {
  static const auto* const table =
      new std::vector<CommandRow>(RowsOf(static_cast<const CommandParts*>(nullptr)));
  return *table;
}

const CommandRow& RowOf(std::type_index type) {
  const auto& table = CommandTable();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [type](const CommandRow& row) { return row.type == type; });
  HEARTH_CHECK(found != table.end(), type.name());
  return *found;
}

std::string MakeJobId(const std::string& name, const std::string& suffix) {
  return absl::StrCat(Slug(name, 62 - suffix.size()), "-", suffix);
}

// All parts, in the order in which they need one another: each is given what it may use, which
// stands above it. Two parts that need each other do not compile, as each header includes those of
// the parts that it uses.
struct CoreAssembly {
  CoreAssembly(const CoreOptions& core_options, const RestoredState& state, Now now);

  void Restore(const RestoredState& state);
  void RestoreJob(const v1::JobRecord& record);
  Effects Apply(const Command& command, Now now);

  const CoreOptions options;
  Turn turn;
  PlanTimer plan;

  // State, with its owners.
  Workers workers{options, plan};
  Liveness liveness{options, turn.mono()};
  Rendezvous rendezvous;
  Jobs jobs;
  Gangs gangs;
  Tokens tokens;

  // What happens to it.
  WorkerViews views{turn, workers, jobs, liveness};
  RepeatedCalls calls{options, turn, jobs};
  CheckpointFolders folders{turn, workers, jobs, liveness};
  JobStates states{turn, jobs, rendezvous, folders};
  Inspections inspections{turn, workers, jobs, liveness, states, plan};
  Checkpoints checkpoints{turn, gangs, rendezvous, folders, jobs, states, plan};
  KeyValues key_values{turn, workers, jobs, rendezvous, states};

  Recoveries recoveries{turn, workers, jobs, states};
  GangStarts starts{turn, options, workers, gangs, rendezvous, folders, states};
  GangEnds ends{turn, workers, liveness, jobs, gangs, states, recoveries, plan};
  Deadlines deadlines{turn, options, workers, liveness, jobs, gangs, states, ends};

  Stragglers stragglers{turn, jobs, gangs, states};
  StuckJobs stuck{turn, options, jobs, gangs, states};
  StartConditions conditions{turn, jobs, states};
  Notifications notifications{turn, options, jobs, states};

  Isolation isolation{turn, options, workers, liveness, jobs, states, plan};
  SilentWorkers silent{turn, workers, liveness, jobs, gangs, states, ends, isolation};
  ClusterViews clusters{turn, options, workers, jobs, gangs, liveness};
  Placement placement{turn, jobs, clusters, states, starts, ends, inspections, plan};

  StepReports steps{turn, workers, gangs, states, recoveries};
  JobLogs logs{options, turn};
  Reports reports{turn, workers, jobs, steps, logs, key_values, checkpoints, ends};

  Admission admission{turn, options, workers, liveness};
  HelloTasks hello_tasks{turn, options, workers, jobs, gangs, states, starts, ends};
  AgentSessions sessions{turn, workers, liveness, admission, hello_tasks, ends, folders, views};
  Heartbeats heartbeats{turn, options, workers, jobs, gangs};

  JobCommands job_commands{turn, options, jobs, states, ends, conditions, plan};
  JobDeletion job_deletion{turn, workers, jobs, gangs, rendezvous, folders, states};
  WorkerCommands worker_commands{turn, workers, views, plan};
  LossDeclaration declaration{turn, workers, liveness, silent, isolation, views, plan};
  TokenCommands token_commands{turn, tokens};
  Ticks ticks{turn,  jobs,  silent, folders,        checkpoints, deadlines, stragglers,
              stuck, views, calls,  token_commands, conditions,  placement, notifications};

  const CommandParts command_parts{
      &job_commands,    &job_deletion, &checkpoints,    &inspections, &notifications,
      &worker_commands, &declaration,  &token_commands, &folders,     &sessions,
      &heartbeats,      &reports,      &key_values,     &ticks};
};

CoreAssembly::CoreAssembly(const CoreOptions& core_options, const RestoredState& state, Now now)
    : options(core_options),
      turn(core_options.generation, now),
      plan(now.monotonic),
      jobs(plan, options.aging, state.last_revision) {
  Restore(state);
}

void CoreAssembly::Restore(const RestoredState& state) {
  for (const v1::WorkerRecord& record : state.workers) {
    workers.Restore(record, turn.mono());
  }
  // Jobs put their ranks on workers, so these are there first.
  for (const v1::JobRecord& record : state.jobs) {
    RestoreJob(record);
  }
  calls.Restore(state.requests);
  tokens.Restore(state.tokens);
  for (const v1::KvRecord& record : state.kv) {
    const JobState* job = jobs.Find(record.job_id());
    // Keys of an earlier epoch would lead ranks to processes that are gone.
    if (job != nullptr && job->job().epoch() == record.epoch()) {
      rendezvous.Restore(record);
    }
  }
  for (const auto& [id, worker] : workers.all()) {
    views.Update(worker);
  }
}

void CoreAssembly::RestoreJob(const v1::JobRecord& record) {
  const std::string& id = record.job().job_id();
  jobs.Restore(record, turn.now());
  notifications.Restore(record);
  // From the step that was reported last: only a later one is a sign of life.
  gangs.Start(id, record.job().step(), turn.mono());
  if (!HasGang(record.job().state())) {
    return;
  }
  // Busy from the start, although none has dialled in yet: a plan must not give a worker of a
  // running gang to another job.
  for (const v1::RankRecord& rank : record.ranks()) {
    workers.RestoreRank(rank, id, turn.mono());
  }
  const bool some_gone = std::any_of(record.ranks().begin(), record.ranks().end(),
                                     [](const v1::RankRecord& rank) { return rank.gone(); });
  // How much of the grace was used is not stored: it begins again.
  if (record.has_stop() || some_gone) {
    gangs.of(id).EndBy(turn.mono() + Grace(record.job()));
  }
}

Effects CoreAssembly::Apply(const Command& command, Now now) {
  const absl::Duration before = turn.mono();
  turn.Begin(now, command.origin());
  liveness.NoticeGap(before, turn.mono());
  const CommandRow& row = command.row();
  const RequestKey key = row.key == nullptr ? RequestKey() : row.key(command.args());
  if (!calls.AnsweredBefore(key, row)) {
    row.apply(PartOf(command_parts, row.part), command.args());
    // Only what was done: a refused call may be sent again under its request_id.
    const std::optional<Reply>& reply = turn.effects().reply;
    if (reply.has_value() && reply->job.has_value() && !command.changes_nothing()) {
      calls.Remember(key, row, reply->job->job_id());
    }
  }
  notifications.TakeEvents();
  // Views first: they may add rows.
  views.Flush();
  jobs.Flush(turn.effects());
  turn.effects().visits.jobs += jobs.TakeVisits();
  turn.effects().visits.workers += workers.TakeVisits();
  return turn.Take();
}

Core::Core(const CoreOptions& options, const RestoredState& state, Now now)
    : parts_(std::make_unique<CoreAssembly>(options, state, now)) {}
Core::~Core() = default;

Effects Core::Apply(const Command& command, Now now) {
  return parts_->Apply(command, now);
}

absl::Duration Core::NextDeadline() const {
  return std::min(parts_->ticks.Due(), parts_->plan.Deadline(parts_->turn.mono()));
}

const v1::JobRecord* Core::FindJob(const std::string& job_id) const {
  const JobState* job = parts_->jobs.Find(job_id);
  return job == nullptr ? nullptr : &job->record();
}

const v1::WorkerRecord* Core::FindWorker(const std::string& worker_id) const {
  const WorkerState* worker = parts_->workers.Find(worker_id);
  return worker == nullptr ? nullptr : &worker->record;
}

std::vector<const v1::JobRecord*> Core::Jobs() const {
  std::vector<const v1::JobRecord*> out;
  for (const auto& [id, job] : parts_->jobs.all()) {
    out.push_back(&job.record());
  }
  return out;
}

std::vector<const v1::WorkerRecord*> Core::Workers() const {
  std::vector<const v1::WorkerRecord*> out;
  for (const auto& [id, worker] : parts_->workers.all()) {
    out.push_back(&worker.record);
  }
  return out;
}

std::optional<Core::Eligible> Core::FindInspector(const v1::JobSpec& spec) const {
  const WorkerState* worker = parts_->inspections.FindWorker(spec);
  if (worker == nullptr) {
    return std::nullopt;
  }
  return Eligible{worker->worker().worker_id(), worker->connection, worker->worker().root_uuid()};
}

std::optional<Core::Reader> Core::FindReader(const v1::Checkpoint& checkpoint) const {
  const WorkerState* worker = parts_->folders.WorkerOfRoot(checkpoint.root_uuid());
  if (worker == nullptr) {
    return std::nullopt;
  }
  return ReaderOn(*worker, checkpoint);
}

Core::IdleReaders Core::FindIdleReaders(const v1::Checkpoint& checkpoint,
                                        const std::string& worker_id) const {
  IdleReaders found;
  std::vector<std::string> reasons;
  for (const auto& [id, worker] : parts_->workers.all()) {
    if (!worker_id.empty() && id != worker_id) {
      continue;
    }
    const std::string reason = parts_->folders.WhyNotIdleReader(worker, checkpoint.root_uuid());
    if (reason.empty()) {
      found.idle.push_back(ReaderOn(worker, checkpoint));
    } else {
      reasons.push_back(absl::StrCat(id, " ", reason));
    }
  }
  // GPUs first. The sort is stable, so equal workers stay in the order of their ids.
  std::stable_sort(found.idle.begin(), found.idle.end(), [this](const Reader& a, const Reader& b) {
    const auto gpu = [this](const Reader& reader) {
      return parts_->workers.at(reader.worker_id).worker().device().kind() == "cuda";
    };
    return gpu(a) && !gpu(b);
  });
  const size_t rest = reasons.size() - std::min(reasons.size(), kReasonsMax);
  reasons.resize(reasons.size() - rest);
  found.others = absl::StrCat(absl::StrJoin(reasons, "; "),
                              rest > 0 ? absl::StrCat("; and ", rest, " more") : "");
  return found;
}

int64_t Core::pending_notifications() const {
  return parts_->notifications.pending();
}
int64_t Core::last_revision() const {
  return parts_->jobs.revision();
}
const CoreOptions& Core::options() const {
  return parts_->options;
}
bool Core::isolated() const {
  return parts_->liveness.isolated();
}
const std::map<std::string, int64_t>& Core::reason_counts() const {
  return parts_->jobs.reason_counts();
}

}  // namespace hearth::coordinator
