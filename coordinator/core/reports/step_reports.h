// What rank 0 reports of the training itself: where it starts, its steps, what the guard decided.
// It becomes the job's view and history. Owns nothing; the history's cursor is changed only here.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/gangs/recoveries.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class StepReports {
 public:
  // All that is passed in outlives this.
  StepReports(
      Turn& turn, const Workers& workers, Gangs& gangs, JobStates& states, Recoveries& recoveries)
      : turn_(turn), workers_(workers), gangs_(gangs), states_(states), recoveries_(recoveries) {}

  // Reports of other ranks than 0 change nothing.
  void TakeRunInfo(JobState& job, int rank, const v1::RunInfo& info);
  void TakeStep(JobState& job, int rank, const v1::StepReport& step);
  void TakeTrial(JobState& job, int rank, const v1::PrecisionTrial& trial);
  // Each is an event.
  void NoteDecisions(JobState& job,
                     const google::protobuf::RepeatedPtrField<v1::GuardDecision>& decisions);

 private:
  void OpenEpoch(JobState& job, int64_t start_step);
  // The gang is at work; its first step is or will be `step`.
  void Begin(JobState& job, int64_t step, const std::string& text);
  // A step of a task that reads models: what was found of the model stays with the job.
  static void KeepResults(JobState& job, const v1::StepReport& step);
  // Into rank 0's report, what the devices of the other ranks measured: their energy, and their
  // temperature and utilization where these are the highest and the lowest.
  void AddOtherRanks(const JobState& job, v1::StepReport& step);
  // Joules of the devices of the ranks but 0 since the look before (since now, for a new epoch).
  double EnergyOfOtherRanks(const JobState& job);
  void AppendHistory(JobState& job, v1::MetricRecord record);

  Turn& turn_;
  const Workers& workers_;
  Gangs& gangs_;
  JobStates& states_;
  Recoveries& recoveries_;
};

}  // namespace hearth::coordinator
