#include "common/io/env.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "common/fault/fault.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EnvTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

  Env& env_ = Env::Real();
  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

TEST_F(EnvTest, WriteFileAtomically_TwiceTheSamePath_LeavesTheSecondAndNoTemporary) {
  ASSERT_TRUE(env_.WriteFileAtomically(Path("a"), "one").ok());
  ASSERT_TRUE(env_.WriteFileAtomically(Path("a"), "two").ok());
  EXPECT_EQ(env_.ReadFile(Path("a")).value(), "two");
  EXPECT_THAT(env_.ListDir(dir_).value(), ElementsAre("a"));
}

TEST_F(EnvTest, NewAppendableFile_ExistingFile_AppendsAtItsEnd) {
  ASSERT_TRUE(env_.WriteFileAtomically(Path("a"), "one").ok());
  auto file = env_.NewAppendableFile(Path("a"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Append("two").ok());
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_EQ(env_.ReadFile(Path("a")).value(), "onetwo");
  EXPECT_EQ(env_.FileSize(Path("a")).value(), 6);
}

TEST_F(EnvTest, StartWriteBack_BetweenAppends_ChangesNoByte) {
  const std::string part(100'000, 'x');
  auto file = env_.NewWritableFile(Path("a"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Append(part).ok());
  (*file)->StartWriteBack();
  EXPECT_TRUE((*file)->Append("end").ok());
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_EQ(env_.ReadFile(Path("a")).value(), part + "end");
}

TEST_F(EnvTest, NewWritableFile_ExistingFile_Truncates) {
  ASSERT_TRUE(env_.WriteFileAtomically(Path("a"), "one").ok());
  ASSERT_TRUE(env_.NewWritableFile(Path("a")).ok());
  EXPECT_EQ(env_.FileSize(Path("a")).value(), 0);
}

TEST_F(EnvTest, Map_OutlivesTheName) {
  ASSERT_TRUE(env_.WriteFileAtomically(Path("a"), "bytes").ok());
  auto map = env_.Map(Path("a"));
  ASSERT_TRUE(map.ok());
  ASSERT_TRUE(env_.RemoveAll(Path("a")).ok());
  EXPECT_EQ(std::string((*map)->bytes().begin(), (*map)->bytes().end()), "bytes");
}

TEST_F(EnvTest, Map_EmptyFile_HasNoBytes) {
  ASSERT_TRUE(env_.WriteFileAtomically(Path("a"), "").ok());
  EXPECT_TRUE(env_.Map(Path("a")).value()->bytes().empty());
}

TEST_F(EnvTest, ReadFile_LargerThanAChunk_IsWhole) {
  const std::string data(300'000, 'x');
  ASSERT_TRUE(env_.WriteFileAtomically(Path("a"), data).ok());
  EXPECT_EQ(env_.ReadFile(Path("a")).value(), data);
  EXPECT_THAT(env_.ReadFile("/proc/self/status").value(), HasSubstr("Pid:"));
}

TEST_F(EnvTest, AbsentFile_EveryReader_IsNotFoundAndNamesIt) {
  const std::string path = Path("absent");
  for (const absl::Status& status :
       {env_.ReadFile(path).status(), env_.Map(path).status(), env_.FileSize(path).status(),
        env_.ListDir(path).status(), env_.Truncate(path, 0), env_.Rename(path, Path("b"))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("absent"));
  }
  EXPECT_FALSE(env_.Exists(path));
  EXPECT_TRUE(env_.RemoveAll(path).ok());
}

TEST_F(EnvTest, DirectoryOperations_NestedFolders_Work) {
  ASSERT_TRUE(env_.CreateDirs(Path("x/y/z")).ok());
  ASSERT_TRUE(env_.CreateDirs(Path("x/y/z")).ok());
  EXPECT_TRUE(env_.IsDirectory(Path("x/y")));
  ASSERT_TRUE(env_.Rename(Path("x/y"), Path("w")).ok());
  EXPECT_TRUE(env_.SyncDir(dir_).ok());
  EXPECT_THAT(env_.ListDir(dir_).value(), ElementsAre("w", "x"));
  EXPECT_EQ(env_.ReadFile(Path("w")).status().code(), absl::StatusCode::kInvalidArgument);
}

// What fails at a fault point says where, changes nothing that was there, and leaves no file
// behind.
struct PointCase {
  const char* point;
  std::function<absl::Status(Env&, const std::string& dir)> act;
};

std::vector<PointCase> PointCases() {
  const auto write = [](Env& env, const std::string& dir) {
    return env.WriteFileAtomically(dir + "/kept", "other");
  };
  return {
      {"io.open", write},
      {"io.write", write},
      {"io.sync", write},
      {"io.rename", write},
      {"io.allocate",
       [](Env& env, const std::string& dir) {
         const auto file = env.NewAppendableFile(dir + "/kept");
         return file.ok() ? (*file)->Allocate(1000) : file.status();
       }},
      {"io.create_folder",
       [](Env& env, const std::string& dir) { return env.CreateDirs(dir + "/new/folder"); }},
      {"io.remove", [](Env& env, const std::string& dir) { return env.RemoveAll(dir + "/kept"); }},
      {"io.truncate",
       [](Env& env, const std::string& dir) { return env.Truncate(dir + "/kept", 1); }}};
}

TEST_F(EnvTest, FaultPoints_EachFailsOrIsFull_TheFileIsAsBeforeAndNothingIsLeft) {
  ASSERT_TRUE(env_.WriteFileAtomically(Path("kept"), "as before").ok());
  for (const PointCase& row : PointCases()) {
    for (const auto& [action, code] : {std::pair("error", absl::StatusCode::kInternal),
                                       std::pair("full", absl::StatusCode::kResourceExhausted)}) {
      SCOPED_TRACE(absl::StrCat(row.point, "=", action));
      ASSERT_TRUE(fault::Configure(absl::StrCat(row.point, "=", action, "@1")).ok());
      const absl::Status status = row.act(env_, dir_);
      EXPECT_TRUE(fault::Configure("").ok());
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(row.point));
      EXPECT_THAT(env_.ListDir(dir_).value(), ElementsAre("kept"));
      EXPECT_EQ(env_.ReadFile(Path("kept")).value(), "as before");
    }
    const absl::Status again = row.act(env_, dir_);
    EXPECT_TRUE(again.ok()) << row.point << ": " << again;
    ASSERT_TRUE(env_.RemoveAll(Path("new")).ok());
    ASSERT_TRUE(env_.WriteFileAtomically(Path("kept"), "as before").ok());
  }
}

// The rename has happened, but a caller that got the error cannot rely on it.
TEST_F(EnvTest, FaultPoints_FolderIsNotSynced_IsAnErrorAndTheFileIsWhole) {
  ASSERT_TRUE(env_.WriteFileAtomically(Path("a"), "one").ok());
  ASSERT_TRUE(fault::Configure("io.sync_folder=error").ok());
  const absl::Status status = env_.WriteFileAtomically(Path("a"), "two");
  EXPECT_TRUE(fault::Configure("").ok());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(env_.ReadFile(Path("a")).value(), "two");
  EXPECT_THAT(env_.ListDir(dir_).value(), ElementsAre("a"));
}

// /dev/full answers every write with ENOSPC.
TEST(Env, Append_DiskFull_IsResourceExhaustedAndNamesTheFile) {
  auto file = Env::Real().NewWritableFile("/dev/full");
  ASSERT_TRUE(file.ok());
  const absl::Status status = (*file)->Append("data");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/dev/full"));
}

}  // namespace
}  // namespace hearth
