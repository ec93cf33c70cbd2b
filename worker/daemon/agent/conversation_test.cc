#include "worker/daemon/agent/conversation.h"

#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

v1::AgentMessage AnswerTo(int64_t request) {
  v1::AgentMessage message;
  message.mutable_inspect_result()->set_request_id(request);
  return message;
}

TEST(ConversationTest, Hear_LowerGeneration_IsRefusedAndForgotten) {
  Conversation talk;
  EXPECT_TRUE(talk.Hear(5).ok());
  EXPECT_EQ(talk.Hear(4).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(talk.generation(), 5);
  EXPECT_TRUE(talk.Hear(5).ok());
}

TEST(ConversationTest, Welcome_HoldsUntilTheNextStream_ItsIntervalStays) {
  Conversation talk;
  EXPECT_EQ(talk.heartbeat_interval(), absl::Seconds(1));
  v1::Welcome welcome;
  welcome.set_heartbeat_seconds(2.5);
  talk.TakeWelcome(welcome);
  EXPECT_TRUE(talk.welcomed());
  talk.Begin();
  EXPECT_FALSE(talk.welcomed());
  EXPECT_EQ(talk.heartbeat_interval(), absl::Seconds(2.5));
  talk.TakeWelcome(v1::Welcome());
  EXPECT_EQ(talk.heartbeat_interval(), absl::Seconds(2.5)) << "0 says nothing";
}

TEST(ConversationTest, Heartbeat_DueTwice_IsTakenOnce) {
  Conversation talk;
  EXPECT_FALSE(talk.TakeHeartbeat());
  talk.HeartbeatIsDue();
  talk.HeartbeatIsDue();
  EXPECT_TRUE(talk.TakeHeartbeat());
  EXPECT_FALSE(talk.TakeHeartbeat());
  talk.HeartbeatIsDue();
  talk.Begin();
  EXPECT_FALSE(talk.TakeHeartbeat()) << "Hello comes first";
}

TEST(ConversationTest, Answers_AreTakenInOrder_BoundedAndOfOneStream) {
  Conversation talk;
  for (size_t i = 0; i < Conversation::kMaxAnswers; ++i) {
    EXPECT_TRUE(talk.AddAnswer(AnswerTo(static_cast<int64_t>(i))));
  }
  EXPECT_FALSE(talk.AddAnswer(AnswerTo(1000)));
  EXPECT_EQ(talk.TakeAnswer()->inspect_result().request_id(), 0);
  EXPECT_EQ(talk.TakeAnswer()->inspect_result().request_id(), 1);
  EXPECT_TRUE(talk.AddAnswer(AnswerTo(1000)));
  talk.Begin();
  EXPECT_FALSE(talk.TakeAnswer().has_value());
}

TEST(ConversationTest, Goodbye_IsSaidOnceAStream) {
  Conversation talk;
  EXPECT_FALSE(talk.TakeGoodbye().has_value());
  talk.SayGoodbye("bye");
  EXPECT_FALSE(talk.goodbye_sent());
  EXPECT_EQ(talk.TakeGoodbye()->goodbye().reason(), "bye");
  EXPECT_TRUE(talk.goodbye_sent());
  EXPECT_FALSE(talk.TakeGoodbye().has_value());
  talk.Begin();
  EXPECT_FALSE(talk.goodbye_sent());
  EXPECT_TRUE(talk.TakeGoodbye().has_value());
}

}  // namespace
}  // namespace hearth::worker
