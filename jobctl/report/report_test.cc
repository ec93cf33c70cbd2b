#include "jobctl/report/report.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

const Finding& FindingOf(const Report& report, const std::string& check) {
  for (const Finding& finding : report.verdict) {
    if (finding.check == check) {
      return finding;
    }
  }
  static const Finding kNone = {Verdict::kFailed, "", "no such check", ""};
  return kNone;
}

// 100 steps of a healthy job on one GPU; tests spoil what they look at.
ReportFacts Healthy() {
  ReportFacts facts;
  facts.now = absl::FromUnixSeconds(2000);
  v1::Job& job = facts.job;
  job.set_job_id("run-1");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_step(100);
  job.set_running_seconds(200);
  job.mutable_spec()->set_name("run");
  job.mutable_spec()->mutable_train()->set_steps(100);
  job.mutable_spec()->mutable_resources()->set_device("cuda");
  job.mutable_run_info()->set_world_size(1);
  job.mutable_checkpoint()->set_step(100);
  job.mutable_checkpoint()->set_root_uuid("root");
  job.mutable_checkpoint()->mutable_create_time()->set_seconds(1880);
  for (int64_t step = 1; step <= 100; ++step) {
    v1::MetricRecord record;
    v1::StepReport& report = *record.mutable_step();
    report.set_step(step);
    report.set_epoch(1);
    report.set_loss(10.0 - 0.05 * static_cast<double>(step));
    report.set_tokens(step * 1000);
    report.set_step_seconds(2.0);
    report.set_tokens_per_second(500);
    report.set_memory_bytes(int64_t{1} << 30);
    report.set_energy_joules(800.0);
    if (step % 50 == 0) {
      report.set_validation_loss(step == 50 ? 6.5 : 6.75);
    }
    Append(facts.history, record);
  }
  v1::DeviceGroup& group = *job.mutable_devices()->add_groups();
  group.add_worker_ids("g0");
  group.set_host("node");
  group.set_kind("cuda");
  group.set_model("NVIDIA H200");
  group.set_driver_version("580.82.07");
  group.set_cuda_version("13.0");
  group.set_version("0.1.0 (abc)");
  job.mutable_devices()->set_hottest_celsius(71);
  job.mutable_devices()->set_hottest_worker_id("g0");
  job.mutable_devices()->set_hottest_step(42);
  facts.version.set_version("0.1.0");
  facts.version.set_commit("1a2b3c4d5e6f");
  return facts;
}

TEST(SlopeOf, ALine_HasItsSlopeAndNoError) {
  std::vector<double> x;
  std::vector<double> y;
  for (int i = 0; i < 12; ++i) {
    x.push_back(i);
    y.push_back(i == 5 ? std::nan("") : 3.0 - 0.5 * i);
  }
  const auto slope = SlopeOf(x, y);
  ASSERT_TRUE(slope.has_value());
  EXPECT_NEAR(slope->per_unit, -0.5, 1e-12);
  EXPECT_NEAR(slope->error, 0.0, 1e-6);
  EXPECT_FALSE(SlopeOf({1, 2, 3}, {1, 2, 3}).has_value());
}

TEST(BuildReport, HealthyRun_IsWell) {
  const Report report = BuildReport(Healthy());
  EXPECT_EQ(FindingOf(report, "end").text, "SUCCEEDED at step 100 of 100");
  EXPECT_EQ(FindingOf(report, "loss").verdict, Verdict::kOk);
  EXPECT_EQ(FindingOf(report, "loss").text.substr(0, 39),
            "falling over the last 50 steps: -50 (st");
  EXPECT_EQ(FindingOf(report, "memory").text,
            "grew by 0 B after step 10 of the last epoch (1.0 GiB at most)");
  EXPECT_EQ(FindingOf(report, "temperature").text, "hottest: 71 C on g0 at step 42 (limit 85 C)");
  EXPECT_EQ(FindingOf(report, "numbers").text,
            "0 steps not finite, 0 skipped, 0 discarded by resumes");
  EXPECT_EQ(FindingOf(report, "checkpoint").text, "step 100, 0 steps behind, written 2m00s ago");
  EXPECT_DOUBLE_EQ(*report.final_loss, 5.0);
  EXPECT_DOUBLE_EQ(*report.final_validation_loss, 6.75);
  EXPECT_DOUBLE_EQ(*report.best_validation_loss, 6.5);
  EXPECT_EQ(report.best_validation_step, 50);
  EXPECT_DOUBLE_EQ(*report.usage.tokens_per_joule, 1.25);
  EXPECT_DOUBLE_EQ(*report.mean_tokens_per_second, 500);
  ASSERT_EQ(report.devices.size(), 1U);
  EXPECT_EQ(report.devices[0].driver, "580.82.07");
}

