#include "tests/bench/played_agent.h"

#include <sys/resource.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/ids.h"
#include "common/rpc/channel.h"
#include "grpcpp/create_channel.h"
#include "tests/support/coordinator/inspect_answer.h"

namespace hearth::coordinator {

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  grpc::ChannelArguments arguments = rpc::ClientArguments();
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void RaiseFileLimit() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

PlayedAgent::PlayedAgent(const std::string& address, int number)
    : stub_(v1::AgentService::NewStub(Dial(address))) {
  stub_->async()->Connect(&context_, this);
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_worker_id(absl::StrCat("w", number));
  hello.set_incarnation(RandomHex(16));
  hello.set_host(absl::StrCat("host", number));
  hello.mutable_device()->set_kind("cpu");
  hello.mutable_device()->set_memory_bytes(int64_t{1} << 30);
  hello.mutable_device()->set_threads(1);
  hello.set_checkpoint_root("/root");
  hello.set_root_uuid("root-uuid");
  StartCall();
  StartRead(&incoming_);
  {
    absl::MutexLock lock(&mu_);
    Enqueue(std::move(message));
  }
  Advance();
}

void PlayedAgent::Leave() {
  context_.TryCancel();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&done_));
}

void PlayedAgent::Step() {
  {
    absl::MutexLock lock(&mu_);
    if (task_.job_id().empty()) {
      return;
    }
    ++step_;
    if (task_.rank() == 0) {
      v1::AgentMessage message;
      Fill(*NewReport(message).mutable_step());
      Enqueue(std::move(message));
    }
    if (step_ % 10 == 0) {
      v1::AgentMessage logs;
      v1::LogLine& line = *NewReport(logs).mutable_logs()->add_lines();
      line.set_level("info");
      line.set_text(absl::StrCat("step ", step_, " of a job that writes a line now and then"));
      Enqueue(std::move(logs));
    }
  }
  Advance();
}

void PlayedAgent::Beat() {
  {
    absl::MutexLock lock(&mu_);
    v1::AgentMessage message;
    message.mutable_heartbeat()->set_job_id(task_.job_id());
    message.mutable_heartbeat()->set_epoch(task_.epoch());
    message.mutable_heartbeat()->set_step(step_);
    message.mutable_heartbeat()->set_phase("training");
    Enqueue(std::move(message));
  }
  Advance();
}

void PlayedAgent::Finish(const std::string& job_id) {
  {
    absl::MutexLock lock(&mu_);
    if (task_.job_id() != job_id) {
      return;
    }
    End(v1::EXIT_REASON_FINISHED);
  }
  Advance();
}

std::string PlayedAgent::job_id() {
  absl::MutexLock lock(&mu_);
  return task_.job_id();
}

std::vector<double> PlayedAgent::TakeAcks() {
  absl::MutexLock lock(&mu_);
  return std::move(acks_ms_);
}

void PlayedAgent::OnReadDone(bool ok) {
  if (!ok) {
    return;
  }
  Take(incoming_);
  Advance();
  StartRead(&incoming_);
}

void PlayedAgent::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    outgoing_.pop_front();
    if (!ok) {
      outgoing_.clear();
    }
  }
  Advance();
}

void PlayedAgent::OnDone(const grpc::Status& /*status*/) {
  absl::MutexLock lock(&mu_);
  done_ = true;
}

void PlayedAgent::Take(const v1::CoordinatorMessage& message) {
  absl::MutexLock lock(&mu_);
  if (message.has_inspect()) {
    Enqueue(InspectAnswer(message.inspect()));
  } else if (message.has_start()) {
    Begin(message.start().task());
  } else if (message.has_control() && message.control().job_id() == task_.job_id()) {
    End(v1::EXIT_REASON_STOPPED);
  } else if (message.has_kill() && message.kill().job_id() == task_.job_id()) {
    End(v1::EXIT_REASON_KILLED);
  } else if (message.has_ack()) {
    while (!sent_.empty() && message.ack().job_id() == task_.job_id() &&
           sent_.front().first <= message.ack().seq()) {
      acks_ms_.push_back(absl::ToDoubleMilliseconds(absl::Now() - sent_.front().second));
      sent_.pop_front();
    }
  }
}

void PlayedAgent::Begin(const v1::Task& task) {
  task_ = task;
  step_ = task.resume_step();
  seq_ = 0;
  sent_.clear();
}

void PlayedAgent::End(v1::ExitReason reason) {
  v1::AgentMessage message;
  v1::TaskExit& exit = *NewReport(message).mutable_exit();
  exit.mutable_exit()->set_reason(reason);
  exit.mutable_exit()->set_step(step_);
  exit.set_clean(true);
  Enqueue(std::move(message));
  task_.Clear();
  sent_.clear();
}

v1::TaskReport& PlayedAgent::NewReport(v1::AgentMessage& message) {
  v1::TaskReport& report = *message.mutable_report();
  report.set_job_id(task_.job_id());
  report.set_epoch(task_.epoch());
  report.set_rank(task_.rank());
  report.set_seq(++seq_);
  sent_.emplace_back(seq_, absl::Now());
  return report;
}

void PlayedAgent::Fill(v1::StepReport& step) {
  step.set_epoch(task_.epoch());
  step.set_step(step_);
  step.set_loss(10.0 / static_cast<double>(step_));
  step.set_grad_norm(1.25);
  step.set_learning_rate(3e-4);
  step.set_tokens(step_ * 1000);
  step.set_step_seconds(1.001);
  step.set_tokens_per_second(999.5);
  step.set_mfu(0.41);
  step.set_memory_bytes(int64_t{1} << 29);
  step.set_energy_joules(static_cast<double>(step_) * 300);
  step.set_data_wait_seconds(0.001);
  step.set_comm_seconds(0.01);
  step.set_recipe("bf16");
}

void PlayedAgent::Enqueue(v1::AgentMessage message) {
  outgoing_.push_back(std::move(message));
}

void PlayedAgent::Advance() {
  const v1::AgentMessage* write = nullptr;
  {
    absl::MutexLock lock(&mu_);
    if (writing_ || outgoing_.empty() || done_) {
      return;
    }
    writing_ = true;
    write = &outgoing_.front();
  }
  StartWrite(write);
}

PlayedAgents PlayAgents(const std::string& address, int count) {
  PlayedAgents agents;
  for (int i = 0; i < count; ++i) {
    agents.push_back(std::make_unique<PlayedAgent>(address, i));
  }
  return agents;
}

void LeaveAll(const PlayedAgents& agents) {
  for (const std::unique_ptr<PlayedAgent>& agent : agents) {
    agent->Leave();
  }
}

}  // namespace hearth::coordinator
