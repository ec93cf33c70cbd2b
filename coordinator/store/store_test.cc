#include "coordinator/store/store.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/fault/fault.h"
#include "common/io/faulty_env.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/point_name.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/coordinator/stored_effects.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

class StoreTest : public testing::Test {
 protected:
  ~StoreTest() override { EXPECT_TRUE(fault::Configure("").ok()); }

  std::unique_ptr<Store> Open(Env& env = Env::Real()) {
    auto store = Store::Open({.data_dir = root_}, env);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? std::move(*store) : nullptr;
  }

  // One of everything for `job_id`: row, event, request, kv, worker, a step and a log line with
  // cursor `n`.
  static int64_t CountRecords(const Store& store, const std::string& job_id, StreamKind kind) {
    const auto log = store.Find(job_id, kind);
    if (log == nullptr) {
      return 0;
    }
    SegmentLog::ReadState state;
    const auto result = log->Read(state, 1 << 20);
    EXPECT_TRUE(result.ok()) << result.status();
    return static_cast<int64_t>(result->records.size());
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
};

TEST_F(StoreTest, Open_EachTime_IncrementsGeneration) {
  EXPECT_EQ(Open()->generation(), 1);
  EXPECT_EQ(Open()->generation(), 2);
}

TEST_F(StoreTest, Commit_Everything_IsThereAfterReopen) {
  {
    auto store = Open();
    ASSERT_TRUE(store->Load().ok());
    const Effects batch[] = {StoredEffects("a", 1), StoredEffects("a", 2), StoredEffects("b", 3)};
    const auto revision = store->Commit(batch);
    ASSERT_TRUE(revision.ok()) << revision.status();
    EXPECT_EQ(*revision, 3);
  }
  auto store = Open();
  const auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(state->core.jobs.size(), 2u);
  EXPECT_EQ(state->core.jobs[0].job().job_id(), "a");
  EXPECT_EQ(state->core.jobs[0].job().step(), 2);
  EXPECT_EQ(state->events.size(), 3u);
  EXPECT_EQ(state->core.requests.size(), 3u);
  EXPECT_EQ(state->core.workers.size(), 3u);
  EXPECT_EQ(state->core.kv.size(), 3u);
  EXPECT_EQ(state->core.last_revision, 3);
  EXPECT_TRUE(state->warnings.empty());
  EXPECT_EQ(CountRecords(*store, "a", StreamKind::kHistory), 2);
  EXPECT_EQ(CountRecords(*store, "a", StreamKind::kLog), 2);
}

TEST_F(StoreTest, Commit_RowsThatAreNotDurable_AreNotWritten) {
  auto store = Open();
  Effects effects = StoredEffects("a", 1);
  effects.jobs[0].durable = false;
  effects.workers[0].durable = false;
  ASSERT_TRUE(store->Commit({&effects, 1}).ok());
  const auto state = store->Load();
  EXPECT_TRUE(state->core.jobs.empty());
  EXPECT_TRUE(state->core.workers.empty());
}

TEST_F(StoreTest, Commit_KvClearBetweenPuts_KeepsOnlyTheLaterKeys) {
  auto store = Open();
  Effects batch[3];
  batch[0] = StoredEffects("a", 1);
  batch[1].kv_clears = {"a"};
  batch[2] = StoredEffects("a", 2);
  ASSERT_TRUE(store->Commit(batch).ok());
  const auto state = store->Load();
  ASSERT_EQ(state->core.kv.size(), 1u);
  EXPECT_EQ(state->core.kv[0].key(), "key-2");
}

TEST_F(StoreTest, Commit_KvDelete_RemovesThatKeyAlone) {
  auto store = Open();
  Effects batch[3];
  batch[0] = StoredEffects("a", 1);
  batch[1] = StoredEffects("a", 2);
  batch[2].kv_deletes = {batch[0].kv_puts[0]};
  ASSERT_TRUE(store->Commit(batch).ok());
  const auto state = store->Load();
  ASSERT_EQ(state->core.kv.size(), 1u);
  EXPECT_EQ(state->core.kv[0].key(), batch[1].kv_puts[0].key());
}

TEST_F(StoreTest, Commit_JobDelete_RemovesRowsAndFilesButKeepsRequests) {
  auto store = Open();
  Effects effects = StoredEffects("a", 1);
  ASSERT_TRUE(store->Commit({&effects, 1}).ok());
  Effects deletion;
  deletion.job_deletes = {"a"};
  ASSERT_TRUE(store->Flush().ok());
  ASSERT_TRUE(std::filesystem::exists(root_ + "/jobs/a"));
  ASSERT_TRUE(store->Commit({&deletion, 1}).ok());
  EXPECT_FALSE(std::filesystem::exists(root_ + "/jobs/a"));
  EXPECT_EQ(store->Find("a", StreamKind::kLog), nullptr);
  const auto state = store->Load();
  EXPECT_TRUE(state->core.jobs.empty());
  EXPECT_TRUE(state->events.empty());
  EXPECT_EQ(state->core.requests.size(), 1u);
}

TEST_F(StoreTest, Commit_ManyEvents_KeepsTheNewest) {
  auto opened = Store::Open({.data_dir = root_, .events = {.newest = 3}});
  ASSERT_TRUE(opened.ok());
  for (int64_t n = 1; n <= 10; ++n) {
    Effects effects = StoredEffects("a", n);
    ASSERT_TRUE((*opened)->Commit({&effects, 1}).ok());
  }
  const auto state = (*opened)->Load();
  ASSERT_EQ(state->events.size(), 3u);
  EXPECT_EQ(state->events[0].revision(), 8);
}

TEST_F(StoreTest, Commit_ManyEvents_KeepsNotesWithinTheirBound) {
  auto opened = Store::Open({.data_dir = root_, .events = {.newest = 3, .notes = 2}});
  ASSERT_TRUE(opened.ok());
  const auto commit = [&](int64_t n, const std::string& type) {
    Effects effects = StoredEffects("a", n);
    effects.events[0].set_type(type);
    ASSERT_TRUE((*opened)->Commit({&effects, 1}).ok());
  };
  const auto revisions = [&] {
    std::vector<int64_t> kept;
    const absl::StatusOr<LoadedState> state = (*opened)->Load();
    for (const v1::JobEvent& event : state->events) {
      kept.push_back(event.revision());
    }
    return kept;
  };
  for (int64_t n = 1; n <= 12; ++n) {
    commit(n, n == 2 || n == 4 || n == 11 ? "note" : "state");
  }
  EXPECT_THAT(revisions(), testing::ElementsAre(2, 4, 10, 11, 12)) << "the newest, and notes";
  for (int64_t n = 13; n <= 15; ++n) {
    commit(n, "state");
  }
  EXPECT_THAT(revisions(), testing::ElementsAre(4, 11, 13, 14, 15)) << "the newest two notes";
}

TEST_F(StoreTest, Open_SecondCoordinator_IsRefusedWithThePid) {
  auto store = Open();
  const auto second = Store::Open({.data_dir = root_});
  ASSERT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("pid ", getpid())));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(root_));
}

