#include "worker/daemon/supervise/key_waits.h"

#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

TEST(KeyWaitsTest, TakeToAsk_EachOnceAStream) {
  KeyWaits waits;
  EXPECT_FALSE(waits.TakeToAsk().has_value());
  waits.Add("b");
  waits.Add("a");
  EXPECT_EQ(waits.TakeToAsk(), "a");
  EXPECT_EQ(waits.TakeToAsk(), "b");
  EXPECT_FALSE(waits.TakeToAsk().has_value());
  waits.AskAgain();
  EXPECT_EQ(waits.TakeToAsk(), "a");
}

TEST(KeyWaitsTest, Answer_EndsTheWait) {
  KeyWaits waits;
  waits.Add("a");
  waits.Add("b");
  EXPECT_TRUE(waits.Answer("a"));
  EXPECT_FALSE(waits.Answer("a")) << "nobody waits any more";
  EXPECT_EQ(waits.TakeToAsk(), "b") << "what is answered is not asked for";
  waits.Clear();
  waits.AskAgain();
  EXPECT_FALSE(waits.TakeToAsk().has_value());
}

}  // namespace
}  // namespace hearth::worker
