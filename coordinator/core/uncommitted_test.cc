#include "coordinator/core/uncommitted.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/core/group_commit.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using Kind = v1::CoordinatorMessage;

// A commit takes 500 ms, so what is not urgent waits for 2 s.
// Reports wait for 2 s, or until there are `most`.
GroupCommit SlowCommit(size_t most = 100) {
  GroupCommit commits(most);
  commits.Committed(absl::Milliseconds(500));
  return commits;
}

v1::CoordinatorMessage MessageOf(const google::protobuf::FieldDescriptor* field) {
  v1::CoordinatorMessage message;
  message.GetReflection()->MutableMessage(&message, field);
  return message;
}

// A member of Effects without a row does not compile; a message shows here.
TEST(UncommittedTable, EachMessageOfTheProto_HasOneRow) {
  const auto* kinds = v1::CoordinatorMessage::descriptor()->FindOneofByName("message");
  ASSERT_EQ(static_cast<size_t>(kinds->field_count()), MessageTable().size());
  for (int i = 0; i < kinds->field_count(); ++i) {
    const v1::CoordinatorMessage message = MessageOf(kinds->field(i));
    EXPECT_EQ(RowOf(message.message_case()).kind, message.message_case());
    EXPECT_STRNE(RowOf(message.message_case()).why, "") << kinds->field(i)->name();
  }
}

TEST(UncommittedTable, EachRow_IsAboutSomethingElseAndSaysWhy) {
  std::set<std::string> names;
  std::set<bool (*)(const Effects&)> looks;
  size_t figures = 0;
  for (const EffectRow& row : EffectTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.there(Effects())) << row.name;
    EXPECT_STRNE(row.why, "") << row.name;
    // Those that are never there themselves: messages, and figures for the metrics.
    figures += !row.stored && row.leaves == Leaves::kAtOnce ? 1 : 0;
    looks.insert(row.there);
  }
  EXPECT_EQ(looks.size(), EffectTable().size() - figures + 1);
}

TEST(UncommittedTable, OnlyValuesOfTheRendezvousLeaveAtOnce_OfWhatTheCoreSends) {
  const std::set<Kind::MessageCase> of_the_service = {Kind::kInspect, Kind::kReadCheckpoint,
                                                      Kind::kWrite, Kind::kStopWriting};
  for (const MessageRow& row : MessageTable()) {
    if (row.leaves == Leaves::kAtOnce && !of_the_service.contains(row.kind)) {
      EXPECT_EQ(row.kind, Kind::kKvValue);
    }
  }
}

// What each thing that happens asks for, as the core has it.
TEST(LeavesOf, ReportsWait_StatesStartsKillsAndAnswersAskForACommit) {
  Harness h;
  h.Connect("a");
  EXPECT_EQ(LeavesOf(h.last), Leaves::kDurableFirst) << "Welcome";
  h.Connect("b");
  h.Create(2);
  EXPECT_EQ(LeavesOf(h.last), Leaves::kDurableFirst) << "an answer";
  h.Tick();
  EXPECT_EQ(LeavesOf(h.last), Leaves::kDurableFirst) << "a start";
  EXPECT_EQ(LeavesOf(h.Put("job", 0, "k", "v")), Leaves::kNextCommit);
  EXPECT_EQ(LeavesOf(h.Step("job", 1)), Leaves::kDurableFirst) << "RUNNING";
  EXPECT_EQ(LeavesOf(h.Step("job", 2)), Leaves::kNextCommit);
  EXPECT_EQ(LeavesOf(h.Checkpoint("job", 2)), Leaves::kNextCommit);
  v1::TaskReport logs = h.Next("job", 1);
  logs.mutable_logs()->add_lines()->set_text("x");
  EXPECT_EQ(LeavesOf(h.Report("job", 1, logs)), Leaves::kNextCommit);
  h.Beat("a");
  EXPECT_EQ(LeavesOf(h.last), Leaves::kAtOnce) << "a heartbeat";
  EXPECT_EQ(LeavesOf(h.Dying("job", 0, v1::EXIT_REASON_KILLED, "")), Leaves::kDurableFirst)
      << "RECOVERING, and a kill";
  EXPECT_EQ(LeavesOf(h.Exit("job", 0, v1::EXIT_REASON_KILLED)), Leaves::kNextCommit)
      << "the others are still there";
  h.Exit("job", 1, v1::EXIT_REASON_KILLED);
  h.Tick();
  EXPECT_EQ(LeavesOf(h.last), Leaves::kDurableFirst) << "the next start";
  EXPECT_EQ(h.Job("job").epoch(), 2);
}

TEST(LeavesOf, ClosingAConnection_AsksForACommit) {
  Harness h;
  h.Running(1);
  v1::TaskReport gap = h.Next("job", 0);
  gap.set_seq(gap.seq() + 5);
  EXPECT_EQ(LeavesOf(h.Report("job", 0, gap)), Leaves::kDurableFirst);
}

