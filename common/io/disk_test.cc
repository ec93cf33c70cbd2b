#include "common/io/disk.h"

#include "gtest/gtest.h"

namespace hearth {
namespace {

TEST(DiskTest, ReadDiskSpace_FolderThatDoesNotExistYet_TellsOfItsParent) {
  const auto space = ReadDiskSpace("/tmp/hearth-no-such-folder/a/b");
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_GT(space->total_bytes, 0);
  EXPECT_GE(space->total_bytes, space->free_bytes);
  EXPECT_EQ(ReadDiskSpace("/tmp")->total_bytes, space->total_bytes);
}

}  // namespace
}  // namespace hearth
