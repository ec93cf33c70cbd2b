#include "common/base/token_bucket.h"

#include "gtest/gtest.h"

namespace hearth {
namespace {

TEST(TokenBucketTest, Take_BurstThenRate) {
  TokenBucket bucket(10, 30);
  absl::Duration now = absl::Seconds(1000);
  EXPECT_TRUE(bucket.Take(30, now));
  EXPECT_FALSE(bucket.Take(1, now));
  now += absl::Milliseconds(100);
  EXPECT_TRUE(bucket.Take(1, now));
  EXPECT_FALSE(bucket.Take(1, now));
  now += absl::Hours(1);
  EXPECT_TRUE(bucket.Take(30, now)) << "never more than a burst";
  EXPECT_FALSE(bucket.Take(1, now));
}

TEST(TokenBucketTest, Take_MoreThanABurst_NeedsAFullBucket) {
  TokenBucket bucket(10, 30);
  const absl::Duration now = absl::Seconds(1000);
  EXPECT_TRUE(bucket.Take(1000, now));
  EXPECT_FALSE(bucket.Take(1000, now + absl::Seconds(2)));
  EXPECT_TRUE(bucket.Take(1000, now + absl::Seconds(3)));
}

TEST(TokenBucketTest, Take_ClockGoesBack_CountsAsNoTime) {
  TokenBucket bucket(10, 30);
  EXPECT_TRUE(bucket.Take(30, absl::Seconds(1000)));
  EXPECT_FALSE(bucket.Take(1, absl::Seconds(10)));
  EXPECT_FALSE(bucket.Take(1, absl::Seconds(1000)));
}

}  // namespace
}  // namespace hearth