TEST(GroupCommitTest, Reports_WaitFourTimesTheLastCommit_AtMostTwoSeconds) {
  Harness h;
  h.Running(1);
  const absl::Duration now = absl::Seconds(1000);
  struct Case {
    absl::Duration took;
    absl::Duration pause;
  };
  for (const Case& c : {Case{absl::ZeroDuration(), absl::ZeroDuration()},
                        Case{absl::Milliseconds(3), absl::Milliseconds(12)},
                        Case{absl::Milliseconds(500), absl::Seconds(2)},
                        Case{absl::Seconds(30), absl::Seconds(2)}}) {
    GroupCommit commits(100);
    commits.Committed(c.took);
    EXPECT_EQ(commits.DueAt(), absl::InfiniteDuration());
    EXPECT_TRUE(commits.Add(h.Step("job", h.Job("job").step() + 1), now).empty());
    EXPECT_EQ(commits.DueAt(), now + c.pause) << c.took;
    commits.Add(h.Step("job", h.Job("job").step() + 1), now + absl::Milliseconds(1));
    EXPECT_EQ(commits.DueAt(), now + c.pause) << "counts from the first one";
    EXPECT_TRUE(commits.AnyStored());
    EXPECT_EQ(commits.Take().size(), 2u);
    EXPECT_FALSE(commits.AnyStored());
    EXPECT_EQ(commits.DueAt(), absl::InfiniteDuration());
  }
}

TEST(GroupCommitTest, SomethingDurableFirst_TakesAllThatWaitsWithIt) {
  Harness h;
  h.Running(1);
  GroupCommit commits = SlowCommit();
  const absl::Duration now = absl::Seconds(1000);
  commits.Add(h.Step("job", 2), now);
  EXPECT_GT(commits.DueAt(), now);
  h.Cancel("job");
  commits.Add(h.last, now);
  EXPECT_LT(commits.DueAt(), now);
  EXPECT_EQ(commits.Take().size(), 2u);
}

TEST(GroupCommitTest, NothingStored_IsDueAtOnceAndNeedsNoCommit) {
  Harness h;
  h.Running(1);
  GroupCommit commits = SlowCommit();
  h.Beat("a");
  commits.Add(h.last, absl::Seconds(1000));
  EXPECT_LT(commits.DueAt(), absl::Seconds(1000));
  EXPECT_FALSE(commits.AnyStored());
}

TEST(GroupCommitTest, ManyReports_AreCommittedBeforeThePauseIsOver) {
  Harness h;
  h.Running(1);
  GroupCommit commits = SlowCommit(3);
  const absl::Duration now = absl::Seconds(1000);
  commits.Add(h.Step("job", 2), now);
  h.Beat("a");
  commits.Add(h.last, now);  // needs no room in the commit
  commits.Add(h.Step("job", 3), now);
  EXPECT_GT(commits.DueAt(), now);
  commits.Add(h.Step("job", 4), now);
  EXPECT_LT(commits.DueAt(), now);
}

TEST(GroupCommitTest, ManyHeartbeatsBehindAReport_DoNotWaitForEver) {
  Harness h;
  h.Running(1);
  GroupCommit commits = SlowCommit(3);
  const absl::Duration now = absl::Seconds(1000);
  commits.Add(h.Step("job", 2), now);
  h.Beat("a");
  for (size_t i = 1; i < 3 * GroupCommit::kMostOthers; ++i) {
    EXPECT_GT(commits.DueAt(), now);
    commits.Add(h.last, now);
  }
  EXPECT_LT(commits.DueAt(), now);
}

// Two ranks before their first step; rank 1 waits for rank 0's key.
class EarlyValueTest : public testing::Test {
 protected:
  EarlyValueTest() {
    h_.Connect("a");
    h_.Connect("b");
    h_.Create(2);
    h_.Tick();
    AskFor("b", 1);
  }

  void AskFor(const std::string& worker, int rank) {
    AgentKvWait wait;
    wait.connection_id = h_.connections[worker];
    wait.wait.set_job_id("job");
    wait.wait.set_epoch(1);
    wait.wait.set_rank(rank);
    wait.wait.set_key("address");
    h_.Do(wait);
  }

  v1::TaskReport PutOfRankZero() {
    v1::TaskReport put = h_.Next("job", 0);
    put.mutable_kv_put()->set_key("address");
    put.mutable_kv_put()->set_value("10.0.0.1:7");
    return put;
  }

  static int Acks(const Effects& effects) {
    int acks = 0;
    for (const OutgoingMessage& message : effects.messages) {
      acks += message.message.has_ack() ? 1 : 0;
    }
    return acks;
  }

