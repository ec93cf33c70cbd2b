#include "worker/daemon/supervise/epoch_memory.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

TEST(EpochMemoryTest, Remember_KeepsTheNewest) {
  EpochMemory memory;
  EXPECT_FALSE(memory.Newest("job").has_value());
  memory.Remember({"job", 3});
  memory.Remember({"job", 2});
  EXPECT_EQ(memory.Newest("job"), 3);
  EXPECT_FALSE(memory.Newest("other").has_value());
}

TEST(EpochMemoryTest, Forget_OlderEpoch_ChangesNothing) {
  EpochMemory memory;
  memory.Remember({"job", 2});
  memory.Forget({"job", 1});
  EXPECT_EQ(memory.Newest("job"), 2);
  memory.Forget({"job", 2});
  EXPECT_FALSE(memory.Newest("job").has_value());
  memory.Forget({"job", 2});
}

TEST(EpochMemoryTest, Remember_TooManyJobs_ForgetsTheFirst) {
  EpochMemory memory;
  for (size_t i = 0; i <= EpochMemory::kMaxJobs; ++i) {
    memory.Remember({absl::StrCat("job-", i), 1});
  }
  EXPECT_FALSE(memory.Newest("job-0").has_value());
  EXPECT_TRUE(memory.Newest("job-1").has_value());
}

// A job that was forgotten and came again is the youngest of all.
TEST(EpochMemoryTest, Remember_AfterForget_CountsAsNew) {
  EpochMemory memory;
  memory.Remember({"again", 5});
  memory.Remember({"first", 1});
  memory.Forget({"again", 5});
  memory.Remember({"again", 1});
  for (size_t i = 1; i < EpochMemory::kMaxJobs; ++i) {
    memory.Remember({absl::StrCat("job-", i), 1});
  }
  EXPECT_FALSE(memory.Newest("first").has_value());
  EXPECT_EQ(memory.Newest("again"), 1);
}

}  // namespace
}  // namespace hearth::worker
