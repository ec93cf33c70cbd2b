// What users feel while many jobs run. N workers (a stream and a connection each, played by this
// process) run a job each, report R steps and one heartbeat a second and a log line each ten steps;
// meanwhile one user after another submits, cancels, looks at and lists jobs. Coordinator and
// workers share the machine. Prints the calls' latencies, the time from a report to its
// acknowledgement and the commits; exit code 1 when a call's p99 misses its target (<= 50 ms).
// Usage: bench_load [jobs = 1000] [steps a second = 1] [seconds = 30] [data-dir]
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/ids.h"
#include "common/log/log.h"
#include "common/rpc/channel.h"
#include "coordinator/coordinator.h"
#include "grpcpp/create_channel.h"
#include "hearth/v1/agent.grpc.pb.h"
#include "hearth/v1/job.grpc.pb.h"
#include "tests/support/coordinator/tiny_spec.h"

namespace hearth::coordinator {
namespace {

constexpr double kTargetMs = 50;

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  grpc::ChannelArguments arguments = rpc::ClientArguments();
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void PrintPercentiles(const std::string& what, std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double f) {
    return ms.empty() ? 0.0 : ms[static_cast<size_t>(f * static_cast<double>(ms.size() - 1))];
  };
  std::printf("%-28s n %6zu  p50 %8.1f  p90 %8.1f  p99 %8.1f  max %8.1f ms\n", what.c_str(),
              ms.size(), at(0.5), at(0.9), at(0.99), at(1));
}

// One worker: says what it is told to say, answers inspections, keeps the time of what is not yet
// acknowledged.
class Agent : public grpc::ClientBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  Agent(const std::string& address, int number) : stub_(v1::AgentService::NewStub(Dial(address))) {
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
    Say(std::move(message));
  }

