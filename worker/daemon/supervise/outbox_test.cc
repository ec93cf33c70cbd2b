#include "worker/daemon/supervise/outbox.h"

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "common/io/message_frame.h"
#include "gtest/gtest.h"
#include "hearth/v1/trainer.pb.h"

namespace hearth::worker {
namespace {

struct Pipe {
  Fd ours;
  Fd theirs;
};

Pipe MakePipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

v1::ToTrainer Key(const std::string& key, size_t bytes) {
  v1::ToTrainer message;
  message.mutable_kv_value()->set_key(key);
  message.mutable_kv_value()->set_value(std::string(bytes, 'x'));
  return message;
}

// The keys of the messages that are in the pipe now.
std::vector<std::string> Take(const Pipe& pipe, FrameReader& reader) {
  std::string buffer(1 << 16, '\0');
  ssize_t got = 0;
  while ((got = recv(pipe.theirs.get(), buffer.data(), buffer.size(), 0)) > 0) {
    reader.Append({buffer.data(), static_cast<size_t>(got)});
  }
  std::vector<std::string> keys;
  v1::ToTrainer message;
  for (auto next = reader.Next(message); next.ok() && *next; next = reader.Next(message)) {
    keys.push_back(message.kv_value().key());
  }
  return keys;
}

TEST(OutboxTest, SendTo_TwoMessages_ArriveInOrder) {
  const Pipe pipe = MakePipe();
  FrameReader reader;
  Outbox outbox;
  ASSERT_TRUE(outbox.Add(Key("a", 3)).ok());
  ASSERT_TRUE(outbox.Add(Key("b", 0)).ok());
  EXPECT_GT(outbox.waiting(), 0U);
  outbox.SendTo(pipe.ours.get());
  EXPECT_EQ(outbox.waiting(), 0U);
  EXPECT_EQ(Take(pipe, reader), (std::vector<std::string>{"a", "b"}));
}

TEST(OutboxTest, SendTo_FullPipe_KeepsTheRestForTheNextCall) {
  const Pipe pipe = MakePipe();
  FrameReader reader;
  Outbox outbox;
  ASSERT_TRUE(outbox.Add(Key("large", 8 << 20)).ok());  // more than a socket holds
  ASSERT_TRUE(outbox.Add(Key("small", 1)).ok());
  const size_t all = outbox.waiting();
  outbox.SendTo(pipe.ours.get());
  EXPECT_GT(outbox.waiting(), 0U);
  EXPECT_LT(outbox.waiting(), all);
  std::vector<std::string> seen;
  for (int round = 0; round < 10000 && seen.size() < 2; ++round) {
    for (std::string& key : Take(pipe, reader)) {
      seen.push_back(std::move(key));
    }
    outbox.SendTo(pipe.ours.get());
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"large", "small"}));
  EXPECT_EQ(outbox.waiting(), 0U);
}

TEST(OutboxTest, SendTo_OtherEndGone_ForgetsEverything) {
  Pipe pipe = MakePipe();
  pipe.theirs.Reset();
  Outbox outbox;
  ASSERT_TRUE(outbox.Add(Key("a", 3)).ok());
  outbox.SendTo(pipe.ours.get());
  EXPECT_EQ(outbox.waiting(), 0U);
}

TEST(OutboxTest, Add_LongerThanAFrame_AddsNothing) {
  Outbox outbox;
  EXPECT_EQ(outbox.Add(Key("a", kMaxFrameBytes)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(outbox.waiting(), 0U);
}

}  // namespace
}  // namespace hearth::worker
