#include "coordinator/core/placement/placement.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/reasons/reason_codes.h"

namespace hearth::coordinator {
namespace {

// After a start the first workers to dial in are not taken for the whole cluster.
constexpr absl::Duration kSettleAfterStart = absl::Seconds(3);
// Jobs of a long queue that are told in one Tick why they wait. Readers see each of their rows
// change, which takes its time.
constexpr size_t kToldAtOnce = 200;

}  // namespace

void Placement::PlanIfDue() {
  if (plan_.DueAt(turn_.mono())) {
    plan_.Begin(turn_.mono(), jobs_.waiting().size());
    turn_.effects().planned = true;
    Schedule();
  }
  for (const auto& [id, text] : jobs_.waiting_texts().TakeUntold(kToldAtOnce)) {
    Say(*jobs_.Edit(id), text);
  }
}

void Placement::Schedule() {
  if (turn_.mono() - start_time_ < kSettleAfterStart) {
    if (!clusters_.EverybodyIsBack()) {
      plan_.PlanAt(start_time_ + kSettleAfterStart);
      jobs_.waiting_texts().BeginTexts();
      jobs_.waiting_texts().SetTextOfAll(
          {reasons::kReattaching, "the coordinator has just started and waits for its workers"});
      return;
    }
  }
  const Decisions decisions = Plan(clusters_.View(), turn_.mono(), turn_.effects().visits);
  jobs_.waiting_texts().BeginTexts();
  for (const RequeueDecision& requeue : decisions.requeues) {
    ends_.Stop(*jobs_.Edit(requeue.job_id), v1::JOB_STATE_REQUEUEING, v1::CONTROL_BIT_STOP,
               "scheduler", requeue.reason_code, requeue.reason, false);
  }
  for (const StartDecision& start : decisions.starts) {
    Start(start);
  }
  for (const WaitDecision& wait : decisions.waits) {
    Wait(wait);
  }
  for (const LineDecision& line : decisions.lines) {
    jobs_.waiting_texts().SetText(line.demand, line.text);
  }
  // What changed here has asked for another plan. Starts and requeues change what is free, so after
  // them it is made.
  if (decisions.starts.empty() && decisions.requeues.empty()) {
    plan_.Forget();  // moving jobs to the queue changes nothing that a second plan would see
  }
}

void Placement::Start(const StartDecision& decision) {
  JobState& job = *jobs_.Edit(decision.job_id);
  // Paths are checked only before the first start: a job that recovers has run with them.
  if (job.record().paths_checked() || job.state() != v1::JOB_STATE_QUEUED) {
    starts_.Start(job, decision.workers);
    return;
  }
  const std::string& inspector = decision.workers.front();
  Wait({decision.job_id, reasons::kCheckingPaths,
        absl::StrCat("checking its paths on ", inspector)});
  inspections_.Ask(job, inspector);
}

void Placement::Wait(const WaitDecision& decision) {
  JobState& job = *jobs_.Edit(decision.job_id);
  if (job.state() == v1::JOB_STATE_RECOVERING) {
    states_.Transition(job, v1::JOB_STATE_QUEUED, "scheduler", decision.reason_code,
                       decision.reason);
    jobs_.waiting_texts().SpokenFor(decision.job_id);
    return;
  }
  jobs_.waiting_texts().SpokenFor(decision.job_id);
  Say(job, {decision.reason_code, decision.reason});
}

void Placement::Say(JobState& job, const WaitText& text) {
  const v1::Job& view = job.job();
  if (view.reason() != text.reason || view.reason_code() != text.code) {
    job.set_reason(text.code, text.reason);
    jobs_.Mark(job, false);
  }
}

}  // namespace hearth::coordinator
