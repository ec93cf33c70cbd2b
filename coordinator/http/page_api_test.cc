#include "coordinator/http/page_api.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/io/env.h"
#include "common/metrics/step_metrics.h"
#include "coordinator/store/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/common/temp_dir.h"

namespace hearth::coordinator {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ApiTest : public testing::Test {
 protected:
  ApiTest() {
    log_ = std::make_shared<SegmentLog>(Env::Real(), root_ + "/log", SegmentLogOptions{},
                                        SegmentLog::Position{});
  }

  v1::Job& NewJob(Effects& effects, const std::string& id, int64_t created) {
    v1::Job& job = *effects.jobs.emplace_back().record.mutable_job();
    job.set_job_id(id);
    job.mutable_create_time()->set_seconds(created);
    job.set_state(v1::JOB_STATE_RUNNING);
    job.set_step(12);
    job.mutable_spec()->mutable_train()->set_steps(100);
    return job;
  }
  void PutJob(const std::string& id, int64_t created = 1) {
    Effects effects;
    NewJob(effects, id, created);
    view_.Apply({&effects, 1});
  }
  void PutStep(int64_t step, double loss) {
    v1::StepReport report;
    report.set_step(step);
    report.set_loss(loss);
    log_->Append(++cursor_, kStepRecord, report.SerializeAsString());
    ASSERT_TRUE(log_->Sync().ok());
    log_->Publish();
  }

