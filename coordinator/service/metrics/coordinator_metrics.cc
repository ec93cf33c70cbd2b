#include "coordinator/service/metrics/coordinator_metrics.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/reasons/reason_codes.h"
#include "coordinator/core/transitions.h"
#include "coordinator/service/metrics/job_collector.h"
#include "google/protobuf/descriptor.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::coordinator {
namespace {

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

// Whether this server knows the method. Anything else is a client's invention.
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
  std::set<std::string> causes = {reasons::kWorkerLost, reasons::kTaskVanished,
                                  reasons::kGangNotFormed};
  for (const ExitRow& row : ExitTable()) {
    if (row.exit_class != ExitClass::kFinished && row.exit_class != ExitClass::kFatal) {
      causes.insert(row.code);
    }
  }
  return {causes.begin(), causes.end()};
}

std::vector<metrics::MetricDef> CoordinatorMetricDefs() {
  const OwnMetrics own;
  std::vector<metrics::MetricDef> defs = own.table.defs();
  const std::vector<metrics::MetricDef> of_jobs = JobMetricDefs();
  defs.insert(defs.end(), of_jobs.begin(), of_jobs.end());
  return defs;
}

CoordinatorMetrics::CoordinatorMetrics(int64_t generation, int64_t set_aside)
    : process_("hearth-coordinator") {
  own_.generation->Set(static_cast<double>(generation));
  own_.set_aside->Set(static_cast<double>(set_aside));
  own_.healthy->Set(1);
  AddKnownLabels();
}

void CoordinatorMetrics::AddKnownLabels() {
  for (const CommandRow& row : CommandTable()) {
    own_.commands.With({{"command", row.name}});
  }
  for (const std::string& cause : RecoveryCauses()) {
    own_.recovery_seconds.With({{"cause", cause}});
    own_.evictions.With({{"reason", cause}});
  }
  for (const char* reason : {reasons::kPreempted, reasons::kDrained, reasons::kResized}) {
    own_.evictions.With({{"reason", reason}});
  }
  for (const char* outcome : {"delivered", "failed", "abandoned"}) {
    own_.notifications.With({{"outcome", outcome}});
  }
  for (const std::string& method : RpcMethods()) {
    std::map<std::string, std::string> labels = MethodLabels(method);
    own_.rpc_started.With(labels);
    own_.rpc_in_flight.With(labels);
    labels["grpc_code"] = "OK";
    own_.rpc_handled.With(labels);
  }
}

void CoordinatorMetrics::ObserveCommit(absl::Duration duration, size_t commands) {
  own_.commit_seconds->Observe(absl::ToDoubleSeconds(duration));
  own_.commit_commands->Increment(static_cast<double>(commands));
}

void CoordinatorMetrics::ObservePlan(absl::Duration duration) {
  own_.plan_seconds->Observe(absl::ToDoubleSeconds(duration));
}

void CoordinatorMetrics::ObserveTurn(absl::Duration duration) {
  own_.turn_seconds->Observe(absl::ToDoubleSeconds(duration));
}

void CoordinatorMetrics::CountCommand(const Command& command) {
  own_.commands.With({{"command", command.row().name}}).Increment();
}

void CoordinatorMetrics::SetQueueLength(int64_t length) {
  own_.queue_length->Set(static_cast<double>(length));
}

void CoordinatorMetrics::CountAgentViolation() {
  own_.agent_violations->Increment();
}

void CoordinatorMetrics::SetAgents(int64_t connected) {
  own_.agents->Set(static_cast<double>(connected));
}

void CoordinatorMetrics::SetIsolated(bool isolated) {
  own_.isolated->Set(isolated ? 1 : 0);
}

void CoordinatorMetrics::SetPendingNotifications(int64_t pending) {
  own_.notifications_pending->Set(static_cast<double>(pending));
}

