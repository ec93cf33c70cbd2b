#include "coordinator/core/jobs/notifications.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/spec/fields/rows.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::NotifySpec Receiver(const std::vector<std::string>& on, const std::string& url) {
  v1::NotifySpec receiver;
  receiver.mutable_on()->Assign(on.begin(), on.end());
  receiver.set_url(url);
  return receiver;
}

CoreOptions Options() {
  CoreOptions options;
  options.notify_commands = {"mail"};
  return options;
}

// A job on worker "a" that tells one URL of its end and of pauses.
void RunTold(Harness& h) {
  h.Connect("a");
  CreateJob create;
  create.job_id = "job";
  create.paths_checked = true;
  create.owner = "ada";
  create.spec.set_name("job");
  create.spec.mutable_train()->set_steps(1'000'000);
  create.spec.mutable_resources()->set_workers(1);
  create.spec.mutable_resources()->set_device("cpu");
  *create.spec.add_notify() = Receiver({"succeeded", "failed", "paused", "stuck"}, "http://sink/x");
  EXPECT_TRUE(h.Do(create).reply->status.ok());
  h.Tick();
  h.Step("job", 1);
}

void PauseTwiceTold(Harness& h) {
  RunTold(h);
  h.Pause("job");
  h.Exit("job", 0, v1::EXIT_REASON_PAUSED);
  h.Resume("job");
  h.Pause("job");
  h.Tick();
}

void FinishTold(Harness& h) {
  RunTold(h);
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
}

void Answer(Harness& h, const DeliveryRequest& request, const absl::Status& status) {
  h.Do(DeliveryDone{request.job_id, request.id, status});
}

std::vector<std::string> Told(const Harness& h) {
  std::vector<std::string> told;
  for (const DeliveryRequest& request : h.deliveries) {
    told.push_back(nlohmann::json::parse(request.body)["on"]);
  }
  return told;
}

absl::Status Down() {
  return absl::UnavailableError("connection refused");
}

TEST(NotificationKinds, Names_AreThoseOfTheJobFile) {
  const auto& names = spec::RowOf(*v1::NotifySpec::descriptor()->FindFieldByName("on")).one_of();
  std::vector<std::string> kinds;
  for (const NotificationKind& kind : NotificationKinds()) {
    kinds.emplace_back(kind.name);
  }
  EXPECT_EQ(kinds, std::vector<std::string>(names.begin(), names.end()));
}

TEST(Notifications, End_IsWrittenWithItsEventAndTold) {
  Harness h(Options());
  RunTold(h);
  EXPECT_THAT(h.deliveries, IsEmpty());
  const Effects effects = h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  // One batch: who has the event has the notification.
  ASSERT_EQ(effects.jobs.size(), 1u);
  EXPECT_TRUE(effects.jobs[0].durable);
  ASSERT_EQ(effects.jobs[0].record.pending_notifications_size(), 1);
  EXPECT_EQ(h.core->pending_notifications(), 1);
  h.Tick();
  ASSERT_EQ(h.deliveries.size(), 1u);
  EXPECT_EQ(h.deliveries[0].url, "http://sink/x");
  h.Tick();
  EXPECT_EQ(h.deliveries.size(), 1u) << "under way";
  Answer(h, h.deliveries[0], absl::OkStatus());
  h.Pass(absl::Hours(2));
  EXPECT_EQ(h.deliveries.size(), 1u);
  const v1::Notification& shown = h.Job("job").notifications(0);
  EXPECT_EQ(shown.state(), v1::NOTIFICATION_STATE_DELIVERED);
  EXPECT_EQ(shown.attempts(), 1);
  EXPECT_EQ(shown.target(), "http://sink/x");
  EXPECT_EQ(h.core->FindJob("job")->pending_notifications_size(), 0);
  EXPECT_EQ(h.events.back().type(), "notification");
  EXPECT_THAT(h.events.back().message(), HasSubstr("http://sink/x was told: succeeded"));
}

