#include "worker/daemon/agent/name_key.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::worker {
namespace {

class NameKeyTest : public testing::Test {
 protected:
  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

TEST_F(NameKeyTest, MadeOnce_ReadableByTheOwnerAlone) {
  const auto first = LoadOrMakeNameKey(dir_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->size(), 64u);
  const auto second = LoadOrMakeNameKey(dir_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*first, *second);
  struct stat info {};
  ASSERT_EQ(stat((dir_ + "/name.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(NameKeyTest, DamagedFile_IsNotReplaced) {
  std::ofstream(dir_ + "/name.key") << "no key";
  EXPECT_EQ(LoadOrMakeNameKey(dir_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(NameKeyTest, NoFolder_SaysWhich) {
  const auto key = LoadOrMakeNameKey(dir_ + "/none");
  EXPECT_NE(std::string(key.status().message()).find(dir_), std::string::npos);
}

}  // namespace
}  // namespace hearth::worker