  metrics::HttpResponse Get(const std::string& path, const std::string& query = "") {
    return ServeApi({view_, curves_, [this](std::string_view) { return lines_; }},
                    {"/api/v1/" + path, query});
  }
  // The answer, which must have that status and be JSON with the headers of all answers.
  Json Ask(const std::string& path, int status = 200, const std::string& query = "") {
    const metrics::HttpResponse response = Get(path, query);
    EXPECT_EQ(response.status, status) << path;
    EXPECT_EQ(response.content_type, "application/json");
    EXPECT_THAT(response.headers, testing::Contains(std::pair<std::string, std::string>(
                                      "Cache-Control", "no-store")));
    Json answer = Json::parse(response.body, nullptr, false);
    EXPECT_FALSE(answer.is_discarded()) << response.body;
    return answer;
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
  int64_t cursor_ = 0;
  std::shared_ptr<SegmentLog> log_;
  std::shared_ptr<SegmentLog> lines_;  // null: the job has logged nothing
  View view_{EventBounds{1000}};
  CurveCache curves_{[this](std::string_view id) { return id == "empty" ? nullptr : log_; }, 2};
};

TEST_F(ApiTest, UnknownPaths_Are404AsJson) {
  PutJob("a");
  for (const char* path :
       {"", "job", "jobs/", "jobs/b", "jobs/b/metrics", "jobs/a/log", "jobs/b/logs", "jobs/a/",
        "jobs/a/events/1", "workers/", "workers/w0", "jobs//metrics", "../jobs"}) {
    const Json answer = Ask(path, 404);
    EXPECT_EQ(answer["error"]["code"], 404) << path;
    EXPECT_FALSE(answer["error"]["message"].get<std::string>().empty()) << path;
  }
}

TEST_F(ApiTest, Jobs_NewestFirstAndBounded) {
  EXPECT_EQ(Ask("jobs")["jobs"], Json::array());
  for (int64_t i = 0; i < 120; ++i) {
    PutJob(absl::StrCat("job-", i), i);
  }
  const Json answer = Ask("jobs");
  ASSERT_EQ(answer["jobs"].size(), kMaxApiJobs);
  EXPECT_EQ(answer["more"], true);
  EXPECT_EQ(answer["jobs"][0]["job_id"], "job-119");
  EXPECT_EQ(answer["jobs"][0]["state"], "running");
  EXPECT_EQ(answer["jobs"][0]["steps"], 100);
  for (const char* name :
       {"loss", "tokens_per_second", "parameters", "checkpoint_step", "hottest_celsius"}) {
    EXPECT_TRUE(answer["jobs"][0][name].is_null()) << name;
  }
}

TEST_F(ApiTest, Job_TextOfUsers_ComesBackAsItIs) {
  const std::string nasty = "</script><img src=x onerror=alert(1)>\"\n\\ \xc3\xa4";
  Effects effects;
  v1::Job& job = NewJob(effects, "a", 1);
  job.mutable_spec()->set_name(nasty);
  job.set_reason(nasty);
  job.set_owner("ada");
  (*job.mutable_spec()->mutable_labels())["team"] = nasty;
  job.mutable_checkpoint()->set_path("/data/a/step-12");
  job.mutable_last_report()->set_loss(NAN);
  view_.Apply({&effects, 1});
  const Json answer = Ask("jobs/a");
  EXPECT_EQ(answer["name"], nasty);
  EXPECT_EQ(answer["reason"], nasty);
  EXPECT_EQ(answer["owner"], "ada");
  EXPECT_EQ(answer["labels"], Json({{"team", nasty}}));
  EXPECT_EQ(answer["checkpoint_path"], "/data/a/step-12");
  EXPECT_TRUE(answer["loss"].is_null());
  EXPECT_EQ(answer["job"]["jobId"], "a");  // as jobctl get -o json
  EXPECT_EQ(answer["job"]["spec"]["name"], nasty);
}

TEST_F(ApiTest, Job_Samples_AreInTheJobsOwnAnswer) {
  Effects effects;
  v1::Job& job = NewJob(effects, "a", 1);
  v1::SampleText& sample = *job.mutable_last_report()->add_samples();
  sample.set_step(20);
  sample.set_prompt("Once");
  sample.set_text(" upon\n<b>");
  sample.set_tokens(3);
  sample.set_end(v1::TEXT_END_STOP);
  view_.Apply({&effects, 1});
  EXPECT_EQ(Ask("jobs/a")["samples"], Json::parse(R"([{"step": 20, "prompt": "Once",
      "text": " upon\n<b>", "tokens": 3, "end": "stop"}])"));
  EXPECT_FALSE(Ask("jobs")["jobs"][0].contains("samples")) << "the list is of bounded size";
}

TEST_F(ApiTest, Job_Unit_IsWhatItsStepsAre) {
  Effects effects;
  NewJob(effects, "a", 1);
  v1::Job& eval = NewJob(effects, "b", 2);
  eval.mutable_spec()->set_task("eval");
  view_.Apply({&effects, 1});
  EXPECT_EQ(Ask("jobs/a")["unit"], "step");
  EXPECT_EQ(Ask("jobs/b")["unit"], "model");
}

TEST_F(ApiTest, Job_Plan_StandsBesideWhatIsMeasured) {
  Effects effects;
  NewJob(effects, "a", 1);
  v1::JobPlan& plan = *effects.jobs.back().record.mutable_plan();
  plan.set_gpu("H200");
  plan.set_gpus(2);
  plan.set_tokens_per_second(1000);
  plan.set_memory_bytes(int64_t{1} << 30);
  plan.mutable_step()->set_product_seconds(0.5);
  plan.mutable_measured()->set_tokens(1420);
  plan.mutable_measured()->set_seconds(2);
  plan.mutable_measured()->set_joules(2800);
  NewJob(effects, "b", 2);
  view_.Apply({&effects, 1});
  const Json shown = Ask("jobs/a")["plan"];
  EXPECT_EQ(shown["gpu"], "H200");
  EXPECT_EQ(shown["planned"]["tokens_per_second"], 1000.0);
  EXPECT_EQ(shown["measured"]["tokens_per_second"], 710.0);
  EXPECT_EQ(shown["measured"]["watts"], 700.0);
  EXPECT_TRUE(shown["planned"]["watts"].is_null());
  EXPECT_TRUE(shown["measured"]["memory_bytes"].is_null());
  EXPECT_EQ(shown["step_seconds"]["products"], 0.5);
  EXPECT_TRUE(Ask("jobs/b")["plan"].is_null());
}

TEST_F(ApiTest, Workers_NotUtf8_IsReplaced) {
  Effects effects;
  v1::Worker& worker = *effects.workers.emplace_back().record.mutable_worker();
  worker.set_worker_id("w0");
  worker.set_state(v1::WORKER_STATE_BUSY);
  worker.set_host(
      "a\xff"
      "b");
  worker.set_incarnation("secret");
  view_.Apply({&effects, 1});
  const Json answer = Ask("workers");
  ASSERT_EQ(answer["workers"].size(), 1u);
  EXPECT_EQ(answer["workers"][0]["state"], "busy");
  EXPECT_EQ(answer["workers"][0]["host"],
            "a\xef\xbf\xbd"
            "b");
  EXPECT_THAT(Get("workers").body, Not(HasSubstr("secret")));
}

TEST_F(ApiTest, Events_NewestFirstAndBounded) {
  Effects effects;
  NewJob(effects, "a", 1);
  for (int64_t i = 1; i <= 250; ++i) {
    v1::JobEvent& event = effects.events.emplace_back();
    event.set_job_id("a");
    event.set_revision(i);
    event.set_to_state(v1::JOB_STATE_QUEUED);
    event.set_type(i == 3 ? "note" : "state");
  }
  view_.Apply({&effects, 1});
  const Json answer = Ask("jobs/a/events");
  ASSERT_EQ(answer["events"].size(), kMaxApiEvents + 1);
  EXPECT_EQ(answer["events"][0]["revision"], 250);
  EXPECT_EQ(answer["events"].back()["revision"], 3) << "a note is always there";
  EXPECT_EQ(answer["events"][0]["to_state"], "queued");
  EXPECT_EQ(answer["more"], true);
}

TEST_F(ApiTest, Checkpoints_NewestFirstWithTheirPaths) {
  Effects effects;
  NewJob(effects, "a", 1);
  for (const int64_t step : {20, 10}) {
    v1::Checkpoint& checkpoint = *effects.jobs.back().record.add_checkpoints();
    checkpoint.set_step(step);
    checkpoint.set_epoch(1);
    checkpoint.set_path(absl::StrCat("/data/a/step-", step));
    checkpoint.set_bytes(4096);
    checkpoint.mutable_create_time()->set_seconds(1000 + step);
  }
  effects.jobs.back().record.mutable_checkpoints(0)->set_validation_loss(2.5);
  view_.Apply({&effects, 1});
  EXPECT_EQ(Ask("jobs/a/checkpoints")["checkpoints"], Json::parse(R"([
      {"step": 20, "epoch": 1, "path": "/data/a/step-20", "bytes": 4096, "create_time": 1020.0,
       "validation_loss": 2.5},
      {"step": 10, "epoch": 1, "path": "/data/a/step-10", "bytes": 4096, "create_time": 1010.0,
       "validation_loss": null}])"));
}

TEST_F(ApiTest, Evaluations_OwnOnesAndThoseOfItsCheckpointsByOthers) {
  Effects effects;
  NewJob(effects, "a", 1);
  v1::JobEvent& event = effects.events.emplace_back();
  event.set_job_id("a");
  event.set_revision(1);
  event.set_type("evaluation");
  event.set_step(20);
  event.set_message("piqa: acc 0.5");
  v1::EvaluatedModel& model = *NewJob(effects, "judge", 2).add_models();
  model.mutable_checkpoint()->set_job_id("a");
  model.mutable_checkpoint()->set_step(40);
  v1::HeldOutLoss& loss = *model.add_held_out();
  loss.set_source("/data/web");
  loss.set_loss(3.5);
  *effects.jobs.back().record.mutable_job()->add_models() = model;
  effects.jobs.back().record.mutable_job()->mutable_models(1)->mutable_checkpoint()->set_job_id(
      "other");
  view_.Apply({&effects, 1});
  const Json found = Ask("jobs/a/evaluations")["evaluations"];
  ASSERT_EQ(found.size(), 2u) << found;
  EXPECT_EQ(found[0]["step"], 40);
  EXPECT_EQ(found[0]["by"], "judge");
  EXPECT_THAT(found[0]["text"].get<std::string>(), HasSubstr("/data/web: loss 3.5"));
  EXPECT_EQ(found[1], Json::parse(R"({"step": 20, "by": "a", "text": "piqa: acc 0.5"})"));
}

TEST_F(ApiTest, Logs_TheNewestLinesAndThenWhatIsNew) {
  PutJob("a");
  EXPECT_EQ(Ask("jobs/a/logs")["lines"], Json::array()) << "nothing was logged yet";
  lines_ = std::make_shared<SegmentLog>(Env::Real(), root_ + "/lines", SegmentLogOptions{},
                                        SegmentLog::Position{});
  const auto put = [this](int64_t cursor, int rank, const std::string& text) {
    v1::LogLine line;
    line.set_rank(rank);
    line.set_epoch(1);
    line.set_level("info");
    line.set_text(text);
    line.mutable_time()->set_seconds(7);
    lines_->Append(cursor, 0, line.SerializeAsString());
    lines_->Publish();
  };
  put(1, 0, "<b>one</b>");
  put(2, 1, "two");
  put(3, 0, "three");
  Json answer = Ask("jobs/a/logs", 200, "tail=2");
  ASSERT_EQ(answer["lines"].size(), 2u);
  EXPECT_EQ(answer["lines"][0]["text"], "two");
  EXPECT_EQ(answer["lines"][1], Json::parse(R"({"cursor": 3, "time": 7.0, "epoch": 1, "rank": 0,
      "level": "info", "text": "three"})"));
  EXPECT_EQ(answer["more"], true);
  EXPECT_EQ(answer["cursor"], 3);
  put(4, 1, "four");
  answer = Ask("jobs/a/logs", 200, "after=3&rank=1&epoch=1");
  ASSERT_EQ(answer["lines"].size(), 1u);
  EXPECT_EQ(answer["lines"][0]["text"], "four");
  EXPECT_EQ(answer["more"], false);
  EXPECT_EQ(Ask("jobs/a/logs", 200, "epoch=2")["lines"], Json::array());
  for (const char* query : {"tail=0", "tail=1001", "rank=-1", "rank=x", "epoch=0", "after=-1"}) {
    EXPECT_EQ(Ask("jobs/a/logs", 400, query)["error"]["code"], 400) << query;
  }
}

TEST_F(ApiTest, Metrics_ColumnsOfEqualLength) {
  PutJob("a");
  PutStep(1, 2.5);
  PutStep(2, NAN);
  PutStep(3, 1.5);
  const Json answer = Ask("jobs/a/metrics");
  EXPECT_EQ(answer["complete"], true);
  EXPECT_EQ(answer["rewinds"], 0);
  EXPECT_THAT(answer["columns"]["step"], ElementsAre(1, 2, 3));
  EXPECT_EQ(answer["columns"]["loss"], Json::parse("[2.5, null, 1.5]"));
  for (const auto& [name, column] : answer["columns"].items()) {
    EXPECT_EQ(column.size(), 3u) << name;
  }
  EXPECT_THAT(Ask("jobs/a/metrics", 200, "since_step=3")["columns"]["step"], ElementsAre(3));
  EXPECT_THAT(Ask("jobs/a/metrics", 200, "points=1&since_step=2")["columns"]["step"],
              ElementsAre(3));
}

TEST_F(ApiTest, Metrics_WhatWasNotMeasured_IsNull) {
  PutJob("a");
  for (int64_t step = 1; step <= 4; ++step) {
    v1::StepReport report;
    report.set_step(step);
    if (step > 2) {
      report.set_mfu(0.1 * static_cast<double>(step));
      report.set_power_watts(100.0 * static_cast<double>(step));
      report.set_memory_bytes(1000 * step);
    }
    log_->Append(++cursor_, kStepRecord, report.SerializeAsString());
  }
  ASSERT_TRUE(log_->Sync().ok());
  log_->Publish();
  const Json columns = Ask("jobs/a/metrics")["columns"];
  EXPECT_EQ(columns["power_watts"], Json::parse("[null, null, 300.0, 400.0]"));
  EXPECT_EQ(columns["memory_bytes"], Json::parse("[null, null, 3000.0, 4000.0]"));
  EXPECT_TRUE(columns["mfu"][0].is_null());
  EXPECT_EQ(columns["loss"][0], 0.0) << "is always there";
  // A mean is over the steps that measured.
  const Json one = Ask("jobs/a/metrics", 200, "points=1")["columns"];
  EXPECT_EQ(one["power_watts"], Json::parse("[350.0]"));
  EXPECT_DOUBLE_EQ(one["mfu"][0].get<double>(), 0.35);
}

TEST_F(ApiTest, Metrics_Curves_AreTheRowsThatCanBePlotted) {
  PutJob("a");
  const Json answer = Ask("jobs/a/metrics");
  std::map<std::string, Json> curves;
  for (const Json& curve : answer["curves"]) {
    EXPECT_TRUE(answer["columns"].contains(curve["column"])) << curve;
    EXPECT_TRUE(answer["columns"].contains(curve["chart"])) << curve;
    curves[curve["column"].get<std::string>()] = curve;
  }
  for (const metrics::StepMetric& row : metrics::StepMetrics()) {
    if (row.of_entries()) {
      continue;  // a column for each label, and here is none
    }
    const v1::Metric& option = row.option();
    const bool drawn = option.curve() != v1::Metric::NO_CURVE && !option.plot().empty() &&
                       option.kind() != v1::Metric::POSITION;
    ASSERT_EQ(curves.count(row.field()) == 1, drawn) << row.field();
    if (drawn) {
      const Json& curve = curves[row.field()];
      EXPECT_EQ(curve["plot"], option.plot());
      EXPECT_EQ(curve["unit"], option.unit());
      EXPECT_EQ(curve["sparse"], option.sparse());
      EXPECT_EQ(curve["help"], option.help());
    }
  }
  EXPECT_EQ(curves["loss"]["chart"], "loss");
  EXPECT_EQ(curves["validation_loss"]["chart"], "loss") << "drawn beside the training loss";
  EXPECT_EQ(curves["tokens_per_second"]["chart"], "tokens_per_second");
}

TEST_F(ApiTest, Workers_WhatWasNotMeasured_IsNull) {
  Effects effects;
  v1::Worker& silent = *effects.workers.emplace_back().record.mutable_worker();
  silent.set_worker_id("w0");
  v1::Worker& idle = *effects.workers.emplace_back().record.mutable_worker();
  idle.set_worker_id("w1");
  idle.mutable_device_status()->set_power_watts(76.5);
  view_.Apply({&effects, 1});
  const Json workers = Ask("workers")["workers"];
  ASSERT_EQ(workers.size(), 2u);
  for (const char* name : {"utilization_ratio", "power_watts", "temperature_celsius",
                           "memory_used_bytes", "memory_bytes", "rank"}) {
    EXPECT_TRUE(workers[0][name].is_null()) << name;
  }
  EXPECT_EQ(workers[1]["utilization_ratio"], 0.0) << "heard of, and idle";
  EXPECT_EQ(workers[1]["power_watts"], 76.5);
}

TEST_F(ApiTest, Metrics_AfterARewind_OnlyWhatCounts) {
  PutJob("a");
  PutStep(1, 1);
  PutStep(2, 2);
  EXPECT_THAT(Ask("jobs/a/metrics")["columns"]["step"], ElementsAre(1, 2));
  v1::Rewind rewind;
  rewind.set_to_step(1);
  log_->Append(++cursor_, kRewindRecord, rewind.SerializeAsString());
  PutStep(2, 7);
  const Json answer = Ask("jobs/a/metrics");
  EXPECT_THAT(answer["columns"]["step"], ElementsAre(1, 2));
  EXPECT_THAT(answer["columns"]["loss"], ElementsAre(1.0, 7.0));
  EXPECT_EQ(answer["rewinds"], 1);
}

TEST_F(ApiTest, Metrics_SeveralSources_ACurveForEach) {
  PutJob("a");
  for (const int64_t number : {1, 2}) {
    v1::StepReport report;
    report.set_step(number);
    for (const char* path : {"/web", "/code"}) {
      v1::SourceReport& source = *report.add_sources();
      source.set_source(path);
      source.set_passes(static_cast<double>(number));
    }
    // The second step drew nothing from /code.
    report.mutable_sources(0)->set_loss(3);
    if (number == 1) {
      report.mutable_sources(1)->set_loss(2);
    }
    log_->Append(++cursor_, kStepRecord, report.SerializeAsString());
  }
  PutStep(3, 1);
  const Json answer = Ask("jobs/a/metrics");
  EXPECT_THAT(answer["columns"]["sources.loss /web"], ElementsAre(3.0, 3.0, Json()));
  EXPECT_THAT(answer["columns"]["sources.loss /code"], ElementsAre(2.0, Json(), Json()));
  EXPECT_THAT(answer["columns"]["sources.passes /code"], ElementsAre(1.0, 2.0, Json()));
  std::vector<std::string> lines;
  for (const Json& curve : answer["curves"]) {
    if (curve["chart"] == "source_loss") {
      lines.push_back(curve["label"].get<std::string>());
    }
  }
  EXPECT_THAT(lines, ElementsAre("/code", "/web"));
}

TEST_F(ApiTest, Metrics_ManySteps_AtMostAThousandPoints) {
  PutJob("a");
  for (int64_t step = 1; step <= 2500; ++step) {
    v1::StepReport report;
    report.set_step(step);
    log_->Append(++cursor_, kStepRecord, report.SerializeAsString());
  }
  PutStep(2501, 1);
  const Json columns = Ask("jobs/a/metrics")["columns"];
  EXPECT_LE(columns["step"].size(), kMaxApiPoints);
  EXPECT_EQ(columns["step"].back(), 2501);
  int64_t next = 1;
  for (size_t i = 0; i < columns["step"].size(); ++i) {
    EXPECT_EQ(columns["first_step"][i], next);
    next = columns["step"][i].get<int64_t>() + 1;
  }
}

TEST_F(ApiTest, Metrics_NoHistory_IsEmpty) {
  PutJob("empty");
  EXPECT_EQ(Ask("jobs/empty/metrics")["columns"]["loss"], Json::array());
}

TEST_F(ApiTest, Metrics_BadQuery_Is400) {
  PutJob("a");
  for (const char* query : {"since_step=x", "since_step=-1", "since_step=", "points=0",
                            "points=1001", "points=1e3", "since_step=99999999999999999999"}) {
    EXPECT_EQ(Ask("jobs/a/metrics", 400, query)["error"]["code"], 400) << query;
  }
}

// Charts follow the rows: what the page drew by name would be missing for a row that is new.
TEST(Page, Script_NamesNoMetric) {
  const auto handlers = PageHandlers();
  std::string script;
  for (const char* path : {"/app.js", "/curves.js", "/job.js", "/text.js"}) {
    script += handlers.at(path)({path, ""}).body;
  }
  ASSERT_THAT(script, HasSubstr("chartsOf(chosen.curves)"));
  for (const metrics::StepMetric* row : CurveRows()) {
    const std::string& name = row->field();
    // A position, such as the tokens so far, is an axis.
    if (!row->option().plot().empty() && row->option().kind() != v1::Metric::POSITION) {
      EXPECT_FALSE(absl::StrContains(script, absl::StrCat("\"", name, "\""))) << name;
      EXPECT_FALSE(absl::StrContains(script, absl::StrCat("columns.", name))) << name;
    }
  }
}

TEST(Page, Files_AreServedWithAPolicyThatAllowsNothingFromElsewhere) {
  const auto handlers = PageHandlers();
  ASSERT_EQ(handlers.size(), 7u);
  EXPECT_THAT(handlers.at("/")({"/", ""}).content_type, HasSubstr("text/html"));
  for (const char* path : {"/app.js", "/curves.js", "/job.js", "/text.js"}) {
    EXPECT_THAT(handlers.at(path)({path, ""}).content_type, HasSubstr("text/javascript"));
  }
  EXPECT_THAT(handlers.at("/style.css")({"/style.css", ""}).content_type, HasSubstr("text/css"));
  for (const auto& [path, handler] : handlers) {
    const metrics::HttpResponse response = handler({path, ""});
    EXPECT_GT(response.body.size(), 1000u);
    std::string policy;
    for (const auto& [name, value] : response.headers) {
      policy += name == "Content-Security-Policy" ? value : "";
    }
    EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_THAT(response.body, Not(HasSubstr("innerHTML")));
    EXPECT_THAT(response.body, Not(HasSubstr("https://")));
  }
}

TEST(Page, OverARealServer_AnswersOnItsSmallStacks) {
  // The largest answer is made on a server thread, of which each has 100 KiB of stack.
  View view(EventBounds{10});
  Effects effects;
  v1::Job& job = *effects.jobs.emplace_back().record.mutable_job();
  job.set_job_id("a");
  for (int i = 0; i < 1000; ++i) {
    job.add_warnings("warning");
  }
  view.Apply({&effects, 1});
  CurveCache curves([](std::string_view) { return nullptr; }, 2);
  int served = 0;
  auto server = metrics::HttpServer::Start(
      "127.0.0.1:0",
      {{"/api/v1/*", [&](const metrics::HttpRequest& request) {
          const metrics::HttpResponse response = ServeApi({view, curves, {}}, request);
          served = response.status;
          return response;
        }}});
  ASSERT_TRUE(server.ok()) << server.status();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>((*server)->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string ask = "GET /api/v1/jobs/a HTTP/1.0\r\n\r\n";
  ASSERT_EQ(write(fd, ask.data(), ask.size()), static_cast<ssize_t>(ask.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = read(fd, buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  server->reset();
  EXPECT_THAT(answer, HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_THAT(answer, HasSubstr("\"jobId\":\"a\""));
  EXPECT_EQ(served, 200);
}

}  // namespace
}  // namespace hearth::coordinator
