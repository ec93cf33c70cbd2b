// Bounds on what agents and users may do to the core.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using testing::HasSubstr;

absl::Status Connect(Harness& h, const std::string& key, const std::string& incarnation) {
  AgentConnected connected;
  connected.connection_id = 1000 + h.connections.size();
  connected.hello.set_worker_id("w");
  connected.hello.set_incarnation(incarnation);
  connected.hello.mutable_device()->set_kind("cpu");
  connected.name_key_sha256 = key;
  const absl::Status status = h.Do(connected).reply->status;
  if (status.ok()) {
    h.connections["w"] = connected.connection_id;
  }
  return status;
}

absl::Status CloseOf(const Effects& effects) {
  return effects.closes.empty() ? absl::OkStatus() : effects.closes[0].status;
}

TEST(WorkerName, BoundToAKey_RefusesOthersEvenAfterSilence) {
  Harness h;
  ASSERT_TRUE(Connect(h, "mine", "i1").ok());
  h.Pass(absl::Minutes(2));
  EXPECT_EQ(h.WorkerState("w"), v1::WORKER_STATE_LOST);
  for (const char* key : {"", "other"}) {
    const absl::Status status = Connect(h, key, "i2");
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << key;
    EXPECT_THAT(std::string(status.message()), HasSubstr("jobctl forget w"));
  }
  EXPECT_TRUE(Connect(h, "mine", "i1").ok()) << "the same daemon comes back";
  h.Disconnect("w");
  EXPECT_TRUE(Connect(h, "mine", "i3").ok()) << "and so does a new one with its data dir";
  h.Restart();
  EXPECT_FALSE(Connect(h, "other", "i4").ok()) << "the binding is durable";
}

TEST(WorkerName, OfAnOlderDaemon_IsBoundOnFirstUse) {
  Harness h;
  ASSERT_TRUE(Connect(h, "", "i1").ok());
  h.Disconnect("w");
  ASSERT_TRUE(Connect(h, "mine", "i2").ok());
  h.Disconnect("w");
  EXPECT_FALSE(Connect(h, "", "i3").ok());
}

TEST(DeleteWorker, ReleasesTheName_UnlessItHasARank) {
  Harness h;
  ASSERT_TRUE(Connect(h, "mine", "i1").ok());
  const Effects effects = h.Do(OfWorker<v1::DeleteWorkerRequest>("w"));
  EXPECT_TRUE(effects.reply->status.ok());
  EXPECT_EQ(effects.worker_deletes, std::vector<std::string>{"w"});
  EXPECT_EQ(CloseOf(effects).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(h.core->FindWorker("w"), nullptr);
  EXPECT_TRUE(Connect(h, "other", "i2").ok());
  EXPECT_EQ(h.Do(OfWorker<v1::DeleteWorkerRequest>("none")).reply->status.code(),
            absl::StatusCode::kNotFound);
  h.Running(1);
  const Reply busy =
      *h.Do(OfWorker<v1::DeleteWorkerRequest>(h.core->FindJob("job")->ranks(0).worker_id())).reply;
  EXPECT_EQ(busy.status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Steps, PastTheJobsEnd_EndTheStreamAndChangeNothing) {
  for (const int64_t bad : {int64_t{1} << 40, int64_t{0}, int64_t{-1}, int64_t{1'000'001}}) {
    Harness h;
    h.Running(1);
    EXPECT_EQ(CloseOf(h.Step("job", bad)).code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(h.Job("job").step(), 1) << bad;
    EXPECT_EQ(h.core->FindJob("job")->ranks(0).applied_seq(), 1) << bad;
  }
  Harness h;
  h.Running(1);
  EXPECT_THAT(std::string(CloseOf(h.Checkpoint("job", int64_t{1} << 40)).message()),
              HasSubstr("report.checkpoint.step"));
  EXPECT_FALSE(h.Job("job").has_checkpoint());
}

TEST(Steps, HeartbeatPastTheJobsEnd_EndsTheStream) {
  Harness h;
  h.Running(1);
  AgentHeartbeat beat;
  beat.connection_id = h.connections["a"];
  beat.heartbeat.set_job_id("job");
  beat.heartbeat.set_epoch(1);
  beat.heartbeat.set_step(int64_t{1} << 40);
  EXPECT_THAT(std::string(CloseOf(h.Do(beat)).message()), HasSubstr("heartbeat.step"));
}

TEST(Logs, LinesOverTheRate_AreDroppedAndLeaveAGap) {
  Harness h;
  h.Running(1);
  const auto batch = [&h] {
    v1::TaskReport report = h.Next("job", 0);
    for (int i = 0; i < 1024; ++i) {
      report.mutable_logs()->add_lines()->set_text(std::string(32 << 10, 'x'));
    }
    return h.Report("job", 0, report).logs.at(0);
  };
  EXPECT_EQ(batch().lines.size(), 1024u);  // 32 MiB
  EXPECT_EQ(batch().lines.size(), 1024u);  // the burst is used up
  const LogAppend over = batch();
  EXPECT_EQ(over.lines.size(), 0u);
  EXPECT_EQ(over.dropped, 1024);
  EXPECT_EQ(h.core->FindJob("job")->log_cursor(), 3 * 1024);
  h.now.monotonic += absl::Seconds(1);
  const LogAppend later = batch();
  EXPECT_EQ(later.lines.size(), 64u);  // 2 MiB a second
  EXPECT_EQ(later.lines[0].cursor(), 3 * 1024 + 1);
  EXPECT_EQ(h.core->FindJob("job")->log_cursor(), 4 * 1024);
}

TEST(Logs, LongLine_IsCut) {
  Harness h;
  h.Running(1);
  v1::TaskReport report = h.Next("job", 0);
  report.mutable_logs()->add_lines()->set_text(std::string(1 << 20, 'x'));
  EXPECT_EQ(h.Report("job", 0, report).logs.at(0).lines.at(0).text().size(), size_t{64 << 10});
}

// A core of its own options, to which jobs are submitted.
struct SmallCore {
  absl::Status Submit(int number) {
    CreateJob create;
    create.spec.set_name("job");
    create.job_id = absl::StrCat("job-", number);
    create.request_id = absl::StrCat("request-", number);
    return core.Apply(create, now).reply->status;
  }

  CoreOptions options;
  Now now{absl::FromUnixSeconds(1'700'000'000), absl::Seconds(1000)};
  Core core{options, {}, now};
};

TEST(CreateJob, TooManyJobs_AreRefused) {
  SmallCore small{.options = {.max_jobs = 2}};
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = small.Submit(i);
    EXPECT_EQ(status.code(), i < 2 ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted);
  }
}

TEST(Requests, MoreThanAreKept_ForgetTheOldest) {
  SmallCore small{.options = {.max_requests = 2}};
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(small.Submit(i).ok());
  }
  EXPECT_EQ(small.core.Apply(Tick{}, small.now).request_deletes,
            (std::vector<std::string>{"request-0", "request-1"}));
}

}  // namespace
}  // namespace hearth::coordinator
