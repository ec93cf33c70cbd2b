#include "worker/daemon/worker_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
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
  kJobEnergy,
  kWeightQuantizations,
  kGpuInfo,
  kGpuAllocated,
  kGpuMemoryTotal,
  kGpuMemoryUsed,
  kGpuMemoryReserved,
  kGpuPower,
  kGpuPowerLimit,
  kGpuPowerLimitDefault,
  kGpuEnergy,
  kGpuUtilization,
  kGpuMemoryUtilization,
  kGpuTemperature,
  kGpuMemoryTemperature,
  kGpuSmClock,
  kGpuSmClockMax,
  kGpuMemoryClock,
  kGpuMemoryClockMax,
  kGpuThrottled,
  kGpuEccErrors,
  kGpuEccCorrected,
  kGpuRemappedRows,
  kGpuRemapPending,
  kGpuRemapFailed,
  kGpuXidErrors,
  kGpuLastXid,
  kGpuPcieSent,
  kGpuPcieReceived,
  kGpuPcieReplays,
  kGpuPcieGeneration,
  kGpuPcieGenerationMax,
  kGpuPcieWidth,
  kGpuPcieWidthMax,
  kGpuProcesses,
  kRows,
};

constexpr char kGpuLabels[] = "gpu,uuid";

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
    {"hearth_worker_job_energy_joules_total", MetricType::kCounter,
     "Energy that this worker's GPU has used while the task ran", "job_id", Stability::kBeta},
    {"hearth_weight_quantizations_total", MetricType::kCounter,
     "Weight tensors quantised since the trainer started: one per tensor and step, whatever the "
     "number of micro-batches (rank 0 alone)",
     "job_id", Stability::kBeta},
    {"hearth_gpu_info", MetricType::kGauge, "Facts about the GPU to join on; always 1",
     "gpu,uuid,model,pci_bus_id,compute_capability,driver,cuda", Stability::kBeta},
    {"hearth_gpu_allocated", MetricType::kGauge, "1 while a trainer of ours runs on the GPU",
     kGpuLabels, Stability::kBeta},
    {"hearth_gpu_memory_total_bytes", MetricType::kGauge, "Memory of the GPU", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_memory_used_bytes", MetricType::kGauge, "Memory in use by all processes",
     kGpuLabels, Stability::kBeta},
    {"hearth_gpu_memory_reserved_bytes", MetricType::kGauge,
     "Memory that driver and firmware keep for themselves", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_power_watts", MetricType::kGauge,
     "Power drawn, mean over about the last second; prefer the rate of the energy", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_power_limit_watts", MetricType::kGauge, "Power limit in force", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_power_limit_default_watts", MetricType::kGauge,
     "Power limit as it left the factory", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_energy_joules_total", MetricType::kCounter,
     "Energy used since the driver was loaded", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_utilization_ratio", MetricType::kGauge,
     "Share of the time in which any kernel ran", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_memory_utilization_ratio", MetricType::kGauge,
     "Share of the time in which the memory was read or written", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_temperature_celsius", MetricType::kGauge, "Temperature of the GPU", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_memory_temperature_celsius", MetricType::kGauge, "Temperature of the memory",
     kGpuLabels, Stability::kBeta},
    {"hearth_gpu_sm_clock_hertz", MetricType::kGauge, "Clock of the multiprocessors", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_sm_clock_max_hertz", MetricType::kGauge, "Highest clock of the multiprocessors",
     kGpuLabels, Stability::kBeta},
    {"hearth_gpu_memory_clock_hertz", MetricType::kGauge, "Clock of the memory", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_memory_clock_max_hertz", MetricType::kGauge, "Highest clock of the memory",
     kGpuLabels, Stability::kBeta},
    {"hearth_gpu_throttled", MetricType::kGauge,
     "1 while this holds the clocks down, 0 otherwise; gpu_idle costs nothing", "gpu,uuid,reason",
     Stability::kBeta},
    {"hearth_gpu_ecc_errors_total", MetricType::kCounter,
     "Uncorrectable memory errors since the driver was loaded", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_ecc_corrected_errors_total", MetricType::kCounter,
     "Memory errors that ECC corrected, since the driver was loaded", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_remapped_rows", MetricType::kGauge,
     "Rows of the memory replaced by spare ones since the GPU was made, by the kind of error",
     "gpu,uuid,kind", Stability::kBeta},
    {"hearth_gpu_row_remap_pending", MetricType::kGauge,
     "1 while a row waits for the next reset to be replaced", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_row_remap_failed", MetricType::kGauge,
     "1 when a row could not be replaced: the GPU has no spare one left", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_xid_errors_total", MetricType::kCounter, "XID errors since this worker started",
     kGpuLabels, Stability::kBeta},
    {"hearth_gpu_last_xid", MetricType::kGauge,
     "Number of the last XID error since this worker started, 0 = none", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_pcie_sent_bytes_total", MetricType::kCounter, "Bytes that the GPU sent over PCIe",
     kGpuLabels, Stability::kBeta},
    {"hearth_gpu_pcie_received_bytes_total", MetricType::kCounter,
     "Bytes that the GPU received over PCIe", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_pcie_replays_total", MetricType::kCounter,
     "PCIe packets that had to be sent again, since the driver was loaded", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_pcie_generation", MetricType::kGauge,
     "PCIe generation of the link now; an idle GPU lowers it", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_pcie_generation_max", MetricType::kGauge,
     "PCIe generation that GPU and slot can do together", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_pcie_lanes", MetricType::kGauge, "PCIe lanes in use", kGpuLabels,
     Stability::kBeta},
    {"hearth_gpu_pcie_lanes_max", MetricType::kGauge,
     "PCIe lanes that GPU and slot can use together", kGpuLabels, Stability::kBeta},
    {"hearth_gpu_processes", MetricType::kGauge,
     "Processes that use the GPU, as the driver lists them", kGpuLabels, Stability::kBeta},
};
static_assert(std::size(kDefs) == kRows);