TEST(BuildReport, TroubledRun_Warns) {
  ReportFacts facts = Healthy();
  facts.job.set_state(v1::JOB_STATE_RUNNING);
  facts.job.mutable_spec()->mutable_checkpoint()->set_every_steps(10);
  facts.job.mutable_checkpoint()->set_step(60);
  facts.job.mutable_devices()->set_hottest_celsius(91);
  std::vector<v1::StepReport>& steps = facts.history.steps;
  for (v1::StepReport& step : steps) {
    step.set_loss(1.0 + 0.1 * static_cast<double>(step.step()));
  }
  steps[95].set_loss(std::nan(""));
  steps[99].set_memory_bytes(int64_t{2} << 30);
  steps[99].set_skipped_steps(3);
  const Report report = BuildReport(facts);
  for (const char* check : {"loss", "memory", "temperature", "numbers", "checkpoint"}) {
    EXPECT_EQ(FindingOf(report, check).verdict, Verdict::kWarning) << check;
  }
  EXPECT_EQ(FindingOf(report, "temperature").text, "hottest: 91 C on g0 at step 42 (limit 85 C)");
  EXPECT_EQ(FindingOf(report, "numbers").text,
            "1 steps not finite, 3 skipped, 0 discarded by resumes");
}

TEST(BuildReport, RunThatEndedInNan_FailedByItsNumbers) {
  ReportFacts facts = Healthy();
  facts.job.set_state(v1::JOB_STATE_FAILED);
  facts.job.set_reason_code("numerical");
  facts.job.set_reason("step 101: the loss (nan) is not finite");
  facts.job.mutable_spec()->mutable_train()->set_steps(200);
  Report report = BuildReport(facts);
  EXPECT_EQ(FindingOf(report, "numbers").verdict, Verdict::kFailed);
  EXPECT_EQ(FindingOf(report, "numbers").text,
            "step 101 was refused, which ended the job; before it 0 steps not finite, 0 skipped, 0 "
            "discarded by resumes");
  EXPECT_EQ(
      FindingOf(report, "end").remedy,
      "jobctl resume run-1 --set optimizer.lr=LOWER continues from the checkpoint of step 100");
  facts.job.clear_checkpoint();
  report = BuildReport(facts);
  EXPECT_EQ(FindingOf(report, "end").remedy,
            "there is no checkpoint: jobctl resume run-1 --set optimizer.lr=LOWER starts again at "
            "step 1");
  facts.history.steps.clear();
  EXPECT_NE(RenderSummary(BuildReport(facts)).find("failed   numbers"), std::string::npos);
}

TEST(BuildReport, SmallProcessThatBreathes_IsHealthy) {
  ReportFacts facts = Healthy();
  std::vector<v1::StepReport>& steps = facts.history.steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    // A process of the CPU: buffers of the data and of the first checkpoints come late.
    steps[i].set_memory_bytes((int64_t{150} << 20) + (i < 40 ? 0 : int64_t{20} << 20));
  }
  EXPECT_EQ(FindingOf(BuildReport(facts), "memory").verdict, Verdict::kOk);
  for (size_t i = 0; i < steps.size(); ++i) {  // 1 MiB a step is a leak
    steps[i].set_memory_bytes((int64_t{150} << 20) + (static_cast<int64_t>(i) << 20));
  }
  const Finding leak = FindingOf(BuildReport(facts), "memory");
  EXPECT_EQ(leak.verdict, Verdict::kWarning);
  EXPECT_EQ(leak.text, "grew by 90.0 MiB after step 10 of the last epoch (249.0 MiB at most)");
}

TEST(BuildReport, NewEpoch_MemoryIsJudgedWithinIt) {
  ReportFacts facts = Healthy();
  for (size_t i = 80; i < 100; ++i) {  // another machine, another footprint
    facts.history.steps[i].set_epoch(2);
    facts.history.steps[i].set_memory_bytes(int64_t{3} << 30);
  }
  EXPECT_EQ(FindingOf(BuildReport(facts), "memory").verdict, Verdict::kOk);
}

