// Numbered copies: the newest stay, whatever the clock says; what is not ours stays too.
#include "coordinator/store/backup_folder.h"

#include <filesystem>
#include <fstream>
#include <string>
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

class BackupFolderTest : public testing::Test {
 protected:
  BackupFolderTest() {
    const auto store = Store::Open({.data_dir = data_, .now = kStoreTime});
    EXPECT_TRUE(store.ok()) << store.status();
    const std::vector<Effects> batch = {StoredEffects("a", 1)};
    EXPECT_TRUE((*store)->Commit(batch).ok());
    EXPECT_TRUE((*store)->Flush().ok());
  }

  absl::StatusOr<MadeBackup> Make(absl::Time now) {
    return MakeBackup(data_, {.path = DefaultBackupFolder(data_), .keep = 2}, now);
  }

  std::vector<std::string> Names() const { return *Env::Real().ListDir(root_ + "/data-backups"); }

  const TempDir temp_;
  const std::string root_ = temp_.path();
  const std::string data_ = root_ + "/data";
};

TEST_F(BackupFolderTest, NewestOnesStay_AlsoWhenTheClockWentBack) {
  ASSERT_TRUE(Make(kStoreTime).ok());
  ASSERT_TRUE(Make(kStoreTime + absl::Hours(24)).ok());
  const auto third = Make(kStoreTime - absl::Hours(24));
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_THAT(third->path, testing::EndsWith("data-backups/backup-3-2026-11-17T11-06-40Z"));
  EXPECT_THAT(third->removed, ElementsAre(HasSubstr("/backup-1-")));
  EXPECT_EQ(third->kept, 2);
  EXPECT_THAT(Names(), ElementsAre(HasSubstr("backup-2-"), HasSubstr("backup-3-")));
  const auto check = CheckDataDir(third->path);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_THAT(check->damage(), IsEmpty());
  EXPECT_EQ(check->jobs, 1);
}

TEST_F(BackupFolderTest, LeftoverOfACrashGoes_WhatIsNotOursStays) {
  const std::string folder = root_ + "/data-backups";
  std::filesystem::create_directories(folder + "/backup-9-2026-11-18T11-06-40Z.partial/jobs");
  std::filesystem::create_directory(folder + "/backup-of-mine");
  std::ofstream(folder + "/backup-of-mine/notes") << "mine";
  const auto made = Make(kStoreTime);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->path, HasSubstr("/backup-10-"));
  EXPECT_THAT(Names(), ElementsAre(HasSubstr("backup-10-"), "backup-of-mine"));
}

TEST_F(BackupFolderTest, StoppedCopyLeavesNothing) {
  const auto made =
      MakeBackup(data_, {.path = DefaultBackupFolder(data_)}, kStoreTime, [] { return true; });
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(BackupFolderTest, TooLittleRoomIsRefusedBeforeAnythingIsWritten) {
  const auto made = MakeBackup(
      data_, {.path = DefaultBackupFolder(data_), .min_free_bytes = int64_t{1} << 60}, kStoreTime);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(made.status().message(), HasSubstr("must stay free"));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(BackupFolderTest, FolderInOrAroundTheDataDirIsRefused) {
  for (const std::string& folder : {data_, data_ + "/copies", root_, data_ + "/../data/x"}) {
    EXPECT_EQ(CheckBackupFolder(folder, data_).code(), absl::StatusCode::kInvalidArgument)
        << folder;
  }
  EXPECT_TRUE(CheckBackupFolder(DefaultBackupFolder(data_), data_).ok());
  EXPECT_TRUE(CheckBackupFolder(root_ + "/database", data_).ok());
}

}  // namespace
}  // namespace hearth::coordinator