TEST_F(StoreTest, Open_NewerSchema_IsRefusedAndUntouched) {
  { Open(); }
  {
    auto database = Database::Open(root_ + "/store.db");
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(
        (*database)
            ->Execute("UPDATE meta SET value = 99, crc = row_crc('meta', key, 99) WHERE key = "
                      "'schema_version'")
            .ok());
  }
  const auto store = Store::Open({.data_dir = root_});
  ASSERT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("99"));
}

TEST_F(StoreTest, Open_ForeignDatabase_IsRefusedAndUntouched) {
  std::filesystem::create_directories(root_);
  {
    auto database = Database::Open(root_ + "/store.db");
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)->Execute("CREATE TABLE other (x)").ok());
    ASSERT_TRUE((*database)->Execute("PRAGMA journal_mode=DELETE").ok());
  }
  const auto bytes = Env::Real().ReadFile(root_ + "/store.db");
  const auto names = Env::Real().ListDir(root_);
  ASSERT_TRUE(bytes.ok() && names.ok());
  EXPECT_EQ(Store::Open({.data_dir = root_}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(*Env::Real().ReadFile(root_ + "/store.db"), *bytes);
  EXPECT_EQ(*Env::Real().ListDir(root_), *names);
}

TEST_F(StoreTest, Open_FolderIsAFile_IsAnErrorThatNamesIt) {
  const std::string file = root_ + "/file";
  ASSERT_TRUE(Env::Real().WriteFileAtomically(file, "x").ok());
  const auto store = Store::Open({.data_dir = file});
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(file));
}

TEST_F(StoreTest, Commit_AfterAFailedOne_IsRefused) {
  auto store = Open();
  ASSERT_TRUE(fault::Configure("store.before_commit=error@1").ok());
  Effects effects = StoredEffects("a", 1);
  EXPECT_EQ(store->Commit({&effects, 1}).status().code(), absl::StatusCode::kInternal);
  Effects next = StoredEffects("b", 2);
  EXPECT_EQ(store->Commit({&next, 1}).status().code(), absl::StatusCode::kFailedPrecondition);
}

