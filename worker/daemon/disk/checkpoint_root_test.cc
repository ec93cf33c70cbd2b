#include "worker/daemon/disk/checkpoint_root.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/barrier.h"
#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointRootTest : public ::testing::Test {
 protected:
  std::string Make(const std::string& relative) {
    const fs::path path = dir_ / relative;
    fs::create_directories(path);
    std::ofstream(path / "file") << "x";
    return path.string();
  }

  const TempDir temp_;
  const fs::path dir_ = temp_.path();
};

TEST_F(CheckpointRootTest, Open_Twice_GivesOneUuid) {
  const auto first = CheckpointRoot::Open((dir_ / "a/b").string());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(IsUuid(first->uuid()));
  EXPECT_EQ(first->path(), (dir_ / "a/b").string());
  EXPECT_EQ(CheckpointRoot::Open((dir_ / "a/b/").string())->uuid(), first->uuid());
  EXPECT_NE(CheckpointRoot::Open((dir_ / "c").string())->uuid(), first->uuid());
}

TEST_F(CheckpointRootTest, Open_ManyAtOnce_AgreeOnOneUuid) {
  constexpr int kThreads = 8;
  auto* barrier = new absl::Barrier(kThreads);
  absl::Mutex mu;
  std::set<std::string> uuids;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      if (barrier->Block()) {
        delete barrier;
      }
      const auto root = CheckpointRoot::Open(dir_.string());
      absl::MutexLock lock(&mu);
      uuids.insert(root.ok() ? root->uuid() : root.status().ToString());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(uuids.size(), 1u);
  EXPECT_TRUE(IsUuid(*uuids.begin()));
  int files = 0;
  for (const auto& entry : fs::directory_iterator(dir_)) {
    EXPECT_EQ(entry.path().filename(), ".hearth-root");
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(CheckpointRootTest, Open_DamagedUuid_IsDataLossNamingTheFile) {
  Make("");
  std::ofstream(dir_ / ".hearth-root") << "not a uuid";
  const auto root = CheckpointRoot::Open(dir_.string());
  EXPECT_EQ(root.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(root.status().message()), HasSubstr(".hearth-root"));
}

TEST_F(CheckpointRootTest, Open_BelowAFile_NamesIt) {
  Make("");
  EXPECT_FALSE(CheckpointRoot::Open((dir_ / "file/root").string()).ok());
}

TEST_F(CheckpointRootTest, EpochDir_Names_AreChecked) {
  const auto root = CheckpointRoot::Open(dir_.string());
  EXPECT_EQ(*root->EpochDir("job-1", 3), (dir_ / "job-1/e3").string());
  EXPECT_FALSE(root->EpochDir("../evil", 1).ok());
  EXPECT_FALSE(root->EpochDir("job-1", 0).ok());
}

TEST_F(CheckpointRootTest, Delete_OwnFolders_AreRemoved) {
  const auto root = CheckpointRoot::Open(dir_.string());
  const std::string step = Make("job-1/e1/step-00000010");
  const std::string kept = Make("job-1/e1/step-00000020");
  EXPECT_TRUE(root->Delete("job-1", step).ok());
  EXPECT_FALSE(fs::exists(step));
  EXPECT_TRUE(fs::exists(kept));
  EXPECT_TRUE(root->Delete("job-1", step).ok());  // absent
  EXPECT_TRUE(root->Delete("job-1", (dir_ / "job-1").string() + "/").ok());
  EXPECT_FALSE(fs::exists(dir_ / "job-1"));
  EXPECT_TRUE(fs::exists(dir_ / ".hearth-root"));
}

TEST_F(CheckpointRootTest, Delete_LastOfAnEpoch_TakesTheEpochAlong) {
  const auto root = CheckpointRoot::Open(dir_.string());
  const std::string first = Make("job-1/e1/step-00000010");
  const std::string second = Make("job-1/e1/step-00000020");
  EXPECT_TRUE(root->Delete("job-1", first).ok());
  EXPECT_TRUE(fs::exists(dir_ / "job-1/e1"));
  EXPECT_TRUE(root->Delete("job-1", second).ok());
  EXPECT_FALSE(fs::exists(dir_ / "job-1/e1"));
  EXPECT_TRUE(fs::exists(dir_ / "job-1"));
}

TEST_F(CheckpointRootTest, Delete_OfAJob_LeavesWhatIsNoCheckpoint) {
  const auto root = CheckpointRoot::Open(dir_.string());
  Make("job-1/e1/step-00000010");
  Make("job-1/e2/step-00000020.tmp-7");
  Make("job-1/e2/.deleted-step-00000010-ab");
  Make("job-1/e3/my-notes");
  const absl::Status status = root->Delete("job-1", (dir_ / "job-1").string());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("job-1"));
  EXPECT_FALSE(fs::exists(dir_ / "job-1/e1"));
  EXPECT_FALSE(fs::exists(dir_ / "job-1/e2"));
  EXPECT_TRUE(fs::exists(dir_ / "job-1/e3/my-notes/file"));
}

TEST_F(CheckpointRootTest, DeleteIfEmpty_LeavesAFullFolder) {
  const auto root = CheckpointRoot::Open(dir_.string());
  Make("job-1/e1/step-00000010");
  fs::create_directories(dir_ / "job-1/e2");
  EXPECT_TRUE(root->DeleteIfEmpty("job-1", (dir_ / "job-1/e1").string()).ok());
  EXPECT_TRUE(root->DeleteIfEmpty("job-1", (dir_ / "job-1/e2").string()).ok());
  EXPECT_TRUE(root->DeleteIfEmpty("job-1", (dir_ / "job-1/e2").string()).ok());  // absent
  EXPECT_TRUE(fs::exists(dir_ / "job-1/e1/step-00000010/file"));
  EXPECT_FALSE(fs::exists(dir_ / "job-1/e2"));
  EXPECT_FALSE(root->DeleteIfEmpty("job-1", dir_.string()).ok());
}

std::string Row(const v1::CheckpointFolder& folder) {
  return absl::StrCat(folder.job_id(), " ", folder.epoch(), " ", folder.name(), " ", folder.step(),
                      " ", folder.kind(), " ", folder.bytes());
}

TEST_F(CheckpointRootTest, List_SaysWhatIsOursAndNothingElse) {
  const auto root = CheckpointRoot::Open(dir_.string());
  Make("job-1/e1/step-00000010/state");
  Make("job-1/e10/step-00000030.tmp-77");
  Make("job-1/e2/.deleted-step-00000010-ab");
  fs::create_directories(dir_ / "job-1/e3");
  Make("job-1/e4/my-notes");
  Make("job-1/other/step-00000010");
  Make("Not A Job/e1/step-00000010");
  Make("job-2/e1/step-1");
  fs::create_directory_symlink(dir_ / "job-1", dir_ / "job-3");
  fs::create_directory_symlink(dir_ / "job-1/e1", dir_ / "job-1/e9");
  const v1::CheckpointFolders all = root->List(100, [] { return true; });
  std::vector<std::string> rows;
  for (const v1::CheckpointFolder& folder : all.folders()) {
    rows.push_back(Row(folder));
    EXPECT_GT(folder.change_time().seconds(), 1'600'000'000);
  }
  EXPECT_THAT(rows,
              ElementsAre("job-1 1 step-00000010 10 1 1", "job-1 2 .deleted-step-00000010-ab 0 2 1",
                          "job-1 3  0 3 0", "job-1 10 step-00000030.tmp-77 30 2 1"));
  EXPECT_FALSE(all.truncated());
}

TEST_F(CheckpointRootTest, List_Bound_IsSaid) {
  const auto root = CheckpointRoot::Open(dir_.string());
  Make("job-1/e1/step-00000010");
  Make("job-1/e1/step-00000020");
  EXPECT_TRUE(root->List(1, [] { return true; }).truncated());
  EXPECT_FALSE(root->List(2, [] { return true; }).truncated());
  EXPECT_EQ(root->List(2, [] { return false; }).folders_size(), 0);
}

TEST_F(CheckpointRootTest, Delete_AnythingElse_IsRefused) {
  const auto root = CheckpointRoot::Open(dir_.string());
  const std::string other = Make("job-2/e1/step-00000010");
  Make("job-1/e1");
  Make("job-10/e1");
  fs::create_directory_symlink(dir_ / "job-2", dir_ / "job-1/link");
  const std::vector<std::string> paths = {
      "",
      "/",
      dir_.string(),
      other,
      (dir_ / "job-10").string(),
      (dir_ / "job-1/../job-2").string(),
      (dir_ / "job-1/link").string(),
      (dir_ / "job-1/link/e1").string(),
      "job-1",
      "job-1/e1",
      "/etc",
  };
  for (const std::string& path : paths) {
    EXPECT_EQ(root->Delete("job-1", path).code(), absl::StatusCode::kInvalidArgument) << path;
  }
  EXPECT_FALSE(root->Delete("..", dir_.string()).ok());
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(dir_ / "job-10/e1/file"));
}

}  // namespace
}  // namespace hearth::worker
