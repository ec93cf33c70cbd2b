#include "worker/daemon/worker_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "hearth/v1/trainer.pb.h"

namespace hearth::worker {
namespace {

using metrics::MetricDef;
using metrics::MetricType;
using metrics::Stability;

enum Row {
  kConnected,
  kConnects,
  kFailedAttempts,
  kHealthy,
  kTaskRunning,
  kTasksStarted,
  kTaskExits,
  kBufferBytes,
  kLogDroppedBytes,
  kLogDroppedLines,
  kStepsDropped,
  kDeviceMemory,
  kTrainerResident,
  kTrainerCpu,
  kTrainerUtilization,
  kJobStep,
  kJobEpoch,
  kJobLoss,
  kJobTokensPerSecond,
  kJobTokens,
  kJobMemory,
  kRows,
};

constexpr MetricDef kDefs[] = {
    {"hearth_worker_connected", MetricType::kGauge,
     "1 while a coordinator has welcomed this worker on an open stream", "", Stability::kBeta},
    {"hearth_worker_connects_total", MetricType::kCounter,
     "Streams that a coordinator welcomed; all but the first are reconnects", "", Stability::kBeta},
    {"hearth_worker_connect_failures_total", MetricType::kCounter,
     "Attempts to reach a coordinator that ended without a welcome", "", Stability::kBeta},
    {"hearth_worker_healthy", MetricType::kGauge,
     "0 when a process of an ended task could not be removed; no task is placed here then", "",
     Stability::kBeta},
    {"hearth_worker_task_running", MetricType::kGauge, "1 while a trainer runs", "",
     Stability::kBeta},
    {"hearth_worker_tasks_started_total", MetricType::kCounter, "Trainers started", "",
     Stability::kBeta},
    {"hearth_worker_task_exits_total", MetricType::kCounter, "Trainers that ended, by why",
     "reason", Stability::kBeta},
    {"hearth_worker_report_buffer_bytes", MetricType::kGauge,
     "Reports and logs that the coordinator has not acknowledged", "", Stability::kBeta},
    {"hearth_worker_log_dropped_bytes_total", MetricType::kCounter,
     "Log text lost to the bound of the report buffer", "", Stability::kBeta},
    {"hearth_worker_log_dropped_lines_total", MetricType::kCounter,
     "Log lines lost to the bound of the report buffer", "", Stability::kBeta},
    {"hearth_worker_step_reports_dropped_total", MetricType::kCounter,
     "Step reports lost to the bound of the report buffer", "", Stability::kBeta},
    {"hearth_worker_device_memory_bytes", MetricType::kGauge,
     "Memory of the device (of the host, for a CPU worker)", "", Stability::kBeta},
    {"hearth_worker_trainer_resident_bytes", MetricType::kGauge,
     "Resident memory of the running trainer", "", Stability::kBeta},
    {"hearth_worker_trainer_cpu_seconds_total", MetricType::kCounter,
     "Processor time of all trainers so far", "", Stability::kBeta},
    {"hearth_worker_trainer_utilization_ratio", MetricType::kGauge,
     "Processor time of the running trainer over that of its threads", "", Stability::kAlpha},
    {"hearth_worker_job_step", MetricType::kGauge, "Last completed step of the running task",
     "job_id", Stability::kBeta},
    {"hearth_worker_job_epoch", MetricType::kGauge, "Gang start that the running task belongs to",
     "job_id", Stability::kBeta},
    {"hearth_worker_job_loss", MetricType::kGauge,
     "Training loss of the last step, nats per token (rank 0 alone)", "job_id", Stability::kBeta},
    {"hearth_worker_job_tokens_per_second", MetricType::kGauge,
     "Tokens of the last step over its duration, all ranks (rank 0 alone)", "job_id",
     Stability::kBeta},
    {"hearth_worker_job_tokens_total", MetricType::kCounter,
     "Tokens that the job has consumed, all ranks (rank 0 alone)", "job_id", Stability::kBeta},
    {"hearth_worker_job_memory_bytes", MetricType::kGauge,
     "Device memory that the rank reports in use (rank 0 alone)", "job_id", Stability::kBeta},
};
static_assert(std::size(kDefs) == kRows);

// "EXIT_REASON_BAD_SPEC" -> "bad_spec".
std::string ReasonLabel(v1::ExitReason reason) {
  const std::string name = v1::ExitReason_Name(reason);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "EXIT_REASON_"));
}

