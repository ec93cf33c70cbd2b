// Workers that a benchmark plays: a stream and a connection each, all on the threads of gRPC.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "hearth/v1/agent.grpc.pb.h"

namespace hearth::coordinator {

// A connection of its own.
std::shared_ptr<grpc::Channel> Dial(const std::string& address);

// Two descriptors a worker.
void RaiseFileLimit();

// One worker: says what it is told to say, answers inspections, ends what it is told to end, and
// keeps the time of what is not yet acknowledged. Thread-safe.
class PlayedAgent : public grpc::ClientBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  // Dials and says Hello.
  PlayedAgent(const std::string& address, int number);

  // Closes the stream; nothing may be called afterwards.
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);
  // Reports a step of its task, and a log line each ten; nothing without a task.
  void Step() ABSL_LOCKS_EXCLUDED(mu_);
  // Sends a heartbeat.
  void Beat() ABSL_LOCKS_EXCLUDED(mu_);
  // Its rank of this job, if it has one, has done all steps.
  void Finish(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mu_);

  // Empty when it has no task.
  std::string job_id() ABSL_LOCKS_EXCLUDED(mu_);
  // Milliseconds from each report to its acknowledgement, since the last call.
  std::vector<double> TakeAcks() ABSL_LOCKS_EXCLUDED(mu_);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  v1::TaskReport& NewReport(v1::AgentMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fill(v1::StepReport& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Begin(const v1::Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(v1::ExitReason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Take(const v1::CoordinatorMessage& message) ABSL_LOCKS_EXCLUDED(mu_);
  void Enqueue(v1::AgentMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Begins to write what is queued, unless a write is under way.
  void Advance() ABSL_LOCKS_EXCLUDED(mu_);

  std::unique_ptr<v1::AgentService::Stub> stub_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  absl::Mutex mu_;
  std::deque<v1::AgentMessage> outgoing_ ABSL_GUARDED_BY(mu_);  // front is being written
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  v1::Task task_ ABSL_GUARDED_BY(mu_);
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t seq_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::pair<int64_t, absl::Time>> sent_ ABSL_GUARDED_BY(mu_);  // reports of the task
  std::vector<double> acks_ms_ ABSL_GUARDED_BY(mu_);
};

using PlayedAgents = std::vector<std::unique_ptr<PlayedAgent>>;

// So many workers of one coordinator, numbered from 0.
PlayedAgents PlayAgents(const std::string& address, int count);
void LeaveAll(const PlayedAgents& agents);

}  // namespace hearth::coordinator
