#include "common/io/faulty_env.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class FaultyEnvTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  FaultyEnv env_{Env::Real()};
};

// The promise of WriteFileAtomically, at every point where the disk can fail.
TEST_F(FaultyEnvTest, WriteFileAtomically_FaultAtEachStep_LeavesOldOrNewWhole) {
  ASSERT_TRUE(env_.WriteFileAtomically(Path("a"), "old").ok());
  const int64_t steps = env_.operations();
  ASSERT_GE(steps, 6);  // open, append, sync, close, rename, sync the folder
  int failures = 0;
  for (int64_t n = 1; n <= steps; ++n) {
    ASSERT_TRUE(Env::Real().WriteFileAtomically(Path("a"), "old").ok());
    env_.FailAfter(n, absl::InternalError("broken disk"));
    const absl::Status status = env_.WriteFileAtomically(Path("a"), "brand new");
    failures += status.ok() ? 0 : 1;
    env_.Heal();
    ASSERT_TRUE(env_.DropUnsynced().ok());
    const std::string content = env_.ReadFile(Path("a")).value();
    EXPECT_TRUE(content == "old" || content == "brand new") << n << ": " << content;
    if (status.ok()) {
      EXPECT_EQ(content, "brand new") << n;
    }
  }
  EXPECT_EQ(failures, steps);
}

TEST_F(FaultyEnvTest, ReplaceFile_FaultAtEachStep_LeavesOldOrNewWholeAndSyncsNothing) {
  ASSERT_TRUE(ReplaceFile(env_, Path("a"), "old").ok());
  const int64_t steps = env_.operations();
  EXPECT_EQ(steps, 4) << "open, append, close, rename";
  for (int64_t n = 1; n <= steps; ++n) {
    env_.FailAfter(n, absl::InternalError("broken disk"));
    EXPECT_FALSE(ReplaceFile(env_, Path("a"), "brand new").ok()) << n;
    EXPECT_EQ(env_.ReadFile(Path("a")).value(), "old") << n;
    EXPECT_EQ(env_.ListDir(dir_).value(), std::vector<std::string>{"a"}) << n;
  }
  EXPECT_TRUE(ReplaceFile(env_, Path("a"), "brand new").ok());
  EXPECT_EQ(env_.ReadFile(Path("a")).value(), "brand new");
}

TEST_F(FaultyEnvTest, FailAfter_NotSticky_FailsOnceAndNamesTheFile) {
  env_.FailAfter(1, absl::InternalError("broken disk"));
  const absl::Status status = env_.CreateDirs(Path("x"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("x")));
  EXPECT_TRUE(env_.CreateDirs(Path("x")).ok());
}

TEST_F(FaultyEnvTest, FailAfter_Sticky_FailsUntilHealed) {
  env_.FailAfter(2, absl::InternalError("broken disk"), /*sticky=*/true);
  EXPECT_TRUE(env_.CreateDirs(Path("x")).ok());
  EXPECT_FALSE(env_.CreateDirs(Path("x")).ok());
  EXPECT_FALSE(env_.RemoveAll(Path("x")).ok());
  env_.Heal();
  EXPECT_TRUE(env_.RemoveAll(Path("x")).ok());
}

TEST_F(FaultyEnvTest, SetDiskSpace_AppendPastIt_WritesWhatFits) {
  auto file = env_.NewWritableFile(Path("a"));
  ASSERT_TRUE(file.ok());
  env_.SetDiskSpace(5);
  EXPECT_TRUE((*file)->Append("abc").ok());
  EXPECT_EQ((*file)->Append("defg").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(env_.ReadFile(Path("a")).value(), "abcde");
  env_.Heal();
  EXPECT_TRUE((*file)->Append("f").ok());
}

TEST_F(FaultyEnvTest, DropUnsynced_PartlySyncedFile_KeepsTheSyncedPart) {
  auto file = env_.NewWritableFile(Path("a"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("kept").ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Append("lost").ok());
  ASSERT_TRUE(env_.Rename(Path("a"), Path("b")).ok());
  ASSERT_TRUE(env_.DropUnsynced().ok());
  EXPECT_EQ(env_.ReadFile(Path("b")).value(), "kept");
  EXPECT_FALSE((*file)->Append("x").ok());
}

TEST_F(FaultyEnvTest, DropUnsynced_FolderRenamed_CutsFilesUnderTheNewName) {
  ASSERT_TRUE(env_.CreateDirs(Path("tmp")).ok());
  auto file = env_.NewWritableFile(Path("tmp/a"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("never synced").ok());
  ASSERT_TRUE(env_.Rename(Path("tmp"), Path("final")).ok());
  ASSERT_TRUE(env_.DropUnsynced().ok());
  EXPECT_EQ(env_.ReadFile(Path("final/a")).value(), "");
}

}  // namespace
}  // namespace hearth
