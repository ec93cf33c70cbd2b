#include "worker/daemon/worker_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "hearth/v1/trainer.pb.h"

namespace hearth::worker {
namespace {

using metrics::MetricDef;
using metrics::MetricType;
using metrics::Series;
using metrics::Stability;

using Values = WorkerMetricValues;
using Tasks = TaskSnapshot;

// A family: its row, and what adds its series; none where there is nothing to tell.
struct Family {
  MetricDef def;
  void (*add)(const Values& values, Series& out);
};

constexpr char kGpuLabels[] = "gpu,uuid";

std::vector<std::string> GpuLabels(const GpuReading& gpu) {
  return {absl::StrCat(gpu.info.index), gpu.info.uuid};
}

std::vector<std::string> GpuLabels(const GpuReading& gpu, std::string third) {
  return {absl::StrCat(gpu.info.index), gpu.info.uuid, std::move(third)};
}

template <auto kMember>
void Of(const Values& values, Series& out) {
  out.Add(static_cast<double>(values.*kMember));
}

// A number of one of the values' parts.
template <auto kPart, auto kMember>
void OfPart(const Values& values, Series& out) {
  out.Add(static_cast<double>(values.*kPart.*kMember));
}

// The running task.
template <auto kMember>
void OfJob(const Values& values, Series& out) {
  if (values.tasks.running) {
    out.Add(static_cast<double>(values.tasks.*kMember), {values.tasks.job_id});
  }
}

// A number of the task's last step report.
template <auto kNumber>
void OfStep(const Values& values, Series& out) {
  if (values.tasks.running && values.tasks.last_step.has_value()) {
    out.Add(static_cast<double>(((*values.tasks.last_step).*kNumber)()), {values.tasks.job_id});
  }
}

template <auto kMember>
void OfReading(const Values& values, Series& out) {
  if (values.gpu.has_value()) {
    out.Add(static_cast<double>((*values.gpu).*kMember), GpuLabels(*values.gpu));
  }
}

// What the GPU does not tell has no series.
template <typename T>
void AddIfTold(const GpuReading& gpu, const std::optional<T>& value, Series& out) {
  if (value.has_value()) {
    out.Add(static_cast<double>(*value), GpuLabels(gpu));
  }
}

template <auto kMember>
void OfSample(const Values& values, Series& out) {
  if (values.gpu.has_value()) {
    AddIfTold(*values.gpu, values.gpu->sample.*kMember, out);
  }
}

template <auto kMember>
void OfGpu(const Values& values, Series& out) {
  if (values.gpu.has_value()) {
    AddIfTold(*values.gpu, values.gpu->info.*kMember, out);
  }
}

template <auto kMember>
void OfRemap(const Values& values, Series& out) {
  if (values.gpu.has_value() && values.gpu->sample.remapped_rows.has_value()) {
    out.Add((*values.gpu->sample.remapped_rows).*kMember ? 1 : 0, GpuLabels(*values.gpu));
  }
}

// "EXIT_REASON_BAD_SPEC" -> "bad_spec".
std::string ReasonLabel(v1::ExitReason reason) {
  const std::string name = v1::ExitReason_Name(reason);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "EXIT_REASON_"));
}

void AddExits(const Values& values, Series& out) {
  for (int number = v1::ExitReason_MIN + 1; number <= v1::ExitReason_MAX; ++number) {
    const auto reason = static_cast<v1::ExitReason>(number);
    const auto found = values.tasks.exits.find(reason);
    out.Add(found == values.tasks.exits.end() ? 0.0 : static_cast<double>(found->second),
            {ReasonLabel(reason)});
  }
}

void AddGpuInfo(const Values& values, Series& out) {
  if (values.gpu.has_value()) {
    const GpuReading& gpu = *values.gpu;
    const nvml::GpuInfo& info = gpu.info;
    out.Add(1, {absl::StrCat(info.index), info.uuid, info.name, info.pci_bus_id,
                absl::StrCat(info.compute_major, ".", info.compute_minor), gpu.driver_version,
                gpu.cuda_version});
  }
}

void AddThrottleReasons(const Values& values, Series& out) {
  if (!values.gpu.has_value() || !values.gpu->sample.throttle_reasons.has_value()) {
    return;
  }
  const std::vector<std::string> active =
      nvml::ThrottleReasonNames(*values.gpu->sample.throttle_reasons);
  for (const std::string& reason : nvml::AllThrottleReasons()) {
    const bool on = std::find(active.begin(), active.end(), reason) != active.end();
    out.Add(on ? 1 : 0, GpuLabels(*values.gpu, reason));
  }
}

