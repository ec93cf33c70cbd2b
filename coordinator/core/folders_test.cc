// Checkpoint folders that no record names: found, removed or left, and by whom.
#include <utility>

#include "coordinator/core/core.h"
#include "gmock/gmock.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using M = v1::CoordinatorMessage;

constexpr auto kComplete = v1::CHECKPOINT_FOLDER_KIND_COMPLETE;
constexpr auto kTemporary = v1::CHECKPOINT_FOLDER_KIND_TEMPORARY;
constexpr auto kEmptyEpoch = v1::CHECKPOINT_FOLDER_KIND_EMPTY_EPOCH;

class FoldersTest : public ::testing::Test {
 protected:
  v1::CheckpointFolder Folder(const std::string& job,
                              int64_t epoch,
                              int64_t step,
                              v1::CheckpointFolderKind kind = kComplete) const {
    v1::CheckpointFolder folder;
    folder.set_job_id(job);
    folder.set_epoch(epoch);
    folder.set_kind(kind);
    folder.set_step(step);
    if (kind != kEmptyEpoch) {
      folder.set_name(absl::StrCat("step-", step, kind == kTemporary ? ".tmp-7" : ""));
    }
    folder.set_bytes(100);
    folder.mutable_change_time()->set_seconds(absl::ToUnixSeconds(h_.now.wall));
    return folder;
  }
  // The question that `worker` was asked last; 0 = none.
  int64_t Asked(const std::string& worker) const {
    int64_t id = 0;
    for (const OutgoingMessage& out : h_.sent) {
      if (out.worker_id == worker && out.message.has_list_checkpoints()) {
        id = out.message.list_checkpoints().request_id();
      }
    }
    return id;
  }
  // Answers it; returns the paths that the worker is then told to remove.
  std::vector<std::string> List(const std::string& worker,
                                const std::vector<v1::CheckpointFolder>& folders) {
    AgentFolders answer;
    answer.connection_id = h_.connections[worker];
    answer.folders.set_request_id(Asked(worker));
    for (const v1::CheckpointFolder& folder : folders) {
      *answer.folders.add_folders() = folder;
    }
    return Removals(h_.Do(answer));
  }
  static std::vector<std::string> Removals(const Effects& effects) {
    std::vector<std::string> paths;
    for (const OutgoingMessage& out : effects.messages) {
      if (out.message.has_delete_checkpoint()) {
        paths.push_back(out.message.delete_checkpoint().path());
      }
    }
    return paths;
  }
  Effects Prune(bool dry_run, int64_t min_age = 0, const std::string& job = "") {
    v1::PruneCheckpointsRequest command;
    command.set_dry_run(dry_run);
    command.set_min_age_seconds(min_age);
    command.set_job_id(job);
    return h_.Do(command);
  }
  // Epoch 1 wrote 10 and 20, of which 20's announcement was lost with its trainer; epoch 2 runs and
  // has recorded 30.
  void TwoEpochs() {
    h_.Running(1);
    h_.Checkpoint("job", 10);
    h_.Exit("job", 0, v1::EXIT_REASON_KILLED);
    h_.Tick();
    ASSERT_EQ(h_.Job("job").epoch(), 2);
    h_.Step("job", 11);
    h_.Checkpoint("job", 30);
  }
  void LookAgain() { h_.Pass(absl::Seconds(31), {"a"}); }

  Harness h_;
};

TEST_F(FoldersTest, OneWorkerOfARoot_IsAsked) {
  h_.roots["c"] = "other";
  for (const char* name : {"a", "b", "c"}) {
    h_.Connect(name);
  }
  h_.Tick();
  EXPECT_EQ(h_.Sent(M::kListCheckpoints), 2);
  EXPECT_EQ(h_.Sent(M::kListCheckpoints, "b"), 0);
  h_.Disconnect("a");
  h_.Tick();
  EXPECT_EQ(h_.Sent(M::kListCheckpoints, "b"), 1) << "the one that was asked is gone";
}

TEST_F(FoldersTest, AfterAReconnect_TheRootIsListedAgain) {
  h_.Connect("a");
  h_.Tick();
  List("a", {});
  LookAgain();
  EXPECT_EQ(h_.Sent(M::kListCheckpoints), 1);
  h_.Disconnect("a");
  h_.Connect("a");
  h_.Tick();
  EXPECT_EQ(h_.Sent(M::kListCheckpoints), 2);
}