void CoordinatorMetrics::RpcStarted(std::string_view method) {
  const std::map<std::string, std::string> labels = MethodLabels(method);
  own_.rpc_started.With(labels).Increment();
  own_.rpc_in_flight.With(labels).Increment();
}

void CoordinatorMetrics::RpcHandled(std::string_view method,
                                    std::string_view code,
                                    absl::Duration duration) {
  std::map<std::string, std::string> labels = MethodLabels(method);
  own_.rpc_seconds.With(labels).Observe(absl::ToDoubleSeconds(duration));
  own_.rpc_in_flight.With(labels).Decrement();
  labels["grpc_code"] = std::string(code);
  own_.rpc_handled.With(labels).Increment();
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
      own_.checkpoint_seconds->Observe(write.seconds);
      // A copy that is published as a whole: a scrape may still hold the earlier one.
      JobSeries series = CopySeries(write.job_id, view);
      series.checkpoint_write_seconds = write.seconds;
      series_[write.job_id] = std::make_shared<const JobSeries>(std::move(series));
    }
    for (const std::string& outcome : e.delivery_outcomes) {
      own_.notifications.With({{"outcome", outcome}}).Increment();
    }
    for (const LogAppend& append : e.logs) {
      own_.log_lines_dropped->Increment(static_cast<double>(append.dropped));
    }
    for (const WorkerRow& row : e.workers) {
      // The view has the rows from before this batch, so a loss counts once, when the state
      // changes.
      const WorkerPtr before = view.FindWorker(row.record.worker().worker_id());
      if (row.record.worker().state() == v1::WORKER_STATE_LOST &&
          (before == nullptr || before->state() != v1::WORKER_STATE_LOST)) {
        own_.workers_lost->Increment();
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
    // Not seen since this start; the view still has the job as it was before this batch.
    since = TimeOf(before->job().state_time());
  }
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(time - since));
  if (event.from_state() == v1::JOB_STATE_QUEUED && event.to_state() == v1::JOB_STATE_STARTING) {
    own_.queue_wait->Observe(seconds);
  }
  if (event.from_state() == v1::JOB_STATE_STARTING && event.to_state() == v1::JOB_STATE_RUNNING) {
    own_.first_step_wait->Observe(seconds);
  }
  if (event.to_state() == v1::JOB_STATE_RECOVERING) {
    recovering_.try_emplace(job_id, time, event.reason_code());
    JobSeries series = CopySeries(job_id, view);
    ++series.restarts[event.reason_code()];
    series_[job_id] = std::make_shared<const JobSeries>(std::move(series));
  }
  if (event.to_state() == v1::JOB_STATE_REQUEUEING ||
      event.to_state() == v1::JOB_STATE_RECOVERING) {
    own_.evictions.With({{"reason", event.reason_code()}}).Increment();
  }
  if (const auto found = recovering_.find(job_id);
      found != recovering_.end() && event.to_state() == v1::JOB_STATE_RUNNING) {
    own_.recovery_seconds.With({{"cause", found->second.second}})
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
  const JobPtr before = view.FindJob(job_id);
  return JobSeries(before == nullptr ? v1::StepReport() : before->job().last_report());
}

void CoordinatorMetrics::ObserveStep(const std::string& job_id,
                                     const v1::StepReport& step,
                                     const View& view) {
  JobSeries series = CopySeries(job_id, view);
  const JobPtr before = view.FindJob(job_id);
  series.steps.Add(step, before == nullptr
                             ? 0
                             : static_cast<double>(before->job().run_info().global_batch_tokens()));
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
    // Only pointers are copied under the lock: rendering takes long, and the loop must not wait for
    // it.
    series = series_;
  }
  const JobCollector jobs(view, series);
  own_.series_dropped->Increment(static_cast<double>(jobs.dropped_series()));
  const prometheus::Collectable* collectables[] = {&own_.table.registry(), &process_, &jobs};
  return metrics::Serialize(collectables);
}

}  // namespace hearth::coordinator