TEST(Notifications, JobThatIsExtended_TellsOfItsNewEndToo) {
  Harness h(Options());
  RunTold(h);
  h.Checkpoint("job", 1);
  for (const int64_t steps : {2'000'000, 3'000'000}) {
    h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
    h.Tick();
    Answer(h, h.deliveries.back(), absl::OkStatus());
    ResumeJob resume;
    resume.job_id = "job";
    resume.spec = h.Job("job").spec();
    resume.spec->mutable_train()->set_steps(steps);
    ASSERT_TRUE(h.Do(resume).reply->status.ok());
    h.Tick();
    h.Step("job", 2);
  }
  EXPECT_THAT(Told(h), ElementsAre("succeeded", "succeeded"));
}

TEST(Notifications, Body_IsWhatTheDocumentSays) {
  Harness h(Options());
  RunTold(h);
  h.Step("job", 7);
  h.Exit("job", 0, v1::EXIT_REASON_BAD_DATA, "cannot read \xff");
  h.Tick();
  const nlohmann::json body = nlohmann::json::parse(h.deliveries.at(0).body);
  EXPECT_EQ(body["version"], 1);
  EXPECT_EQ(body["id"], h.deliveries[0].id);
  EXPECT_EQ(body["on"], "failed");
  EXPECT_THAT(std::string(body["text"]), HasSubstr("job job has failed at step 7 of 1000000: "));
  EXPECT_EQ(body["job"]["job_id"], "job");
  EXPECT_EQ(body["job"]["owner"], "ada");
  EXPECT_EQ(body["job"]["state"], "failed");
  EXPECT_EQ(body["job"]["reason_code"], "bad_data");
  EXPECT_EQ(body["job"]["step"], 7);
}

TEST(Notifications, UnderWayAtARestart_IsSentAgain) {
  Harness h(Options());
  FinishTold(h);
  h.Tick();
  ASSERT_EQ(h.deliveries.size(), 1u);
  h.Restart();
  h.Tick();
  ASSERT_EQ(h.deliveries.size(), 2u);
  EXPECT_EQ(h.deliveries[1].id, h.deliveries[0].id) << "by which a receiver knows it again";
  EXPECT_EQ(h.deliveries[1].body, h.deliveries[0].body);
  Answer(h, h.deliveries[1], absl::OkStatus());
  h.Restart();
  h.Tick();
  EXPECT_EQ(h.deliveries.size(), 2u);
}

TEST(Notifications, ReceiverIsAway_PausesGrowAlsoOverRestarts) {
  Harness h(Options());
  FinishTold(h);
  h.Tick();
  for (int attempt = 1; attempt <= 3; ++attempt) {
    Answer(h, h.deliveries.back(), Down());
    const size_t before = h.deliveries.size();
    h.Pass(NotificationPause(attempt) - absl::Seconds(1));
    EXPECT_EQ(h.deliveries.size(), before);
    h.Pass(absl::Seconds(2));
    EXPECT_EQ(h.deliveries.size(), before + 1);
  }
  EXPECT_EQ(h.Job("job").notifications(0).error(), "connection refused");
  const auto said = std::count_if(h.events.begin(), h.events.end(),
                                  [](const auto& e) { return e.type() == "notification"; });
  EXPECT_EQ(said, 1) << "only the first failure is an event";
  h.Restart();
  h.Tick();
  Answer(h, h.deliveries.back(), Down());
  EXPECT_EQ(h.Job("job").notifications(0).attempts(), 4);
}

TEST(Notifications, LastAttemptFails_IsGivenUpForAllToSee) {
  Harness h(Options());
  FinishTold(h);
  h.Tick();
  for (int attempt = 1; attempt <= kNotificationAttemptsMax; ++attempt) {
    ASSERT_EQ(h.deliveries.size(), static_cast<size_t>(attempt));
    Answer(h, h.deliveries.back(), Down());
    h.now.monotonic += NotificationPause(attempt);
    h.Tick();
  }
  EXPECT_EQ(h.deliveries.size(), static_cast<size_t>(kNotificationAttemptsMax));
  EXPECT_EQ(h.Job("job").notifications(0).state(), v1::NOTIFICATION_STATE_ABANDONED);
  EXPECT_THAT(h.events.back().message(), HasSubstr("given up after 24 attempts"));
  EXPECT_EQ(h.core->pending_notifications(), 0);
}