// A listing beyond the limits ends its stream, and the worker dials in at once: the coordinator
// asks it again after a pause, so that the two do not go round in a loop. A person does not wait.
TEST_F(FoldersTest, RefusedListing_IsAskedForAfterAPause_AndAtOnceForAPerson) {
  h_.Connect("a");
  h_.Tick();
  ASSERT_EQ(h_.Sent(M::kListCheckpoints), 1);
  h_.Disconnect("a");
  h_.Tick();
  h_.Connect("a");
  h_.Pass(absl::Seconds(5), {"a"});
  EXPECT_EQ(h_.Sent(M::kListCheckpoints), 1);
  const auto asked = *Prune(/*dry_run=*/true).reply->pruned;
  EXPECT_TRUE(asked.roots(0).pending());
  h_.Tick();
  EXPECT_EQ(h_.Sent(M::kListCheckpoints), 2);
  List("a", {Folder("unknown", 1, 5)});
  const auto listed = *Prune(/*dry_run=*/true).reply->pruned;
  EXPECT_FALSE(listed.roots(0).pending());
  EXPECT_EQ(listed.folders_size(), 1);
}

TEST_F(FoldersTest, WhatTheJobHasLeftBehind_IsRemoved) {
  TwoEpochs();
  LookAgain();
  EXPECT_THAT(
      List("a", {Folder("job", 1, 10), Folder("job", 1, 20), Folder("job", 1, 25, kTemporary),
                 Folder("job", 2, 30), Folder("job", 2, 40), Folder("job", 2, 50, kTemporary)}),
      ElementsAre("/ck/job/e1/step-20", "/ck/job/e1/step-25.tmp-7"))
      << "recorded ones stay, and all of the running epoch";
}

// The wall clock stood wrong when the job ran: times of files say nothing. The rest of a write goes
// once it has not changed for a while, and what may be a whole checkpoint waits for a person.
TEST_F(FoldersTest, RestOfAWrite_WhenTheWallClockJumped_IsRemovedOnceItStaysTheSame) {
  h_.now.wall -= absl::Hours(24);
  TwoEpochs();
  LookAgain();
  h_.now.wall += absl::Hours(24);
  v1::CheckpointFolder rest = Folder("job", 1, 25, kTemporary);
  const v1::CheckpointFolder whole = Folder("job", 1, 20);
  h_.now.wall -= absl::Hours(24);
  EXPECT_THAT(List("a", {whole, rest}), IsEmpty());
  h_.Pass(absl::Seconds(46), {"a"});
  rest.set_bytes(200);
  EXPECT_THAT(List("a", {whole, rest}), IsEmpty()) << "somebody writes it";
  h_.Pass(absl::Seconds(46), {"a"});
  EXPECT_THAT(List("a", {whole, rest}), ElementsAre("/ck/job/e1/step-25.tmp-7"));
  EXPECT_THAT(Removals(Prune(false)), ElementsAre("/ck/job/e1/step-20"));
}

TEST_F(FoldersTest, EmptyEpoch_IsRemovedOnlyIfItIsEmptyStill) {
  TwoEpochs();
  LookAgain();
  EXPECT_THAT(List("a", {Folder("job", 1, 0, kEmptyEpoch), Folder("job", 2, 0, kEmptyEpoch)}),
              ElementsAre("/ck/job/e1"));
  EXPECT_TRUE(h_.FindSent(M::kDeleteCheckpoint, "a")->delete_checkpoint().only_if_empty());
}

TEST_F(FoldersTest, NewerThanAllThatIsRecorded_StaysUntilPruned) {
  TwoEpochs();
  LookAgain();
  EXPECT_THAT(List("a", {Folder("job", 1, 31)}), IsEmpty());
  const Effects pruned = Prune(false);
  EXPECT_THAT(Removals(pruned), ElementsAre("/ck/job/e1/step-31"));
  EXPECT_EQ(pruned.reply->pruned->folders_size(), 1);
}

TEST_F(FoldersTest, AnnouncedButNotYetReported_Stays) {
  h_.Running(1);
  h_.Tick();
  EXPECT_THAT(List("a", {Folder("job", 1, 10)}), IsEmpty());
  EXPECT_THAT(Removals(Prune(false)), IsEmpty());
  // The coordinator restarts; the report waits in the worker.
  h_.Restart();
  h_.Connect("a", "i1", {h_.Status("job", 0, true, 2, 2)});
  h_.Tick();
  EXPECT_THAT(List("a", {Folder("job", 1, 10)}), IsEmpty());
  EXPECT_THAT(Removals(Prune(false)), IsEmpty());
  h_.Checkpoint("job", 10);
  EXPECT_EQ(h_.Job("job").checkpoint().step(), 10);
}

TEST_F(FoldersTest, UnknownJobs_AreListedAndNeverRemovedByThemselves) {
  h_.Connect("a");
  h_.Tick();
  EXPECT_THAT(List("a", {Folder("gone", 1, 10), Folder("gone", 2, 0, kEmptyEpoch)}), IsEmpty());
  h_.Pass(absl::Minutes(30), {"a"});
  const Effects young = Prune(false, 3600);
  EXPECT_THAT(Removals(young), IsEmpty());
  EXPECT_THAT(young.reply->pruned->folders(0).kept(), HasSubstr("30m"));
  const Effects dry = Prune(true, 60);
  EXPECT_THAT(Removals(dry), IsEmpty());
  EXPECT_EQ(dry.reply->pruned->folders(0).kept(), "");
  EXPECT_THAT(dry.reply->pruned->folders(0).reason(), HasSubstr("no job here"));
  EXPECT_THAT(Removals(Prune(false, 60)),
              ElementsAre("/ck/gone/e1/step-10", "/ck/gone/e2", "/ck/gone"));
  EXPECT_EQ(Prune(true).reply->pruned->folders_size(), 0);
}

