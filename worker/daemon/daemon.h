// Puts hearth-worker together: who owns what, and in which order things start and stop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/io/rooted_env.h"
#include "common/metrics/http_server.h"
#include "common/metrics/metrics.h"
#include "common/time/clock.h"
#include "worker/daemon/agent/agent.h"
#include "worker/daemon/confine/confinement.h"
#include "worker/daemon/device/gpu_monitor.h"
#include "worker/daemon/device/inventory.h"
#include "worker/daemon/disk/checkpoint_root.h"
#include "worker/daemon/disk/disk_worker.h"
#include "worker/daemon/options.h"
#include "worker/daemon/supervise/child_process.h"
#include "worker/daemon/supervise/sampling.h"
#include "worker/daemon/supervise/supervisor.h"
#include "worker/daemon/supervise/task_table.h"
#include "worker/daemon/worker_metrics.h"

namespace hearth::worker {

class Daemon {
 public:
  // Claims name, folders and ports and starts every thread except the agent's. Errors say what to
  // change.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(WorkerOptions options, Clock& clock);
  ~Daemon();

  // Connects, and serves until a byte can be read from `signals` (a signalfd), or the coordinator
  // sends us away. Returns the exit code.
  ExitCode Run(int signals);

 private:
  Daemon(WorkerOptions options,
         CheckpointRoot root,
         HostFacts facts,
         v1::DeviceInfo device,
         std::unique_ptr<GpuMonitor> gpu,
         Clock& clock);

  absl::Status ClaimName();
  absl::Status ConfineTrainers();
  absl::Status StartParts();
  // Its process is confined as trainers are, on the same device.
  absl::Status StartSampling(const Supervisor::Options& trainers);
  absl::Status StartHttp();
  absl::Status StartAgent();
  void StopAgent();
  void Tick();
  std::string UnhealthyReason() const;
  void OnFatal(const absl::Status& status);
  WorkerMetricValues ReadMetrics() const;
  // Waits until `done` holds; `timeout` or a signal (then `signalled` is set) ends it early.
  void WaitFor(int signals,
               absl::Duration timeout,
               const std::function<bool()>& done,
               bool& signalled);
  ExitCode StopInOrder(int signals);
  ExitCode LeaveFenced();
  ExitCode KillAndLeave();

  WorkerOptions options_;
  Clock& clock_;
  const CheckpointRoot root_;
  const HostFacts facts_;
  const v1::DeviceInfo device_;
  std::optional<DaemonIndex> index_;
  Fd data_dir_lock_;
  std::string name_key_;
  std::shared_ptr<const Confinement> confinement_;
  Fd fatal_event_;  // eventfd, written by OnFatal
  std::string advertise_;

  mutable absl::Mutex mu_;
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);
  UsageSampler::Usage usage_ ABSL_GUARDED_BY(mu_);

  // Used by the agent's thread only.
  UsageSampler sampler_;
  absl::Duration last_look_ = absl::ZeroDuration();

  // Destroyed from the last to the first: scrapes end before the parts they read, the stream before
  // the table, the trainers before their listener. All except the agent exist before the HTTP
  // server starts.
  const std::unique_ptr<GpuMonitor> gpu_;  // null on a CPU worker
  std::unique_ptr<TaskTable> table_;
  std::unique_ptr<RootedEnv> files_;  // that jobs may name
  std::unique_ptr<DiskWorker> disk_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Sampling> sampling_;
  std::unique_ptr<WorkerMetrics> metrics_;
  std::unique_ptr<metrics::ProcessMetrics> process_metrics_;
  std::unique_ptr<Agent> agent_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<metrics::HttpServer> http_;
};

}  // namespace hearth::worker
