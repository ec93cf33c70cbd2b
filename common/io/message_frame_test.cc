#include "common/io/message_frame.h"

#include <string>

#include "gtest/gtest.h"
#include "hearth/v1/trainer.pb.h"

namespace hearth {
namespace {

v1::FromTrainer Progress(int64_t step) {
  v1::FromTrainer message;
  message.mutable_progress()->set_step(step);
  return message;
}

std::string FrameOf(const v1::FromTrainer& message) {
  std::string frame;
  EXPECT_TRUE(AppendFrame(message, frame).ok());
  return frame;
}

TEST(FrameTest, Next_ByteByByte_GivesEachMessageOnce) {
  std::string bytes = FrameOf(Progress(1)) + FrameOf(v1::FromTrainer()) + FrameOf(Progress(300));
  FrameReader reader;
  std::string seen;
  for (const char byte : bytes) {
    reader.Append(std::string_view(&byte, 1));
    v1::FromTrainer message;
    const auto got = reader.Next(message);
    ASSERT_TRUE(got.ok());
    if (*got) {
      seen += std::to_string(message.progress().step()) + " ";
    }
  }
  EXPECT_EQ(seen, "1 0 300 ");
}

TEST(FrameTest, AppendFrame_Length_IsLittleEndian) {
  const std::string frame = FrameOf(Progress(1));
  EXPECT_EQ(static_cast<size_t>(frame[0]), frame.size() - 4);
  EXPECT_EQ(frame.substr(1, 3), std::string(3, '\0'));
}

TEST(FrameTest, AppendFrame_TooLong_IsSaidAndChangesNothing) {
  v1::FromTrainer message;
  message.mutable_log()->set_text(std::string(kMaxFrameBytes, 'x'));
  std::string out = "before";
  EXPECT_EQ(AppendFrame(message, out).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(out, "before");
}

TEST(FrameTest, Next_OversizedLength_IsDataLoss) {
  FrameReader reader;
  reader.Append(std::string("\xff\xff\xff\xff", 4));
  v1::FromTrainer message;
  EXPECT_EQ(reader.Next(message).status().code(), absl::StatusCode::kDataLoss);
}

TEST(FrameTest, Next_Garbage_IsDataLoss) {
  FrameReader reader;
  reader.Append(std::string("\x02\x00\x00\x00\xff\xff", 6));
  v1::FromTrainer message;
  EXPECT_EQ(reader.Next(message).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hearth
