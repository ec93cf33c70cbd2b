#include "coordinator/service/coordinator_metrics.h"

#include <algorithm>
#include <functional>
#include <set>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "coordinator/core/transitions.h"
#include "coordinator/service/job_series.h"
#include "coordinator/service/metric_defs.h"
#include "google/protobuf/descriptor.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::coordinator {
namespace {

using metrics::CounterFamily;
using metrics::GaugeFamily;
using metrics::HistogramFamily;

// Labels of hearth_coordinator_commands_total, in the order of the variant.
constexpr std::string_view kCommandNames[] = {"create_job",         "update_job",
                                              "cancel_job",         "pause_job",
                                              "resume_job",         "delete_job",
                                              "delete_checkpoint",  "cordon_worker",
                                              "uncordon_worker",    "drain_worker",
                                              "delete_worker",      "declare_lost",
                                              "prune_folders",      "agent_connected",
                                              "agent_disconnected", "agent_heartbeat",
                                              "agent_report",       "agent_kv_wait",
                                              "agent_goodbye",      "agent_folders",
                                              "inspection_done",    "tick"};
static_assert(std::size(kCommandNames) == std::variant_size_v<Command>);

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

// "/hearth.v1.JobService/GetJob" and so on, of all services of ours.
std::vector<std::string> RpcMethods() {
  std::vector<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::Worker::descriptor()->file(),
        v1::Hello::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const google::protobuf::ServiceDescriptor& service = *file->service(i);
      for (int k = 0; k < service.method_count(); ++k) {
        methods.push_back(absl::StrCat("/", service.full_name(), "/", service.method(k)->name()));
      }
    }
  }
  return methods;
}

