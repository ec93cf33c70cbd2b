#include "common/io/rooted_env.h"

#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RootedEnvTest : public ::testing::Test {
 protected:
  RootedEnvTest() {
    for (const char* folder : {"data/set", "checkpoints", "outside"}) {
      fs::create_directories(dir_ / folder);
    }
    Put("data/set/a.bin", "tokens");
    Put("outside/secret", "secret");
  }

  std::string At(const std::string& name) const { return (dir_ / name).string(); }
  void Put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(Env::Real().WriteFileAtomically(At(name), text).ok());
  }
  void Link(const std::string& target, const std::string& name) {
    fs::create_symlink(At(target), At(name));
  }
  std::string Refused(const absl::Status& status) const {
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    return std::string(status.message());
  }

  const TempDir temp_;
  const fs::path dir_ = temp_.path();
  RootedEnv env_{Env::Real(), {{At("data")}, {At("checkpoints")}, "worker w1"}};
};

TEST_F(RootedEnvTest, Reading_BelowARoot_Works) {
  EXPECT_EQ(env_.ReadFile(At("data/set/a.bin")).value(), "tokens");
  EXPECT_EQ(env_.ReadFile(At("outside/../data/set/a.bin")).value(), "tokens");
  EXPECT_EQ(env_.FileSize(At("data/set/a.bin")).value(), 6);
  EXPECT_EQ(env_.Map(At("data/set/a.bin")).value()->bytes().size(), 6u);
  EXPECT_THAT(env_.ListDir(At("data/set/")).value(), ElementsAre("a.bin"));
  EXPECT_TRUE(env_.IsDirectory(At("data/set")));
  EXPECT_FALSE(env_.IsDirectory(At("data/set/a.bin")));
  EXPECT_FALSE(env_.Exists(At("data/set/b.bin")));
  EXPECT_EQ(env_.ReadFile(At("data/set/b.bin")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RootedEnvTest, Reading_Outside_NamesPathRootAndOwnerWhetherThereIsAFileOrNot) {
  std::set<std::string> said;
  for (const std::string name :
       {"outside/secret", "outside/absent", "data/../outside/secret", "databases", "outside"}) {
    const std::string path = At(name);
    std::string text = Refused(env_.ReadFile(path).status());
    EXPECT_EQ(text, Refused(env_.Map(path).status()));
    EXPECT_EQ(text, Refused(env_.FileSize(path).status()));
    EXPECT_EQ(text, Refused(env_.ListDir(path).status()));
    EXPECT_TRUE(env_.Exists(path)) << "so that the call that opens it says why";
    EXPECT_FALSE(env_.IsDirectory(path));
    said.insert(absl::StrReplaceAll(text, {{path, "PATH"}}));
  }
  EXPECT_THAT(said, ElementsAre("PATH lies outside of the folders that worker w1 reads: " +
                                At("data") + " (--data-root)"));
}

TEST_F(RootedEnvTest, Reading_Links_CountWhereTheyLead) {
  Link("outside/secret", "data/set/link");
  Link("outside", "data/folder");
  Link("data/set", "outside/in");
  Refused(env_.ReadFile(At("data/set/link")).status());
  Refused(env_.ReadFile(At("data/folder/secret")).status());
  EXPECT_EQ(env_.ReadFile(At("outside/in/a.bin")).value(), "tokens");
}

TEST_F(RootedEnvTest, Reading_RootThatIsALink_IsThatFolder) {
  Link("data", "by-name");
  RootedEnv env(Env::Real(), {{At("by-name")}, {}, "w"});
  EXPECT_EQ(env.ReadFile(At("data/set/a.bin")).value(), "tokens");
}

TEST_F(RootedEnvTest, Writing_BelowTheRoot_Works) {
  ASSERT_TRUE(env_.CreateDirs(At("checkpoints/job/e1")).ok());
  ASSERT_TRUE(env_.CreateDirs(At("checkpoints/job/e1")).ok());
  auto file = env_.NewWritableFile(At("checkpoints/job/e1/part"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Append("one").ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_TRUE(env_.Truncate(At("checkpoints/job/e1/part"), 2).ok());
  EXPECT_TRUE(env_.Rename(At("checkpoints/job/e1/part"), At("checkpoints/job/e1/whole")).ok());
  EXPECT_TRUE(env_.SyncDir(At("checkpoints/job/e1")).ok());
  EXPECT_TRUE(env_.WriteFileAtomically(At("checkpoints/job/e1/meta"), "{}").ok());
  EXPECT_EQ(env_.ReadFile(At("checkpoints/job/e1/whole")).value(), "on");
  EXPECT_THAT(env_.ListDir(At("checkpoints/job/e1")).value(), ElementsAre("meta", "whole"));
  EXPECT_TRUE(env_.RemoveAll(At("checkpoints/job")).ok());
  EXPECT_TRUE(env_.RemoveAll(At("checkpoints/job")).ok());
  EXPECT_TRUE(env_.RemoveAll(At("checkpoints/job/e1")).ok()) << "absent is OK";
  EXPECT_FALSE(fs::exists(At("checkpoints/job")));
}

TEST_F(RootedEnvTest, Writing_Elsewhere_ChangesNothing) {
  for (const char* folder : {"data/set", "outside"}) {
    const std::string path = At(std::string(folder) + "/new");
    EXPECT_THAT(Refused(env_.NewWritableFile(path).status()),
                HasSubstr("worker w1 writes to: " + At("checkpoints") + " (--checkpoint-root)"));
    Refused(env_.NewAppendableFile(path).status());
    Refused(env_.WriteFileAtomically(path, "x"));
    Refused(env_.CreateDirs(path));
    Refused(env_.RemoveAll(At(folder)));
    Refused(env_.SyncDir(At(folder)));
    EXPECT_FALSE(fs::exists(path));
  }
  Refused(env_.Rename(At("data/set/a.bin"), At("checkpoints/a.bin")));
  Refused(env_.Truncate(At("data/set/a.bin"), 0));
  EXPECT_EQ(env_.FileSize(At("data/set/a.bin")).value(), 6);
}

TEST_F(RootedEnvTest, Writing_ThroughALink_IsRefused) {
  Link("outside/secret", "checkpoints/file");
  Link("outside", "checkpoints/folder");
  EXPECT_THAT(Refused(env_.NewWritableFile(At("checkpoints/file")).status()),
              HasSubstr("is a link"));
  Refused(env_.NewWritableFile(At("checkpoints/folder/new")).status());
  Refused(env_.CreateDirs(At("checkpoints/folder/new/deep")));
  EXPECT_TRUE(env_.WriteFileAtomically(At("checkpoints/file"), "mine").ok());
  EXPECT_TRUE(env_.RemoveAll(At("checkpoints/folder")).ok());
  EXPECT_EQ(Env::Real().ReadFile(At("outside/secret")).value(), "secret");
}

TEST_F(RootedEnvTest, Errors_OfTheDisk_NameThePathThatWasGiven) {
  Put("data/set/file", "x");
  const absl::Status status = env_.ListDir(At("data/set/file")).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(At("data/set/file")));
  EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("/proc/")));
}

TEST_F(RootedEnvTest, File_OpenedAgainForWritesPastTheCache_IsTheSame) {
  auto file = env_.NewWritableFile(At("checkpoints/large"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Allocate(2 * kDirectWriteBytes).ok());
  EXPECT_TRUE((*file)->WriteAt(0, std::string(2 * kDirectWriteBytes, 'x')).ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_EQ(env_.ReadFile(At("checkpoints/large")).value(),
            std::string(2 * kDirectWriteBytes, 'x'));
  const absl::Status closed = (*file)->Append("y");
  EXPECT_THAT(std::string(closed.message()), HasSubstr(At("checkpoints/large")));
}

TEST_F(RootedEnvTest, NoReadRoots_EverythingIsRead) {
  RootedEnv env(Env::Real(), {{}, {At("checkpoints")}, "w"});
  EXPECT_EQ(env.ReadFile(At("outside/secret")).value(), "secret");
  Refused(env.WriteFileAtomically(At("outside/new"), "x"));
}

}  // namespace
}  // namespace hearth