TEST(BuildReport, JobThatNeverRan_SaysSoEverywhere) {
  ReportFacts facts;
  facts.job.set_job_id("new");
  facts.job.set_state(v1::JOB_STATE_QUEUED);
  const Report report = BuildReport(facts);
  EXPECT_FALSE(report.final_loss.has_value());
  EXPECT_EQ(FindingOf(report, "checkpoint").verdict, Verdict::kNote);
  EXPECT_NE(RenderMarkdown(report).find("loss by step: no values"), std::string::npos);
  EXPECT_NE(RenderHtml(report).find("No loss yet."), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(RenderJson(report))["final_loss"].is_null());
}

TEST(RenderMarkdown, HealthyRun_HasAllParts) {
  ReportFacts facts = Healthy();
  facts.prices.per_gpu_hour = 0.5;
  v1::JobEvent event;
  event.set_type("recovery");
  event.set_step(40);
  event.set_message("recovered in 3.1 s: lost rank 0");
  facts.events.push_back(event);
  event.set_type("note");
  event.set_actor("user:ada");
  event.set_message("the one for the paper");
  facts.events.push_back(event);
  const std::string text = RenderMarkdown(BuildReport(facts));
  for (const char* part :
       {"# run-1: SUCCEEDED\n", "| ok | end | SUCCEEDED at step 100 of 100 |\n",
        "| Final loss | 5.0000 |\n",
        "| Validation loss | 6.7500 at the end, best 6.5000 at step 50 |\n",
        "| Energy | 80 kJ, 1.25 tokens per joule |\n",
        "| Cost | $0.02778 so far, $0.00 to the end, $277.78 per billion tokens |\n",
        "| Worker g0 | NVIDIA H200 on node, driver 580.82.07, CUDA 13.0, hearth 0.1.0 (abc) |\n",
        "| Coordinator | 0.1.0 (1a2b3c4d5e6f) |\n", ", step 40: recovered in 3.1 s: lost rank 0\n",
        "## Notes\n\n- ", ", step 40, user:ada: the one for the paper\n", "```\nloss by step\n",
        ("`jobctl get run-1 --spec | jobctl submit -f -` runs it again, or `jobctl submit -f FILE` "
         "with this as FILE:\n\n```yaml\nname: run\n")}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nis not in\n" << text;
  }
}

// A job of task: eval counts models: nothing is said of steps, tokens and losses of training.
TEST(BuildReport, EvalJob_SpeaksOfModels) {
  ReportFacts facts;
  facts.job.set_job_id("eval-1");
  facts.job.set_state(v1::JOB_STATE_FAILED);
  facts.job.mutable_spec()->set_task("eval");
  facts.job.set_step(1);
  facts.job.mutable_last_report()->set_step(1);
  facts.job.add_models();
  facts.job.add_models();
  v1::MetricRecord record;
  record.mutable_step()->set_step(1);
  record.mutable_step()->set_step_seconds(3);
  record.mutable_step()->set_validation_loss(2.5);
  Append(facts.history, record);
  const Report report = BuildReport(facts);
  EXPECT_EQ(FindingOf(report, "end").text, "FAILED at model 1 of 2");
  EXPECT_EQ(FindingOf(report, "end").remedy, "jobctl resume eval-1 goes on with model 2 of 2");
  EXPECT_FALSE(report.mean_tokens_per_second.has_value());
  for (const std::string& text : {RenderMarkdown(report), RenderHtml(report)}) {
    EXPECT_NE(text.find("1 of 2"), std::string::npos) << text;
    EXPECT_NE(text.find("best 2.5000 at model 1"), std::string::npos) << text;
    for (const char* const word : {"Steps", "step", "Tokens", "tok/s", "Final loss"}) {
      EXPECT_EQ(text.find(word), std::string::npos) << word << "\n" << text;
    }
  }
  EXPECT_EQ(nlohmann::json::parse(RenderJson(report))["unit"], "model");
}