// Whether this server knows the method. What a client calls besides is its own invention.
bool IsKnownMethod(std::string_view method) {
  static const auto* const known = [] {
    const std::vector<std::string> ours = RpcMethods();
    auto* methods = new std::set<std::string, std::less<>>(ours.begin(), ours.end());
    methods->insert({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                     "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                     "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"});
    return methods;
  }();
  return known->contains(method);
}

// "/hearth.v1.JobService/GetJob" -> {"hearth.v1.JobService", "GetJob"}; "unknown" for both where
// there is no such method, so that clients cannot make series.
std::map<std::string, std::string> MethodLabels(std::string_view method) {
  if (!IsKnownMethod(method)) {
    return {{"grpc_service", "unknown"}, {"grpc_method", "unknown"}};
  }
  absl::string_view text(method.data(), method.size());
  absl::ConsumePrefix(&text, "/");
  const size_t slash = text.rfind('/');
  return {{"grpc_service", std::string(text.substr(0, slash))},
          {"grpc_method", std::string(text.substr(slash + 1))}};
}

}  // namespace

std::vector<std::string> RecoveryCauses() {
  std::set<std::string> causes = {"worker_lost", "task_vanished", "gang_not_formed"};
  for (const ExitRow& row : ExitTable()) {
    if (row.exit_class != ExitClass::kFinished && row.exit_class != ExitClass::kFatal) {
      causes.insert(row.code);
    }
  }
  return {causes.begin(), causes.end()};
}

CoordinatorMetrics::CoordinatorMetrics(int64_t generation, int64_t set_aside)
    : registry_(std::make_shared<prometheus::Registry>()),
      process_("hearth-coordinator"),
      commit_seconds_(
          HistogramFamily(*registry_, kCommitSeconds).Add({}, metrics::LatencyBuckets())),
      commit_commands_(CounterFamily(*registry_, kCommitCommands).Add({})),
      plan_seconds_(HistogramFamily(*registry_, kPlanSeconds).Add({}, metrics::LatencyBuckets())),
      queue_length_(GaugeFamily(*registry_, kQueueLength).Add({})),
      agents_(GaugeFamily(*registry_, kAgents).Add({})),
      agent_violations_(CounterFamily(*registry_, kAgentViolations).Add({})),
      isolated_(GaugeFamily(*registry_, kIsolated).Add({})),
      series_dropped_(CounterFamily(*registry_, kSeriesDropped).Add({})),
      log_lines_dropped_(CounterFamily(*registry_, kLogLinesDropped).Add({})),
      workers_lost_(CounterFamily(*registry_, kWorkersLost).Add({})),
      queue_wait_(HistogramFamily(*registry_, kQueueWait).Add({}, metrics::WaitBuckets())),
      first_step_wait_(HistogramFamily(*registry_, kFirstStepWait).Add({}, metrics::WaitBuckets())),
      checkpoint_seconds_(
          HistogramFamily(*registry_, kCheckpointSeconds).Add({}, metrics::LatencyBuckets())) {
  GaugeFamily(*registry_, kGeneration).Add({}).Set(static_cast<double>(generation));
  GaugeFamily(*registry_, kSetAside).Add({}).Set(static_cast<double>(set_aside));
  GaugeFamily(*registry_, kHealthy).Add({}).Set(1);
  AddKnownLabels();
}

void CoordinatorMetrics::AddKnownLabels() {
  for (const std::string_view name : kCommandNames) {
    CounterFamily(*registry_, kCommands).Add({{"command", std::string(name)}});
  }
  auto& evictions = CounterFamily(*registry_, kEvictions);
  for (const std::string& cause : RecoveryCauses()) {
    HistogramFamily(*registry_, kRecoverySeconds).Add({{"cause", cause}}, metrics::WaitBuckets());
    evictions.Add({{"reason", cause}});
  }
  for (const char* reason : {"preempted", "drained", "resized"}) {
    evictions.Add({{"reason", reason}});
  }
  for (const std::string& method : RpcMethods()) {
    std::map<std::string, std::string> labels = MethodLabels(method);
    CounterFamily(*registry_, kRpcStarted).Add(labels);
    GaugeFamily(*registry_, kRpcInFlight).Add(labels);
    labels["grpc_code"] = "OK";
    CounterFamily(*registry_, kRpcHandled).Add(labels);
  }
}

void CoordinatorMetrics::ObserveCommit(absl::Duration duration, size_t commands) {
  commit_seconds_.Observe(absl::ToDoubleSeconds(duration));
  commit_commands_.Increment(static_cast<double>(commands));
}

void CoordinatorMetrics::ObservePlan(absl::Duration duration) {
  plan_seconds_.Observe(absl::ToDoubleSeconds(duration));
}

void CoordinatorMetrics::CountCommand(const Command& command) {
  CounterFamily(*registry_, kCommands)
      .Add({{"command", std::string(kCommandNames[command.index()])}})
      .Increment();
}

void CoordinatorMetrics::SetQueueLength(int64_t length) {
  queue_length_.Set(static_cast<double>(length));
}

void CoordinatorMetrics::CountAgentViolation() {
  agent_violations_.Increment();
}

void CoordinatorMetrics::SetAgents(int64_t connected) {
  agents_.Set(static_cast<double>(connected));
}

void CoordinatorMetrics::SetIsolated(bool isolated) {
  isolated_.Set(isolated ? 1 : 0);
}

void CoordinatorMetrics::RpcStarted(std::string_view method) {
  const std::map<std::string, std::string> labels = MethodLabels(method);
  CounterFamily(*registry_, kRpcStarted).Add(labels).Increment();
  GaugeFamily(*registry_, kRpcInFlight).Add(labels).Increment();
}

void CoordinatorMetrics::RpcHandled(std::string_view method,
                                    std::string_view code,
                                    absl::Duration duration) {
  std::map<std::string, std::string> labels = MethodLabels(method);
  HistogramFamily(*registry_, kRpcSeconds)
      .Add(labels, metrics::LatencyBuckets())
      .Observe(absl::ToDoubleSeconds(duration));
  GaugeFamily(*registry_, kRpcInFlight).Add(labels).Decrement();
  labels["grpc_code"] = std::string(code);
  CounterFamily(*registry_, kRpcHandled).Add(labels).Increment();
}

void CoordinatorMetrics::Observe(const std::vector<Effects>& effects, const View& view) {
  absl::MutexLock lock(&mu_);
  for (const Effects& e : effects) {
    for (const v1::JobEvent& event : e.events) {
      ObserveEvent(event, view);
    }
    for (const HistoryAppend& append : e.history) {
      if (append.record.has_step()) {
        ObserveStep(append.job_id, append.record.step(), view);
      }
    }
    for (const CheckpointWrite& write : e.checkpoint_writes) {
      checkpoint_seconds_.Observe(write.seconds);
      JobSeries series = CopySeries(write.job_id, view);
      series.checkpoint_write_seconds = write.seconds;
      series_[write.job_id] = std::make_shared<const JobSeries>(std::move(series));
    }
    for (const LogAppend& append : e.logs) {
      log_lines_dropped_.Increment(static_cast<double>(append.dropped));
    }
    for (const WorkerRow& row : e.workers) {
      const WorkerPtr before = view.FindWorker(row.record.worker().worker_id());
      if (row.record.worker().state() == v1::WORKER_STATE_LOST &&
          (before == nullptr || before->state() != v1::WORKER_STATE_LOST)) {
        workers_lost_.Increment();
      }
    }
    for (const std::string& job_id : e.job_deletes) {
      series_.erase(job_id);
      entered_.erase(job_id);
      recovering_.erase(job_id);
      NoteEnd(job_id, false);
    }
  }
}

void CoordinatorMetrics::ObserveEvent(const v1::JobEvent& event, const View& view) {
  if (event.type() != "state") {
    return;
  }
  const std::string& job_id = event.job_id();
  const absl::Time time = TimeOf(event.time());
  absl::Time since = time;
  if (const auto found = entered_.find(job_id); found != entered_.end()) {
    since = found->second;
  } else if (const JobPtr before = view.FindJob(job_id)) {
    since = TimeOf(before->job().state_time());
  }
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(time - since));
  if (event.from_state() == v1::JOB_STATE_QUEUED && event.to_state() == v1::JOB_STATE_STARTING) {
    queue_wait_.Observe(seconds);
  }
  if (event.from_state() == v1::JOB_STATE_STARTING && event.to_state() == v1::JOB_STATE_RUNNING) {
    first_step_wait_.Observe(seconds);
  }
  if (event.to_state() == v1::JOB_STATE_RECOVERING) {
    recovering_.try_emplace(job_id, time, event.reason_code());
    JobSeries series = CopySeries(job_id, view);
    ++series.restarts[event.reason_code()];
    series_[job_id] = std::make_shared<const JobSeries>(std::move(series));
  }
  if (event.to_state() == v1::JOB_STATE_REQUEUEING ||
      event.to_state() == v1::JOB_STATE_RECOVERING) {
    CounterFamily(*registry_, kEvictions).Add({{"reason", event.reason_code()}}).Increment();
  }
  if (const auto found = recovering_.find(job_id);
      found != recovering_.end() && event.to_state() == v1::JOB_STATE_RUNNING) {
    HistogramFamily(*registry_, kRecoverySeconds)
        .Add({{"cause", found->second.second}}, metrics::WaitBuckets())
        .Observe(std::max(0.0, absl::ToDoubleSeconds(time - found->second.first)));
  }
  if (event.to_state() == v1::JOB_STATE_RUNNING || IsTerminal(event.to_state()) ||
      event.to_state() == v1::JOB_STATE_PAUSED) {
    recovering_.erase(job_id);
  }
  const bool ended = IsTerminal(event.to_state());
  if (ended) {
    entered_.erase(job_id);
  } else {
    entered_[job_id] = time;
  }
  NoteEnd(job_id, ended);
}