// The disk fails at each operation of a flush in turn. The store says so and stops; nothing that
// was committed is lost, whether the process ends there or the power goes as well.
TEST_F(StoreTest, Flush_DiskFailsAnywhere_LosesNothing) {
  for (const bool power_cut : {false, true}) {
    for (int64_t n = 1;; ++n) {
      std::filesystem::remove_all(root_);
      bool failed = false;
      {
        FaultyEnv env(Env::Real());
        auto store = Open(env);
        const Effects first[] = {StoredEffects("a", 1), StoredEffects("b", 2)};
        ASSERT_TRUE(store->Commit(first).ok());
        ASSERT_TRUE(store->Flush().ok());
        const Effects second[] = {StoredEffects("a", 3), StoredEffects("b", 4)};
        ASSERT_TRUE(store->Commit(second).ok());
        env.FailAfter(n, absl::ResourceExhaustedError("disk full"), true);
        const absl::Status status = store->Flush();
        failed = !status.ok();
        if (failed) {
          EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
          Effects next = StoredEffects("a", 5);
          EXPECT_EQ(store->Commit({&next, 1}).status().code(),
                    absl::StatusCode::kFailedPrecondition);
        }
        env.Heal();
        if (power_cut) {
          ASSERT_TRUE(env.DropUnsynced().ok());
        }
      }
      auto store = Open();
      const auto state = store->Load();
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_THAT(state->warnings, testing::IsEmpty()) << "operation " << n;
      for (const char* job : {"a", "b"}) {
        EXPECT_EQ(CountRecords(*store, job, StreamKind::kHistory), 2) << "operation " << n;
        EXPECT_EQ(CountRecords(*store, job, StreamKind::kLog), 2) << "operation " << n;
      }
      Effects next = StoredEffects("a", 5);
      ASSERT_TRUE(store->Commit({&next, 1}).ok());
      ASSERT_TRUE(store->Flush().ok());
      EXPECT_EQ(CountRecords(*store, "a", StreamKind::kHistory), 3);
      if (!failed) {
        EXPECT_GT(n, 8);
        break;
      }
    }
  }
}

TEST_F(StoreTest, Commit_MoreThanTheJournalHolds_MovesRecordsToTheFiles) {
  auto opened = Store::Open({.data_dir = root_, .journal_bytes = 500});
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (int64_t n = 1; n <= 200; ++n) {
    const Effects effects = StoredEffects("a", n);
    ASSERT_TRUE((*opened)->Commit({&effects, 1}).ok());
  }
  EXPECT_GT((*opened)->Find("a", StreamKind::kHistory)->synced().end, 0);
  EXPECT_EQ(CountRecords(**opened, "a", StreamKind::kHistory), 200);
  opened->reset();
  auto store = Open();
  ASSERT_TRUE(store->Load().ok());
  EXPECT_EQ(CountRecords(*store, "a", StreamKind::kHistory), 200);
  EXPECT_EQ(CountRecords(*store, "a", StreamKind::kLog), 200);
}

TEST_F(StoreTest, Load_JobDeletedAndMadeAgain_HasTheLaterRecordsAlone) {
  {
    auto store = Open();
    const Effects first[] = {StoredEffects("a", 1), StoredEffects("a", 2), StoredEffects("a", 3)};
    ASSERT_TRUE(store->Commit(first).ok());
    Effects deletion;
    deletion.job_deletes = {"a"};
    ASSERT_TRUE(store->Commit({&deletion, 1}).ok());
    const Effects again = StoredEffects("a", 4);
    ASSERT_TRUE(store->Commit({&again, 1}).ok());
    EXPECT_EQ(CountRecords(*store, "a", StreamKind::kHistory), 1);
  }
  auto store = Open();
  ASSERT_TRUE(store->Load().ok());
  EXPECT_EQ(CountRecords(*store, "a", StreamKind::kHistory), 1);
}

TEST_F(StoreTest, Commit_DeletionWhileItsRecordsAreFlushed_LeavesNoFiles) {
  auto store = Open();
  for (int64_t n = 1; n <= 20; ++n) {
    const Effects effects = StoredEffects("a", n);
    ASSERT_TRUE(store->Commit({&effects, 1}).ok());
    ASSERT_TRUE(store->Flush().ok());
  }
  Effects deletion;
  deletion.job_deletes = {"a"};
  ASSERT_TRUE(store->Commit({&deletion, 1}).ok());
  ASSERT_TRUE(store->Flush().ok());
  EXPECT_FALSE(std::filesystem::exists(root_ + "/jobs/a"));
  store.reset();
  store = Open();
  const auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->warnings, testing::IsEmpty());
}