TEST(Notifications, TwoOfAJob_GoOutOneAfterTheOther) {
  Harness h(Options());
  PauseTwiceTold(h);
  EXPECT_EQ(h.deliveries.size(), 1u);
  Answer(h, h.deliveries[0], absl::OkStatus());
  h.Tick();
  EXPECT_THAT(Told(h), ElementsAre("paused", "paused"));
  EXPECT_NE(h.deliveries[0].id, h.deliveries[1].id);
}

TEST(Notifications, ReceiverThatHangs_KeepsOnlyItselfWaiting) {
  CoreOptions options = Options();
  options.notify = {Receiver({"paused"}, "https://other.example.org/a")};
  Harness h(options);
  PauseTwiceTold(h);
  ASSERT_EQ(h.deliveries.size(), 2u) << "the first of each receiver";
  EXPECT_EQ(h.deliveries[0].url, "http://sink/x");
  EXPECT_EQ(h.deliveries[1].url, "https://other.example.org/a");
  Answer(h, h.deliveries[1], absl::OkStatus());
  ASSERT_EQ(h.deliveries.size(), 3u) << "it need not wait for a tick";
  EXPECT_EQ(h.deliveries[2].url, "https://other.example.org/a");
  EXPECT_NE(h.deliveries[2].id, h.deliveries[1].id);
  Answer(h, h.deliveries[2], absl::OkStatus());
  h.Pass(absl::Hours(1));
  EXPECT_EQ(h.deliveries.size(), 3u) << "sink hangs";
}

TEST(Notifications, JobsWithOneReceiver_TakeTurnsInTheOrderOfEvents) {
  Harness h(Options());
  std::vector<std::string> ids;
  for (const char* id : {"c", "a", "b"}) {
    CreateJob create;
    create.job_id = id;
    create.spec.set_name(id);
    *create.spec.add_notify() = Receiver({"cancelled"}, absl::StrCat("https://Sink:8443/", id));
    ASSERT_TRUE(h.Do(create).reply->status.ok());
    h.Cancel(id);
  }
  h.Tick();
  while (ids.size() < h.deliveries.size()) {
    ASSERT_EQ(h.deliveries.size(), ids.size() + 1) << "one at a time";
    ids.push_back(h.deliveries.back().job_id);
    Answer(h, h.deliveries.back(), absl::OkStatus());
  }
  EXPECT_THAT(ids, ElementsAre("c", "a", "b"));
}

TEST(Notifications, ManyReceiversHang_NoMoreThanTheThreads) {
  CoreOptions options = Options();
  Harness h(options);
  CreateJob create;
  create.spec.set_name("job");
  const size_t jobs = kDeliveriesMax + 3;
  for (size_t i = 0; i < jobs; ++i) {
    create.job_id = absl::StrCat("job-", i);
    create.spec.clear_notify();
    *create.spec.add_notify() = Receiver({"cancelled"}, absl::StrCat("https://sink-", i, "/"));
    ASSERT_TRUE(h.Do(create).reply->status.ok());
    h.Cancel(create.job_id);
  }
  h.Tick();
  ASSERT_EQ(h.deliveries.size(), kDeliveriesMax);
  for (size_t i = 0; i < kDeliveriesMax; ++i) {
    Answer(h, h.deliveries[i], Down());
  }
  std::set<std::string> told;
  for (const DeliveryRequest& delivery : h.deliveries) {
    told.insert(delivery.url);
  }
  EXPECT_EQ(told.size(), jobs) << "the others had their turn";
}

TEST(Notifications, UrlThatIsNoLongerAllowed_IsGivenUpWithTheReason) {
  Harness h(Options());
  FinishTold(h);
  CoreOptions tightened = Options();
  tightened.notify_url_prefixes = {"https://ok.example.org/"};
  tightened.notify = {Receiver({"failed"}, "https://operators.example.org/x")};
  h.RestartWith(tightened);
  h.Tick();
  EXPECT_THAT(h.deliveries, IsEmpty());
  const v1::Notification& shown = h.Job("job").notifications(0);
  EXPECT_EQ(shown.state(), v1::NOTIFICATION_STATE_ABANDONED);
  EXPECT_EQ(shown.attempts(), 0);
  EXPECT_THAT(shown.error(), HasSubstr("it must begin with https://ok.example.org/"));
  EXPECT_THAT(h.events.back().message(),
              HasSubstr("http://sink/x was not told: succeeded, given up after 0 attempts: this "
                        "coordinator sends to no such URL"));
  EXPECT_EQ(h.core->pending_notifications(), 0);
  EXPECT_EQ(h.core->FindJob("job")->pending_notifications_size(), 0);
}