TEST(RenderMarkdown, Samples_AreRowsWithTheirStep) {
  ReportFacts facts = Healthy();
  v1::SampleText& sample = *facts.job.mutable_last_report()->add_samples();
  sample.set_step(50);
  sample.set_prompt("Once");
  sample.set_text(" upon | a\ntime");
  sample.set_tokens(4);
  sample.set_end(v1::TEXT_END_LENGTH);
  const Report report = BuildReport(facts);
  EXPECT_NE(RenderMarkdown(report).find("after step 50: &quot;Once&quot; + &quot; upon \\| a"),
            std::string::npos)
      << RenderMarkdown(report);
  const auto json = nlohmann::json::parse(RenderJson(report))["samples"];
  EXPECT_EQ(json, nlohmann::json::parse(R"([{"step": 50, "prompt": "Once",
      "text": " upon | a\ntime", "tokens": 4, "end": "length"}])"));
}

TEST(BuildReport, NothingMeasured_IsNotJudged) {
  ReportFacts facts = Healthy();
  facts.job.mutable_devices()->clear_hottest_celsius();
  const Report report = BuildReport(facts);
  EXPECT_EQ(FindingOf(report, "temperature").verdict, Verdict::kNote);
  EXPECT_EQ(FindingOf(report, "temperature").text, "not measured");
  EXPECT_TRUE(nlohmann::json::parse(RenderJson(report))["hottest_celsius"].is_null());
}

TEST(RenderSummary, HealthyRun_IsTheVerdictAndWhatWasMeasured) {
  ReportFacts facts = Healthy();
  facts.prices.per_gpu_hour = 0.5;
  EXPECT_EQ(RenderSummary(BuildReport(facts)),
            "ok       end          SUCCEEDED at step 100 of 100\n"
            "ok       loss         falling over the last 50 steps: -50 (standard error 0) per 1000 "
            "steps\n"
            "ok       memory       grew by 0 B after step 10 of the last epoch (1.0 GiB at most)\n"
            "ok       temperature  hottest: 71 C on g0 at step 42 (limit 85 C)\n"
            "ok       numbers      0 steps not finite, 0 skipped, 0 discarded by resumes\n"
            "ok       checkpoint   step 100, 0 steps behind, written 2m00s ago\n"
            "100k tokens in 3m20s, 500 tok/s\n"
            "Energy: 80 kJ, 1.25 tokens per joule\n"
            "Cost: $0.02778, $277.78 per billion tokens\n"
            "To share: jobctl report run-1\n");
}

TEST(RenderSummary, NotMeasured_IsLeftOut) {
  ReportFacts facts = Healthy();
  facts.history.energy_joules = 0;
  const std::string text = RenderSummary(BuildReport(facts));
  EXPECT_EQ(text.find("Energy"), std::string::npos) << text;
  EXPECT_EQ(text.find("Cost"), std::string::npos) << text;
  facts.history.steps.clear();
  EXPECT_EQ(RenderSummary(BuildReport(facts)), "") << "never ran";
}

TEST(RenderHtml, HostileText_IsEscapedEverywhere) {
  const std::string evil = "<script>alert('x')</script>&\"|`";
  ReportFacts facts = Healthy();
  facts.job.set_job_id(evil);
  facts.job.set_reason(evil);
  facts.job.mutable_spec()->set_name(evil);
  facts.job.mutable_run_info()->set_recipe(evil);
  facts.version.set_commit(evil);
  facts.prices.currency = evil;
  facts.prices.per_gpu_hour = 1;
  v1::DeviceGroup& group = *facts.job.mutable_devices()->mutable_groups(0);
  group.add_worker_ids(evil);
  group.set_host(evil);
  group.set_version(evil);
  group.set_model(evil);
  group.set_driver_version(evil);
  facts.job.mutable_devices()->set_hottest_worker_id(evil);
  v1::JobEvent event;
  event.set_type("recovery");
  event.set_message(evil);
  facts.events.push_back(event);
  const Report report = BuildReport(facts);
  const std::string html = RenderHtml(report);
  EXPECT_EQ(html.find("<script"), std::string::npos) << html;
  EXPECT_NE(html.find("&lt;script&gt;alert(&#39;x&#39;)"), std::string::npos);
  for (const char* remote : {"http:", "https:", "src=", "url(", "@import"}) {
    EXPECT_EQ(html.find(remote), std::string::npos) << remote;
  }
  const std::string markdown = RenderMarkdown(report);
  const std::string before_file = markdown.substr(0, markdown.find("## Job file"));
  EXPECT_EQ(before_file.find("<script"), std::string::npos) << before_file;
}

