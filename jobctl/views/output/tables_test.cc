// What the tables look like at 80 and at 200 columns, and that none is wider.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "jobctl/commands/jobs/describe.h"
#include "jobctl/commands/workers/top.h"
#include "jobctl/views/output/output.h"
#include "jobctl/views/text/display_text.h"
#include "re2/re2.h"
#include "tests/support/common/valid_job.h"

namespace hearth::jobctl {
namespace {

constexpr int64_t kNow = 1'700'000'000;

v1::Job RunningJob() {
  v1::Job job = spec::JobIn(v1::JOB_STATE_RUNNING,
                            "pretrain-112m-fineweb-edu-bf16-baseline-second-try-x7k2m");
  job.set_owner("ada");
  job.set_epoch(2);
  job.set_restarts(1);
  job.set_step(1234);
  job.mutable_spec()->mutable_train()->set_steps(20'000);
  job.mutable_spec()->mutable_resources()->set_workers(2);
  job.mutable_spec()->mutable_resources()->set_max_restarts(5);
  job.mutable_spec()->mutable_precision()->set_recipe("fp8");
  (*job.mutable_spec()->mutable_labels())["team"] = "research";
  (*job.mutable_spec()->mutable_labels())["sweep"] = "lr";
  job.mutable_last_report()->set_loss(3.25);
  job.mutable_last_report()->set_tokens_per_second(196'000);
  job.add_workers("w0");
  job.add_workers("w1");
  job.mutable_create_time()->set_seconds(kNow - 3725);
  v1::RunInfo& info = *job.mutable_run_info();
  info.set_recipe("fp8");
  info.set_recipe_execution("emulated");
  info.set_device("cpu");
  info.set_world_size(2);
  info.set_micro_batch_size(4);
  info.set_global_batch_tokens(8192);
  info.set_comm("gloo");
  return job;
}

v1::Job WaitingJob() {
  v1::Job job = spec::JobIn(v1::JOB_STATE_QUEUED, "b");
  job.mutable_spec()->mutable_train()->set_steps(10);
  job.mutable_spec()->mutable_resources()->set_workers(1);
  job.set_reason("waits for 8 workers with device cuda, 2 are free");
  job.mutable_create_time()->set_seconds(kNow - 5);
  return job;
}

std::string Jobs(bool wide, int columns) {
  return RenderJobs({RunningJob(), WaitingJob()}, wide, {}, absl::FromUnixSeconds(kNow), columns);
}

std::vector<v1::Worker> Workers() {
  v1::Worker busy;
  busy.set_worker_id("rack-3-node-17-gpu-0-of-8-in-the-second-room");
  busy.set_state(v1::WORKER_STATE_BUSY);
  busy.set_job_id(RunningJob().job_id());
  busy.mutable_device()->set_kind("cuda");
  busy.mutable_device()->set_memory_bytes(int64_t{80} << 30);
  busy.mutable_device()->set_model("NVIDIA H100 80GB HBM3");
  busy.set_host("node-17.cluster.example");
  busy.mutable_device()->set_host_memory_bytes(int64_t{512} << 30);
  busy.mutable_device_status()->set_host_memory_available_bytes(int64_t{96} << 30);
  busy.set_checkpoint_root("/data/checkpoints");
  busy.mutable_last_seen_time()->set_seconds(kNow - 1);
  v1::Worker idle;
  idle.set_worker_id("w1");
  idle.set_state(v1::WORKER_STATE_IDLE);
  idle.set_cordoned(true);
  idle.mutable_device()->set_kind("cpu");
  idle.mutable_device()->set_threads(8);
  return {busy, idle};
}

std::vector<v1::JobEvent> Events() {
  v1::JobEvent checkpoint;
  checkpoint.set_type("checkpoint");
  checkpoint.set_actor("trainer");
  checkpoint.set_epoch(1);
  checkpoint.set_step(1200);
  checkpoint.set_message("checkpoint of step 1200, 1.2 GiB, was written by rank 0 and recorded");
  // The longest of each column.
  v1::JobEvent notification;
  notification.mutable_time()->set_seconds(kNow);
  notification.set_type("notification");
  notification.set_actor("user:somebody-with-a-long-name");
  notification.set_from_state(v1::JOB_STATE_RUNNING);
  notification.set_to_state(v1::JOB_STATE_REQUEUEING);
  notification.set_epoch(12);
  notification.set_step(1'234'567);
  notification.set_message("was told");
  return {checkpoint, notification};
}

int Widest(const std::string& text) {
  int widest = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    widest = std::max(widest, DisplayWidth(line));
  }
  return widest;
}

TEST(Tables, ListAt80Columns) {
  EXPECT_EQ(Jobs(false, 80),
            "NAME                          STATE    STEP        LOSS    TOK/S  WORKERS  AGE\n"
            "pretrain-112m-fineweb-edu...  RUNNING  1234/20000  3.2500  196k   2/2      1h02m\n"
            "b                             QUEUED   0/10        -       -      0/1      5s\n");
}

TEST(Tables, WideTablesCutNothing) {
  const std::string text = Jobs(true, 80);
  EXPECT_EQ(text, Jobs(true, 0));
  const absl::Time now = absl::FromUnixSeconds(kNow);
  const std::string workers = RenderWorkers(Workers(), true, now, 80);
  EXPECT_EQ(workers, RenderWorkers(Workers(), true, now, 0));
  EXPECT_NE(workers.find("HOST MEMORY"), std::string::npos) << workers;
  EXPECT_NE(workers.find("96.0/512.0GiB"), std::string::npos) << workers;
  EXPECT_NE(text.find(RunningJob().job_id()), std::string::npos) << text;
  EXPECT_NE(text.find("LABELS                  REASON"), std::string::npos) << text;
  EXPECT_NE(text.find("sweep=lr,team=research"), std::string::npos) << text;
  EXPECT_NE(text.find("waits for 8 workers with device cuda, 2 are free"), std::string::npos)
      << text;
}

TEST(Tables, EventsAt80Columns_WrapTheirText) {
  EXPECT_EQ(RenderEvents({Events()[0]}, false, 80),
            "TIME  TYPE        ACTOR    STATE  STEP  WHAT\n"
            "-     checkpoint  trainer  -      1200  checkpoint of step 1200, 1.2 GiB, was\n"
            "                                        written by rank 0 and recorded\n");
}

TEST(Tables, EventsWithALongPath_StayIn80ColumnsAndAreWholeWhenWide) {
  v1::JobEvent event = Events()[0];
  const std::string path = "/data/checkpoints/" + RunningJob().job_id() + "/e1/step-00001200";
  event.set_message("checkpoint of step 1200 in " + path);
  const std::string narrow = RenderEvents({event}, false, 80);
  EXPECT_LE(Widest(narrow), 80) << narrow;
  EXPECT_EQ(narrow.find("..."), std::string::npos) << "nothing is left out\n" << narrow;
  EXPECT_NE(RenderEvents({event}, true, 80).find(path), std::string::npos);
}

TEST(Tables, Events_KeepTheirTimeAndHaveMoreColumnsWhenWide) {
  const std::string narrow = RenderEvents(Events(), false, 80);
  EXPECT_TRUE(RE2::PartialMatch(narrow, R"(\n\d\d-\d\d \d\d:\d\d:\d\d  notif)")) << narrow;
  EXPECT_EQ(narrow.find("EPOCH"), std::string::npos);
  const std::string wide = RenderEvents(Events(), true, 200);
  EXPECT_TRUE(RE2::PartialMatch(wide, R"(FROM +TO +EPOCH +STEP)")) << wide;
  EXPECT_TRUE(RE2::PartialMatch(wide, R"(\n20\d\d-\d\d-\d\d .* RUNNING +REQUEUEING +12 )")) << wide;
}

TEST(Tables, EventsOfSeveralJobs_NameTheJobUncutAt80Columns) {
  std::vector<v1::JobEvent> events = Events();
  events[0].set_job_id("tiny-lm-x7k2m");
  events[1].set_job_id("other-run-q3f9z");
  const std::string narrow = RenderEvents(events, false, 80);
  EXPECT_TRUE(RE2::PartialMatch(narrow, R"(^TIME +JOB +TYPE +STATE +WHAT\n)")) << narrow;
  EXPECT_TRUE(RE2::PartialMatch(narrow, R"(\n\S+ \S+ +other-run-q3f9z +notification +REQ)"))
      << narrow;
  EXPECT_LE(Widest(narrow), 80) << narrow;
  const std::string wide = RenderEvents(events, true, 0);
  EXPECT_TRUE(RE2::PartialMatch(wide, R"(^TIME +JOB +TYPE +ACTOR +FROM +TO +EPOCH +STEP +WHAT\n)"))
      << wide;
}

TEST(Tables, Describe_ExplainsItsWords) {
  const std::string text = DescribeText(RunningJob(), {}, {}, "", 85.0, 0);
  for (const char* line :
       {"Epoch:         2: the gang, all of the job's workers together, has started 2 times; 1 of "
        "5 "
        "restarts used since the last checkpoint\n",
        "Precision:     fp8 (emulated) on cpu: values are rounded to the recipe's formats, but "
        "multiplied in a wider one, because the device has no units for them\n",
        "Batch:         8192 tokens a step, in micro-batches of 4 sequences on 2 ranks (processes, "
        "one a worker), which add up their gradients through gloo\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_NE(DescribeText(WaitingJob(), {}, {}, "", 85.0, 0)
                .find("Epoch:         0: the gang, all of the job's workers together, has not "
                      "started yet\n"),
            std::string::npos);
}

TEST(Tables, NoneIsWiderThanTheTerminal) {
  v1::ListEventsResponse events;
  for (const v1::JobEvent& event : Events()) {
    *events.add_events() = event;
  }
  const std::map<std::string, v1::Job> jobs = {{RunningJob().job_id(), RunningJob()}};
  for (const int columns : {80, 200}) {
    const absl::Time now = absl::FromUnixSeconds(kNow);
    const std::map<std::string, std::string> texts = {
        {"list", Jobs(false, columns)},
        {"workers", RenderWorkers(Workers(), false, now, columns)},
        {"events", RenderEvents(Events(), false, columns)},
        {"top", FitScreen(RenderTop(Workers(), jobs), columns, 24)},
    };
    for (const auto& [name, text] : texts) {
      EXPECT_LE(Widest(text), columns) << name << "\n" << text;
      EXPECT_GT(Widest(text), 20) << name;
    }
    // The job file in it is not wrapped: it is for copying.
    const std::string described = DescribeText(RunningJob(), events, {}, "", 85.0, columns);
    EXPECT_LE(Widest(described.substr(0, described.find("Spec:\n"))), columns) << described;
    EXPECT_LE(Widest(described.substr(described.find("Events:\n"))), columns) << described;
  }
}

}  // namespace
}  // namespace hearth::jobctl
