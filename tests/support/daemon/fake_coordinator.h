// A coordinator for tests, in this process, on a real loopback connection.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/bearer.h"
#include "common/rpc/channel.h"
#include "common/time/clock.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "hearth/v1/agent.grpc.pb.h"

namespace hearth::worker {

inline constexpr absl::Duration kLong = absl::Seconds(30);

// Hands each stream to the test, which speaks for the coordinator.
class FakeCoordinator : public v1::AgentService::CallbackService {
 public:
  class Stream : public grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
   public:
    Stream() { StartRead(&incoming_); }

    void Say(v1::CoordinatorMessage message, int64_t generation = 1) {
      absl::MutexLock lock(&mu_);
      message.set_generation(generation);
      queue_.push_back(std::move(message));
      WriteLocked();
    }
    void Close(const grpc::Status& status) {
      absl::MutexLock lock(&mu_);
      if (!finished_) {
        finished_ = true;
        Finish(status);
      }
    }
    // The next message of the agent that is not a heartbeat.
    v1::AgentMessage Next() {
      const auto some = [this] { return !messages_.empty(); };
      absl::MutexLock lock(&mu_);
      if (!mu_.AwaitWithTimeout(absl::Condition(&some), kLong)) {
        ADD_FAILURE() << "no message came";
        return {};
      }
      v1::AgentMessage message = std::move(messages_.front());
      messages_.pop_front();
      return message;
    }
    void WaitForHeartbeat() {
      const auto some = [this] { return heartbeats_ > 0; };
      absl::MutexLock lock(&mu_);
      EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&some), kLong));
    }
    // A heartbeat that says healthy, or not.
    void WaitForHealth(bool healthy) {
      const auto so = [this, healthy] {
        return heartbeats_ > 0 && unhealthy_reason_.empty() == healthy;
      };
      absl::MutexLock lock(&mu_);
      EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&so), kLong));
    }
    // The device as the last heartbeat had it.
    v1::DeviceStatus Device() {
      absl::MutexLock lock(&mu_);
      return device_;
    }
    // The agent half-closed or went away.
    void WaitForEnd() {
      const auto ended = [this] { return ended_; };
      absl::MutexLock lock(&mu_);
      EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&ended), kLong));
    }

   private:
    void OnReadDone(bool ok) override {
      absl::MutexLock lock(&mu_);
      if (!ok) {
        ended_ = true;
        if (!finished_) {
          finished_ = true;
          Finish(grpc::Status::OK);
        }
        return;
      }
      if (incoming_.has_heartbeat()) {
        ++heartbeats_;
        unhealthy_reason_ = incoming_.heartbeat().unhealthy_reason();
        device_ = incoming_.heartbeat().device();
      } else {
        messages_.push_back(incoming_);
      }
      StartRead(&incoming_);
    }
    void OnWriteDone(bool ok) override {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      if (ok) {
        WriteLocked();
      }
    }
    // Stays until the service goes: tests still look at it.
    void OnDone() override {
      absl::MutexLock lock(&mu_);
      done_ = true;
    }
    void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      if (!writing_ && !finished_ && !queue_.empty()) {
        writing_ = true;
        outgoing_ = std::move(queue_.front());
        queue_.pop_front();
        StartWrite(&outgoing_);
      }
    }

    v1::AgentMessage incoming_;
    absl::Mutex mu_;
    std::deque<v1::AgentMessage> messages_ ABSL_GUARDED_BY(mu_);
    std::deque<v1::CoordinatorMessage> queue_ ABSL_GUARDED_BY(mu_);
    v1::CoordinatorMessage outgoing_ ABSL_GUARDED_BY(mu_);
    std::string unhealthy_reason_ ABSL_GUARDED_BY(mu_);  // of the last heartbeat
    v1::DeviceStatus device_ ABSL_GUARDED_BY(mu_);       // the same
    int heartbeats_ ABSL_GUARDED_BY(mu_) = 0;
    bool writing_ ABSL_GUARDED_BY(mu_) = false;
    bool finished_ ABSL_GUARDED_BY(mu_) = false;
    bool ended_ ABSL_GUARDED_BY(mu_) = false;
    bool done_ ABSL_GUARDED_BY(mu_) = false;
  };

  FakeCoordinator() {
    grpc::ServerBuilder builder;
    rpc::ConfigureServer(builder);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() override {
    server_->Shutdown(absl::ToChronoTime(Clock::Real().Now()));  // cancels every stream
    server_->Wait();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>* Connect(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_unique<Stream>();
    Stream* const raw = stream.get();
    const auto& metadata = context->client_metadata();
    const auto sent = metadata.find(rpc::kAuthorizationKey);
    absl::MutexLock lock(&mu_);
    authorization_ =
        sent == metadata.end() ? "" : std::string(sent->second.data(), sent->second.size());
    streams_.push_back(std::move(stream));
    return raw;
  }

  // What the newest stream sent with its call; "" = nothing.
  std::string authorization() {
    absl::MutexLock lock(&mu_);
    return authorization_;
  }

  // The stream number `index`, from 0, when it has come.
  Stream& Wait(size_t index) {
    const auto there = [this, index] { return streams_.size() > index; };
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&there), kLong));
    return *streams_.at(index);
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
  std::string authorization_ ABSL_GUARDED_BY(mu_);
};

// Reads Hello and answers with Welcome.
inline v1::Hello Greet(FakeCoordinator::Stream& stream, int64_t generation = 1) {
  const v1::AgentMessage message = stream.Next();
  EXPECT_TRUE(message.has_hello()) << message.ShortDebugString();
  v1::CoordinatorMessage welcome;
  welcome.mutable_welcome()->set_heartbeat_seconds(0.05);
  stream.Say(welcome, generation);
  return message.hello();
}

// Starts epoch 1 of job "job" with a script for hearth_fake_trainer.
inline void StartScript(FakeCoordinator::Stream& stream,
                        const std::string& script,
                        int64_t generation = 1) {
  v1::CoordinatorMessage message;
  v1::Task& task = *message.mutable_start()->mutable_task();
  task.set_job_id("job");
  task.set_epoch(1);
  task.mutable_spec()->set_name(script);
  stream.Say(message, generation);
}

inline void AckReport(FakeCoordinator::Stream& stream, int64_t seq, int64_t generation = 1) {
  v1::CoordinatorMessage message;
  message.mutable_ack()->set_job_id("job");
  message.mutable_ack()->set_epoch(1);
  message.mutable_ack()->set_seq(seq);
  stream.Say(message, generation);
}

}  // namespace hearth::worker