// The operators are told at `url`, which no prefix that jobs may use allows.
CoreOptions OperatorsAt(const std::string& url) {
  CoreOptions options = Options();
  options.notify_url_prefixes = {"http://sink/"};
  options.notify = {Receiver({"succeeded"}, url)};
  return options;
}

// After a restart with `options` the job's receiver is told, and that of the operators given up.
void ExpectOperatorsGivenUp(Harness& h, const CoreOptions& options, std::string_view error) {
  h.RestartWith(options);
  h.Tick();
  ASSERT_EQ(h.deliveries.size(), 1u);
  EXPECT_EQ(h.deliveries[0].url, "http://sink/x");
  EXPECT_EQ(h.Job("job").notifications(1).state(), v1::NOTIFICATION_STATE_ABANDONED);
  EXPECT_EQ(h.Job("job").notifications(1).error(), error);
}

TEST(Notifications, UrlOfTheOperatorsThatWasChanged_IsGivenUpWithAReasonThatIsTrue) {
  CoreOptions options = OperatorsAt("https://old.example.org/x");
  Harness h(options);
  FinishTold(h);
  options.notify[0].set_url("https://new.example.org/x");
  ExpectOperatorsGivenUp(h, options,
                         "no receiver of the job or of the coordinator has this URL any more");
}

TEST(Notifications, CommandThatWasRemoved_IsGivenUpWithTheReason) {
  CoreOptions options = Options();
  options.notify.emplace_back();
  options.notify[0].add_on("succeeded");
  options.notify[0].set_command("mail");
  Harness h(options);
  FinishTold(h);
  ExpectOperatorsGivenUp(h, CoreOptions(), "no command mail is configured at the coordinator");
}

TEST(Notifications, DamagedStoreWithAnIdTwice_IsServedAllTheSame) {
  Harness h(Options());
  FinishTold(h);
  v1::JobRecord twice = h.jobs.at("job");
  twice.mutable_job()->set_job_id("twice");
  twice.mutable_pending_notifications(0)->set_url("http://other/x");
  h.jobs["twice"] = twice;
  CoreOptions tightened = Options();
  tightened.notify_url_prefixes = {"https://ok.example.org/"};
  h.RestartWith(tightened);
  h.Tick();
  EXPECT_EQ(h.core->pending_notifications(), 0);
}

TEST(Notifications, UrlOfTheOperators_NeedsNoPrefix) {
  Harness h(OperatorsAt("https://operators.example.org/x"));
  FinishTold(h);
  h.Tick();
  EXPECT_EQ(h.deliveries.size(), 2u);
}

TEST(Notifications, ReceiverThatIsAwayForLong_DoesNotGrowTheRecord) {
  Harness h(Options());
  RunTold(h);
  h.Pause("job");
  h.Exit("job", 0, v1::EXIT_REASON_PAUSED);
  for (int i = 0; i < kPendingNotificationsMax + 50; ++i) {
    h.Resume("job");
    h.Pause("job");
  }
  EXPECT_EQ(h.core->FindJob("job")->pending_notifications_size(), kPendingNotificationsMax);
  EXPECT_EQ(h.Job("job").notifications_size(), kPendingNotificationsMax + kEndedNotificationsKept);
  EXPECT_EQ(h.core->pending_notifications(), kPendingNotificationsMax);
}

TEST(Notifications, TooManyPending_WhatIsUnderWayIsNotGivenUp) {
  Harness h(Options());
  RunTold(h);
  h.Pause("job");
  h.Exit("job", 0, v1::EXIT_REASON_PAUSED);
  h.Tick();
  ASSERT_EQ(h.deliveries.size(), 1u);
  for (int i = 0; i < kPendingNotificationsMax + 50; ++i) {
    h.Resume("job");
    h.Pause("job");
  }
  EXPECT_EQ(h.core->FindJob("job")->pending_notifications_size(), kPendingNotificationsMax);
  Answer(h, h.deliveries[0], absl::OkStatus());
  EXPECT_EQ(h.events.back().message(), "http://sink/x was told: paused");
  EXPECT_EQ(h.core->FindJob("job")->pending_notifications_size(), kPendingNotificationsMax - 1);
}

