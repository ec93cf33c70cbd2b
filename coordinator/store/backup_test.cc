// A copy is what was committed at one moment, can be opened, and is never half.
#include "coordinator/store/backup.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/store/check.h"
#include "coordinator/store/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/coordinator/stored_effects.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BackupTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  // Segments are so small that each Flush begins and drops some.
  std::unique_ptr<Store> Open(const std::string& name, bool restore = false) {
    auto store = Store::Open({.data_dir = Path(name),
                              .history = {.segment_bytes = 512, .max_bytes = 4096},
                              .log = {.segment_bytes = 512, .max_bytes = 4096},
                              .restore = restore,
                              .now = kStoreTime});
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? std::move(*store) : nullptr;
  }

  static absl::Status Commit(Store& store, const std::string& job, int64_t first, int64_t last) {
    for (int64_t n = first; n <= last; ++n) {
      const std::vector<Effects> batch = {StoredEffects(job, n)};
      if (const auto committed = store.Commit(batch); !committed.ok()) {
        return committed.status();
      }
    }
    return absl::OkStatus();
  }

  // Cursors of all records of the job's history, in order.
  static std::vector<int64_t> Cursors(const Store& store, const std::string& job) {
    std::vector<int64_t> cursors;
    const auto log = store.Find(job, StreamKind::kHistory);
    SegmentLog::ReadState state;
    while (log != nullptr) {
      const auto read = log->Read(state, 1 << 20);
      EXPECT_TRUE(read.ok()) << read.status();
      if (!read.ok()) {
        break;
      }
      for (const SegmentLog::Record& record : read->records) {
        cursors.push_back(record.cursor);
      }
      if (read->at_end) {
        break;
      }
    }
    return cursors;
  }

  // The backup's job is at one step in its row, its history and its log.
  void ExpectWhole(const std::string& name, const std::string& job, int64_t at_least) {
    const auto check = CheckDataDir(Path(name));
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_THAT(check->damage(), IsEmpty());
    const auto store = Open(name, true);
    ASSERT_NE(store, nullptr);
    const auto state = store->Load();
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_THAT(state->warnings, ElementsAre(HasSubstr("restored: ")));
    EXPECT_EQ(state->set_aside, 0);
    ASSERT_EQ(state->core.jobs.size(), 1U);
    const int64_t step = state->core.jobs[0].job().step();
    EXPECT_GE(step, at_least);
    const std::vector<int64_t> cursors = Cursors(*store, job);
    ASSERT_FALSE(cursors.empty());
    EXPECT_EQ(cursors.back(), step);
    EXPECT_EQ(cursors.back() - cursors.front() + 1, static_cast<int64_t>(cursors.size()));
    // It can go on.
    EXPECT_TRUE(Commit(*store, job, step + 1, step + 20).ok());
    EXPECT_EQ(Cursors(*store, job).back(), step + 20);
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
};

TEST_F(BackupTest, StoppedFolderIsCopiedWhole) {
  {
    const auto store = Open("data");
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(Commit(*store, "a", 1, 30).ok());
    ASSERT_TRUE(store->Flush().ok());
    ASSERT_TRUE(Commit(*store, "a", 31, 40).ok());  // these are in store.db alone
  }
  const auto report = BackupDataDir(Path("data"), Path("copy"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->jobs, 1);
  EXPECT_EQ(report->files, 2) << "history and log";
  EXPECT_GT(report->bytes, 4096);
  EXPECT_FALSE(std::filesystem::exists(Path("copy.partial")));
  EXPECT_FALSE(std::filesystem::exists(Path("copy/store.db-wal")));
  ExpectWhole("copy", "a", 40);
}

TEST_F(BackupTest, CopiesWhileTheStoreCommitsAreOfOneMomentEach) {
  const auto store = Open("data");
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(Commit(*store, "a", 1, 20).ok());
  std::atomic<bool> stop = false;
  std::atomic<int64_t> committed = 20;
  absl::Status failed;
  std::thread writer([&] {
    while (!stop && failed.ok()) {
      failed = Commit(*store, "a", committed + 1, committed + 1);
      if (++committed % 8 == 0) {
        failed.Update(store->Flush());
      }
    }
  });
  std::vector<int64_t> before;
  for (int i = 0; i < 5; ++i) {
    before.push_back(committed);
    const auto report = BackupDataDir(Path("data"), Path(absl::StrCat("copy", i)));
    EXPECT_TRUE(report.ok()) << report.status();
  }
  stop = true;
  writer.join();
  EXPECT_TRUE(failed.ok()) << failed;
  for (int i = 0; i < 5; ++i) {
    ExpectWhole(absl::StrCat("copy", i), "a", before[i]);
  }
}

TEST_F(BackupTest, FolderWithSomethingInItIsRefusedAndUntouched) {
  ASSERT_NE(Open("data"), nullptr);
  std::filesystem::create_directory(Path("copy"));
  std::ofstream(Path("copy/mine")) << "mine";
  const auto report = BackupDataDir(Path("data"), Path("copy"));
  EXPECT_EQ(report.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(Path("copy/mine")));
  std::filesystem::remove(Path("copy/mine"));
  EXPECT_TRUE(BackupDataDir(Path("data"), Path("copy/")).ok());
}

TEST_F(BackupTest, WhatIsNoDataDirIsRefused) {
  std::filesystem::create_directory(Path("other"));
  const auto report = BackupDataDir(Path("other"), Path("copy"));
  EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(report.status().message(), HasSubstr("no store.db"));
  EXPECT_FALSE(std::filesystem::exists(Path("copy.partial")));
  ASSERT_NE(Open("data"), nullptr);
  EXPECT_EQ(BackupDataDir(Path("data"), Path("absent/copy")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(BackupTest, DamageIsFoundAndTheCopyIsNotShown) {
  {
    const auto store = Open("data");
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(Commit(*store, "a", 1, 40).ok());
    ASSERT_TRUE(store->Flush().ok());
  }
  const std::string history = Path("data/jobs/a/history");
  const std::string segment = std::filesystem::directory_iterator(history)->path();
  std::fstream file(segment, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(20);
  file.put('\x7f');
  file.close();
  const auto report = BackupDataDir(Path("data"), Path("copy"));
  EXPECT_EQ(report.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(report.status().message(), HasSubstr("job a"));
  EXPECT_FALSE(std::filesystem::exists(Path("copy")));
}

}  // namespace
}  // namespace hearth::coordinator
