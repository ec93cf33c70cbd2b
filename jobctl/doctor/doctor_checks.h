// doctor's findings about a machine, a coordinator and its workers. Pure: the facts come as
// arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/io/disk.h"
#include "common/nvml/nvml.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"
#include "jobctl/doctor/finding.h"

namespace hearth::jobctl {

// What GetVersion answered, and when it was asked and answered by our own clock.
struct CoordinatorFacts {
  std::string address;
  v1::GetVersionResponse version;
  absl::Time asked;
  absl::Time answered;
};

// Version against ours, clock, room.
void CheckCoordinator(const CoordinatorFacts& facts, const std::string& our_version, Findings& out);

// State, version, disk and GPU of each; and whether there are any.
void CheckWorkers(const std::vector<v1::Worker>& workers,
                  const v1::GetVersionResponse& coordinator,
                  Findings& out);

// `what`: whose folder.
void CheckDisk(const std::string& what,
               const std::string& path,
               const absl::StatusOr<DiskSpace>& space,
               Findings& out);

// NVML could not be opened. `has_gpu`: the machine has a display or compute controller of NVIDIA's.
void CheckNoDriver(const absl::Status& why, bool has_gpu, Findings& out);

void CheckDriver(const std::string& driver_version, int cuda_version, int gpus, Findings& out);

// `sample` not OK: the GPU does not answer.
void CheckGpu(const nvml::GpuInfo& info,
              const absl::StatusOr<nvml::GpuSample>& sample,
              Findings& out);

// What `hearth-trainer doctor --json` printed: a list of {name, ok, text, remedy}; a row "device"
// says that it uses no GPU. `gpus`: how many the driver shows.
void MergeTrainerChecks(const std::string& json, int gpus, Findings& out);

}  // namespace hearth::jobctl