class Families {
 public:
  void Set(Row row, double value, std::string label = "") {
    prometheus::MetricFamily& family = At(row);
    prometheus::ClientMetric metric;
    if (!kDefs[row].labels.empty()) {
      metric.label.push_back({std::string(kDefs[row].labels), std::move(label)});
    }
    if (kDefs[row].type == MetricType::kCounter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family.metric.push_back(std::move(metric));
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::MetricFamily& At(Row row) {
    const std::string name(kDefs[row].name);
    if (families_.empty() || families_.back().name != name) {
      prometheus::MetricFamily family;
      family.name = name;
      family.help = std::string(kDefs[row].help);
      family.type = kDefs[row].type == MetricType::kCounter ? prometheus::MetricType::Counter
                                                            : prometheus::MetricType::Gauge;
      families_.push_back(std::move(family));
    }
    return families_.back();
  }

  std::vector<prometheus::MetricFamily> families_;
};

void SetJob(const TaskTable::Snapshot& tasks, Families& out) {
  if (!tasks.running) {
    return;
  }
  out.Set(kJobStep, static_cast<double>(tasks.step), tasks.job_id);
  out.Set(kJobEpoch, static_cast<double>(tasks.epoch), tasks.job_id);
  if (tasks.last_step.has_value()) {
    const v1::StepReport& step = *tasks.last_step;
    out.Set(kJobLoss, step.loss(), tasks.job_id);
    out.Set(kJobTokensPerSecond, step.tokens_per_second(), tasks.job_id);
    out.Set(kJobTokens, static_cast<double>(step.tokens()), tasks.job_id);
    out.Set(kJobMemory, static_cast<double>(step.memory_bytes()), tasks.job_id);
  }
}

}  // namespace

absl::Span<const MetricDef> WorkerMetricDefs() {
  return kDefs;
}

std::vector<prometheus::MetricFamily> WorkerMetrics::Collect() const {
  const WorkerMetricValues values = read_();
  const TaskTable::Snapshot& tasks = values.tasks;
  Families out;
  out.Set(kConnected, values.connected ? 1 : 0);
  out.Set(kConnects, static_cast<double>(values.connects));
  out.Set(kFailedAttempts, static_cast<double>(values.failed_attempts));
  out.Set(kHealthy, tasks.unhealthy_reason.empty() ? 1 : 0);
  out.Set(kTaskRunning, tasks.running ? 1 : 0);
  out.Set(kTasksStarted, static_cast<double>(tasks.tasks_started));
  for (int number = v1::ExitReason_MIN + 1; number <= v1::ExitReason_MAX; ++number) {
    const auto reason = static_cast<v1::ExitReason>(number);
    const auto found = tasks.exits.find(reason);
    out.Set(kTaskExits, found == tasks.exits.end() ? 0.0 : static_cast<double>(found->second),
            ReasonLabel(reason));
  }
  out.Set(kBufferBytes, static_cast<double>(tasks.buffer_bytes));
  out.Set(kLogDroppedBytes, static_cast<double>(tasks.dropped_log_bytes));
  out.Set(kLogDroppedLines, static_cast<double>(tasks.dropped_log_lines));
  out.Set(kStepsDropped, static_cast<double>(tasks.dropped_steps));
  out.Set(kDeviceMemory, static_cast<double>(values.device_memory_bytes));
  out.Set(kTrainerResident, static_cast<double>(values.trainer_resident_bytes));
  out.Set(kTrainerCpu, values.trainer_cpu_seconds_total);
  out.Set(kTrainerUtilization, values.trainer_utilization_ratio);
  SetJob(tasks, out);
  return out.Take();
}

}  // namespace hearth::worker
