#include "coordinator/core/gangs/gang_ends.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/reasons/reason_codes.h"
#include "common/spec/fields/rows.h"
#include "common/spec/objective/objective_table.h"
#include "coordinator/core/gangs/verdict.h"
#include "coordinator/core/jobs/resume_point.h"
#include "coordinator/core/transitions.h"
#include "coordinator/scheduler/demand.h"
#include "coordinator/scheduler/scheduler.h"

namespace hearth::coordinator {
namespace {

std::string FailedTooOften(const v1::Job& job, const Verdict& verdict) {
  return absl::StrCat("failed ", job.restarts(), " times without a new ",
                      spec::Trains(job.spec()) ? "checkpoint" : "result",
                      "; last: ", verdict.message);
}

}  // namespace

void GangEnds::Stop(JobState& job,
                    v1::JobState to,
                    v1::ControlBit bit,
                    const std::string& actor,
                    const std::string& code,
                    const std::string& reason,
                    bool kill_now) {
  // Before its first step a gang has nothing to save and may hang in rendezvous. A worker out of
  // reach may have trained on, so it is asked.
  bool all_reached = true;
  for (const v1::RankRecord& rank : job.record().ranks()) {
    const WorkerState& worker = workers_.at(rank.worker_id());
    all_reached =
        all_reached &&
        (rank.gone() || (worker.connection != 0 && !liveness_.Silent(worker, turn_.mono())));
  }
  // A step past those that the gang started from was done, even if its report has not arrived yet:
  // then there is something to save.
  const bool nothing_to_save =
      job.state() == v1::JOB_STATE_STARTING && all_reached &&
      gangs_.of(job.job().job_id()).step() <= ResumePointOf(job.job()).step;
  states_.Transition(job, to, actor, code, reason);
  job.gang().Stop(bit, code, reason);
  // Ranks that have not saved and ended by then are killed.
  gangs_.of(job.job().job_id()).EndBy(turn_.mono() + Grace(job.job()));
  if (kill_now || nothing_to_save) {
    Kill(job, reason);
  } else {
    for (int i = 0; i < job.record().ranks_size(); ++i) {
      SendStop(job, i);
    }
  }
  // All ranks may be gone already (a job that waits in RECOVERING): then no exit will come that
  // moves it on.
  Settle(job);
}

void GangEnds::Kill(JobState& job, const std::string& why) {
  job.gang().Kill(why);
  // Stored, so that a coordinator that dies now repeats the kill when the workers dial in again.
  jobs_.Mark(job, true);
  for (int i = 0; i < job.record().ranks_size(); ++i) {
    SendStop(job, i);
  }
}

void GangEnds::SendStop(JobState& job, int rank) {
  const v1::StopRecord& stop = job.record().stop();
  const v1::RankRecord& record = job.record().ranks(rank);
  if (!job.record().has_stop() || record.gone()) {
    return;
  }
  // A worker without a stream gets nothing (Turn::Send); its next Hello asks for this again
  // (HelloTasks).
  v1::CoordinatorMessage message;
  if (stop.kill()) {
    gangs_.of(job.job().job_id()).KillSent(turn_.mono());
    message.mutable_kill()->set_job_id(job.job().job_id());
    message.mutable_kill()->set_epoch(job.job().epoch());
    message.mutable_kill()->set_reason(stop.reason());
  } else if (stop.control_bit() != v1::CONTROL_BIT_UNSPECIFIED) {
    message.mutable_control()->set_job_id(job.job().job_id());
    message.mutable_control()->set_epoch(job.job().epoch());
    message.mutable_control()->set_bit(static_cast<v1::ControlBit>(stop.control_bit()));
  } else {
    return;
  }
  turn_.Send(workers_.at(record.worker_id()), std::move(message));
}

void GangEnds::ReleaseWorker(JobState& job, int rank) {
  if (rank == 0) {
    job.ForgetRankZero();
  }
  workers_.Release(workers_.at(job.record().ranks(rank).worker_id()), job.job().job_id(),
                   turn_.mono());
}

void GangEnds::LoseRank(JobState& job, int rank, const std::string& why, const std::string& code) {
  HEARTH_CHECK(rank >= 0, "a worker's task is a rank of its job");
  const v1::RankRecord& record = job.record().ranks(rank);
  if (record.gone()) {
    return;
  }
  // The fault began when the worker was last heard of, and not now, when we give it up.
  job.gang().Lost(rank, why,
                  Before(turn_.now(), turn_.mono() - workers_.at(record.worker_id()).last_seen));
  jobs_.CountReason(code);
  jobs_.Mark(job, true);
  ReleaseWorker(job, rank);
  Settle(job);
}

void GangEnds::LoseRankOn(const WorkerState& worker, const std::string& why) {
  if (JobState* job = worker.job_id.empty() ? nullptr : jobs_.Edit(worker.job_id)) {
    LoseRank(*job, RankOf(job->record(), job->job().epoch(), worker.worker()), why,
             reasons::kWorkerLost);
  }
}

void GangEnds::Dying(JobState& job, int rank, const v1::TaskDying& dying) {
  if (job.gang().Dying(rank, dying, turn_.now())) {
    // The others are killed now: until the worker has proved that the whole process group is gone,
    // some time passes, and they hang in a collective meanwhile.
    Settle(job);
  }
}

void GangEnds::Exited(const WorkerState& worker,
                      JobState& job,
                      int rank,
                      const v1::TaskExit& exit) {
  job.gang().Exited(rank, exit, turn_.now());
  if (!exit.clean()) {
    workers_.MarkUnhealthy(worker, exit.unclean_reason().empty() ? "a task could not be proven gone"
                                                                 : exit.unclean_reason());
    states_.Note(job, "warning", absl::StrCat("worker:", worker.worker().worker_id()),
                 absl::StrCat("unhealthy: ", worker.record.unhealthy()));
  }
  ReleaseWorker(job, rank);
  Settle(job);
}

std::optional<WaitText> GangEnds::WhyNoRestart(JobState& job, const Verdict& verdict) {
  const v1::ResourceSpec& spec = job.job().spec().resources();
  // Counted first, compared afterwards. Only a checkpoint or a resume takes it back, so these are
  // failures in a row.
  job.set_restarts(job.job().restarts() + 1);
  jobs_.Mark(job, true);
  if (!AvoidSmallDevices(job, verdict)) {
    return WaitText{verdict.code,
                    absl::StrCat(verdict.message, "; too few workers have more memory")};
  }
  if (job.job().restarts() > spec::IntOrDefault(spec, v1::ResourceSpec::kMaxRestartsFieldNumber)) {
    return WaitText{reasons::kMaxRestarts, FailedTooOften(job.job(), verdict)};
  }
  return std::nullopt;
}

bool GangEnds::AvoidSmallDevices(JobState& job, const Verdict& verdict) {
  if (!verdict.device_too_small) {
    return true;
  }
  const v1::RankRecord& rank = job.record().ranks(verdict.rank);
  const int64_t bytes = workers_.at(rank.worker_id()).worker().device().memory_bytes();
  const ResumePoint from = ResumePointOf(job.job());
  const Demand demand = DemandOf(job.job().spec(), from.root_uuid, from.checkpoint_step, bytes);
  // 0: its worker does not know.
  if (bytes == 0 || job.record().ranks_size() < demand.wanted) {
    return true;
  }
  if (bytes > job.record().too_small_bytes()) {
    job.set_too_small_bytes(bytes);
    states_.Note(job, "warning", verdict.actor,
                 absl::StrCat(verdict.message, "; the job now takes only devices with more than ",
                              FormatBytes(bytes), " of memory"));
  }
  std::vector<const v1::Worker*> workers;
  for (const auto& [id, worker] : workers_.all()) {
    workers.push_back(&worker.worker());
  }
  return LargestGang(workers, demand) >= demand.least;
}

void GangEnds::Settle(JobState& job) {
  switch (job.state()) {
    case v1::JOB_STATE_STARTING:
    case v1::JOB_STATE_RUNNING:
      return SettleRunning(job);
    case v1::JOB_STATE_RECOVERING:
      return SettleRecovering(job);
    case v1::JOB_STATE_PAUSING:
    case v1::JOB_STATE_REQUEUEING:
    case v1::JOB_STATE_CANCELLING:
      return SettleStopping(job);
    default:
      return;
  }
}

void GangEnds::Finish(JobState& job,
                      v1::JobState to,
                      const std::string& code,
                      const std::string& reason) {
  if (to == v1::JOB_STATE_SUCCEEDED && job.state() == v1::JOB_STATE_STARTING) {
    // STARTING has no edge to SUCCEEDED, and a checkpoint may be of the last step already.
    states_.Transition(job, v1::JOB_STATE_RUNNING, "trainer", reasons::kFinished,
                       "no step was left to do");
  }
  states_.Transition(job, to, "trainer", code, reason);
}

void GangEnds::SettleRunning(JobState& job) {
  const auto& ranks = job.record().ranks();
  if (Finished(ranks[0])) {
    // The final checkpoint is announced; what becomes of the others cannot undo that.
    if (AllGone(job.record())) {
      Finish(job, v1::JOB_STATE_SUCCEEDED, reasons::kFinished, "all steps are done");
    } else {
      // One that hangs in its exit is killed when the grace is over. Calls repeat, the earliest
      // deadline stays.
      gangs_.of(job.job().job_id()).EndBy(turn_.mono() + Grace(job.job()));
    }
    return;
  }
  const bool broken = AnyBroken(job.record());
  // Ranks that left in order count, too, although nobody here asked them to: a SIGTERM from outside
  // makes the whole gang save and leave.
  const bool left = std::any_of(ranks.begin(), ranks.end(), [](const v1::RankRecord& rank) {
    return rank.gone() && !Finished(rank);
  });
  if (broken || left || AllGone(job.record())) {
    Recover(job);
  }
}

void GangEnds::Recover(JobState& job) {
  const Verdict verdict = JudgeGang(job.record());
  // Final only with all ranks gone: a later exit may explain the end better. Else RECOVERING waits
  // for them, and SettleRecovering decides.
  if (AllGone(job.record()) && verdict.exit_class == ExitClass::kFatal) {
    Finish(job, v1::JOB_STATE_FAILED, verdict.code, verdict.message);
    return;
  }
  // Lost workers and stops from outside are not the trainer's failures: they may repeat for ever.
  if (AllGone(job.record()) && !verdict.lost && verdict.exit_class != ExitClass::kStopped) {
    if (const std::optional<WaitText> why = WhyNoRestart(job, verdict)) {
      Finish(job, v1::JOB_STATE_FAILED, why->code, why->reason);
      return;
    }
  }
  recoveries_.NoteFault(job, verdict);
  states_.Transition(job, v1::JOB_STATE_RECOVERING, verdict.actor, verdict.code, verdict.message);
  if (AllGone(job.record())) {
    // No stop under way and all ranks gone: that is what ReadyToRestart asks for.
    job.gang().ClearStop();
    return;
  }
  job.gang().SayWhy(verdict.code, verdict.message);
  gangs_.of(job.job().job_id()).EndBy(turn_.mono() + Grace(job.job()));
  // Peers of a broken rank hang in a collective, and closing connections does not wake them. Where
  // no rank is broken, the others are about to leave by themselves, within the grace.
  if (AnyBroken(job.record())) {
    Kill(job, verdict.message);
  }
}

void GangEnds::SettleRecovering(JobState& job) {
  if (!AllGone(job.record())) {
    if (!job.record().stop().kill() && AnyBroken(job.record())) {
      Kill(job, JudgeGang(job.record()).message);
    }
    return;
  }
  // This end was judged already; a second time would count the failure twice.
  if (!job.record().has_stop()) {
    return;
  }
  const Verdict verdict = JudgeGang(job.record());
  if (verdict.exit_class == ExitClass::kFatal) {
    Finish(job, v1::JOB_STATE_FAILED, verdict.code, verdict.message);
    return;
  }
  // kFinished: rank 0 has done all steps after all. RECOVERING has no edge to SUCCEEDED; the next
  // epoch finds nothing left to do, and the job succeeds (Finish).
  const bool counts = !verdict.lost && verdict.exit_class != ExitClass::kStopped &&
                      verdict.exit_class != ExitClass::kFinished;
  if (counts) {
    if (const std::optional<WaitText> why = WhyNoRestart(job, verdict)) {
      Finish(job, v1::JOB_STATE_FAILED, why->code, why->reason);
      return;
    }
  }
  recoveries_.NoteFault(job, verdict);  // by now it may be known better who was first
  // From here on ReadyToRestart holds: the next plan starts the next epoch or queues the job.
  job.gang().ClearStop();
  job.set_reason(verdict.code, absl::StrCat(verdict.message, "; all ranks are gone"));
  jobs_.Mark(job, true);
  plan_.Ask();
}

void GangEnds::SettleStopping(JobState& job) {
  if (!AllGone(job.record())) {
    if (!job.record().stop().kill() && AnyBroken(job.record())) {
      Kill(job, JudgeGang(job.record()).message);
    }
    return;
  }
  const Verdict verdict = JudgeGang(job.record());
  // A copy: a state without a gang clears the record's own.
  const v1::StopRecord stop = job.record().stop();
  // How the trainer ended goes before what it was asked for: a job that is done, or that would fail
  // again in the same way, is neither paused nor queued.
  if (verdict.exit_class == ExitClass::kFinished) {
    Finish(job, v1::JOB_STATE_SUCCEEDED, reasons::kFinished, "all steps are done");
    return;
  }
  if (verdict.exit_class == ExitClass::kFatal) {
    Finish(job, v1::JOB_STATE_FAILED, verdict.code, verdict.message);
    return;
  }
  std::string reason = stop.reason();
  const bool failed =
      verdict.exit_class == ExitClass::kFailure || verdict.exit_class == ExitClass::kPeers;
  if (failed || verdict.lost) {
    absl::StrAppend(&reason, "; ended at the last checkpoint: ", verdict.message);
  }
  // Set when the time limit ran out: nobody asked for this stop.
  if (stop.fail()) {
    Finish(job, v1::JOB_STATE_FAILED, stop.reason_code(), reason);
  } else if (job.state() == v1::JOB_STATE_CANCELLING) {
    Finish(job, v1::JOB_STATE_CANCELLED, stop.reason_code(), reason);
  } else if (job.state() == v1::JOB_STATE_PAUSING) {
    Finish(job, v1::JOB_STATE_PAUSED, stop.reason_code(), reason);
    if (job.job().desired() == v1::DESIRED_RUN) {
      // The user is the actor of the event that asked for it (JobCommands::Resume).
      states_.Transition(job, v1::JOB_STATE_QUEUED, "coordinator", reasons::kUserResume,
                         "resumed by the user");
    }
  } else {
    // Requeued, it would start again by itself: its failures on the way out count.
    const std::optional<WaitText> why = failed ? WhyNoRestart(job, verdict) : std::nullopt;
    Finish(job, why.has_value() ? v1::JOB_STATE_FAILED : v1::JOB_STATE_QUEUED,
           why.has_value() ? why->code : stop.reason_code(), reason);
  }
}

}  // namespace hearth::coordinator
