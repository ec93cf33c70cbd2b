#include <cstdio>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/reasons/reason_codes.h"
#include "common/spec/data/sample_tables.h"
#include "coordinator/core/transitions.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "coordinator/service/metrics/job_collector.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CoordinatorMetricsTest : public testing::Test {
 protected:
  v1::JobRecord& Job(Effects& effects, const std::string& id, v1::JobState state) {
    JobRow& row = effects.jobs.emplace_back();
    v1::Job& job = *row.record.mutable_job();
    job.set_job_id(id);
    job.set_state(state);
    job.set_epoch(1);
    job.mutable_create_time()->set_seconds(++created_);
    job.mutable_spec()->set_name("name");
    job.mutable_spec()->mutable_precision()->set_recipe("bf16");
    job.mutable_spec()->mutable_model()->set_preset("tiny");
    return row.record;
  }

  static void Event(Effects& effects,
                    v1::JobState from,
                    v1::JobState to,
                    int64_t seconds,
                    const std::string& reason) {
    v1::JobEvent& event = effects.events.emplace_back();
    event.set_job_id("a");
    event.set_type("state");
    event.set_from_state(from);
    event.set_to_state(to);
    event.set_reason_code(reason);
    event.mutable_time()->set_seconds(seconds);
  }

  void Step(int64_t step, int64_t tokens, double seconds) {
    Apply(StepEffects(step, tokens, seconds));
  }

  Effects StepEffects(int64_t step, int64_t tokens, double seconds) {
    Effects effects;
    v1::JobRecord& record = Job(effects, "a", v1::JOB_STATE_RUNNING);
    v1::StepReport report;
    report.set_step(step);
    report.set_tokens(tokens);
    report.set_loss(2.5);
    report.set_step_seconds(seconds);
    report.set_validation_loss(2.25);
    report.set_comm_seconds(0.25);
    report.set_comm_bytes(1000);
    report.set_data_wait_seconds(0.5);
    report.set_checkpoint_seconds(step == 2 ? 0.75 : 0);
    report.set_recipe("fp8");
    *record.mutable_job()->mutable_last_report() = report;
    record.mutable_job()->mutable_run_info()->set_global_batch_tokens(100);
    record.mutable_job()->set_step(step);
    record.mutable_job()->set_phase("training");
    *effects.history.emplace_back(HistoryAppend{"a", {}}).record.mutable_step() = report;
    if (step == 2) {
      effects.checkpoint_writes.push_back({"a", 1.5});
    }
    return effects;
  }

  void Apply(Effects effects) {
    std::vector<Effects> batch;
    batch.push_back(std::move(effects));
    Apply(std::move(batch));
  }

  void Apply(std::vector<Effects> batch) {
    metrics_.Observe(batch, view_);
    view_.Apply(absl::MakeSpan(batch));
  }

  int64_t created_ = 0;
  View view_{EventBounds{100}};
  CoordinatorMetrics metrics_{7};
};

