#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/base/system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "worker/trainer/link/link.h"

namespace hearth::trainer {
namespace {

// The agent's end of the pipe, driven by hand.
class AgentLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    agent_ = ends[0];
    trainer_ = ends[1];
  }
  void TearDown() override { CloseAgent(); }

  void CloseAgent() {
    if (agent_ >= 0) {
      close(agent_);
    }
    agent_ = -1;
  }

  void SendRaw(const std::string& bytes) {
    ASSERT_EQ(send(agent_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  void Send(const v1::ToTrainer& message) {
    const std::string body = message.SerializeAsString();
    const uint32_t size = static_cast<uint32_t>(body.size());
    SendRaw(std::string(reinterpret_cast<const char*>(&size), 4) + body);
  }

  void SendTask() {
    v1::ToTrainer message;
    message.mutable_task()->set_job_id("j1");
    message.mutable_task()->set_epoch(3);
    message.mutable_task()->set_rank(1);
    Send(message);
  }

  // The next message that is no heartbeat.
  v1::FromTrainer Receive() {
    v1::FromTrainer message;
    do {
      message = ReceiveAny();
    } while (message.has_alive());
    return message;
  }

  v1::FromTrainer ReceiveAny() {
    uint32_t size = 0;
    EXPECT_EQ(recv(agent_, &size, 4, MSG_WAITALL), 4);
    std::string body(size, '\0');
    EXPECT_EQ(recv(agent_, body.data(), size, MSG_WAITALL), static_cast<ssize_t>(size));
    v1::FromTrainer message;
    EXPECT_TRUE(message.ParseFromString(body));
    return message;
  }

  std::unique_ptr<Link> Connect() {
    SendTask();
    AgentLinkOptions options;
    options.fd = trainer_;
    options.on_gone = [this] { gone_.Notify(); };
    options.on_abort = [this](std::string_view reason) {
      abort_reason_ = std::string(reason);
      aborted_.Notify();
    };
    auto link = NewAgentLink(std::move(options));
    EXPECT_TRUE(link.ok()) << link.status();
    return link.ok() ? *std::move(link) : nullptr;
  }

  std::thread reader_thread_;
  int agent_ = -1;
  int trainer_ = -1;
  absl::Notification gone_;
  absl::Notification aborted_;
  std::string abort_reason_;
};

TEST_F(AgentLinkTest, Connect_TaskGiven_IsReturned) {
  const auto link = Connect();
  EXPECT_EQ(link->task().job_id(), "j1");
  EXPECT_EQ(link->task().epoch(), 3);
}

TEST_F(AgentLinkTest, NothingToSay_SaysEachSecondThatItLives) {
  FakeClock clock;
  SendTask();
  AgentLinkOptions options;
  options.fd = trainer_;
  options.on_gone = [] {};
  const auto link = NewAgentLink(std::move(options), clock);
  ASSERT_TRUE(link.ok());
  EXPECT_TRUE(ReceiveAny().has_alive());
  for (int second = 0; second < 3; ++second) {
    clock.AwaitWaiters(1);
    clock.Advance(absl::Seconds(1));
    EXPECT_TRUE(ReceiveAny().has_alive());
  }
}

TEST_F(AgentLinkTest, Send_EveryKind_ArrivesInOrder) {
  const auto link = Connect();
  link->SendPhase("loading");
  v1::RunInfo info;
  info.set_parameters(5);
  link->SendRunInfo(info);
  for (int i = 1; i <= 3000; ++i) {  // more than the queue holds: the sender waits, nothing is lost
    if (i == 1) {
      reader_thread_ = std::thread([this] {
        EXPECT_EQ(Receive().phase().name(), "loading");
        EXPECT_EQ(Receive().run_info().parameters(), 5);
        for (int k = 1; k <= 3000; ++k) {
          ASSERT_EQ(Receive().step().step(), k);
        }
        const v1::FromTrainer log = Receive();
        EXPECT_EQ(log.log().text(), "hello");
        EXPECT_EQ(log.log().rank(), 1);
        EXPECT_EQ(log.log().epoch(), 3);
        EXPECT_GT(log.log().time().seconds(), 0);
        EXPECT_EQ(Receive().checkpoint().step(), 9);
        const v1::FromTrainer progress = Receive();
        EXPECT_EQ(progress.progress().step(), 10);
        EXPECT_EQ(progress.progress().compute_seconds(), 0.25);
        EXPECT_EQ(Receive().exit().reason(), v1::EXIT_REASON_FINISHED);
      });
    }
    v1::StepReport report;
    report.set_step(i);
    report.set_recipe(std::string(1000, 'x'));
    link->SendStep(report);
  }
  link->SendLog("info", "hello");
  v1::CheckpointAnnouncement checkpoint;
  checkpoint.set_step(9);
  link->SendCheckpoint(checkpoint);
  link->SendProgress(10, 0.25);
  v1::TrainerExit exit;
  exit.set_reason(v1::EXIT_REASON_FINISHED);
  link->SendExit(exit);
  reader_thread_.join();
}

TEST_F(AgentLinkTest, TakeControl_BitsSent_AreTakenOnce) {
  const auto link = Connect();
  v1::ToTrainer message;
  message.mutable_control()->set_bit(v1::CONTROL_BIT_PAUSE);
  Send(message);
  message.mutable_control()->set_bit(v1::CONTROL_BIT_SAVE);
  Send(message);
  message.mutable_kv_value()->set_key("after");  // once it is there, the bits are
  Send(message);
  ASSERT_TRUE(link->Wait("after", absl::Seconds(20)).ok());
  EXPECT_EQ(link->TakeControl(), 1u << v1::CONTROL_BIT_PAUSE | 1u << v1::CONTROL_BIT_SAVE);
  EXPECT_EQ(link->TakeControl(), 0u);
}

TEST_F(AgentLinkTest, Wait_AnsweredByTheAgent_ReturnsTheValue) {
  const auto link = Connect();
  ASSERT_TRUE(link->Put("gloo/0", "addr").ok());
  std::thread agent([this] {
    EXPECT_EQ(Receive().kv_put().value(), "addr");
    EXPECT_EQ(Receive().kv_wait().key(), "gloo/1");
    v1::ToTrainer message;
    message.mutable_kv_value()->set_key("gloo/1");
    message.mutable_kv_value()->set_value(std::string("a\0b", 3));
    Send(message);
  });
  const auto value = link->Wait("gloo/1", absl::Seconds(20));
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, std::string("a\0b", 3));
  EXPECT_TRUE(link->Wait("gloo/1", absl::ZeroDuration()).ok());  // remembered
  agent.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(link->Wait("never", absl::Milliseconds(5)).status()));
}

TEST_F(AgentLinkTest, PutRefused_NextPutAndWaitersOfTheKeySaySo) {
  const auto link = Connect();
  ASSERT_TRUE(link->Put("k", "v").ok());
  std::thread agent([this] {
    Receive();
    EXPECT_EQ(Receive().kv_wait().key(), "k");
    v1::ToTrainer message;
    message.mutable_kv_value()->set_key("k");
    message.mutable_kv_value()->set_error("the space is full");
    Send(message);
  });
  const absl::Status refused = link->Wait("k", absl::Seconds(20)).status();
  agent.join();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("the space is full"));
  EXPECT_TRUE(absl::IsResourceExhausted(link->Put("other", "v")));
}

