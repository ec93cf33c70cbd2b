// For tests: a core with a clock in hand and workers that do what the test says.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/core.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {

// A call about one worker.
template <typename Request>
Request OfWorker(const std::string& worker_id) {
  Request request;
  request.set_worker_id(worker_id);
  return request;
}

class Harness {
 public:
  explicit Harness(const RestoredState& state = {}, int64_t generation = 1) {
    options_.generation = generation;
    core = std::make_unique<Core>(options_, state, now);
  }

  explicit Harness(const CoreOptions& options) : options_(options) {
    core = std::make_unique<Core>(options_, RestoredState(), now);
  }

  // Applies, keeps rows as a store would, returns the effects.
  Effects Do(const Command& command) {
    last = core->Apply(command, now);
    for (const JobRow& row : last.jobs) {
      if (row.durable) {
        jobs[row.record.job().job_id()] = row.record;
      }
    }
    for (const std::string& id : last.job_deletes) {
      jobs.erase(id);
    }
    for (const WorkerRow& row : last.workers) {
      if (row.durable) {
        workers[row.record.worker().worker_id()] = row.record;
      }
    }
    for (const v1::RequestRecord& request : last.requests) {
      requests.push_back(request);
    }
    for (const std::string& id : last.kv_clears) {
      kv.erase(id);
    }
    for (const v1::KvRecord& gone : last.kv_deletes) {
      std::erase_if(kv[gone.job_id()],
                    [&gone](const v1::KvRecord& row) { return row.key() == gone.key(); });
    }
    for (const v1::KvRecord& put : last.kv_puts) {
      kv[put.job_id()].push_back(put);
    }
    for (const v1::JobEvent& event : last.events) {
      EXPECT_EQ(event.revision(), ++revision);
      events.push_back(event);
    }
    for (const HistoryAppend& append : last.history) {
      history.push_back(append.record);
    }
    for (const OutgoingMessage& out : last.messages) {
      sent.push_back(out);
    }
    deliveries.insert(deliveries.end(), last.deliveries.begin(), last.deliveries.end());
    return last;
  }
  void Tick() { Do(coordinator::Tick{}); }
  // Lets time pass in ticks; heartbeats come from `alive`, whose jobs are at the step set in
  // `steps`.
  void Pass(absl::Duration by, const std::vector<std::string>& alive = {}, bool stepping = true) {
    for (absl::Duration done; done < by; done += absl::Milliseconds(500)) {
      now.monotonic += absl::Milliseconds(500);
      now.wall += absl::Milliseconds(500);
      for (const std::string& worker : alive) {
        Beat(worker, stepping);
      }
      Tick();
    }
  }
  // Past the time after a start in which nobody is silent, with the named workers alive.
  void Settle(const std::vector<std::string>& alive) { Pass(absl::Seconds(31), alive); }
  void Beat(const std::string& worker, bool stepping = true) {
    AgentHeartbeat beat;
    beat.connection_id = connections[worker];
    if (const v1::WorkerRecord* record = core->FindWorker(worker)) {
      const std::string& job_id = record->worker().job_id();
      beat.heartbeat.set_job_id(job_id);
      beat.heartbeat.set_epoch(record->worker().epoch());
      beat.heartbeat.set_step(job_id.empty() ? 0 : steps[worker] += stepping ? 1 : 0);
    }
    Do(beat);
  }

  void BeatHealth(const std::string& worker, const std::string& unhealthy_reason) {
    AgentHeartbeat beat;
    beat.connection_id = connections[worker];
    beat.heartbeat.set_unhealthy_reason(unhealthy_reason);
    Do(beat);
  }
  // A heartbeat with the counter of the worker's device.
  void BeatEnergy(const std::string& worker, double joules) {
    v1::DeviceStatus device;
    device.set_energy_joules(joules);
    Beat(worker, device);
  }

  void Beat(const std::string& worker, const v1::DeviceStatus& device) {
    AgentHeartbeat beat;
    beat.connection_id = connections[worker];
    *beat.heartbeat.mutable_device() = device;
    Do(beat);
  }