TEST_F(FoldersTest, PruneOfOneJob_LeavesTheOthers) {
  h_.Connect("a");
  h_.Tick();
  List("a", {Folder("one", 1, 10), Folder("two", 1, 10)});
  EXPECT_THAT(Removals(Prune(false, 0, "two")), ElementsAre("/ck/two/e1/step-10", "/ck/two"));
  EXPECT_EQ(Prune(true).reply->pruned->folders_size(), 1);
}

TEST_F(FoldersTest, EpochAheadOfTheStore_IsNotTouched) {
  TwoEpochs();
  LookAgain();
  EXPECT_THAT(List("a", {Folder("job", 3, 5), Folder("job", 9, 1, kTemporary)}), IsEmpty());
}

TEST_F(FoldersTest, OlderThanTheJob_IsNotTouched) {
  v1::CheckpointFolder before = Folder("job", 1, 20);
  before.mutable_change_time()->set_seconds(before.change_time().seconds() - 1000);
  TwoEpochs();
  LookAgain();
  EXPECT_THAT(List("a", {before}), IsEmpty()) << "of a deleted job of this name";
}

TEST_F(FoldersTest, ChangedLongAfterItsEpoch_IsNotTouched) {
  TwoEpochs();
  h_.Pass(absl::Minutes(5), {"a"});
  EXPECT_THAT(List("a", {Folder("job", 1, 20), Folder("job", 1, 21, kTemporary)}), IsEmpty())
      << "somebody else writes there";
}

TEST_F(FoldersTest, BadEntriesAndUnaskedAnswers_AreDropped) {
  TwoEpochs();
  LookAgain();
  v1::CheckpointFolder up = Folder("job", 1, 20);
  up.set_name("../../elsewhere");
  v1::CheckpointFolder slash = Folder("job", 1, 20);
  slash.set_name("step-1/../../../x");
  v1::CheckpointFolder id = Folder("../job", 1, 20);
  v1::CheckpointFolder negative = Folder("job", -1, 20);
  v1::CheckpointFolder foreign = Folder("job", 1, 20);
  foreign.set_name("thesis");
  EXPECT_THAT(List("a", {up, slash, id, negative, foreign}), IsEmpty());
  EXPECT_THAT(List("a", {Folder("job", 1, 20)}), IsEmpty()) << "answered already";
  EXPECT_THAT(Removals(Prune(false)), IsEmpty());
}

TEST_F(FoldersTest, Delete_KeepsFoldersAndSaysWhere) {
  TwoEpochs();
  h_.Cancel("job", true);
  h_.Exit("job", 0, v1::EXIT_REASON_KILLED);
  v1::DeleteJobRequest command;
  command.set_job_id("job");
  const Effects effects = h_.Do(command);
  ASSERT_EQ(effects.reply->deleted->folders_size(), 1);
  EXPECT_EQ(effects.reply->deleted->folders(0).path(), "/ck/job");
  EXPECT_FALSE(effects.reply->deleted->folders(0).removing());
  EXPECT_THAT(Removals(effects), IsEmpty());
}

TEST_F(FoldersTest, DeleteWithCheckpoints_RemovesThemThroughOneWorkerOfEachRoot) {
  h_.Connect("a");
  h_.Connect("b");
  TwoEpochs();
  h_.Cancel("job", true);
  h_.Exit("job", 0, v1::EXIT_REASON_KILLED);
  v1::DeleteJobRequest command;
  command.set_job_id("job");
  command.set_checkpoints(true);
  const Effects effects = h_.Do(command);
  EXPECT_THAT(Removals(effects), ElementsAre("/ck/job"));
  EXPECT_TRUE(effects.reply->deleted->folders(0).removing());
}

TEST_F(FoldersTest, DeleteWithCheckpoints_NobodySeesTheRoot_SaysSo) {
  TwoEpochs();
  h_.Cancel("job", true);
  h_.Exit("job", 0, v1::EXIT_REASON_KILLED);
  h_.Disconnect("a");
  v1::DeleteJobRequest command;
  command.set_job_id("job");
  command.set_checkpoints(true);
  const Effects effects = h_.Do(command);
  ASSERT_EQ(effects.reply->deleted->folders_size(), 1);
  EXPECT_EQ(effects.reply->deleted->folders(0).path(), "/ck/job");
  EXPECT_EQ(effects.reply->deleted->folders(0).worker_id(), "");
  EXPECT_FALSE(effects.reply->deleted->folders(0).removing());
}

TEST_F(FoldersTest, Prune_NegativeAge_IsRefused) {
  EXPECT_EQ(Prune(false, -1).reply->status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::coordinator
