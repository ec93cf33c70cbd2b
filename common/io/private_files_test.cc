#include "common/io/private_files.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth {
namespace {

class PrivateFilesTest : public testing::Test {
 protected:
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
};

TEST_F(PrivateFilesTest, CreatePrivateDir_New_OnlyTheLastIsPrivate) {
  const mode_t before = umask(022);
  ASSERT_TRUE(CreatePrivateDir(Env::Real(), root_ + "/a/b").ok());
  EXPECT_EQ(ModeOf(root_ + "/a/b"), 0700u);
  EXPECT_EQ(ModeOf(root_ + "/a"), 0755u);
  umask(before);
}

TEST_F(PrivateFilesTest, CreatePrivateDir_There_StaysAsItIs) {
  std::filesystem::create_directory(root_ + "/a");
  ASSERT_EQ(chmod((root_ + "/a").c_str(), 0750), 0);
  EXPECT_TRUE(CreatePrivateDir(Env::Real(), root_ + "/a").ok());
  EXPECT_EQ(ModeOf(root_ + "/a"), 0750u);
}

TEST_F(PrivateFilesTest, WritePrivateFile_NewOrThere_IsPrivateAndWhole) {
  const std::string path = root_ + "/token";
  std::ofstream(path) << "old";
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  for (const std::string& name : {path, root_ + "/new"}) {
    ASSERT_TRUE(WritePrivateFile(name, "secret\n").ok());
    EXPECT_EQ(ModeOf(name), 0600u);
    EXPECT_EQ(*Env::Real().ReadFile(name), "secret\n");
  }
  EXPECT_EQ(Env::Real().ListDir(root_)->size(), 2u) << "no temporary file stays";
  const absl::Status absent = WritePrivateFile(root_ + "/absent/token", "secret\n");
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(absent.message(), root_ + "/absent/token")) << absent;
}

TEST_F(PrivateFilesTest, CheckPrivateFile_OtherModes_AreRefusedWithAdvice) {
  const std::string key = root_ + "/key.pem";
  EXPECT_EQ(CheckPrivateFile(key).code(), absl::StatusCode::kNotFound);
  std::ofstream(key) << "key";
  for (const mode_t mode : {0600u, 0400u}) {
    ASSERT_EQ(chmod(key.c_str(), mode), 0);
    EXPECT_TRUE(CheckPrivateFile(key).ok()) << mode;
  }
  for (const mode_t mode : {0604u, 0644u, 0660u, 0601u}) {
    ASSERT_EQ(chmod(key.c_str(), mode), 0);
    const absl::Status refused = CheckPrivateFile(key);
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_TRUE(absl::StrContains(refused.message(), "chmod 600 " + key)) << refused;
  }
  struct stat info = {};
  ASSERT_EQ(chmod(key.c_str(), 0640), 0);
  ASSERT_EQ(stat(key.c_str(), &info), 0);
  EXPECT_EQ(CheckPrivateFile(key).ok(), info.st_uid == 0) << "root's keys may be a group's";
}

}  // namespace
}  // namespace hearth
