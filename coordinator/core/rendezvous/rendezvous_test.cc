#include "coordinator/core/rendezvous/rendezvous.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RendezvousTest : public testing::Test {
 protected:
  Rendezvous::PutResult Put(int rank, const std::string& key, const std::string& value) {
    v1::KvPut put;
    put.set_key(key);
    put.set_value(value);
    return rendezvous_.Put("job", 2, rank, put, effects_);
  }

  Rendezvous rendezvous_;
  Effects effects_;
};

TEST_F(RendezvousTest, Put_AnswersThoseThatWait_Once) {
  EXPECT_FALSE(rendezvous_.Wait("job", 1, "address").has_value());
  EXPECT_FALSE(rendezvous_.Wait("job", 2, "address").has_value());
  const auto result = Put(0, "address", "host:1");
  EXPECT_EQ(result.refused, "");
  ASSERT_THAT(result.answers, SizeIs(2));
  EXPECT_EQ(result.answers[0].rank, 1);
  EXPECT_EQ(result.answers[1].rank, 2);
  EXPECT_EQ(result.answers[1].value.value(), "host:1");
  ASSERT_THAT(effects_.kv_puts, SizeIs(1));
  EXPECT_EQ(effects_.kv_puts[0].epoch(), 2);
  EXPECT_THAT(Put(0, "address", "host:2").answers, IsEmpty());
  EXPECT_EQ(rendezvous_.Wait("job", 1, "address")->value(), "host:2");
}

TEST_F(RendezvousTest, Put_OverTheBounds_TellsThePutterAndThoseThatWait) {
  EXPECT_FALSE(rendezvous_.Wait("job", 1, "big").has_value());
  const auto result = Put(0, "big", std::string((1 << 20) + 1, 'x'));
  EXPECT_THAT(result.refused, HasSubstr("over the limits"));
  ASSERT_THAT(result.answers, SizeIs(2));
  EXPECT_EQ(result.answers[0].rank, 0);
  EXPECT_EQ(result.answers[0].value.error(), result.refused);
  EXPECT_THAT(effects_.kv_puts, IsEmpty());
  EXPECT_EQ(rendezvous_.Wait("job", 2, "big")->error(), result.refused);
  Put(0, "big", "small enough");
  EXPECT_EQ(rendezvous_.Wait("job", 2, "big")->value(), "small enough");
}

TEST_F(RendezvousTest, Restore_AnswersAsBefore) {
  v1::KvRecord record;
  record.set_job_id("job");
  record.set_key("k");
  record.set_value("v");
  rendezvous_.Restore(record);
  EXPECT_EQ(rendezvous_.Wait("job", 0, "k")->value(), "v");
  EXPECT_FALSE(rendezvous_.Wait("other", 0, "k").has_value());
}

TEST_F(RendezvousTest, ForgetCheckpoints_UpToTheStepOfThisEpoch) {
  Put(0, "checkpoint/2/9/0", "a");
  Put(0, "checkpoint/2/10/0", "b");
  Put(0, "checkpoint/2/11/0", "c");
  Put(0, "checkpoint/1/9/0", "d");
  rendezvous_.ForgetCheckpoints("job", 2, 10, effects_);
  EXPECT_THAT(effects_.kv_deletes, SizeIs(2));
  EXPECT_TRUE(rendezvous_.Wait("job", 0, "checkpoint/2/11/0").has_value());
  EXPECT_TRUE(rendezvous_.Wait("job", 0, "checkpoint/1/9/0").has_value());
  EXPECT_FALSE(rendezvous_.Wait("job", 0, "checkpoint/2/9/0").has_value());
}

TEST_F(RendezvousTest, Clear_WritesOnlyWhenThereAreRows) {
  EXPECT_FALSE(rendezvous_.Wait("job", 0, "k").has_value());
  rendezvous_.Clear("job", effects_);
  EXPECT_THAT(effects_.kv_clears, IsEmpty());
  Put(0, "k", "v");
  rendezvous_.Clear("job", effects_);
  EXPECT_THAT(effects_.kv_clears, SizeIs(1));
  EXPECT_FALSE(rendezvous_.Wait("job", 0, "k").has_value());
}

}  // namespace
}  // namespace hearth::coordinator
