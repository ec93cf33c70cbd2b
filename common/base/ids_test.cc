#include "common/base/ids.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/base/version.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

TEST(RandomHex, TwoCalls_Differ_AndHaveTwoDigitsPerByte) {
  EXPECT_EQ(RandomHex(8).size(), 16u);
  EXPECT_NE(RandomHex(16), RandomHex(16));
}

TEST(RandomUuid, HundredCalls_AreDistinctVersion4) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string uuid = RandomUuid();
    EXPECT_TRUE(IsUuid(uuid)) << uuid;
    EXPECT_EQ(uuid[14], '4') << uuid;
    EXPECT_NE(std::string("89ab").find(uuid[19]), std::string::npos) << uuid;
    seen.insert(uuid);
  }
  EXPECT_EQ(seen.size(), 100u);
}

TEST(IsUuid, Malformed_IsFalse) {
  EXPECT_FALSE(IsUuid(""));
  EXPECT_FALSE(IsUuid("0123456789abcdef0123456789abcdef0123"));
  EXPECT_FALSE(IsUuid("01234567-89ab-4def-8123-456789abcdeg"));
  EXPECT_TRUE(IsUuid("01234567-89AB-4def-8123-456789abcdef"));
}

TEST(ValidateJobId, TableOfIds_AcceptsOnlyTheAllowed) {
  for (const char* good : {"a", "0", "fineweb-112m", "x-y-z", "a--b"}) {
    EXPECT_TRUE(ValidateJobId(good).ok()) << good;
  }
  for (const char* bad : {"", "-a", "a-", "A", "a_b", "a/b", "..", "a b", "\xc3\xa9"}) {
    EXPECT_EQ(ValidateJobId(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_TRUE(ValidateJobId(std::string(63, 'a')).ok());
  EXPECT_FALSE(ValidateJobId(std::string(64, 'a')).ok());
}

TEST(ValidateWorkerId, TableOfNames_AcceptsHostNamesRefusesPaths) {
  for (const char* good : {"node7.example.com-gpu0", "Host_1-cpu0"}) {
    EXPECT_TRUE(ValidateWorkerId(good).ok()) << good;
  }
  for (const char* bad : {"", ".", "..", "a/b", "-a", "a.", "a b", "a\n"}) {
    EXPECT_FALSE(ValidateWorkerId(bad).ok()) << bad;
  }
}

TEST(Slug, AnyName_IsAValidJobId) {
  EXPECT_EQ(Slug("FineWeb 112M (try #2)"), "fineweb-112m-try-2");
  EXPECT_EQ(Slug("???"), "job");
  EXPECT_EQ(Slug(""), "job");
  EXPECT_EQ(Slug("ab-cd", 3), "ab");
  const std::string long_name(200, 'q');
  for (const std::string& name :
       std::vector<std::string>{"a", "--x--", "\xc3\xa9t\xc3\xa9", long_name}) {
    EXPECT_TRUE(ValidateJobId(Slug(name)).ok()) << name;
    EXPECT_TRUE(ValidateJobId(NewJobId(name)).ok()) << name;
  }
}

TEST(Version, OfTheProject_IsThreeNumbers) {
  EXPECT_EQ(std::count(Version().begin(), Version().end(), '.'), 2);
  EXPECT_FALSE(GitCommit().empty());
}

}  // namespace
}  // namespace hearth
