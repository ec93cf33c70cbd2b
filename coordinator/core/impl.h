// Inside of Core. One class in several files:
//   core.cc         life, dispatch, collecting effects      job_commands.cc  what users ask of jobs
//   and workers agents.cc       connections, Hello, heartbeats          reports.cc       what tasks
//   report gang.cc         start, stop, what follows when ranks go liveness.cc      silence,
//   deadlines placement.cc    cluster view, plan, decisions           kv.cc key-value space
//   isolation.cc    silent workers, or a coordinator that is cut off    folders.cc  checkpoint
//   folders that nobody needs
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/token_bucket.h"
#include "coordinator/core/core.h"
#include "coordinator/core/transitions.h"
#include "coordinator/scheduler/scheduler.h"

namespace hearth::coordinator {

// Reason of a gang that was ended because it did not get to its first step in time.
inline constexpr char kGangNotFormed[] = "gang_not_formed";

// What a rank does on its way to the first step, as heartbeats say it.
struct RankPhase {
  std::string name;      // as in v1::Job.phase; empty = nothing was heard of it yet
  absl::Duration since;  // monotonic
  absl::Duration met = absl::InfiniteDuration();  // when it came to the rendezvous, monotonic
};

// A job's record and what is known of it only while the process lives. Durations are monotonic
// times.
struct JobState {
  v1::JobRecord record;
  int64_t progress_step = 0;  // highest step heard of in this epoch
  absl::Duration last_progress;
  absl::Duration running_since;
  absl::Duration gang_start;
  std::vector<RankPhase> phases;  // of the present gang's ranks; empty = none has sent a heartbeat
  absl::Duration checkpoint_time = -absl::InfiniteDuration();
  absl::Duration stop_deadline = absl::InfiniteDuration();  // then the ranks are killed
  absl::Duration kill_time =
      absl::InfiniteDuration();  // first KillTask that still waits for its exit
  absl::Duration kill_again = absl::InfiniteDuration();  // when it is to be repeated
  std::map<int, double> energy_seen;  // rank (not 0) -> its device's counter when last added
  absl::Duration inspect_until = -absl::InfiniteDuration();  // an inspection is out until then
  std::optional<TokenBucket> log_rate;                       // made with the first batch

  v1::Job& job() { return *record.mutable_job(); }
  const v1::Job& job() const { return record.job(); }
  v1::JobState state() const { return record.job().state(); }
};

using TaskKey = std::pair<std::string, int64_t>;  // job id, epoch

struct WorkerState {
  v1::WorkerRecord record;
  uint64_t connection = 0;  // 0 = none
  absl::Duration last_seen;
  absl::Duration gone_since;  // since when it has not been usable, for the queue's head
  absl::Duration idle_since;
  absl::Duration connected_since;
  bool seen = false;    // it has dialled in since this process began
  std::string address;  // of its last stream; empty = not known
  bool local = false;   // ... which came from this machine
  // Its last stream ended right after a word: the peer's kernel closed it, for one that no packet
  // reaches ends later, by a timeout.
  bool ended_by_peer = false;
  bool lost = false;
  std::string reported_unhealthy;  // by its agent
  std::string job_id;              // whose rank is here and not gone
  std::map<TaskKey, absl::Duration>
      foreign;                  // fenced tasks that still run here -> when their kill was sent
  std::set<TaskKey> forgotten;  // told to forget on this connection

  v1::Worker& worker() { return *record.mutable_worker(); }
  const v1::Worker& worker() const { return record.worker(); }
  bool Unhealthy() const { return !reported_unhealthy.empty() || !record.unhealthy().empty(); }
};

struct KvSpace {
  std::map<std::string, std::string> values;
  std::map<std::string, std::string> refused;  // keys whose put failed -> why
  std::map<std::string, std::set<int>> waits;  // key -> ranks; at most kWaitsMax keys
  int64_t bytes = 0;
};

// Seconds that a stopping gang may take.
absl::Duration Grace(const JobState& job);
// The checkpoint's folder as that worker sees it; roots that are shared may be mounted at different
// places.
std::string FolderOn(const v1::Worker& worker, const v1::Checkpoint& checkpoint);

struct Core::Impl {
  Impl(const CoreOptions& core_options, const RestoredState& state, Now now);

  // core.cc
  Effects Apply(const Command& command, Now now);
  void Restore(const RestoredState& state);
  void RestoreJob(const v1::JobRecord& record);
  void NoticeStall(Now now);
  void Flush();
  JobState* Find(const std::string& job_id);
  WorkerState* FindWorker(const std::string& worker_id);
  WorkerState* OnConnection(uint64_t connection_id);
  void MarkJob(JobState& job, bool durable);
  void MarkWorker(WorkerState& worker, bool durable);
  void UpdateWorkerView(WorkerState& worker);
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
  void Close(WorkerState& worker, const absl::Status& status);
  absl::Duration Mono() const { return now_.monotonic; }