  // Dials in; `tasks` is what Hello lists.
  absl::Status TryConnect(const std::string& worker,
                          const std::string& incarnation = "i1",
                          const std::vector<v1::TaskStatus>& tasks = {}) {
    AgentConnected connected;
    connected.connection_id = ++connection_;
    v1::Hello& hello = connected.hello;
    hello.set_worker_id(worker);
    hello.set_incarnation(incarnation);
    hello.set_host(hosts.count(worker) == 0 ? "host" : hosts[worker]);
    connected.local = local.count(worker) > 0;
    hello.mutable_device()->set_kind("cpu");
    hello.mutable_device()->set_threads(2);
    hello.mutable_device()->set_memory_bytes(memory.count(worker) == 0 ? 0 : memory[worker]);
    hello.set_checkpoint_root("/ck");
    hello.set_root_uuid(roots.count(worker) == 0 ? "root" : roots[worker]);
    for (const v1::TaskStatus& task : tasks) {
      *hello.add_tasks() = task;
    }
    const Effects effects = Do(connected);
    if (effects.reply->status.ok()) {
      connections[worker] = connected.connection_id;
    }
    return effects.reply->status;
  }
  void Connect(const std::string& worker,
               const std::string& incarnation = "i1",
               const std::vector<v1::TaskStatus>& tasks = {}) {
    const absl::Status status = TryConnect(worker, incarnation, tasks);
    EXPECT_TRUE(status.ok()) << status;
  }
  void Disconnect(const std::string& worker) { Do(AgentDisconnected{connections[worker]}); }

  std::string Create(int ranks, const std::string& name = "job", int priority = 0) {
    CreateJob create;
    create.job_id = name;
    create.paths_checked = true;
    create.spec.set_name(name);
    create.spec.mutable_train()->set_steps(1'000'000);  // Pass() takes one with each heartbeat
    create.spec.mutable_checkpoint()->set_grace_seconds(20);
    create.spec.mutable_resources()->set_workers(ranks);
    create.spec.mutable_resources()->set_device("cpu");
    create.spec.mutable_resources()->set_max_restarts(2);
    create.spec.mutable_resources()->set_priority(priority);
    EXPECT_TRUE(Do(create).reply->status.ok());
    return name;
  }
  // Job on workers "a", "b", ... up to RUNNING at step 1.
  std::string Running(int ranks, const std::string& name = "job") {
    for (int i = 0; i < ranks; ++i) {
      const std::string worker(1, static_cast<char>('a' + i));
      if (connections.count(worker) == 0) {
        Connect(worker);
      }
    }
    Create(ranks, name);
    Tick();
    EXPECT_EQ(State(name), v1::JOB_STATE_STARTING);
    Step(name, 1);
    EXPECT_EQ(State(name), v1::JOB_STATE_RUNNING);
    return name;
  }

  v1::TaskReport Next(const std::string& job, int rank) {
    const v1::JobRecord& record = *core->FindJob(job);
    v1::TaskReport report;
    report.set_job_id(job);
    report.set_epoch(record.job().epoch());
    report.set_rank(rank);
    report.set_seq(record.ranks(rank).applied_seq() + 1);
    return report;
  }
  Effects Report(const std::string& worker, const v1::TaskReport& report) {
    return Do(AgentReport{connections[worker], report});
  }
  Effects Report(const std::string& job, int rank, const v1::TaskReport& report) {
    return Report(core->FindJob(job)->ranks(rank).worker_id(), report);
  }
  Effects Step(const std::string& job, int64_t step) {
    v1::TaskReport report = Next(job, 0);
    report.mutable_step()->set_step(step);
    return Report(job, 0, report);
  }
  Effects Checkpoint(const std::string& job, int64_t step) {
    v1::TaskReport report = Next(job, 0);
    report.mutable_checkpoint()->set_step(step);
    report.mutable_checkpoint()->set_path(
        absl::StrCat("/ck/", job, "/e", report.epoch(), "/step-", step));
    return Report(job, 0, report);
  }
  Effects Exit(const std::string& job,
               int rank,
               v1::ExitReason reason,
               const std::string& message = "",
               bool clean = true) {
    v1::TaskReport report = Next(job, rank);
    report.mutable_exit()->mutable_exit()->set_reason(reason);
    report.mutable_exit()->mutable_exit()->set_message(message);
    report.mutable_exit()->set_clean(clean);
    return Report(job, rank, report);
  }
  // The rank says that its device has too little memory for the job.
  Effects TooSmall(const std::string& job, int rank) {
    v1::TaskReport report = Next(job, rank);
    v1::TrainerExit& exit = *report.mutable_exit()->mutable_exit();
    exit.set_reason(v1::EXIT_REASON_DEVICE);
    exit.set_message("needs 90.0 GiB");
    exit.set_device_too_small(true);
    report.mutable_exit()->set_clean(true);
    return Report(job, rank, report);
  }
  Effects Dying(const std::string& job,
                int rank,
                v1::ExitReason reason,
                const std::string& message,
                double seconds = 0.3) {
    v1::TaskReport report = Next(job, rank);
    report.mutable_dying()->mutable_exit()->set_reason(reason);
    report.mutable_dying()->mutable_exit()->set_message(message);
    report.mutable_dying()->set_seconds(seconds);
    return Report(job, rank, report);
  }
  Effects Put(const std::string& job, int rank, const std::string& key, const std::string& value) {
    v1::TaskReport report = Next(job, rank);
    report.mutable_kv_put()->set_key(key);
    report.mutable_kv_put()->set_value(value);
    return Report(job, rank, report);
  }
  v1::TaskStatus Status(
      const std::string& job, int rank, bool running, int64_t last_seq, int64_t first_unacked = 0) {
    v1::TaskStatus status;
    status.set_job_id(job);
    status.set_epoch(core->FindJob(job)->job().epoch());
    status.set_rank(rank);
    status.set_running(running);
    status.set_last_seq(last_seq);
    status.set_first_unacked_seq(first_unacked);
    return status;
  }

