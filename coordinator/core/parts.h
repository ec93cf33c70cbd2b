// The inside of Core: its parts, and what they do together.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/folders/roots.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/gangs/verdict.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/jobs/requests.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/plan_timer.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/transitions.h"
#include "coordinator/core/workers/workers.h"
#include "coordinator/scheduler/scheduler.h"

namespace hearth::coordinator {

// Seconds that a stopping gang may take.
absl::Duration Grace(const v1::Job& job);
// The checkpoint's folder as that worker sees it; roots that are shared may be mounted at different
// places.
std::string FolderOn(const v1::Worker& worker, const v1::Checkpoint& checkpoint);

// The rows of each owner (core_commands.h).
std::vector<CommandRow> JobCommands();
std::vector<CommandRow> WorkerCommands();
std::vector<CommandRow> IsolationCommands();
std::vector<CommandRow> FolderCommands();
std::vector<CommandRow> AgentCommands();
std::vector<CommandRow> ReportCommands();
std::vector<CommandRow> TimeCommands();

// Each part owns its fields: it is changed through what its header names, and no part calls
// another. What needs several of them is a function here, which calls them in order.
struct CoreParts {
  CoreParts(const CoreOptions& core_options, const RestoredState& state, Now now);

  // core.cc
  Effects Apply(const Command& command, Now now);
  void Restore(const RestoredState& state);
  void RestoreJob(const v1::JobRecord& record);
  void Flush();
  Workers::Facts FactsOf(const WorkerState& worker) const;
  void UpdateWorkerView(const WorkerState& worker) { workers_.UpdateView(worker, FactsOf(worker)); }
  void AddEvent(JobState& job,
                const std::string& type,
                const std::string& actor,
                const std::string& code,
                const std::string& message,
                v1::JobState from,
                v1::JobState to);
  void Note(JobState& job,
            const std::string& type,
            const std::string& actor,
            const std::string& message);
  void Transition(JobState& job,
                  v1::JobState to,
                  const std::string& actor,
                  const std::string& code,
                  const std::string& reason);
  void Send(const WorkerState& worker, v1::CoordinatorMessage message);
  void Close(const WorkerState& worker, const absl::Status& status);
  absl::Duration Mono() const { return now_.monotonic; }

  // jobs/job_commands.cc
  void On(const CreateJob& command);
  void On(const v1::UpdateJobRequest& request);
  void On(const v1::CancelJobRequest& request);
  void On(const v1::PauseJobRequest& request);
  void On(const ResumeJob& command);
  void On(const v1::DeleteJobRequest& request);
  void On(const v1::DeleteCheckpointRequest& request);
  void On(const InspectionDone& command);
  absl::Status CheckResume(const JobState& job, const ResumeJob& command) const;
  // A request with this id was answered: the job is the answer. True if `reply` was set.
  bool AnsweredBefore(const RequestKey& key, const CommandRow& row);
  void Remember(const std::string& request_id, const CommandRow& row, const std::string& job_id);
  void ReplyJob(const JobState& job);
  void ReplyError(absl::Status status);
  JobState* FindOrReply(const std::string& job_id);
  void DropFolder(const v1::Checkpoint& checkpoint);

  // agents.cc
  void On(const AgentConnected& command);
  void On(const AgentDisconnected& command);
  void On(const AgentHeartbeat& command);
  void On(const AgentGoodbye& command);
  absl::Status Admit(const AgentConnected& command);
  // Its rank, if it has one, is lost.
  void LoseRankOn(const WorkerState& worker, const std::string& why);
  void Reconcile(const WorkerState& worker, const v1::Hello& hello);
  void ReconcileRank(const WorkerState& worker,
                     JobState& job,
                     int rank,
                     const v1::TaskStatus* status);
  // Keeps the highest temperature of the job's devices.
  void NoteTemperature(JobState& job, const WorkerState& worker);

  // reports.cc
  void On(const AgentReport& command);
  // kInvalidArgument: steps that the job cannot be at.
  absl::Status CheckReport(const JobState& job, const v1::TaskReport& report) const;
  // The last step that the job may be at.
  static int64_t LastStep(const JobState& job);
  void ApplyReport(const WorkerState& worker,
                   JobState& job,
                   int rank,
                   const v1::TaskReport& report);
  void ApplyRunInfo(JobState& job, int rank, const v1::RunInfo& info);
  void ApplyTrial(JobState& job, int rank, const v1::PrecisionTrial& trial);
  // Joules of the devices of the ranks but 0 since the look before (since now, for a new epoch).
  double EnergyOfOtherRanks(JobState& job);
  void ApplyStep(JobState& job, int rank, const v1::StepReport& step);
  // Each is an event.
  void NoteDecisions(JobState& job,
                     const google::protobuf::RepeatedPtrField<v1::GuardDecision>& decisions);
  void ApplyLogs(JobState& job, int rank, const v1::LogBatch& logs);
  void ApplyKvPut(JobState& job, int rank, const v1::KvPut& put);
  void On(const AgentKvWait& command);
  void AnswerKv(const JobState& job, int rank, v1::KvValue value);
  void ApplyCheckpoint(const WorkerState& worker,
                       JobState& job,
                       int rank,
                       const v1::CheckpointAnnouncement& announcement);
  void ApplyDying(JobState& job, int rank, const v1::TaskDying& dying);
  void ApplyExit(const WorkerState& worker, JobState& job, int rank, const v1::TaskExit& exit);
  void StaleReport(const WorkerState& worker, const v1::TaskReport& report);
  void OpenEpoch(JobState& job, int64_t start_step);
  void AppendHistory(JobState& job, v1::MetricRecord record);
  void PruneCheckpoints(JobState& job);
  void Ack(
      const WorkerState& worker, const std::string& job_id, int64_t epoch, int rank, int64_t seq);
  // Rank of the job's present epoch that this worker's present daemon runs or ran; -1 = none.
  int RankOf(const JobState& job, int64_t epoch, const WorkerState& worker) const;

