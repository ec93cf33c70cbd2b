// A worker played by a test, over loopback gRPC.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "grpcpp/create_channel.h"
#include "hearth/v1/agent.grpc.pb.h"
#include "tests/support/coordinator/inspect_answer.h"

namespace hearth::coordinator {

// Plays hearth-worker: one stream, messages kept in order, InspectPaths answered by itself. `more`
// is merged into its Hello.
class FakeAgent {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  FakeAgent(const std::string& address,
            const std::string& worker_id,
            int64_t memory_bytes = 1 << 30,
            const std::string& gpu = "",
            const v1::Hello& more = {})
      : stub_(v1::AgentService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    stream_ = stub_->Connect(&context_);
    v1::AgentMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_worker_id(worker_id);
    hello.set_incarnation(RandomHex(16));
    hello.set_host("testhost");
    hello.mutable_device()->set_kind(gpu.empty() ? "cpu" : "cuda");
    hello.mutable_device()->set_model(gpu);
    hello.mutable_device()->set_memory_bytes(memory_bytes);
    hello.mutable_device()->set_threads(1);
    hello.set_http_address("127.0.0.1:7080");
    hello.set_checkpoint_root("/root");
    hello.set_root_uuid("root-uuid");
    hello.MergeFrom(more);
    Write(message);
    reader_ = std::thread([this] { Read(); });
  }

  ~FakeAgent() { Leave(); }

  void Leave() {
    if (reader_.joinable()) {
      context_.TryCancel();
      reader_.join();
      stream_->Finish().ok();
    }
  }

  void Write(const v1::AgentMessage& message) {
    absl::MutexLock lock(&write_mu_);
    stream_->Write(message);
  }

  // The first message not yet taken that `wanted` accepts, or an empty one after the patience is
  // spent.
  v1::CoordinatorMessage Await(const std::function<bool(const v1::CoordinatorMessage&)>& wanted) {
    absl::MutexLock lock(&mu_);
    const auto arrived = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return std::any_of(messages_.begin(), messages_.end(), wanted);
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&arrived), kPatience)) {
      return {};
    }
    const auto found = std::find_if(messages_.begin(), messages_.end(), wanted);
    v1::CoordinatorMessage message = *found;
    messages_.erase(found);
    return message;
  }

  v1::Task AwaitStart() {
    return Await([](const v1::CoordinatorMessage& m) { return m.has_start(); }).start().task();
  }

  bool AwaitAck(const v1::Task& task, int64_t seq) {
    return Await([&](const v1::CoordinatorMessage& m) {
             return m.ack().job_id() == task.job_id() && m.ack().epoch() == task.epoch() &&
                    m.ack().seq() >= seq;
           })
        .has_ack();
  }

  // The next report of the task.
  void Report(const v1::Task& task, const std::function<void(v1::TaskReport&)>& fill) {
    v1::AgentMessage message;
    v1::TaskReport& report = *message.mutable_report();
    report.set_job_id(task.job_id());
    report.set_epoch(task.epoch());
    report.set_rank(task.rank());
    if (task.epoch() != epoch_) {
      epoch_ = task.epoch();
      seq_ = 0;
    }
    report.set_seq(++seq_);
    fill(report);
    Write(message);
  }

  void ReportStep(const v1::Task& task, int64_t step) {
    Report(task, [&](v1::TaskReport& report) {
      v1::StepReport& s = *report.mutable_step();
      s.set_epoch(task.epoch());
      s.set_step(step);
      s.set_loss(10.0 / static_cast<double>(step));
      s.set_tokens(step * 100);
      s.set_step_seconds(0.01);
    });
  }

  int64_t seq() const { return seq_; }
  std::string path_error;  // answer to InspectPaths; empty = good

 private:
  void Read() {
    v1::CoordinatorMessage message;
    while (stream_->Read(&message)) {
      if (message.has_inspect()) {
        Write(InspectAnswer(message.inspect(), path_error));
        continue;
      }
      absl::MutexLock lock(&mu_);
      messages_.push_back(message);
    }
  }

  std::unique_ptr<v1::AgentService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::CoordinatorMessage>> stream_;
  std::thread reader_;
  int64_t epoch_ = 0;
  int64_t seq_ = 0;  // of the last report, within the epoch
  absl::Mutex write_mu_;
  absl::Mutex mu_;
  std::deque<v1::CoordinatorMessage> messages_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