TEST(Notifications, LongReasons_AreCutInWhatIsPending) {
  Harness h(Options());
  RunTold(h);
  h.Exit("job", 0, v1::EXIT_REASON_BAD_DATA, std::string(4000, 'x'));
  EXPECT_LT(h.core->FindJob("job")->pending_notifications(0).ByteSizeLong(), 1500u);
  h.Tick();
  const nlohmann::json body = nlohmann::json::parse(h.deliveries.at(0).body);
  EXPECT_THAT(std::string(body["job"]["reason"]), HasSubstr("xxx"));
  EXPECT_LE(std::string(body["job"]["reason"]).size(), 512u);
}

TEST(Notifications, JobIsDeletedMeanwhile_IsForgotten) {
  Harness h(Options());
  FinishTold(h);
  h.Tick();
  v1::DeleteJobRequest request;
  request.set_job_id("job");
  h.Do(request);
  Answer(h, h.deliveries[0], Down());
  h.Pass(absl::Minutes(1));
  EXPECT_EQ(h.deliveries.size(), 1u);
  EXPECT_EQ(h.core->pending_notifications(), 0);
}

TEST(Notifications, ReceiversOfAllJobs_AreToldAndTheirUrlsKept) {
  CoreOptions options = Options();
  options.notify = {Receiver({"succeeded"}, "https://hooks.example.org/T123/secret")};
  Harness h(options);
  FinishTold(h);
  h.Tick();
  ASSERT_EQ(h.deliveries.size(), 2u);
  Answer(h, h.deliveries[0], absl::OkStatus());
  EXPECT_EQ(h.deliveries[1].url, "https://hooks.example.org/T123/secret");
  EXPECT_EQ(h.Job("job").notifications(1).target(), "https://hooks.example.org");
  EXPECT_THAT(h.Job("job").ShortDebugString(), Not(HasSubstr("secret")));
}

TEST(CreateJob, ReceiverThatIsNotAllowed_IsRefusedWithItsField) {
  CoreOptions options = Options();
  options.notify_url_prefixes = {"https://ok.example.org/"};
  Harness h(options);
  CreateJob create;
  create.job_id = "job";
  *create.spec.add_notify() = Receiver({"failed"}, "https://other.example.org/");
  create.spec.add_notify()->set_command("mial");
  const absl::Status status = h.Do(create).reply->status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("notify[0].url: "));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("notify[1].command: \"mial\" is not a command; did you mean mail?"));
}

TEST(StuckJobs, NoStepForLong_IsToldOnceUntilAStepComes) {
  Harness h(Options());
  RunTold(h);
  h.Pass(absl::Minutes(9), {"a"}, false);
  EXPECT_FALSE(h.Job("job").has_stuck_since());
  h.Pass(absl::Minutes(5), {"a"}, false);
  EXPECT_TRUE(h.Job("job").has_stuck_since());
  EXPECT_THAT(Told(h), ElementsAre("stuck"));
  Answer(h, h.deliveries[0], absl::OkStatus());
  h.Pass(absl::Minutes(15), {"a"}, false);
  EXPECT_THAT(Told(h), ElementsAre("stuck"));
  h.Step("job", 2);
  h.Pass(absl::Seconds(1), {"a"}, false);
  EXPECT_FALSE(h.Job("job").has_stuck_since());
  h.Pass(absl::Minutes(11), {"a"}, false);
  EXPECT_THAT(Told(h), ElementsAre("stuck", "stuck"));
}

TEST(StuckJobs, RestartOfTheCoordinator_TellsNobodyTwice) {
  Harness h(Options());
  RunTold(h);
  h.Pass(absl::Minutes(11), {"a"}, false);
  ASSERT_THAT(Told(h), ElementsAre("stuck"));
  Answer(h, h.deliveries[0], absl::OkStatus());
  const v1::TaskStatus status = h.Status("job", 0, true, 1);
  h.Restart();
  h.Connect("a", "i1", {status});
  h.Pass(absl::Minutes(11), {"a"}, false);
  EXPECT_TRUE(h.Job("job").has_stuck_since());
  EXPECT_THAT(Told(h), ElementsAre("stuck"));
}

}  // namespace
}  // namespace hearth::coordinator