void CoordinatorMetrics::NoteEnd(const std::string& job_id, bool ended) {
  ended_.erase(std::remove(ended_.begin(), ended_.end(), job_id), ended_.end());
  if (!ended) {
    return;
  }
  ended_.push_back(job_id);
  if (ended_.size() > kRecentJobs) {  // shown no longer (ChooseJobs)
    series_.erase(ended_.front());
    ended_.pop_front();
  }
}

JobSeries CoordinatorMetrics::CopySeries(const std::string& job_id, const View& view) const {
  const auto found = series_.find(job_id);
  if (found != series_.end()) {
    return *found->second;
  }
  JobSeries series;
  series.step_buckets.resize(metrics::LatencyBuckets().size());
  // Of a job of before this coordinator's start only what comes counts, as of every counter: what
  // was shown last, steps that were done again included, is not known any more.
  if (const JobPtr before = view.FindJob(job_id)) {
    series.last_tokens = static_cast<double>(before->job().last_report().tokens());
  }
  return series;
}

void CoordinatorMetrics::ObserveStep(const std::string& job_id,
                                     const v1::StepReport& step,
                                     const View& view) {
  JobSeries series = CopySeries(job_id, view);
  const JobPtr before = view.FindJob(job_id);
  // The step's tokens are counted from the job's start. What was added last is kept here rather
  // than looked up in the view, which is as it was before the whole batch.
  double tokens = static_cast<double>(step.tokens()) - series.last_tokens;
  if (tokens <= 0 && before != nullptr) {  // a step that is done again after a rewind
    tokens = static_cast<double>(before->job().run_info().global_batch_tokens());
  }
  series.tokens += std::max(0.0, tokens);
  series.last_tokens = static_cast<double>(step.tokens());
  series.energy_joules += step.energy_joules();
  series.comm_seconds += step.comm_seconds();
  series.comm_bytes += static_cast<double>(step.comm_bytes());
  series.data_wait_seconds += step.data_wait_seconds();
  series.checkpoint_stall_seconds += step.checkpoint_seconds();
  if (step.has_validation_loss()) {
    series.validation_loss = step.validation_loss();
    series.has_validation_loss = true;
  }
  const auto& bounds = metrics::LatencyBuckets();
  for (size_t i = 0; i < bounds.size(); ++i) {
    series.step_buckets[i] += step.step_seconds() <= bounds[i] ? 1 : 0;
  }
  ++series.steps;
  series.step_seconds += step.step_seconds();
  series_[job_id] = std::make_shared<const JobSeries>(std::move(series));
}

size_t CoordinatorMetrics::jobs_kept() {
  absl::MutexLock lock(&mu_);
  return series_.size();
}

std::string CoordinatorMetrics::Render(const View& view) {
  std::map<std::string, SeriesPtr> series;
  {
    absl::MutexLock lock(&mu_);
    series = series_;
  }
  const JobCollector jobs(view, series);
  series_dropped_.Increment(static_cast<double>(jobs.dropped_series()));
  const prometheus::Collectable* collectables[] = {registry_.get(), &process_, &jobs};
  return metrics::Serialize(collectables);
}

}  // namespace hearth::coordinator