void AddRemappedRows(const Values& values, Series& out) {
  if (values.gpu.has_value() && values.gpu->sample.remapped_rows.has_value()) {
    const auto& rows = *values.gpu->sample.remapped_rows;
    out.Add(static_cast<double>(rows.correctable), GpuLabels(*values.gpu, "correctable"));
    out.Add(static_cast<double>(rows.uncorrectable), GpuLabels(*values.gpu, "uncorrectable"));
  }
}

constexpr Family kFamilies[] = {
    {{"hearth_worker_connected", MetricType::kGauge,
      "1 while a coordinator has welcomed this worker on an open stream", "", Stability::kBeta},
     OfPart<&Values::agent, &Agent::Counters::connected>},
    {{"hearth_worker_connects_total", MetricType::kCounter,
      "Streams that a coordinator welcomed; all but the first are reconnects", "",
      Stability::kBeta},
     OfPart<&Values::agent, &Agent::Counters::connects>},
    {{"hearth_worker_connect_failures_total", MetricType::kCounter,
      "Attempts to reach a coordinator that ended without a welcome", "", Stability::kBeta},
     OfPart<&Values::agent, &Agent::Counters::failed_attempts>},
    {{"hearth_worker_healthy", MetricType::kGauge,
      "0 when a process of an ended task could not be removed; no task is placed here then", "",
      Stability::kBeta},
     [](const Values& values, Series& out) {
       out.Add(values.tasks.unhealthy_reason.empty() ? 1 : 0);
     }},
    {{"hearth_worker_task_running", MetricType::kGauge, "1 while a trainer runs", "",
      Stability::kBeta},
     OfPart<&Values::tasks, &Tasks::running>},
    {{"hearth_worker_tasks_started_total", MetricType::kCounter, "Trainers started", "",
      Stability::kBeta},
     OfPart<&Values::tasks, &Tasks::tasks_started>},
    {{"hearth_worker_task_exits_total", MetricType::kCounter, "Trainers that ended, by why",
      "reason", Stability::kBeta},
     AddExits},
    {{"hearth_worker_report_buffer_bytes", MetricType::kGauge,
      "Reports and logs that the coordinator has not acknowledged", "", Stability::kBeta},
     OfPart<&Values::tasks, &Tasks::buffer_bytes>},
    {{"hearth_worker_log_dropped_bytes_total", MetricType::kCounter,
      "Log text lost to the bound of the report buffer", "", Stability::kBeta},
     OfPart<&Values::tasks, &Tasks::dropped_log_bytes>},
    {{"hearth_worker_log_dropped_lines_total", MetricType::kCounter,
      "Log lines lost to the bound of the report buffer", "", Stability::kBeta},
     OfPart<&Values::tasks, &Tasks::dropped_log_lines>},
    {{"hearth_worker_step_reports_dropped_total", MetricType::kCounter,
      "Step reports lost to the bound of the report buffer", "", Stability::kBeta},
     OfPart<&Values::tasks, &Tasks::dropped_steps>},
    {{"hearth_worker_device_memory_bytes", MetricType::kGauge,
      "Memory of the device (of the host, for a CPU worker)", "", Stability::kBeta},
     Of<&Values::device_memory_bytes>},
    {{"hearth_worker_trainer_resident_bytes", MetricType::kGauge,
      "Resident memory of the running trainer", "", Stability::kBeta},
     OfPart<&Values::trainer, &UsageSampler::Usage::resident_bytes>},
    {{"hearth_worker_trainer_cpu_seconds_total", MetricType::kCounter,
      "Processor time of all trainers so far", "", Stability::kBeta},
     OfPart<&Values::trainer, &UsageSampler::Usage::cpu_seconds_total>},
    {{"hearth_worker_trainer_utilization_ratio", MetricType::kGauge,
      "Processor time of the running trainer over that of its threads", "", Stability::kAlpha},
     OfPart<&Values::trainer, &UsageSampler::Usage::utilization_ratio>},
    {{"hearth_worker_job_step", MetricType::kGauge, "Last completed step of the running task",
      "job_id", Stability::kBeta},
     OfJob<&Tasks::step>},
    {{"hearth_worker_job_epoch", MetricType::kGauge, "Gang start that the running task belongs to",
      "job_id", Stability::kBeta},
     OfJob<&Tasks::epoch>},
    {{"hearth_worker_job_compute_seconds", MetricType::kGauge,
      "Time of this rank's own work on a micro-batch, without waits for other ranks: the median of "
      "its last steps; none for a job of one rank",
      "job_id", Stability::kBeta},
     [](const Values& values, Series& out) {
       if (values.tasks.running && values.tasks.compute_seconds > 0) {
         out.Add(values.tasks.compute_seconds, {values.tasks.job_id});
       }
     }},
    {{"hearth_worker_job_loss", MetricType::kGauge,
      "Training loss of the last step, nats per token (rank 0 alone)", "job_id", Stability::kBeta},
     OfStep<&v1::StepReport::loss>},
    {{"hearth_worker_job_tokens_per_second", MetricType::kGauge,
      "Tokens of the last step over its duration, all ranks (rank 0 alone)", "job_id",
      Stability::kBeta},
     OfStep<&v1::StepReport::tokens_per_second>},
    {{"hearth_worker_job_tokens_total", MetricType::kCounter,
      "Tokens that the job has consumed, all ranks (rank 0 alone)", "job_id", Stability::kBeta},
     OfStep<&v1::StepReport::tokens>},
    {{"hearth_worker_job_memory_bytes", MetricType::kGauge,
      "Device memory that the rank reports in use (rank 0 alone)", "job_id", Stability::kBeta},
     OfStep<&v1::StepReport::memory_bytes>},
    {{"hearth_worker_job_energy_joules_total", MetricType::kCounter,
      "Energy that this worker's GPU has used while the task ran", "job_id", Stability::kBeta},
     [](const Values& values, Series& out) {
       if (values.gpu.has_value()) {
         OfJob<&Tasks::energy_joules>(values, out);
       }
     }},
    {{"hearth_weight_quantizations_total", MetricType::kCounter,
      "Weight tensors quantised since the trainer started: one per tensor and step, whatever the "
      "number of micro-batches; with parallel.shard weights, each time that one is gathered (rank "
      "0 "
      "alone)",
      "job_id", Stability::kBeta},
     OfStep<&v1::StepReport::weight_quantizations>},
    {{"hearth_gpu_info", MetricType::kGauge, "Facts about the GPU to join on; always 1",
      "gpu,uuid,model,pci_bus_id,compute_capability,driver,cuda", Stability::kBeta},
     AddGpuInfo},
    {{"hearth_gpu_allocated", MetricType::kGauge, "1 while a trainer of ours runs on the GPU",
      kGpuLabels, Stability::kBeta},
     [](const Values& values, Series& out) {
       if (values.gpu.has_value()) {
         out.Add(values.tasks.running ? 1 : 0, GpuLabels(*values.gpu));
       }
     }},
    {{"hearth_gpu_memory_total_bytes", MetricType::kGauge, "Memory of the GPU", kGpuLabels,
      Stability::kBeta},
     OfSample<&nvml::GpuSample::memory_total_bytes>},
    {{"hearth_gpu_memory_used_bytes", MetricType::kGauge, "Memory in use by all processes",
      kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::memory_used_bytes>},
    {{"hearth_gpu_memory_reserved_bytes", MetricType::kGauge,
      "Memory that driver and firmware keep for themselves", kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::memory_reserved_bytes>},
    {{"hearth_gpu_power_watts", MetricType::kGauge,
      "Power drawn, mean over about the last second; prefer the rate of the energy", kGpuLabels,
      Stability::kBeta},
     OfSample<&nvml::GpuSample::power_watts>},
    {{"hearth_gpu_power_limit_watts", MetricType::kGauge, "Power limit in force", kGpuLabels,
      Stability::kBeta},
     OfSample<&nvml::GpuSample::power_limit_watts>},
    {{"hearth_gpu_power_limit_default_watts", MetricType::kGauge,
      "Power limit as it left the factory", kGpuLabels, Stability::kBeta},
     OfGpu<&nvml::GpuInfo::power_limit_default_watts>},
    {{"hearth_gpu_energy_joules_total", MetricType::kCounter,
      "Energy used since the driver was loaded", kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::energy_joules>},
    {{"hearth_gpu_utilization_ratio", MetricType::kGauge,
      "Share of the time in which any kernel ran", kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::utilization_ratio>},
    {{"hearth_gpu_memory_utilization_ratio", MetricType::kGauge,
      "Share of the time in which the memory was read or written", kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::memory_utilization_ratio>},
    {{"hearth_gpu_temperature_celsius", MetricType::kGauge, "Temperature of the GPU", kGpuLabels,
      Stability::kBeta},
     OfSample<&nvml::GpuSample::temperature_celsius>},
    {{"hearth_gpu_memory_temperature_celsius", MetricType::kGauge, "Temperature of the memory",
      kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::memory_temperature_celsius>},
    {{"hearth_gpu_sm_clock_hertz", MetricType::kGauge, "Clock of the multiprocessors", kGpuLabels,
      Stability::kBeta},
     OfSample<&nvml::GpuSample::sm_clock_hertz>},
    {{"hearth_gpu_sm_clock_max_hertz", MetricType::kGauge, "Highest clock of the multiprocessors",
      kGpuLabels, Stability::kBeta},
     OfGpu<&nvml::GpuInfo::sm_clock_max_hertz>},
    {{"hearth_gpu_memory_clock_hertz", MetricType::kGauge, "Clock of the memory", kGpuLabels,
      Stability::kBeta},
     OfSample<&nvml::GpuSample::memory_clock_hertz>},
    {{"hearth_gpu_memory_clock_max_hertz", MetricType::kGauge, "Highest clock of the memory",
      kGpuLabels, Stability::kBeta},
     OfGpu<&nvml::GpuInfo::memory_clock_max_hertz>},
    {{"hearth_gpu_throttled", MetricType::kGauge,
      "1 while this holds the clocks down, 0 otherwise; gpu_idle costs nothing", "gpu,uuid,reason",
      Stability::kBeta},
     AddThrottleReasons},
    {{"hearth_gpu_ecc_errors_total", MetricType::kCounter,
      "Uncorrectable memory errors since the driver was loaded", kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::ecc_errors>},
    {{"hearth_gpu_ecc_corrected_errors_total", MetricType::kCounter,
      "Memory errors that ECC corrected, since the driver was loaded", kGpuLabels,
      Stability::kBeta},
     OfSample<&nvml::GpuSample::ecc_corrected_errors>},
    {{"hearth_gpu_remapped_rows", MetricType::kGauge,
      "Rows of the memory replaced by spare ones since the GPU was made, by the kind of error",
      "gpu,uuid,kind", Stability::kBeta},
     AddRemappedRows},
    {{"hearth_gpu_row_remap_pending", MetricType::kGauge,
      "1 while a row waits for the next reset to be replaced", kGpuLabels, Stability::kBeta},
     OfRemap<&nvml::RemappedRows::pending>},
    {{"hearth_gpu_row_remap_failed", MetricType::kGauge,
      "1 when a row could not be replaced: the GPU has no spare one left", kGpuLabels,
      Stability::kBeta},
     OfRemap<&nvml::RemappedRows::failed>},
    {{"hearth_gpu_xid_errors_total", MetricType::kCounter, "XID errors since this worker started",
      kGpuLabels, Stability::kBeta},
     OfReading<&GpuReading::xid_errors>},
    {{"hearth_gpu_last_xid", MetricType::kGauge,
      "Number of the last XID error since this worker started, 0 = none", kGpuLabels,
      Stability::kBeta},
     OfReading<&GpuReading::last_xid>},
    {{"hearth_gpu_pcie_sent_bytes_total", MetricType::kCounter, "Bytes that the GPU sent over PCIe",
      kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::pcie_sent_bytes>},
    {{"hearth_gpu_pcie_received_bytes_total", MetricType::kCounter,
      "Bytes that the GPU received over PCIe", kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::pcie_received_bytes>},
    {{"hearth_gpu_pcie_replays_total", MetricType::kCounter,
      "PCIe packets that had to be sent again, since the driver was loaded", kGpuLabels,
      Stability::kBeta},
     OfSample<&nvml::GpuSample::pcie_replays>},
    {{"hearth_gpu_pcie_generation", MetricType::kGauge,
      "PCIe generation of the link now; an idle GPU lowers it", kGpuLabels, Stability::kBeta},
     OfSample<&nvml::GpuSample::pcie_generation>},
    {{"hearth_gpu_pcie_generation_max", MetricType::kGauge,
      "PCIe generation that GPU and slot can do together", kGpuLabels, Stability::kBeta},
     OfGpu<&nvml::GpuInfo::pcie_generation_max>},
    {{"hearth_gpu_pcie_lanes", MetricType::kGauge, "PCIe lanes in use", kGpuLabels,
      Stability::kBeta},
     OfSample<&nvml::GpuSample::pcie_width>},
    {{"hearth_gpu_pcie_lanes_max", MetricType::kGauge,
      "PCIe lanes that GPU and slot can use together", kGpuLabels, Stability::kBeta},
     OfGpu<&nvml::GpuInfo::pcie_width_max>},
    {{"hearth_gpu_processes", MetricType::kGauge,
      "Processes that use the GPU, as the driver lists them", kGpuLabels, Stability::kBeta},
     [](const Values& values, Series& out) {
       if (values.gpu.has_value() && values.gpu->sample.processes.has_value()) {
         out.Add(static_cast<double>(values.gpu->sample.processes->size()), GpuLabels(*values.gpu));
       }
     }},
};

}  // namespace

std::vector<MetricDef> WorkerMetricDefs() {
  return metrics::DefsOf(kFamilies);
}

std::vector<prometheus::MetricFamily> WorkerMetrics::Collect() const {
  return metrics::FamiliesOf(kFamilies, read_());
}

}  // namespace hearth::worker