  // job_commands.cc
  void On(const CreateJob& command);
  void On(const UpdateJob& command);
  void On(const CancelJob& command);
  void On(const PauseJob& command);
  void On(const ResumeJob& command);
  void On(const DeleteJob& command);
  void On(const DeleteCheckpoint& command);
  void On(const CordonWorker& command);
  void On(const UncordonWorker& command);
  void On(const DrainWorker& command);
  void On(const DeleteWorker& command);
  void On(const InspectionDone& command);
  absl::Status CheckResume(const JobState& job, const ResumeJob& command) const;
  // The job of an earlier request with this id is the answer; true if `reply` was set.
  bool AnsweredBefore(const std::string& request_id,
                      const std::string& method,
                      const std::string& job_id);
  void Remember(const std::string& request_id,
                const std::string& method,
                const std::string& job_id);
  void ReplyJob(const JobState& job);
  void ReplyError(absl::Status status);
  JobState* FindOrReply(const std::string& job_id);
  WorkerState* FindWorkerOrReply(const std::string& worker_id);
  void DropFolder(const v1::Checkpoint& checkpoint);

  // agents.cc
  void On(const AgentConnected& command);
  void On(const AgentDisconnected& command);
  void On(const AgentHeartbeat& command);
  void On(const AgentGoodbye& command);
  absl::Status Admit(const AgentConnected& command);
  void TakeHello(WorkerState& worker, const v1::Hello& hello);
  void NewIncarnation(WorkerState& worker);
  void Reconcile(WorkerState& worker, const v1::Hello& hello);
  void ReconcileRank(WorkerState& worker, JobState& job, int rank, const v1::TaskStatus* status);
  void Disconnect(WorkerState& worker);
  void Heard(WorkerState& worker);
  // What the agent says of its health; "" = healthy.
  void HeardHealth(WorkerState& worker, const std::string& reason);
  void Progress(JobState& job, int64_t step);
  // Keeps the highest temperature of the job's devices.
  void NoteTemperature(JobState& job, const WorkerState& worker);

  // reports.cc
  void On(const AgentReport& command);
  // kInvalidArgument: steps that the job cannot be at.
  absl::Status CheckReport(const JobState& job, const v1::TaskReport& report) const;
  // The last step that the job may be at.
  static int64_t LastStep(const JobState& job);
  void ApplyReport(WorkerState& worker, JobState& job, int rank, const v1::TaskReport& report);
  void ApplyRunInfo(JobState& job, int rank, const v1::RunInfo& info);
  void ApplyTrial(JobState& job, int rank, const v1::PrecisionTrial& trial);
  // Joules of the devices of the ranks but 0 since the look before (since now, for a new epoch).
  double EnergyOfOtherRanks(JobState& job);
  void ApplyStep(JobState& job, int rank, const v1::StepReport& step);
  // Each is an event.
  void NoteDecisions(JobState& job,
                     const google::protobuf::RepeatedPtrField<v1::GuardDecision>& decisions);
  void ApplyLogs(JobState& job, int rank, const v1::LogBatch& logs);
  void ApplyCheckpoint(WorkerState& worker,
                       JobState& job,
                       int rank,
                       const v1::CheckpointAnnouncement& announcement);
  void ApplyDying(JobState& job, int rank, const v1::TaskDying& dying);
  void ApplyExit(WorkerState& worker, JobState& job, int rank, const v1::TaskExit& exit);
  void StaleReport(WorkerState& worker, const v1::TaskReport& report);
  void OpenEpoch(JobState& job, int64_t start_step);
  void AppendHistory(JobState& job, v1::MetricRecord record);
  void PruneCheckpoints(JobState& job);
  void Ack(
      const WorkerState& worker, const std::string& job_id, int64_t epoch, int rank, int64_t seq);
  // Rank of the job's present epoch that this worker's present daemon runs or ran; -1 = none.
  int RankOf(const JobState& job, int64_t epoch, const WorkerState& worker) const;

  // kv.cc
  void On(const AgentKvWait& command);
  void ApplyKvPut(JobState& job, int rank, const v1::KvPut& put);
  void RefuseKvPut(JobState& job, int rank, const std::string& key, const std::string& why);
  void AnswerKv(JobState& job, int rank, v1::KvValue value);
  // What the ranks told one another about checkpoints up to that step of this epoch.
  void ForgetCheckpointKeys(JobState& job, int64_t step);
  void ClearKv(const std::string& job_id);

  // gang.cc
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
  bool AllGone(const JobState& job) const;
  // RECOVERING, old ranks gone, accounted for: waits for workers alone.
  bool ReadyToRestart(const JobState& job) const;
  struct Verdict {
    ExitClass exit_class = ExitClass::kStopped;
    bool lost = false;
    int rank = 0;  // the one to blame; -1 = none, the gang as a whole
    std::string code;
    std::string message;
    std::string actor;
  };
  Verdict Judge(const JobState& job) const;
  // Writes down whose loss the job recovers from. Several losses before the next step are one
  // recovery, from the first of them.
  void NoteFault(JobState& job, const Verdict& verdict);
  // The first step of an epoch was reported: a recovery that is under way is over.
  void NoteRecovered(JobState& job, int64_t step);
  // Counts a failure; true if the job may be started again.
  bool MayRestart(JobState& job);