  Harness h_;
};

TEST_F(EarlyValueTest, AValue_LeavesBeforeItsCommit_TheAckAfterIt) {
  GroupCommit commits = SlowCommit();
  const auto early = commits.Add(h_.Report("a", PutOfRankZero()), h_.now.monotonic);
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].worker_id, "b");
  EXPECT_EQ(early[0].message.kv_value().value().value(), "10.0.0.1:7");
  EXPECT_GT(commits.DueAt(), h_.now.monotonic);
  EXPECT_TRUE(commits.AnyStored());
  const std::vector<Effects> waiting = commits.Take();
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(Acks(waiting[0]), 1);
  EXPECT_EQ(waiting[0].messages.size(), 1u) << "the value has left and does not leave twice";
}

TEST_F(EarlyValueTest, AValueToAStreamThatIsNotWelcomedYet_WaitsBehindTheWelcome) {
  GroupCommit commits = SlowCommit();
  h_.Disconnect("b");
  h_.Connect("b", "i1", {h_.Status("job", 1, true, 0)});
  EXPECT_TRUE(commits.Add(h_.last, h_.now.monotonic).empty());
  EXPECT_TRUE(commits.Add(h_.Report("a", PutOfRankZero()), h_.now.monotonic).empty());
  const std::vector<Effects> waiting = commits.Take();
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_TRUE(waiting[0].messages.at(0).message.has_welcome());
  EXPECT_TRUE(waiting[1].messages.at(0).message.has_kv_value());
}

// The message has left, its row never reached the disk. The agent has the report still; nothing of
// the job is disturbed, and the value is as it was.
TEST_F(EarlyValueTest, CrashAfterAValueHasLeft_ThePutComesAgainAndNothingElseHappens) {
  const v1::TaskReport put = PutOfRankZero();
  const auto jobs = h_.jobs;
  const auto kv = h_.kv;
  const int64_t revision = h_.revision;
  GroupCommit commits = SlowCommit();
  ASSERT_EQ(commits.Add(h_.Report("a", put), h_.now.monotonic).size(), 1u);
  // The commit never comes: the next process finds what was there before.
  h_.jobs = jobs;
  h_.kv = kv;
  h_.revision = revision;
  h_.Restart();
  EXPECT_EQ(h_.core->FindJob("job")->ranks(0).applied_seq(), 0);
  h_.Connect("a", "i1", {h_.Status("job", 0, true, 1, 1)});
  h_.Connect("b", "i1", {h_.Status("job", 1, true, 0)});
  EXPECT_EQ(h_.Sent(Kind::kKill), 0);
  EXPECT_EQ(h_.Sent(Kind::kForget), 0);
  EXPECT_EQ(h_.Sent(Kind::kStart), 0);
  AskFor("b", 1);  // it may not have come; asking again does no harm if it has
  const Effects again = h_.Report("a", put);
  EXPECT_EQ(again.kv_puts.size(), 1u);
  EXPECT_EQ(Acks(again), 1);
  const v1::CoordinatorMessage* value = h_.FindSent(Kind::kKvValue, "b");
  ASSERT_NE(value, nullptr);
  EXPECT_EQ(value->kv_value().value().value(), "10.0.0.1:7");
  h_.Step("job", 1);
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h_.Job("job").epoch(), 1);
}

// Steps, logs and an exit that waited when the coordinator died: each comes again and is applied
// once.
TEST(UncommittedReports, CrashBeforeTheirCommit_EachIsAppliedOnceAfterwards) {
  Harness h;
  h.Running(2);
  const auto jobs = h.jobs;
  const auto history = h.history;
  const int64_t revision = h.revision;
  v1::TaskReport step = h.Next("job", 0);
  step.mutable_step()->set_step(2);
  h.Report("job", 0, step);
  v1::TaskReport logs = h.Next("job", 0);
  logs.mutable_logs()->add_lines()->set_text("x");
  h.Report("job", 0, logs);
  h.jobs = jobs;
  h.history = history;
  h.revision = revision;
  h.Restart();
  EXPECT_EQ(h.Job("job").step(), 1);
  h.Connect("a", "i1", {h.Status("job", 0, true, 3, 2)});
  h.Connect("b", "i1", {h.Status("job", 1, true, 0)});
  EXPECT_EQ(h.Report("a", step).history.size(), 1u);
  EXPECT_EQ(h.Report("a", step).history.size(), 0u) << "the second time";
  const Effects lines = h.Report("a", logs);
  ASSERT_EQ(lines.logs.size(), 1u);
  EXPECT_EQ(lines.logs[0].lines.at(0).cursor(), 1);
  EXPECT_EQ(h.history.size(), 2u);
  EXPECT_EQ(h.Job("job").epoch(), 1);
}

}  // namespace
}  // namespace hearth::coordinator
