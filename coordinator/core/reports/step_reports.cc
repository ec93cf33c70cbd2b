#include "coordinator/core/reports/step_reports.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/reasons/reason_codes.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/objective/objective_table.h"
#include "coordinator/core/jobs/plan_record.h"
#include "coordinator/core/jobs/resume_point.h"

namespace hearth::coordinator {
namespace {

// More than a job file is likely to name.
constexpr int kEvaluationsKept = 64;

using Evaluations = google::protobuf::RepeatedPtrField<v1::EvaluationResult>;

// Results of evaluations come now and then: `newest` gets those of `before` whose names it lacks.
void KeepOthers(Evaluations before, Evaluations& newest) {
  for (v1::EvaluationResult& result : before) {
    const bool there = std::any_of(
        newest.begin(), newest.end(),
        [&result](const v1::EvaluationResult& other) { return other.name() == result.name(); });
    if (!there && newest.size() < kEvaluationsKept) {
      *newest.Add() = std::move(result);
    }
  }
}

// A step may have no sample from a source: it then keeps the loss of the last one that had.
void KeepLosses(const v1::StepReport& before, v1::StepReport& newest) {
  for (v1::SourceReport& source : *newest.mutable_sources()) {
    const auto same = std::find_if(
        before.sources().begin(), before.sources().end(),
        [&source](const v1::SourceReport& other) { return other.source() == source.source(); });
    if (!source.has_loss() && same != before.sources().end() && same->has_loss()) {
      source.set_loss(same->loss());
    }
  }
}

}  // namespace

void StepReports::TakeRunInfo(JobState& job, int rank, const v1::RunInfo& info) {
  if (rank == 0) {
    OpenEpoch(job, info.start_step());
    job.set_run_info(info);
    PlanRun(job);
    // A step of one that trains nothing may take hours.
    if (!spec::Trains(job.job().spec())) {
      Begin(job, info.start_step() + 1, "evaluates");
    }
  }
}

void StepReports::TakeStep(JobState& job, int rank, const v1::StepReport& step) {
  if (rank != 0) {
    return;
  }
  // RunInfo opens the epoch, unless the worker's bounded buffer has lost it: then the first step
  // does.
  OpenEpoch(job, step.step() - 1);
  const v1::Job& view = job.job();
  gangs_.of(view.job_id()).Progress(step.step(), turn_.mono());
  if (step.step() <= view.step()) {
    return;  // the history has it
  }
  v1::MetricRecord record;
  *record.mutable_step() = step;
  record.mutable_step()->set_epoch(view.epoch());
  AddOtherRanks(job, *record.mutable_step());
  job.set_step(step.step());
  MeasureRun(job, record.step());
  v1::StepReport last = record.step();
  last.clear_decisions();
  // Tensor statistics and texts come now and then; the newest stay in sight. They are moved: texts
  // may have 100 KB, and a report comes with each step.
  v1::StepReport before = job.TakeLastReport();
  if (last.worst_tensors().empty()) {
    last.mutable_worst_tensors()->Swap(before.mutable_worst_tensors());
  }
  KeepOthers(std::move(*before.mutable_evaluations()), *last.mutable_evaluations());
  KeepLosses(before, last);
  if (last.samples().empty()) {
    last.mutable_samples()->Swap(before.mutable_samples());
  }
  job.set_last_report(std::move(last));
  AppendHistory(job, std::move(record));
  if (job.state() == v1::JOB_STATE_STARTING) {
    Begin(job, step.step(), absl::StrCat("running since step ", step.step()));
  } else if (job.state() == v1::JOB_STATE_RUNNING) {
    job.set_running_seconds(Jobs::RunningSeconds(job, turn_.mono()));
  }
  NoteDecisions(job, step.decisions());
  KeepResults(job, step);
  for (const std::string& text : spec::ReportTexts(view, step)) {
    states_.Note(job, "evaluation", "trainer", text);
  }
}

void StepReports::Begin(JobState& job, int64_t step, const std::string& text) {
  if (job.state() == v1::JOB_STATE_STARTING) {
    states_.Transition(job, v1::JOB_STATE_RUNNING, "trainer", reasons::kFirstStep, text);
    recoveries_.NoteRecovered(job, step);
  }
}

void StepReports::KeepResults(JobState& job, const v1::StepReport& step) {
  if (step.step() > job.models().size()) {
    return;
  }
  v1::EvaluatedModel& model = *job.models().Mutable(static_cast<int>(step.step() - 1));
  *model.mutable_evaluations() = step.evaluations();
  *model.mutable_held_out() = step.held_out();
  // It is done for good, so what failed before does not count against the next failure.
  job.set_restarts(0);
}

void StepReports::TakeTrial(JobState& job, int rank, const v1::PrecisionTrial& trial) {
  if (rank != 0) {
    return;
  }
  job.set_trial(trial);
  states_.Note(job, "precision", "trainer", trial.text());
}

void StepReports::NoteDecisions(
    JobState& job, const google::protobuf::RepeatedPtrField<v1::GuardDecision>& decisions) {
  for (const v1::GuardDecision& decision : decisions) {
    job.set_last_decision(decision);
    states_.Note(job, "precision", "trainer", decision.text());
  }
}

void StepReports::OpenEpoch(JobState& job, int64_t start_step) {
  if (job.record().epoch_opened()) {
    return;
  }
  job.gang().OpenEpoch();
  gangs_.of(job.job().job_id()).ForgetEnergy();
  // For its side effect: the counters are read now, so the first step pays only for itself.
  EnergyOfOtherRanks(job);
  const v1::Job& view = job.job();
  const int64_t expected = ResumePointOf(view).step;
  if (start_step != expected) {
    states_.Note(
        job, "warning", "trainer",
        absl::StrCat("was to resume from step ", expected, " but starts from step ", start_step));
  }
  // These steps are done again. Readers drop theirs at this record, so each step counts once.
  if (start_step < view.step()) {
    v1::MetricRecord record;
    record.mutable_rewind()->set_epoch(view.epoch());
    record.mutable_rewind()->set_to_step(start_step);
    AppendHistory(job, std::move(record));
  }
  job.set_step(start_step);
}

void StepReports::AddOtherRanks(const JobState& job, v1::StepReport& step) {
  step.set_energy_joules(step.energy_joules() + EnergyOfOtherRanks(job));
  for (int rank = 1; rank < job.record().ranks_size(); ++rank) {
    const WorkerState* worker = workers_.Find(job.record().ranks(rank).worker_id());
    if (worker == nullptr) {
      continue;
    }
    const v1::DeviceStatus& device = worker->worker().device_status();
    step.set_temperature_celsius(
        std::max(step.temperature_celsius(), device.temperature_celsius()));
    // 0 = not measured.
    const double busy = device.utilization_ratio();
    if (busy > 0.0 && (step.utilization_ratio() == 0.0 || busy < step.utilization_ratio())) {
      step.set_utilization_ratio(busy);
    }
  }
}

double StepReports::EnergyOfOtherRanks(const JobState& job) {
  Gang& gang = gangs_.of(job.job().job_id());
  double joules = 0.0;
  for (int rank = 1; rank < job.record().ranks_size(); ++rank) {
    const WorkerState* worker = workers_.Find(job.record().ranks(rank).worker_id());
    const double counter =
        worker == nullptr ? 0.0 : worker->worker().device_status().energy_joules();
    joules += gang.EnergySince(rank, counter);
  }
  return joules;
}

void StepReports::AppendHistory(JobState& job, v1::MetricRecord record) {
  if (job.record().history_cursor() >= kCursorMax) {
    return;  // of a damaged store: there is no number left for it
  }
  job.set_history_cursor(job.record().history_cursor() + 1);
  record.set_cursor(job.record().history_cursor());
  turn_.effects().history.push_back({job.job().job_id(), std::move(record)});
}

}  // namespace hearth::coordinator