TEST_F(CoordinatorMetricsTest, Render_AfterSteps_HasTheJobsSeries) {
  Step(1, 100, 0.02);
  Step(2, 200, 0.03);
  const std::string text = metrics_.Render(view_);
  EXPECT_THAT(text, HasSubstr("hearth_job_info{job_id=\"a\",name=\"name\",model=\"tiny\","));
  EXPECT_THAT(text, HasSubstr("hearth_job_state{job_id=\"a\",state=\"running\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_state{job_id=\"a\",state=\"queued\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_phase{job_id=\"a\",phase=\"training\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_step{job_id=\"a\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_loss{job_id=\"a\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_validation_loss{job_id=\"a\"} 2.25\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_tokens_total{job_id=\"a\"} 200\n"));
  EXPECT_THAT(text,
              HasSubstr("hearth_job_communication_exposed_seconds_total{job_id=\"a\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_communication_bytes_total{job_id=\"a\"} 2000\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_data_wait_seconds_total{job_id=\"a\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_checkpoint_stall_seconds_total{job_id=\"a\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_checkpoint_duration_seconds{job_id=\"a\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("hearth_checkpoint_write_seconds_sum 1.5\n"));
  EXPECT_THAT(
      text, HasSubstr("hearth_job_precision_info{job_id=\"a\",recipe=\"fp8\",execution=\"\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_step_duration_seconds_count{job_id=\"a\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("hearth_jobs{state=\"running\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hearth_coordinator_generation 7\n"));
  EXPECT_THAT(text, HasSubstr("hearth_build_info{"));
  EXPECT_THAT(text, HasSubstr("process_cpu_seconds_total"));
}

TEST_F(CoordinatorMetricsTest, Tokens_AfterARewind_CountTheRepeatedStepsAndNeverFall) {
  Step(1, 100, 0.02);
  Step(2, 200, 0.02);
  Step(2, 200, 0.02);  // done again
  EXPECT_THAT(metrics_.Render(view_), HasSubstr("hearth_job_tokens_total{job_id=\"a\"} 300\n"));
}

TEST_F(CoordinatorMetricsTest, Tokens_StepsInOneBatch_CountOnceEach) {
  Step(1, 100, 0.02);
  std::vector<Effects> batch;
  for (int64_t step = 2; step <= 5; ++step) {
    batch.push_back(StepEffects(step, 100 * step, 0.02));
  }
  batch.push_back(StepEffects(4, 400, 0.02));  // after a rewind by a step
  batch.push_back(StepEffects(5, 500, 0.02));
  Apply(std::move(batch));
  EXPECT_THAT(metrics_.Render(view_), HasSubstr("hearth_job_tokens_total{job_id=\"a\"} 700\n"));
}

// A job of before this coordinator's start shows its last report's tokens and goes on from there,
// be a checkpoint or a step the first that comes.
TEST_F(CoordinatorMetricsTest, Tokens_JobOfAnEarlierStart_StartAnew) {
  Effects before = StepEffects(3, 300, 0.02);
  std::vector<Effects> batch;
  batch.push_back(std::move(before));
  view_.Apply(absl::MakeSpan(batch));  // not observed
  EXPECT_THAT(metrics_.Render(view_), HasSubstr("hearth_job_tokens_total{job_id=\"a\"} 0\n"));
  Effects written;
  written.checkpoint_writes.push_back({"a", 1});
  Apply(std::move(written));
  EXPECT_THAT(metrics_.Render(view_), HasSubstr("hearth_job_tokens_total{job_id=\"a\"} 0\n"));
  Step(4, 400, 0.02);
  EXPECT_THAT(metrics_.Render(view_), HasSubstr("hearth_job_tokens_total{job_id=\"a\"} 100\n"));
}

TEST_F(CoordinatorMetricsTest, Observe_LifeOfAJob_FillsTheWaitHistograms) {
  Effects effects;
  Job(effects, "a", v1::JOB_STATE_RUNNING);
  Event(effects, v1::JOB_STATE_UNSPECIFIED, v1::JOB_STATE_QUEUED, 100, "submitted");
  Event(effects, v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING, 130, "placed");
  Event(effects, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING, 132, "first_step");
  Event(effects, v1::JOB_STATE_RUNNING, v1::JOB_STATE_RECOVERING, 200, "worker_lost");
  Event(effects, v1::JOB_STATE_RECOVERING, v1::JOB_STATE_STARTING, 205, "placed");
  Event(effects, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING, 209, "first_step");
  Apply(std::move(effects));
  const std::string text = metrics_.Render(view_);
  EXPECT_THAT(text, HasSubstr("hearth_queue_wait_seconds_sum 30\n"));
  EXPECT_THAT(text, HasSubstr("hearth_ready_to_first_step_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("hearth_recovery_seconds_sum{cause=\"worker_lost\"} 9\n"));
  EXPECT_THAT(text, HasSubstr("hearth_job_restarts_total{job_id=\"a\",cause=\"worker_lost\"} 1\n"));
}

TEST_F(CoordinatorMetricsTest, Mfu_NotMeasured_HasNoSeries) {
  Effects effects;
  Job(effects, "cpu", v1::JOB_STATE_RUNNING).mutable_job()->mutable_last_report()->set_loss(2);
  Job(effects, "gpu", v1::JOB_STATE_RUNNING).mutable_job()->mutable_last_report()->set_mfu(0.25);
  Apply(std::move(effects));
  const std::string text = metrics_.Render(view_);
  EXPECT_THAT(text, HasSubstr("hearth_job_loss{job_id=\"cpu\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("hearth_job_mfu_ratio{job_id=\"cpu\"}")));
  EXPECT_THAT(text, HasSubstr("hearth_job_mfu_ratio{job_id=\"gpu\"} 0.25\n"));
}

TEST_F(CoordinatorMetricsTest, Render_DeletedJob_LeavesNoSeries) {
  Step(1, 100, 0.02);
  Effects effects;
  effects.job_deletes = {"a"};
  Apply(std::move(effects));
  EXPECT_THAT(metrics_.Render(view_), Not(HasSubstr("job_id=\"a\"")));
}

TEST_F(CoordinatorMetricsTest, Render_ManyJobs_IsBoundedAndCountsWhatIsLeftOut) {
  Effects effects;
  for (int i = 0; i < 700; ++i) {
    Job(effects, absl::StrCat("run-", i), v1::JOB_STATE_RUNNING);
  }
  for (int i = 0; i < 1000; ++i) {
    v1::JobRecord& ended = Job(effects, absl::StrCat("end-", i), v1::JOB_STATE_SUCCEEDED);
    ended.mutable_job()->mutable_end_time()->set_seconds(i);
  }
  Apply(std::move(effects));
  size_t dropped = 0;
  EXPECT_EQ(ChooseJobs(view_.AllJobs(), dropped).size(), kJobsMax);
  EXPECT_EQ(dropped, 700 + kRecentJobs - kJobsMax);
  const std::string text = metrics_.Render(view_);
  EXPECT_THAT(text, Not(HasSubstr("hearth_series_dropped_total 0\n")));
  EXPECT_THAT(text, Not(HasSubstr("job_id=\"end-0\"")));
}

// What a scrape copies under a lock does not grow with the jobs that there ever were.
TEST_F(CoordinatorMetricsTest, Observe_ManyEnds_KeepsTheRecentOnes) {
  for (size_t i = 0; i < kRecentJobs + 50; ++i) {
    const std::string id = absl::StrCat("job-", i);
    Effects effects;
    Job(effects, id, v1::JOB_STATE_SUCCEEDED)
        .mutable_job()
        ->mutable_end_time()
        ->set_seconds(static_cast<int64_t>(1 + i));
    effects.history.emplace_back(HistoryAppend{id, {}}).record.mutable_step()->set_tokens(5);
    Event(effects, v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED, 1, "finished");
    effects.events.back().set_job_id(id);
    Apply(std::move(effects));
  }
  EXPECT_EQ(metrics_.jobs_kept(), kRecentJobs);
  Effects resumed;  // is no longer among those that ended
  Event(resumed, v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_QUEUED, 2, "resumed");
  resumed.events.back().set_job_id("job-60");
  resumed.job_deletes = {"job-61"};
  Apply(std::move(resumed));
  EXPECT_EQ(metrics_.jobs_kept(), kRecentJobs - 1);
  Step(1, 100, 0.02);
  EXPECT_EQ(metrics_.jobs_kept(), kRecentJobs);
}

// All that a job can have: a full report, a validation loss, a checkpoint, every cause of a
// restart.
v1::JobRecord& FillJob(v1::JobRecord& record, const std::string& id) {
  v1::Job& job = *record.mutable_job();
  job.mutable_last_report()->set_recipe("nvfp4");
  job.mutable_last_report()->set_mfu(0.5);
  job.mutable_last_report()->mutable_time()->set_seconds(1);
  job.mutable_last_report()->set_step(1);
  job.mutable_checkpoint()->mutable_create_time()->set_seconds(1);
  job.mutable_recovery()->set_seconds(1);
  job.mutable_run_info()->set_recipe_execution("native");
  for (const char* role : {"x", "dy", "w"}) {
    job.mutable_last_report()->add_worst_tensors()->set_role(role);
  }
  for (int i = 0; i < spec::kReportedSourcesMax; ++i) {
    v1::SourceReport& source = *job.mutable_last_report()->add_sources();
    source.set_source(absl::StrCat("/data/", i));
    source.set_loss(2.5);
  }
  EXPECT_EQ(job.job_id(), id);
  return record;
}

TEST_F(CoordinatorMetricsTest, Render_FullTables_StayWithinTheDocumentedBound) {
  Effects effects;
  for (size_t i = 0; i < kJobsMax + 50; ++i) {
    const std::string id = absl::StrCat("job-", i);
    FillJob(Job(effects, id, v1::JOB_STATE_RUNNING), id);
    v1::StepReport& step =
        *effects.history.emplace_back(HistoryAppend{id, {}}).record.mutable_step();
    effects.checkpoint_writes.push_back({id, 1});
    step.set_validation_loss(1);
    for (const ExitRow& row : ExitTable()) {
      Event(effects, v1::JOB_STATE_RUNNING, v1::JOB_STATE_RECOVERING, 1, row.code);
      effects.events.back().set_job_id(id);
    }
  }
  Apply(std::move(effects));
  for (const char* method : {"/hearth.v1.JobService/GetJob", "/hearth.v1.JobService/ListJobs"}) {
    metrics_.RpcStarted(method);
    metrics_.RpcHandled(method, "NOT_FOUND", absl::Seconds(1));
  }
  for (int i = 0; i < 200; ++i) {  // what a client makes up
    const std::string odd = absl::StrCat(i % 2 == 0 ? "/hearth.v1.JobService/Odd" : "odd", i);
    metrics_.RpcStarted(odd);
    metrics_.RpcHandled(odd, "Unimplemented", absl::Seconds(1));
  }
  size_t of_jobs = 0;
  size_t other = 0;
  const std::string text = metrics_.Render(view_);
  EXPECT_THAT(text, HasSubstr("hearth_grpc_server_handled_total{grpc_code=\"Unimplemented\","
                              "grpc_method=\"unknown\",grpc_service=\"unknown\"} 200\n"));
  EXPECT_THAT(text, Not(HasSubstr("Odd")));
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (!absl::StartsWith(line, "#")) {
      ++(absl::StrContains(line, "job_id=") ? of_jobs : other);
    }
  }
  std::printf("series: %zu a job, %zu others\n", of_jobs / kJobsMax, other);
  EXPECT_EQ(of_jobs % kJobsMax, 0u);
  EXPECT_LE(of_jobs, kJobsMax * kSeriesPerJob);
  EXPECT_GE(of_jobs / kJobsMax, kSeriesPerJob / 2) << "the bound promises too little";
  EXPECT_LE(other, kSeriesFixed);
}

TEST_F(CoordinatorMetricsTest, Render_Guard_CountsByCauseAndWorstTensors) {
  Effects effects;
  v1::JobRecord& record = Job(effects, "a", v1::JOB_STATE_RUNNING);
  v1::StepReport& report = *record.mutable_job()->mutable_last_report();
  report.mutable_guard()->set_non_finite(2);
  report.mutable_guard()->set_redone_steps(1);
  report.mutable_guard()->set_fallbacks(1);
  for (const double ratio : {0.125, 0.25}) {
    v1::TensorStats& row = *report.add_worst_tensors();
    row.set_role("dy");
    row.set_underflow_ratio(ratio);
    row.set_amax(1 - ratio);
  }
  Job(effects, "fresh", v1::JOB_STATE_RUNNING);
  Apply(std::move(effects));
  const std::string text = metrics_.Render(view_);
  for (const char* line :
       {"hearth_job_skipped_steps_total{job_id=\"a\",cause=\"non_finite\"} 2\n",
        "hearth_job_skipped_steps_total{job_id=\"fresh\",cause=\"spike\"} 0\n",
        "hearth_job_redone_steps_total{job_id=\"a\"} 1\n",
        "hearth_job_precision_measures_total{job_id=\"a\",kind=\"fallback\"} 1\n",
        "hearth_job_precision_measures_total{job_id=\"a\",kind=\"remedy\"} 0\n",
        "hearth_job_tensor_underflow_ratio{job_id=\"a\",role=\"dy\"} 0.25\n",
        "hearth_job_tensor_amax{job_id=\"a\",role=\"dy\"} 0.875\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// rate() and increase() miss the first event of a series that begins with it.
TEST_F(CoordinatorMetricsTest, Render_BeforeAnyEvent_HasKnownLabelsAtZero) {
  Effects effects;
  Job(effects, "a", v1::JOB_STATE_RUNNING);
  Job(effects, "ended", v1::JOB_STATE_SUCCEEDED);
  Apply(std::move(effects));
  const std::string text = metrics_.Render(view_);
  EXPECT_THAT(RecoveryCauses(), testing::IsSupersetOf({"worker_lost", "trainer_killed",
                                                       "trainer_hung", "peers_lost", "io_failed"}));
  for (const std::string& cause : RecoveryCauses()) {
    EXPECT_TRUE(reasons::IsReasonCode(cause)) << cause;
    EXPECT_THAT(text, HasSubstr(absl::StrCat("hearth_job_restarts_total{job_id=\"a\",cause=\"",
                                             cause, "\"} 0\n")));
    EXPECT_THAT(
        text, HasSubstr(absl::StrCat("hearth_recovery_seconds_count{cause=\"", cause, "\"} 0\n")));
    EXPECT_THAT(text,
                HasSubstr(absl::StrCat("hearth_evictions_total{reason=\"", cause, "\"} 0\n")));
  }
  EXPECT_THAT(text, HasSubstr("hearth_evictions_total{reason=\"preempted\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("hearth_job_restarts_total{job_id=\"ended\"")));
  EXPECT_THAT(
      text,
      HasSubstr("hearth_grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"CreateJob\","));
  EXPECT_THAT(text, HasSubstr("hearth_coordinator_schedule_duration_seconds_count 0\n"));
}

TEST_F(CoordinatorMetricsTest, InFlight_OpenStream_IsCountedUntilItEnds) {
  constexpr char kMethod[] = "/hearth.v1.JobService/StreamLogs";
  const std::string series =
      "hearth_grpc_server_in_flight{grpc_method=\"StreamLogs\",grpc_service=\"hearth.v1."
      "JobService\"}";
  metrics_.RpcStarted(kMethod);
  EXPECT_THAT(metrics_.Render(view_), HasSubstr(series + " 1\n"));
  metrics_.RpcHandled(kMethod, "CANCELLED", absl::Seconds(1));
  EXPECT_THAT(metrics_.Render(view_), HasSubstr(series + " 0\n"));
}

TEST(MetricDefs, Table_FollowsTheNamingRules) {
  EXPECT_THAT(metrics::CheckDefs(CoordinatorMetricDefs()), testing::IsEmpty());
}

// Every family of a scrape has its row, so that docs/metrics.md is complete.
TEST_F(CoordinatorMetricsTest, Render_EveryFamily_HasARow) {
  Step(1, 100, 0.02);
  metrics_.RpcStarted("/hearth.v1.JobService/GetJob");
  metrics_.RpcHandled("/hearth.v1.JobService/GetJob", "OK", absl::Seconds(1));
  for (const absl::string_view line : absl::StrSplit(metrics_.Render(view_), '\n')) {
    if (!absl::StartsWith(line, "# TYPE ")) {
      continue;
    }
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    bool found = false;
    std::vector<metrics::MetricDef> defs = CoordinatorMetricDefs();
    const std::vector<metrics::MetricDef> of_process = metrics::ProcessDefs();
    defs.insert(defs.end(), of_process.begin(), of_process.end());
    for (const metrics::MetricDef& def : defs) {
      found = found || (def.name == words[2] && metrics::TypeName(def.type) == words[3]);
    }
    EXPECT_TRUE(found) << line;
  }
}

}  // namespace
}  // namespace hearth::coordinator
