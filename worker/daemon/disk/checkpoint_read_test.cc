#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/daemon/disk/checkpoint_root.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CheckpointReadTest : public ::testing::Test {
 protected:
  CheckpointReadTest()
      : dir_(fs::canonical(fs::temp_directory_path()) / ("hearth-read-" + RandomHex(6))),
        root_(*CheckpointRoot::Open((dir_ / "root").string())),
        step_((dir_ / "root/job-1/e2/step-00000005").string()) {
    fs::create_directories(step_ + "/state");
    std::ofstream(step_ + "/model.safetensors") << "0123456789";
    std::ofstream(step_ + "/state/meta.json") << "meta";
    std::ofstream(dir_ / "secret") << "secret";
    fs::create_directories(dir_ / "root/job-2/e1/step-00000001");
    std::ofstream(dir_ / "root/job-2/e1/step-00000001/file") << "another job's";
  }
  ~CheckpointReadTest() override { fs::remove_all(dir_); }

  absl::StatusOr<CheckpointRoot::Piece> Read(const std::string& file,
                                             int64_t offset = 0,
                                             int64_t max_bytes = 100) {
    return root_.Read("job-1", step_, file, offset, max_bytes);
  }

  const fs::path dir_;
  const CheckpointRoot root_;
  const std::string step_;
};

TEST_F(CheckpointReadTest, Piece_IsWhatTheFileHasFromTheOffset) {
  const auto whole = Read("model.safetensors");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->data, "0123456789");
  EXPECT_EQ(whole->file_bytes, 10);
  EXPECT_EQ(Read("model.safetensors", 3, 4)->data, "3456");
  EXPECT_EQ(Read("model.safetensors", 8, 4)->data, "89");
  EXPECT_EQ(Read("model.safetensors", 99)->data, "");
  EXPECT_EQ(Read("model.safetensors", 99)->file_bytes, 10);
  EXPECT_EQ(Read("state/meta.json")->data, "meta");
  EXPECT_TRUE(absl::IsNotFound(Read("none").status()));
  EXPECT_TRUE(absl::IsNotFound(Read("model.safetensors/x").status()));
}

TEST_F(CheckpointReadTest, PathThatLeavesTheFolder_IsRefused) {
  for (const std::string& file :
       {std::string("../../../../secret"), std::string("state/../model.safetensors"),
        std::string("/etc/passwd"), std::string(""), std::string("state//meta.json"),
        std::string("./model.safetensors"), std::string("model.safetensors\0x", 19)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Read(file).status())) << file;
  }
  const std::string root = (dir_ / "root").string();
  for (const std::string& path :
       {root, root + "/job-1", root + "/job-1/e2", root + "/job-1/e2/..",
        root + "/job-1/e2/step-00000005/state", root + "/job-2/e1/step-00000001",
        root + "/job-1/../job-2/e1/step-00000001", (dir_ / "secret").string(), std::string(""),
        root + "/job-1/e2/step-00000005.tmp-7"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(root_.Read("job-1", path, "file", 0, 10).status())) << path;
  }
  EXPECT_FALSE(root_.Read("../job-1", step_, "model.safetensors", 0, 10).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Read("model.safetensors", -1).status()));
}

TEST_F(CheckpointReadTest, LinksAndPipes_AreNotOpened) {
  fs::create_symlink(dir_ / "secret", step_ + "/link");
  fs::create_directory_symlink(dir_, step_ + "/folder");
  fs::create_directory_symlink(dir_ / "root/job-2/e1/step-00000001",
                               dir_ / "root/job-1/e2/step-00000009");
  EXPECT_EQ(Read("link").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Read("folder/secret").ok());
  EXPECT_FALSE(
      root_.Read("job-1", (dir_ / "root/job-1/e2/step-00000009").string(), "file", 0, 10).ok());
  ASSERT_EQ(mkfifo((step_ + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(std::string(Read("pipe").status().message()), HasSubstr("not a file"));
  EXPECT_THAT(std::string(Read("state").status().message()), HasSubstr("not a file"));
}

}  // namespace
}  // namespace hearth::worker