// "EXIT_REASON_BAD_SPEC" -> "bad_spec".
std::string ReasonLabel(v1::ExitReason reason) {
  const std::string name = v1::ExitReason_Name(reason);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "EXIT_REASON_"));
}

class Families {
 public:
  // One value per label of the row, in its order.
  void Set(Row row, double value, const std::vector<std::string>& labels = {}) {
    prometheus::MetricFamily& family = At(row);
    prometheus::ClientMetric metric;
    const std::vector<std::string> names =
        absl::StrSplit(absl::string_view(kDefs[row].labels.data(), kDefs[row].labels.size()), ',',
                       absl::SkipEmpty());
    HEARTH_CHECK(names.size() == labels.size(), "a series has a value for every label of its row");
    for (size_t i = 0; i < names.size(); ++i) {
      metric.label.push_back({names[i], labels[i]});
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

void SetJob(const TaskTable::Snapshot& tasks, bool has_gpu, Families& out) {
  if (!tasks.running) {
    return;
  }
  const std::vector<std::string> job = {tasks.job_id};
  out.Set(kJobStep, static_cast<double>(tasks.step), job);
  out.Set(kJobEpoch, static_cast<double>(tasks.epoch), job);
  if (tasks.last_step.has_value()) {
    const v1::StepReport& step = *tasks.last_step;
    out.Set(kJobLoss, step.loss(), job);
    out.Set(kJobTokensPerSecond, step.tokens_per_second(), job);
    out.Set(kJobTokens, static_cast<double>(step.tokens()), job);
    out.Set(kJobMemory, static_cast<double>(step.memory_bytes()), job);
  }
  if (has_gpu) {
    out.Set(kJobEnergy, tasks.energy_joules, job);
  }
  if (tasks.last_step.has_value()) {
    out.Set(kWeightQuantizations, static_cast<double>(tasks.last_step->weight_quantizations()),
            job);
  }
}

template <typename T>
void SetIfTold(Row row,
               const std::optional<T>& value,
               const std::vector<std::string>& labels,
               Families& out) {
  if (value.has_value()) {
    out.Set(row, static_cast<double>(*value), labels);
  }
}

void SetGpuErrors(const GpuReading& gpu, const std::vector<std::string>& labels, Families& out) {
  SetIfTold(kGpuEccErrors, gpu.sample.ecc_errors, labels, out);
  SetIfTold(kGpuEccCorrected, gpu.sample.ecc_corrected_errors, labels, out);
  if (const auto& rows = gpu.sample.remapped_rows; rows.has_value()) {
    out.Set(kGpuRemappedRows, static_cast<double>(rows->correctable),
            {labels[0], labels[1], "correctable"});
    out.Set(kGpuRemappedRows, static_cast<double>(rows->uncorrectable),
            {labels[0], labels[1], "uncorrectable"});
    out.Set(kGpuRemapPending, rows->pending ? 1 : 0, labels);
    out.Set(kGpuRemapFailed, rows->failed ? 1 : 0, labels);
  }
  out.Set(kGpuXidErrors, static_cast<double>(gpu.xid_errors), labels);
  out.Set(kGpuLastXid, static_cast<double>(gpu.last_xid), labels);
}

void SetGpuLink(const GpuReading& gpu, const std::vector<std::string>& labels, Families& out) {
  SetIfTold(kGpuPcieSent, gpu.sample.pcie_sent_bytes, labels, out);
  SetIfTold(kGpuPcieReceived, gpu.sample.pcie_received_bytes, labels, out);
  SetIfTold(kGpuPcieReplays, gpu.sample.pcie_replays, labels, out);
  SetIfTold(kGpuPcieGeneration, gpu.sample.pcie_generation, labels, out);
  SetIfTold(kGpuPcieGenerationMax, gpu.info.pcie_generation_max, labels, out);
  SetIfTold(kGpuPcieWidth, gpu.sample.pcie_width, labels, out);
  SetIfTold(kGpuPcieWidthMax, gpu.info.pcie_width_max, labels, out);
}

// What the GPU does not tell has no series.
void SetGpu(const GpuReading& gpu, bool allocated, Families& out) {
  const nvml::GpuInfo& info = gpu.info;
  const nvml::GpuSample& sample = gpu.sample;
  const std::vector<std::string> labels = {absl::StrCat(info.index), info.uuid};
  out.Set(kGpuInfo, 1,
          {labels[0], labels[1], info.name, info.pci_bus_id,
           absl::StrCat(info.compute_major, ".", info.compute_minor), gpu.driver_version,
           gpu.cuda_version});
  out.Set(kGpuAllocated, allocated ? 1 : 0, labels);
  const auto set = [&](Row row, const auto& value) { SetIfTold(row, value, labels, out); };
  set(kGpuMemoryTotal, sample.memory_total_bytes);
  set(kGpuMemoryUsed, sample.memory_used_bytes);
  set(kGpuMemoryReserved, sample.memory_reserved_bytes);
  set(kGpuPower, sample.power_watts);
  set(kGpuPowerLimit, sample.power_limit_watts);
  set(kGpuPowerLimitDefault, info.power_limit_default_watts);
  set(kGpuEnergy, sample.energy_joules);
  set(kGpuUtilization, sample.utilization_ratio);
  set(kGpuMemoryUtilization, sample.memory_utilization_ratio);
  set(kGpuTemperature, sample.temperature_celsius);
  set(kGpuMemoryTemperature, sample.memory_temperature_celsius);
  set(kGpuSmClock, sample.sm_clock_hertz);
  set(kGpuSmClockMax, info.sm_clock_max_hertz);
  set(kGpuMemoryClock, sample.memory_clock_hertz);
  set(kGpuMemoryClockMax, info.memory_clock_max_hertz);
  if (sample.throttle_reasons.has_value()) {
    const std::vector<std::string> active = nvml::ThrottleReasonNames(*sample.throttle_reasons);
    for (const std::string& reason : nvml::AllThrottleReasons()) {
      const bool on = std::find(active.begin(), active.end(), reason) != active.end();
      out.Set(kGpuThrottled, on ? 1 : 0, {labels[0], labels[1], reason});
    }
  }
  SetGpuErrors(gpu, labels, out);
  SetGpuLink(gpu, labels, out);
  if (sample.processes.has_value()) {
    out.Set(kGpuProcesses, static_cast<double>(sample.processes->size()), labels);
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
            {ReasonLabel(reason)});
  }
  out.Set(kBufferBytes, static_cast<double>(tasks.buffer_bytes));
  out.Set(kLogDroppedBytes, static_cast<double>(tasks.dropped_log_bytes));
  out.Set(kLogDroppedLines, static_cast<double>(tasks.dropped_log_lines));
  out.Set(kStepsDropped, static_cast<double>(tasks.dropped_steps));
  out.Set(kDeviceMemory, static_cast<double>(values.device_memory_bytes));
  out.Set(kTrainerResident, static_cast<double>(values.trainer_resident_bytes));
  out.Set(kTrainerCpu, values.trainer_cpu_seconds_total);
  out.Set(kTrainerUtilization, values.trainer_utilization_ratio);
  SetJob(tasks, values.gpu.has_value(), out);
  if (values.gpu.has_value()) {
    SetGpu(*values.gpu, tasks.running, out);
  }
  return out.Take();
}

}  // namespace hearth::worker