TEST_F(AgentLinkTest, AgentCloses_OnGoneIsCalledAndWaitersWake) {
  const auto link = Connect();
  std::thread waiter([&] {
    EXPECT_TRUE(absl::IsUnavailable(link->Wait("k", absl::InfiniteDuration()).status()));
  });
  Receive();  // the KvWait
  CloseAgent();
  gone_.WaitForNotification();
  waiter.join();
  for (int i = 0; i < 3000; ++i) {
    link->SendProgress(i, 0);  // dropped, never blocks
  }
}

TEST_F(AgentLinkTest, DamagedStream_OnGoneIsCalled) {
  const auto link = Connect();
  SendRaw("\xff\xff\xff\xff");
  gone_.WaitForNotification();
}

TEST_F(AgentLinkTest, Abort_CallsBackWithTheReason) {
  const auto link = Connect();
  v1::ToTrainer message;
  message.mutable_abort()->set_reason("peer lost");
  Send(message);
  aborted_.WaitForNotification();
  EXPECT_EQ(abort_reason_, "peer lost");
}

TEST_F(AgentLinkTest, TooLongAMessage_BecomesALineThatSaysSo) {
  const auto link = Connect();
  v1::RunInfo info;
  info.set_recipe(std::string(64 << 20, 'x'));
  link->SendRunInfo(info);
  link->SendProgress(7, 0);
  const v1::FromTrainer line = Receive();
  EXPECT_EQ(line.log().level(), "error");
  EXPECT_THAT(line.log().text(),
              testing::StartsWith("run_info was not sent to the worker: message"));
  EXPECT_EQ(Receive().progress().step(), 7);
}

TEST_F(AgentLinkTest, NoTask_IsAnError) {
  AgentLinkOptions options;
  options.fd = trainer_;
  options.task_timeout = absl::Milliseconds(5);
  EXPECT_TRUE(absl::IsDeadlineExceeded(NewAgentLink(options).status()));
}

TEST_F(AgentLinkTest, NoProtobuf_IsDataLoss) {
  SendRaw(std::string("\x03\0\0\0\xff\xff\xff", 7));
  AgentLinkOptions options;
  options.fd = trainer_;
  options.task_timeout = absl::Seconds(20);
  EXPECT_TRUE(absl::IsDataLoss(NewAgentLink(options).status()));
}

TEST(AgentLink, DefaultOnGone_LeavesTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
          _exit(1);
        }
        v1::ToTrainer message;
        message.mutable_task()->set_job_id("j");
        const std::string body = message.SerializeAsString();
        const uint32_t size = static_cast<uint32_t>(body.size());
        if (write(ends[0], &size, 4) != 4 || write(ends[0], body.data(), size) != size) {
          _exit(2);
        }
        AgentLinkOptions options;
        options.fd = ends[1];
        auto link = NewAgentLink(std::move(options));
        close(ends[0]);
        if (link.ok()) {
          (void)(*link)->Wait("never", absl::InfiniteDuration()).ok();
        }
        for (;;) {
          pause();
        }
      },
      ::testing::ExitedWithCode(29), "");
}

TEST(InheritedFd, Variable_IsCheckedAndTaken) {
  UnsetEnv("HEARTH_TRAINER_FD");
  EXPECT_EQ(*InheritedFd(), -1);
  const int fd = open("/dev/null", O_RDONLY);
  SetEnv("HEARTH_TRAINER_FD", std::to_string(fd).c_str());
  EXPECT_EQ(*InheritedFd(), fd);
  EXPECT_EQ(*InheritedFd(), -1);
  EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  close(fd);
  for (const char* bad : {"x", "-3", "987654"}) {
    SetEnv("HEARTH_TRAINER_FD", bad);
    EXPECT_TRUE(absl::IsInvalidArgument(InheritedFd().status()));
  }
  UnsetEnv("HEARTH_TRAINER_FD");
}

}  // namespace
}  // namespace hearth::trainer