// The process dies by SIGKILL at a fault point during the second of two batches; afterwards the
// store holds the first batch whole, and the second wholly or not at all: the row, the history and
// the log agree.
class StoreCrashTest : public StoreTest, public testing::WithParamInterface<const char*> {};

TEST_P(StoreCrashTest, Commit_KilledAtFaultPoint_IsAllOrNothing) {
  // A flush commits too, to record how far the files go.
  const bool of_flush = std::string(GetParam()).find("flush") != std::string::npos;
  const int nth = of_flush ? 2 : 3;
  const pid_t child = fork();
  if (child == 0) {
    auto store = Store::Open({.data_dir = root_});
    if (!store.ok() || !fault::Configure(absl::StrCat(GetParam(), "=crash@", nth)).ok()) {
      _exit(2);
    }
    for (int64_t n = 1; n <= 2; ++n) {
      const Effects effects = StoredEffects("a", n);
      if (!(*store)->Commit({&effects, 1}).ok() || !(*store)->Flush().ok()) {
        _exit(3);
      }
    }
    _exit(4);
  }
  int wait_status = 0;
  ASSERT_EQ(waitpid(child, &wait_status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(wait_status)) << "exit " << WEXITSTATUS(wait_status);

  auto store = Open();
  const auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(state->warnings.empty());
  ASSERT_EQ(state->core.jobs.size(), 1u);
  const int64_t n = state->core.jobs[0].job().step();
  EXPECT_EQ(n, std::string(GetParam()) == "store.before_commit" ? 1 : 2);
  EXPECT_EQ(state->core.last_revision, n);
  EXPECT_EQ(static_cast<int64_t>(state->events.size()), n);
  EXPECT_EQ(static_cast<int64_t>(state->core.requests.size()), n);
  EXPECT_EQ(CountRecords(*store, "a", StreamKind::kHistory), n);
  EXPECT_EQ(CountRecords(*store, "a", StreamKind::kLog), n);
  // And it goes on from there.
  const Effects next = StoredEffects("a", n + 1);
  ASSERT_TRUE(store->Commit({&next, 1}).ok());
  EXPECT_EQ(CountRecords(*store, "a", StreamKind::kHistory), n + 1);
}

INSTANTIATE_TEST_SUITE_P(AllPoints,
                         StoreCrashTest,
                         testing::Values("store.before_commit",
                                         "store.after_commit",
                                         "store.before_flush",
                                         "store.after_flush"),
                         PointName);

// The store tidies up after itself when it is closed: the WAL goes into store.db and is removed.
// Whether the process dies there or the disk refuses, the next start finds all that was committed.
class StoreCloseTest : public StoreTest, public testing::WithParamInterface<const char*> {};

TEST_P(StoreCloseTest, Close_FailsOrIsKilledAtFaultPoint_LosesNothing) {
  for (const char* action : {"crash", "error", "full"}) {
    SCOPED_TRACE(action);
    std::filesystem::remove_all(root_);
    const pid_t child = fork();
    if (child == 0) {
      // The store looks for faults only when it is opened.
      bool ok = fault::Configure(absl::StrCat(GetParam(), "=", action, "@1000")).ok();
      auto store = Store::Open({.data_dir = root_});
      const Effects effects = StoredEffects("a", 1);
      ok = ok && store.ok() && (*store)->Commit({&effects, 1}).ok();
      ok = ok && fault::Configure(absl::StrCat(GetParam(), "=", action)).ok();
      if (ok) {
        store->reset();
      }
      _exit(ok && fault::Hits(GetParam()) > 0 ? 0 : 2);
    }
    int wait_status = 0;
    ASSERT_EQ(waitpid(child, &wait_status, 0), child);
    const bool killed = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
    EXPECT_EQ(killed, std::string_view(action) == "crash");
    EXPECT_TRUE(killed || WEXITSTATUS(wait_status) == 0) << "the point was not reached";

    auto store = Open();
    const auto state = store->Load();
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_THAT(state->warnings, testing::IsEmpty());
    ASSERT_EQ(state->core.jobs.size(), 1u);
    EXPECT_EQ(state->core.jobs[0].job().step(), 1);
    const Effects next = StoredEffects("a", 2);
    EXPECT_TRUE(store->Commit({&next, 1}).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(AllPoints,
                         StoreCloseTest,
                         testing::Values("store.db_truncate", "store.db_remove"),
                         PointName);

}  // namespace
}  // namespace hearth::coordinator