  Reply Cancel(const std::string& job, bool at_once = false) {
    v1::CancelJobRequest command;
    command.set_job_id(job);
    command.set_now(at_once);
    return *Do(command).reply;
  }
  Reply Pause(const std::string& job) {
    v1::PauseJobRequest command;
    command.set_job_id(job);
    return *Do(command).reply;
  }
  Reply Resume(const std::string& job) {
    ResumeJob command;
    command.job_id = job;
    return *Do(command).reply;
  }

  v1::JobState State(const std::string& job) const { return core->FindJob(job)->job().state(); }
  const v1::Job& Job(const std::string& job) const { return core->FindJob(job)->job(); }
  v1::WorkerState WorkerState(const std::string& worker) const {
    return core->FindWorker(worker)->worker().state();
  }
  // Messages of a kind sent since the last Clear().
  int Sent(v1::CoordinatorMessage::MessageCase kind, const std::string& worker = "") const {
    int n = 0;
    for (const OutgoingMessage& out : sent) {
      n += out.message.message_case() == kind && (worker.empty() || out.worker_id == worker);
    }
    return n;
  }
  const v1::CoordinatorMessage* FindSent(v1::CoordinatorMessage::MessageCase kind,
                                         const std::string& worker) const {
    for (const OutgoingMessage& out : sent) {
      if (out.message.message_case() == kind && out.worker_id == worker) {
        return &out.message;
      }
    }
    return nullptr;
  }
  // As Restart; the operator has changed the options.
  void RestartWith(const CoreOptions& options) {
    const int64_t generation = options_.generation;
    options_ = options;
    options_.generation = generation;
    Restart();
  }
  // A new process on what was committed, at the same moment, with its own monotonic origin.
  void Restart() {
    RestoredState state;
    for (const auto& [id, record] : jobs) {
      state.jobs.push_back(record);
    }
    for (const auto& [id, record] : workers) {
      state.workers.push_back(record);
    }
    state.requests = requests;
    for (const auto& [id, rows] : kv) {
      state.kv.insert(state.kv.end(), rows.begin(), rows.end());
    }
    state.last_revision = revision;
    ++options_.generation;
    if (now.boot_id.empty()) {  // the clock of another boot begins elsewhere
      now.monotonic = absl::Seconds(7) * options_.generation;
    }
    connections.clear();
    sent.clear();
    core = std::make_unique<Core>(options_, state, now);
  }

  Now now{absl::FromUnixSeconds(1700000000), absl::Seconds(1000)};
  std::unique_ptr<Core> core;
  Effects last;
  std::map<std::string, v1::JobRecord> jobs;
  std::map<std::string, v1::WorkerRecord> workers;
  std::vector<v1::RequestRecord> requests;
  std::map<std::string, std::vector<v1::KvRecord>> kv;
  std::vector<v1::JobEvent> events;
  std::vector<v1::MetricRecord> history;
  std::vector<OutgoingMessage> sent;
  std::vector<DeliveryRequest> deliveries;
  std::map<std::string, uint64_t> connections;
  std::map<std::string, int64_t> steps;
  std::map<std::string, std::string> hosts;  // of workers that dial in; default "host"
  std::map<std::string, std::string> roots;  // ... default "root"
  std::map<std::string, int64_t> memory;     // ... of their devices, bytes; default 0
  std::set<std::string> local;               // ... from the coordinator's own machine
  int64_t revision = 0;

 private:
  CoreOptions options_;
  uint64_t connection_ = 0;
};

}  // namespace hearth::coordinator