  // starting.cc
  void HeardPhase(JobState& job, int rank, const std::string& phase);
  // Ends a gang that takes too long to its first step; it starts again as the next epoch.
  void CheckStart(JobState& job);
  // Empty: it forms, or may still.
  std::string WhyNotFormed(const JobState& job) const;

  // liveness.cc
  void On(const Tick&);
  void CheckSilence();
  bool Silent(const WorkerState& worker) const;
  // How long this worker may say nothing before it counts as lost.
  absl::Duration Patience(const WorkerState& worker) const;
  // `by` is appended to the reason; "" = the coordinator itself has noticed.
  void Lose(WorkerState& worker, const std::string& by);
  void CheckDeadlines(JobState& job);
  void CheckKills(JobState& job);
  void CheckForeign(WorkerState& worker);
  // It runs a rank, or the record of a gang that is not over names it.
  bool HasRank(const WorkerState& worker) const;
  void Expire();

  // isolation.cc
  void On(const DeclareLost& command);
  // It is connected and was heard in the last heartbeats.
  bool Answers(const WorkerState& worker) const;
  // `other` answers, and was heard well after `worker`'s last word.
  bool HeardSince(const WorkerState& other, const WorkerState& worker) const;
  // ... and so shows that it is not the network that keeps `worker` silent.
  bool Disproves(const WorkerState& other, const WorkerState& worker) const;
  // All that this missing worker is measured by have dialled in a while ago.
  bool PeersAreBack(const WorkerState& worker) const;
  // Silence does not count for this worker yet: the grace after a start, a stall or an isolation.
  bool InQuiet(const WorkerState& worker) const;
  enum class Cause { kGone, kCutOff, kUnclear };
  // What keeps this worker, whose patience has run out, silent.
  Cause CauseOf(const WorkerState& worker) const;
  void BeginIsolation();
  // Some worker disproves it, or none is silent.
  bool ContactIsBack() const;
  void EndIsolation(const std::string& actor, const std::string& why);
  // Tells the jobs that suffer from it.
  void NoteIsolation();

  // folders.cc
  void On(const PruneFolders& command);
  void On(const AgentFolders& command);
  // The root is to be listed again, `after` at the earliest.
  void LookAtRoot(const std::string& root_uuid, absl::Duration after);
  void LookAtRootsOf(const JobState& job);
  // Asks workers for the listings that are due.
  void AskForFolders();
  // A connected worker that sees this root; null = none.
  WorkerState* WorkerOfRoot(const std::string& root_uuid);
  struct Leftover {
    bool needed = true;      // recorded, or may be being written
    bool by_itself = false;  // to be removed without being asked
    std::string reason;      // why nobody needs it
  };
  Leftover JudgeFolder(const v1::CheckpointFolder& folder) const;
  void RemoveFolder(const WorkerState& worker, const v1::CheckpointFolder& folder);
  // Adds what is left under a root to the answer and, unless it is a dry run, removes it.
  struct RootState;
  void PruneRoot(const v1::PruneCheckpointsRequest& request,
                 const std::string& uuid,
                 RootState& root,
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
  absl::Duration start_time_;
  int64_t revision_ = 0;
  std::map<std::string, JobState> jobs_;
  std::set<std::string> active_;   // jobs with a gang
  std::set<std::string> waiting_;  // QUEUED
  std::map<std::string, WorkerState> workers_;
  std::unordered_map<uint64_t, std::string> connections_;
  std::map<std::string, v1::RequestRecord> requests_;
  std::deque<std::string> request_order_;  // oldest first
  std::map<std::string, KvSpace> kv_;      // of the job's present epoch

  bool plan_due_ = true;
  absl::Duration last_tick_;
  absl::Duration next_plan_;
  absl::Duration plan_not_before_;  // a long queue is not planned anew for each command
  bool PlanDueNow() const { return plan_due_ && Mono() >= plan_not_before_; }
  absl::Duration quiet_from_;   // start, or end of a stall or an isolation
  absl::Duration quiet_until_;  // nobody is silent before
  bool isolated_ = false;
  absl::Duration isolated_until_;
  absl::Duration
      isolation_mark_;  // silences that began before this are part of an isolation that is over
  struct Loss {
    std::string worker_id;
    absl::Duration last_seen;
    std::string host;
  };
  std::deque<Loss> recent_losses_;  // newest last
  // By root UUID: what workers have told of it.
  struct RootState {
    std::string worker_id;    // that listed it last, or was asked to
    uint64_t connection = 0;  // of the question that is out; 0 = none is
    int64_t request_id = 0;
    absl::Duration asked = -absl::InfiniteDuration();
    absl::Duration due = absl::InfiniteDuration();
    std::optional<absl::Time> list_time;
    std::vector<v1::CheckpointFolder> folders;
    bool truncated = false;
  };
  std::map<std::string, RootState> roots_;
  int64_t folder_questions_ = 0;
  std::map<std::string, int64_t> reason_counts_;

  Effects effects_;
  std::map<std::string, bool> dirty_jobs_;  // -> durable
  std::map<std::string, bool> dirty_workers_;
};

}  // namespace hearth::coordinator
