// What was exported once keeps its name, type, help, labels and values: dashboards and alerts
// stand on it. A family that is new need not be in the file.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/system.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

// The lines of our metric families, except build_info. Families that are not about jobs keep only
// name, type and help.
std::vector<std::string> Kept(const std::string& text) {
  std::vector<std::string> kept;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const bool comment = absl::StrContains(line, " hearth_") && absl::StartsWith(line, "# ");
    const bool series = absl::StartsWith(line, "hearth_job");
    if ((comment || series) && !absl::StrContains(line, "hearth_build_info")) {
      kept.emplace_back(line);
    }
  }
  return kept;
}

void AddJob(const std::string& id, v1::JobState state, Effects& effects) {
  v1::Job& job = *effects.jobs.emplace_back().record.mutable_job();
  job.set_job_id(id);
  job.set_state(state);
  job.set_epoch(1);
  job.mutable_create_time()->set_seconds(5);
  job.mutable_end_time()->set_seconds(6);
  job.mutable_spec()->set_name(absl::StrCat("name of ", id));
  job.mutable_spec()->mutable_precision()->set_recipe("fp8");
  job.mutable_spec()->mutable_model()->set_preset("tiny");
  job.mutable_spec()->mutable_train()->set_steps(50);
  job.mutable_run_info()->set_global_batch_tokens(100);
  job.mutable_run_info()->set_recipe("fp8");
  job.mutable_run_info()->set_recipe_execution("native");
  job.mutable_run_info()->set_world_size(2);
}

void FillReport(int64_t step, v1::StepReport& report) {
  report.set_step(step);
  report.set_epoch(1);
  report.mutable_time()->set_seconds(1000 + step);
  report.mutable_time()->set_nanos(250000000);
  report.set_loss(2.5 / static_cast<double>(step));
  report.set_grad_norm(0.75);
  report.set_learning_rate(0.001);
  report.set_tokens(100 * step);
  report.set_step_seconds(0.02 * static_cast<double>(step));
  report.set_tokens_per_second(5000);
  report.set_mfu(0.5);
  report.set_memory_bytes(1 << 20);
  report.set_energy_joules(12.5);
  if (step == 2) {
    report.set_validation_loss(2.25);
    report.set_checkpoint_seconds(0.75);
  }
  report.set_skipped_steps(6);
  report.set_skipped_checkpoints(3);
  report.set_resume_seconds(2.5);
  report.set_data_wait_seconds(0.5);
  report.set_comm_seconds(0.25);
  report.set_comm_bytes(1000);
  report.set_recipe("bf16");
  report.set_power_watts(600);
  report.mutable_guard()->set_non_finite(1);
  report.mutable_guard()->set_spike(2);
  report.mutable_guard()->set_grad_spike(3);
  report.mutable_guard()->set_redone_steps(4);
  report.mutable_guard()->set_remedies(5);
  report.mutable_guard()->set_fallbacks(6);
  for (const char* role : {"x", "dy", "dy", "w"}) {
    v1::TensorStats& row = *report.add_worst_tensors();
    row.set_role(role);
    row.set_amax(static_cast<double>(report.worst_tensors_size()));
    row.set_underflow_ratio(0.125);
    row.set_saturation_ratio(1.0 / static_cast<double>(report.worst_tensors_size()));
  }
}

void Apply(Effects effects, View& view, CoordinatorMetrics* metrics) {
  std::vector<Effects> batch;
  batch.push_back(std::move(effects));
  if (metrics != nullptr) {
    metrics->Observe(batch, view);
  }
  view.Apply(absl::MakeSpan(batch));
}

Effects Step(const std::string& id, int64_t step) {
  Effects effects;
  AddJob(id, v1::JOB_STATE_RUNNING, effects);
  v1::Job& job = *effects.jobs.back().record.mutable_job();
  FillReport(step, *job.mutable_last_report());
  job.set_step(step);
  job.set_phase("training");
  job.mutable_checkpoint()->mutable_create_time()->set_seconds(77);
  job.mutable_recovery()->set_seconds(3.5);
  *effects.history.emplace_back(HistoryAppend{id, {}}).record.mutable_step() = job.last_report();
  if (step == 2) {
    effects.checkpoint_writes.push_back({id, 1.5});
  }
  return effects;
}

// One job with all there is, steps done again included; one of an earlier start; one that has done
// nothing; one on a CPU; one that has ended.
std::string Scenario() {
  View view(EventBounds{100});
  CoordinatorMetrics metrics(7, 2);
  Apply(Step("earlier", 3), view, nullptr);
  for (const int64_t step : {1, 2, 3, 2, 3, 4}) {
    Apply(Step("full", step), view, &metrics);
  }
  Effects effects = Step("cpu", 1);
  effects.jobs.back().record.mutable_job()->mutable_last_report()->clear_mfu();
  AddJob("fresh", v1::JOB_STATE_QUEUED, effects);
  AddJob("ended", v1::JOB_STATE_SUCCEEDED, effects);
  v1::JobEvent& event = effects.events.emplace_back();
  event.set_job_id("full");
  event.set_type("state");
  event.set_from_state(v1::JOB_STATE_RUNNING);
  event.set_to_state(v1::JOB_STATE_RECOVERING);
  event.set_reason_code("worker_lost");
  event.mutable_time()->set_seconds(50);
  Apply(std::move(effects), view, &metrics);
  metrics.RpcStarted("/hearth.v1.JobService/GetJob");
  metrics.RpcHandled("/hearth.v1.JobService/GetJob", "OK", absl::Seconds(1));
  metrics.ObserveCommit(absl::Milliseconds(3), 4);
  metrics.ObservePlan(absl::Milliseconds(3));
  metrics.ObserveTurn(absl::Milliseconds(3));
  metrics.SetQueueLength(5);
  metrics.SetAgents(6);
  metrics.CountAgentViolation();
  metrics.SetIsolated(true);
  return metrics.Render(view);
}

TEST(Exposition, WhatWasExportedOnce_StaysAsItWas) {
  const char* root = GetEnv("HEARTH_SOURCE_DIR");
  ASSERT_NE(root, nullptr) << "HEARTH_SOURCE_DIR names the checkout; ctest sets it";
  std::ifstream file(std::string(root) + "/coordinator/service/metrics/testdata/exposition.txt");
  const std::string recorded((std::istreambuf_iterator<char>(file)),
                             std::istreambuf_iterator<char>());
  const std::vector<std::string> now = Kept(Scenario());
  if (const char* out = GetEnv("HEARTH_RECORD_EXPOSITION"); out != nullptr) {
    std::ofstream(out) << absl::StrJoin(now, "\n") << "\n";
  }
  const std::set<std::string> lines(now.begin(), now.end());
  const std::vector<std::string> before = Kept(recorded);
  EXPECT_GE(before.size(), 200u) << "the file is not there, or not whole";
  for (const std::string& line : before) {
    EXPECT_TRUE(lines.count(line) > 0) << line;
  }
}

}  // namespace
}  // namespace hearth::coordinator