  void Leave() {
    context_.TryCancel();
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&done_));
  }

  // One second of its life, in pieces of a step.
  void Step() {
    v1::AgentMessage message;
    {
      absl::MutexLock lock(&mu_);
      if (task_.job_id().empty()) {
        return;
      }
      ++step_;
      Fill(*NewReport(message).mutable_step());
      Enqueue(std::move(message));
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

  void Beat() {
    v1::AgentMessage message;
    {
      absl::MutexLock lock(&mu_);
      message.mutable_heartbeat()->set_job_id(task_.job_id());
      message.mutable_heartbeat()->set_epoch(task_.epoch());
      message.mutable_heartbeat()->set_step(step_);
      message.mutable_heartbeat()->set_phase("training");
      Enqueue(std::move(message));
    }
    Advance();
  }

  bool running() {
    absl::MutexLock lock(&mu_);
    return !task_.job_id().empty();
  }

  // Milliseconds from each report to its acknowledgement, since the last call.
  std::vector<double> TakeAcks() {
    absl::MutexLock lock(&mu_);
    return std::move(acks_ms_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return;
    }
    if (incoming_.has_inspect()) {
      v1::AgentMessage answer;
      answer.mutable_inspect_result()->set_request_id(incoming_.inspect().request_id());
      for (const std::string& path : incoming_.inspect().paths()) {
        v1::PathInfo& info = *answer.mutable_inspect_result()->add_paths();
        info.set_path(path);
        info.set_kind("dataset");
        info.set_tokens(1'000'000);
        info.set_vocab(256);
      }
      Say(std::move(answer));
    } else if (incoming_.has_start()) {
      absl::MutexLock lock(&mu_);
      task_ = incoming_.start().task();
    } else if (incoming_.has_ack()) {
      absl::MutexLock lock(&mu_);
      while (!sent_.empty() && sent_.front().first <= incoming_.ack().seq()) {
        acks_ms_.push_back(absl::ToDoubleMilliseconds(absl::Now() - sent_.front().second));
        sent_.pop_front();
      }
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
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

  void OnDone(const grpc::Status&) override {
    absl::MutexLock lock(&mu_);
    done_ = true;
  }

 private:
  v1::TaskReport& NewReport(v1::AgentMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    v1::TaskReport& report = *message.mutable_report();
    report.set_job_id(task_.job_id());
    report.set_epoch(task_.epoch());
    report.set_rank(task_.rank());
    report.set_seq(++seq_);
    sent_.emplace_back(seq_, absl::Now());
    return report;
  }

  void Fill(v1::StepReport& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
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

  void Say(v1::AgentMessage message) {
    {
      absl::MutexLock lock(&mu_);
      Enqueue(std::move(message));
    }
    Advance();
  }

  void Enqueue(v1::AgentMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    outgoing_.push_back(std::move(message));
  }

  void Advance() {
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
  std::deque<std::pair<int64_t, absl::Time>> sent_ ABSL_GUARDED_BY(mu_);
  std::vector<double> acks_ms_ ABSL_GUARDED_BY(mu_);
};

// A user: calls, one after another, with their latencies by name.
class User {
 public:
  explicit User(const std::string& address) : stub_(v1::JobService::NewStub(Dial(address))) {}

  std::string Submit() {
    v1::CreateJobRequest request;
    *request.mutable_spec() = TinySpec();
    request.mutable_spec()->mutable_train()->set_steps(1'000'000);
    request.mutable_spec()->mutable_model()->set_vocab(256);
    request.set_request_id(RandomUuid());
    v1::Job job;
    Time("submit", [&](grpc::ClientContext* c) { return stub_->CreateJob(c, request, &job); });
    return job.job_id();
  }

  void Cancel(const std::string& job_id) {
    v1::CancelJobRequest request;
    request.set_job_id(job_id);
    v1::Job job;
    Time("cancel", [&](grpc::ClientContext* c) { return stub_->CancelJob(c, request, &job); });
  }

  void Get(const std::string& job_id) {
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    v1::Job job;
    Time("get", [&](grpc::ClientContext* c) { return stub_->GetJob(c, request, &job); });
  }

  void List() {
    v1::ListJobsRequest request;
    request.set_page_size(50);
    v1::ListJobsResponse response;
    Time("list, page of 50",
         [&](grpc::ClientContext* c) { return stub_->ListJobs(c, request, &response); });
  }

  // True when every call's p99 keeps to the target.
  bool Report() {
    bool ok = failures_ == 0;
    std::vector<double> all;
    for (const auto& [name, ms] : latencies_ms_) {
      PrintPercentiles(name, ms);
      std::vector<double> sorted = ms;
      std::sort(sorted.begin(), sorted.end());
      all.insert(all.end(), ms.begin(), ms.end());
      ok = ok &&
           sorted[static_cast<size_t>(0.99 * static_cast<double>(sorted.size() - 1))] <= kTargetMs;
    }
    PrintPercentiles("all calls", all);
    std::printf("%d calls failed; target p99 <= %.0f ms: %s\n", failures_, kTargetMs,
                ok ? "ok" : "MISSED");
    return ok;
  }

  void Forget() { latencies_ms_.clear(); }

 private:
  template <typename Call>
  void Time(const std::string& name, const Call& call) {
    grpc::ClientContext context;
    rpc::SetDeadline(context);
    const absl::Time before = absl::Now();
    const grpc::Status status = call(&context);
    latencies_ms_[name].push_back(absl::ToDoubleMilliseconds(absl::Now() - before));
    if (!status.ok()) {
      ++failures_;
      std::printf("%s: %s\n", name.c_str(), status.error_message().c_str());
    }
  }

  std::unique_ptr<v1::JobService::Stub> stub_;
  std::map<std::string, std::vector<double>> latencies_ms_;
  int failures_ = 0;
};

// Lets all agents live until `over`: their steps and heartbeats are spread over each second.
void Live(std::vector<std::unique_ptr<Agent>>& agents,
          double steps_per_second,
          const std::atomic<bool>& over) {
  const absl::Duration slot =
      absl::Seconds(1.0 / steps_per_second) / static_cast<double>(agents.size());
  absl::Time due = absl::Now();
  std::vector<absl::Time> beat(agents.size(), absl::InfinitePast());
  for (size_t i = 0; !over.load(); i = (i + 1) % agents.size()) {
    due += slot;
    absl::SleepFor(due - absl::Now());
    agents[i]->Step();
    if (absl::Now() - beat[i] >= absl::Milliseconds(999)) {
      beat[i] = absl::Now();
      agents[i]->Beat();
    }
  }
}

// Two descriptors a worker.
void RaiseFileLimit() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

int Run(int jobs, double rate, int seconds, const std::string& data_dir) {
  RaiseFileLimit();
  CoordinatorOptions options;
  options.store.data_dir = data_dir;
  options.listen = "127.0.0.1:0";
  options.no_auth = true;
  options.http = "127.0.0.1:0";
  auto coordinator = Coordinator::Start(options);
  if (!coordinator.ok()) {
    std::printf("%s\n", coordinator.status().ToString().c_str());
    return 1;
  }
  const std::string& address = (*coordinator)->listen_address();
  std::vector<std::unique_ptr<Agent>> agents;
  for (int i = 0; i < jobs; ++i) {
    agents.push_back(std::make_unique<Agent>(address, i));
  }
  std::atomic<bool> over{false};
  std::thread life([&] { Live(agents, rate, over); });
  User user(address);
  std::string some_job;
  for (int i = 0; i < jobs; ++i) {
    some_job = user.Submit();
  }
  const auto running = [&] {
    return std::count_if(agents.begin(), agents.end(), [](auto& a) { return a->running(); });
  };
  for (int i = 0; i < 120 && running() < jobs; ++i) {
    absl::SleepFor(absl::Seconds(1));
  }
  absl::SleepFor(absl::Seconds(5));
  std::printf("%d jobs, %.1f steps/s each, %d s; %d running\n", jobs, rate, seconds,
              static_cast<int>(running()));
  user.Forget();
  for (const std::unique_ptr<Agent>& agent : agents) {
    agent->TakeAcks();
  }
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  while (absl::Now() < end) {
    const std::string job = user.Submit();
    user.Get(some_job);
    user.List();
    user.Cancel(job);
    absl::SleepFor(absl::Milliseconds(20));
  }
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  std::vector<double> acks;
  for (const std::unique_ptr<Agent>& agent : agents) {
    const std::vector<double> some = agent->TakeAcks();
    acks.insert(acks.end(), some.begin(), some.end());
  }
  over = true;
  life.join();
  const bool ok = user.Report();
  PrintPercentiles("report to acknowledgement", acks);
  const auto cpu = [](const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  };
  std::printf("cores busy, coordinator and workers together: %.2f\n",
              (cpu(after) - cpu(before)) / seconds);
  for (const std::unique_ptr<Agent>& agent : agents) {
    agent->Leave();
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace hearth::coordinator

int main(int argc, char** argv) {
  hearth::log::Init("bench_load", "warning").IgnoreError();
  const int jobs = argc > 1 ? std::atoi(argv[1]) : 1000;
  const double rate = argc > 2 ? std::atof(argv[2]) : 1;
  const int seconds = argc > 3 ? std::atoi(argv[3]) : 30;
  std::string dir = argc > 4 ? argv[4] : "";
  const bool temporary = dir.empty();
  if (temporary) {
    dir = "/var/tmp/bench_load_" + hearth::RandomHex(4);  // a disk, where /tmp may be none
  }
  const int code = hearth::coordinator::Run(jobs, rate, seconds, dir);
  if (temporary) {
    std::filesystem::remove_all(dir);
  }
  return code;
}