TEST(RenderHtml, LossWithAGap_IsTwoLinesAndAPoint) {
  ReportFacts facts = Healthy();
  facts.history.steps.resize(4);
  const double losses[] = {3.0, 1.0, std::nan(""), 2.0};
  for (size_t i = 0; i < 4; ++i) {
    facts.history.steps[i].set_loss(losses[i]);
  }
  const std::string html = RenderHtml(BuildReport(facts));
  const size_t line = html.find("<polyline points=\"64.0,");
  ASSERT_NE(line, std::string::npos) << html;
  EXPECT_NE(html.find(" 280.0,", line), std::string::npos);
  const size_t dot = html.find("<polyline points=\"712.0,", line);
  ASSERT_NE(dot, std::string::npos) << html;
  EXPECT_NE(html.find(" 712.0,", dot), std::string::npos);
  EXPECT_NE(html.find(">2.5</text>"), std::string::npos);
  EXPECT_NE(html.find(">step</text>"), std::string::npos);
}

TEST(Render, SeveralReports_AreOneDocument) {
  std::vector<Report> reports = {BuildReport(Healthy()), BuildReport(Healthy())};
  reports[1].job.set_job_id("the-other");
  const std::string html = RenderHtml(absl::MakeConstSpan(reports));
  EXPECT_NE(html.find("<title>2 jobs</title>"), std::string::npos);
  EXPECT_EQ(html.find("<html"), html.rfind("<html"));
  EXPECT_NE(html.find("<h1>"), html.rfind("<h1>"));
  EXPECT_NE(html.find("the-other"), std::string::npos);
  const std::string markdown = RenderMarkdown(absl::MakeConstSpan(reports));
  EXPECT_NE(markdown.find("## Verdict"), markdown.rfind("## Verdict"));
  const auto json = nlohmann::json::parse(RenderJson(absl::MakeConstSpan(reports)));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["job_id"], "the-other");
  const auto one = absl::MakeConstSpan(reports).first(1);
  EXPECT_EQ(nlohmann::json::parse(RenderJson(one)),
            nlohmann::json::array({nlohmann::json::parse(RenderJson(reports[0]))}))
      << "a list, whatever a label chooses";
  EXPECT_EQ(RenderHtml(one), RenderHtml(reports[0]));
}

TEST(RenderJson, HealthyRun_ParsesWithNumbers) {
  ReportFacts facts = Healthy();
  facts.job.set_reason("odd bytes \xff");
  const auto json = nlohmann::json::parse(RenderJson(BuildReport(facts)));
  EXPECT_EQ(json["schema"], "hearth.report/v1");
  EXPECT_EQ(json["tokens_per_joule"], 1.25);
  EXPECT_EQ(json["devices"][0]["driver"], "580.82.07");
  EXPECT_TRUE(json["cost"].is_null());  // no price was given
  EXPECT_EQ(json["hottest_celsius"], 71);
  EXPECT_EQ(json["temperature_limit"], 85);
  EXPECT_EQ(json["command"], "jobctl get run-1 --spec | jobctl submit -f -");
  EXPECT_EQ(json["verdict"].size(), 6U);
}

TEST(RenderJson, WhatIsNotKnown_IsNull) {
  ReportFacts facts = Healthy();
  auto json = nlohmann::json::parse(RenderJson(BuildReport(facts)));
  for (const char* key : {"price_per_kwh", "price_per_gpu_hour", "create_time", "end_time"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
  facts.job.mutable_devices()->mutable_groups(0)->clear_driver_version();  // a CPU's
  facts.job.mutable_devices()->mutable_groups(0)->clear_cuda_version();
  facts.job.mutable_create_time()->set_seconds(1000);
  facts.job.mutable_end_time()->set_seconds(1900);
  facts.prices.per_kwh = 0.25;
  json = nlohmann::json::parse(RenderJson(BuildReport(facts)));
  EXPECT_TRUE(json["devices"][0].at("driver").is_null());
  EXPECT_TRUE(json["devices"][0].at("cuda").is_null());
  EXPECT_EQ(json["price_per_kwh"], 0.25);
  EXPECT_TRUE(json["price_per_gpu_hour"].is_null());
  EXPECT_EQ(json["create_time"], "1970-01-01T00:16:40+00:00");
  EXPECT_EQ(json["end_time"], "1970-01-01T00:31:40+00:00");
}

}  // namespace
}  // namespace hearth::jobctl