  // gang_life.cc
  void StartGang(JobState& job, const std::vector<std::string>& workers);
  // Writes down the devices of the gang that starts.
  void NoteDevices(JobState& job);
  void SendStart(JobState& job, int rank);
  // Control bit first, SIGKILL when grace_seconds are over; `now` kills at once.
  void Stop(JobState& job,
            v1::JobState to,
            v1::ControlBit bit,
            const std::string& actor,
            const std::string& code,
            const std::string& reason,
            bool kill_now);
  void Kill(JobState& job, const std::string& why);
  void SendStop(JobState& job, int rank);
  void LoseRank(JobState& job, int rank, const std::string& why, const std::string& code);
  void ReleaseWorker(JobState& job, int rank);
  // To be called after any rank has gone: moves the job on.
  void Settle(JobState& job);
  void SettleRunning(JobState& job);
  void SettleRecovering(JobState& job);
  void SettleStopping(JobState& job);
  void Recover(JobState& job);
  void Finish(JobState& job, v1::JobState to, const std::string& code, const std::string& reason);
  // Writes down whose loss the job recovers from. Several losses before the next step are one
  // recovery, from the first of them.
  void NoteFault(JobState& job, const Verdict& verdict);
  // The first step of an epoch was reported: a recovery that is under way is over.
  void NoteRecovered(JobState& job, int64_t step);
  // Counts a failure; true if the job may be started again.
  bool MayRestart(JobState& job);

  // deadlines.cc
  void On(const Tick&);
  void CheckDeadlines(JobState& job);
  void CheckKills(JobState& job);
  // Ends a gang that takes too long to its first step; it starts again as the next epoch.
  void CheckStart(JobState& job);
  // It runs a rank, or the record of a gang that is not over names it.
  bool HasRank(const WorkerState& worker) const;
  void Expire();

  // silence.cc
  void On(const v1::DeclareLostRequest& request);
  void CheckSilence();
  // A grace after a start, a stall or an isolation still holds for this worker.
  bool InQuiet(const WorkerState& worker) const;
  bool Silent(const WorkerState& worker) const { return liveness_.Silent(worker, Mono()); }
  // `by` is appended to the reason; "" = the coordinator itself has noticed.
  void Lose(const WorkerState& worker, const std::string& by);
  // Tells the jobs that suffer from an isolation, and that it is over.
  void NoteIsolation();
  void NoteIsolationEnd(const std::string& actor, const std::string& why);

  // folders.cc
  void On(const v1::PruneCheckpointsRequest& request);
  void On(const AgentFolders& command);
  void LookAtRootsOf(const JobState& job);
  // Asks workers for the listings that are due.
  void AskForFolders();
  // A connected worker that sees this root; null = none.
  const WorkerState* WorkerOfRoot(const std::string& root_uuid);
  struct Leftover {
    bool needed = true;      // recorded, or may be being written
    bool by_itself = false;  // to be removed without being asked
    std::string reason;      // why nobody needs it
  };
  Leftover JudgeFolder(const v1::CheckpointFolder& folder) const;
  void RemoveFolder(const WorkerState& worker, const v1::CheckpointFolder& folder);
  // Adds what is left under a root to the answer and, unless it is a dry run, removes it.
  void PruneRoot(const v1::PruneCheckpointsRequest& request,
                 const std::string& uuid,
                 const Root& root,
                 v1::PruneCheckpointsResponse& response);
  // <root>/<job id> of each root with checkpoints of the job.
  std::vector<v1::JobFolder> FoldersOf(const JobState& job);

  // placement.cc
  void Schedule();
  ClusterView View() const;
  void AddJobView(const JobState& job, ClusterView& view) const;
  void Start(const StartDecision& decision);
  void Wait(const WaitDecision& decision);
  bool Usable(const WorkerState& worker) const;

  const CoreOptions options_;
  Now now_;
  const absl::Duration start_time_;
  absl::Duration last_tick_;
  PlanTimer plan_;
  Workers workers_;
  Liveness liveness_;
  Rendezvous rendezvous_;
  Jobs jobs_;
  Gangs gangs_;
  Requests requests_;
  Roots roots_;
  Effects effects_;  // of the command that is being applied
};

template <typename T>
void ApplyOn(CoreParts& core, const T& command) {
  core.On(command);
}

template <typename T>
RequestKey KeyOf(const void* args) {
  [[maybe_unused]] const T& command = *static_cast<const T*>(args);
  if constexpr (requires { command.request_id(); }) {
    return {command.request_id(), command.job_id()};
  } else if constexpr (requires { command.request_id; }) {
    return {command.request_id, command.job_id};
  } else {
    return {};
  }
}

enum class OnFullDisk { kApplied, kRefused };

// The row of command T, which is applied by core.On() unless Apply says otherwise.
template <typename T, auto Apply = &ApplyOn<T>>
CommandRow Row(const char* name,
               OnFullDisk on_full_disk = OnFullDisk::kApplied,
               const char* request_method = "") {
  return {typeid(T),
          name,
          on_full_disk == OnFullDisk::kRefused,
          request_method,
          *request_method == 0 ? nullptr : &KeyOf<T>,
          [](CoreParts& core, const void* args) { Apply(core, *static_cast<const T*>(args)); }};
}

}  // namespace hearth::coordinator
