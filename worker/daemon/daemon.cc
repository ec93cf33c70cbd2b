#include "worker/daemon/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/io/available_memory.h"
#include "common/io/env.h"
#include "common/io/private_files.h"
#include "common/log/log.h"
#include "common/rpc/security.h"
#include "worker/daemon/agent/name_key.h"

namespace hearth::worker {
namespace {

constexpr int kFirstHttpPort = 7080;
constexpr int kHttpPorts = 200;
// How long the last reports may take to be acknowledged, and the Goodbye to be sent.
constexpr absl::Duration kDeliveryTimeout = absl::Seconds(5);
constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(1);
// Pause, gRPC's own pause and one attempt together stay well below the 8 s after which a restarted
// coordinator may miss a worker (--reattach-prompt-seconds).
constexpr absl::Duration kReconnectCap = absl::Seconds(1);

absl::StatusOr<std::string> FindTrainer(const std::string& given) {
  std::string path = given;
  if (path.empty()) {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    path = (self.parent_path() / "hearth-trainer").string();
  }
  if (access(path.c_str(), X_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("trainer ", path, " (see --trainer)"));
  }
  return std::filesystem::absolute(path).string();
}

absl::StatusOr<Fd> LockDataDir(const std::string& dir) {
  HEARTH_RETURN_IF_ERROR(Annotate(CreatePrivateDir(Env::Real(), dir), "--data-dir"));
  const std::string path = dir + "/lock";
  Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.valid()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("--data-dir: cannot open ", path));
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--data-dir ", dir,
                     " is in use by another hearth-worker; give each its own "
                     "--name or --data-dir"));
  }
  return lock;
}

bool IsAnyAddress(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

std::string JoinHostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

// Consumes one signal; 0 = none waits.
int TakeSignal(int signals) {
  signalfd_siginfo info{};
  return read(signals, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))
             ? static_cast<int>(info.ssi_signo)
             : 0;
}

}  // namespace

Daemon::Daemon(WorkerOptions options,
               CheckpointRoot root,
               HostFacts facts,
               v1::DeviceInfo device,
               std::unique_ptr<GpuMonitor> gpu,
               Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      root_(std::move(root)),
      facts_(std::move(facts)),
      device_(std::move(device)),
      gpu_(std::move(gpu)) {}

Daemon::~Daemon() {
  // The HTTP threads and the agent call into the parts below, so both end before any part does.
  http_.reset();
  StopAgent();
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(WorkerOptions options, Clock& clock) {
  HostFacts facts = ReadHostFacts();
  v1::DeviceInfo device;
  std::unique_ptr<GpuMonitor> gpu;
  if (absl::StartsWith(options.device, "cuda")) {
    const std::string library =
        options.nvml_library.empty() ? nvml::DefaultLibrary() : options.nvml_library;
    HEARTH_ASSIGN_OR_RETURN(OpenedGpu opened,
                            OpenGpu(options.device, options.cuda_visible_devices, library));
    HEARTH_ASSIGN_OR_RETURN(device, MakeGpuDeviceInfo(opened, options.threads, facts));
    gpu = std::make_unique<GpuMonitor>(std::move(opened), clock, GpuMonitor::Options{});
  } else {
    HEARTH_ASSIGN_OR_RETURN(device, MakeDeviceInfo(options.device, options.threads, facts));
  }
  HEARTH_ASSIGN_OR_RETURN(options.trainer, FindTrainer(options.trainer));
  // A key that cannot be used must show now, not when the agent first connects.
  const rpc::TlsFiles tls{options.tls_cert, options.tls_key, options.tls_ca};
  HEARTH_RETURN_IF_ERROR(rpc::MakeChannelCredentials(tls, /*use_tls=*/false).status());
  if (options.checkpoint_root.empty()) {
    options.checkpoint_root = options.home + "/checkpoints";
  }
  HEARTH_ASSIGN_OR_RETURN(CheckpointRoot root, CheckpointRoot::Open(options.checkpoint_root));
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(options), std::move(root), std::move(facts),
                                            std::move(device), std::move(gpu), clock));
  // The name comes first: it is in every message and decides the data folder. HTTP comes last: its
  // handlers read the parts.
  HEARTH_RETURN_IF_ERROR(daemon->ClaimName());
  HEARTH_RETURN_IF_ERROR(daemon->ConfineTrainers());
  HEARTH_RETURN_IF_ERROR(daemon->StartParts());
  HEARTH_RETURN_IF_ERROR(daemon->StartHttp());
  return daemon;
}

absl::Status Daemon::ClaimName() {
  const std::string run_dir = options_.home + "/run";
  // One daemon a GPU, whatever it is called: two would share the GPU and both report it as free.
  if (gpu_ != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(DaemonIndex index,
                            DaemonIndex::ClaimGpu(run_dir, device_.uuid(), device_.index()));
    index_.emplace(std::move(index));
  } else if (options_.name.empty()) {
    HEARTH_ASSIGN_OR_RETURN(DaemonIndex index, DaemonIndex::Claim(run_dir, "cpu"));
    index_.emplace(std::move(index));
  }
  if (options_.name.empty()) {
    options_.name = absl::StrCat(facts_.host, gpu_ != nullptr ? "-gpu" : "-cpu", index_->index());
    HEARTH_RETURN_IF_ERROR(Annotate(ValidateWorkerId(options_.name), "give --name"));
  }
  if (options_.data_dir.empty()) {
    options_.data_dir = absl::StrCat(options_.home, "/workers/", options_.name);
  }
  HEARTH_ASSIGN_OR_RETURN(data_dir_lock_, LockDataDir(options_.data_dir));
  HEARTH_ASSIGN_OR_RETURN(name_key_, LoadOrMakeNameKey(options_.data_dir));
  // Peers of a gang connect to this address, so it is the one that faces the coordinator.
  HEARTH_ASSIGN_OR_RETURN(const rpc::CoordinatorList coordinators,
                          rpc::CoordinatorList::Parse(options_.coordinator));
  advertise_ = options_.advertise.empty() ? SourceAddressTowards(coordinators.current())
                                          : options_.advertise;
  return absl::OkStatus();
}

absl::Status Daemon::ConfineTrainers() {
  ConfinementOptions confine;
  confine.user = options_.trainer_user;
  confine.filter_calls = options_.trainer_filter;
  confine.limits = options_.trainer_limits;
  confine.name = options_.name;
  confine.gpu = gpu_ != nullptr;
  confine.checkpoint_root = root_.path();
  confine.home = options_.home;
  HEARTH_ASSIGN_OR_RETURN(Confinement confinement,
                          Confinement::Prepare(confine, {options_.trainer}));
  confinement_ = std::make_shared<const Confinement>(std::move(confinement));
  HEARTH_LOG_INFO("trainers run with: {}", absl::StrJoin(confinement_->InForce(), "; "));
  // Only root's processes with capabilities could make it.
  if (gpu_ != nullptr && access("/dev/nvidia-uvm", F_OK) != 0) {
    HEARTH_LOG_WARNING(
        "/dev/nvidia-uvm does not exist, and trainers cannot make it: run nvidia-modprobe -u -c 0");
  }
  return absl::OkStatus();
}

absl::Status Daemon::StartParts() {
  fatal_event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fatal_event_.valid()) {
    return absl::ErrnoToStatus(errno, "eventfd");
  }
  files_ = std::make_unique<RootedEnv>(
      Env::Real(),
      FileRoots{options_.data_roots, {root_.path()}, absl::StrCat("worker ", options_.name)});
  TaskTable::Options table;
  v1::Hello& identity = table.identity;
  identity.set_worker_id(options_.name);
  // New at each start: it tells the coordinator that tasks of an earlier daemon are gone.
  identity.set_incarnation(RandomHex(16));
  identity.set_host(facts_.host);
  *identity.mutable_device() = device_;
  identity.mutable_labels()->insert(options_.labels.begin(), options_.labels.end());
  identity.set_checkpoint_root(root_.path());
  identity.set_root_uuid(root_.uuid());
  identity.set_version(VersionString());
  identity.set_name_key(name_key_);
  for (const std::string& measure : confinement_->InForce()) {
    identity.add_confinement(measure);
  }
  table.tasks.device = options_.device;
  if (gpu_ != nullptr) {
    // The trainer sees one GPU only (CUDA_VISIBLE_DEVICES below), which is number 0 there.
    table.tasks.device = "cuda:0";
    table.device_name = absl::StrCat("cuda:", device_.index());
    table.energy = [this] { return gpu_->EnergyJoules(); };
  }
  table.tasks.threads = device_.threads();
  table.tasks.advertise_host = advertise_;
  table_ = std::make_unique<TaskTable>(std::move(table), root_, clock_);
  disk_ = std::make_unique<DiskWorker>(
      root_, *files_, [this](v1::AgentMessage answer) { table_->Answer(std::move(answer)); });
  Supervisor::Options supervisor;
  supervisor.trainer.program = options_.trainer;
  supervisor.trainer.confinement = confinement_;
  supervisor.trainer.arguments = {
      "worker",    "--hang-seconds", absl::StrCat(options_.trainer_hang_seconds),
      "--worker",  options_.name,    "--checkpoint-root",
      root_.path()};
  for (const std::string& folder : options_.data_roots) {
    supervisor.trainer.arguments.insert(supervisor.trainer.arguments.end(),
                                        {"--data-root", folder});
  }
  supervisor.child.gone_bound = options_.gone_bound;
  supervisor.child.silence.silence = options_.trainer_silence_seconds > 0
                                         ? absl::Seconds(options_.trainer_silence_seconds)
                                         : absl::InfiniteDuration();
  if (gpu_ != nullptr) {
    supervisor.trainer.environment = {absl::StrCat("CUDA_VISIBLE_DEVICES=", device_.uuid())};
    supervisor.child.device = gpu_.get();
  }
  HEARTH_ASSIGN_OR_RETURN(supervisor_, Supervisor::Create(supervisor, clock_, *table_));
  HEARTH_RETURN_IF_ERROR(StartSampling(supervisor));
  // They and the table call each other, so the table gets them afterwards.
  table_->Attach(*supervisor_, *disk_, *sampling_);
  metrics_ = std::make_unique<WorkerMetrics>([this] { return ReadMetrics(); });
  process_metrics_ = std::make_unique<metrics::ProcessMetrics>("hearth-worker");
  return absl::OkStatus();
}

absl::Status Daemon::StartSampling(const Supervisor::Options& trainers) {
  Sampling::Options sampling;
  sampling.program = trainers.trainer;
  sampling.program.arguments = {"write-text",
                                "--device",
                                gpu_ != nullptr ? "cuda:0" : "cpu",
                                "--threads",
                                absl::StrCat(device_.threads()),
                                "--checkpoint-root",
                                root_.path()};
  sampling.device = trainers.child.device;
  sampling.gone_bound = options_.gone_bound;
  HEARTH_ASSIGN_OR_RETURN(sampling_, Sampling::Create(sampling, root_, clock_, *table_));
  return absl::OkStatus();
}

absl::Status Daemon::StartHttp() {
  const std::map<std::string, metrics::HttpHandler> handlers = {
      {"/metrics",
       [this](const metrics::HttpRequest&) {
         const prometheus::Collectable* const all[] = {metrics_.get(), process_metrics_.get()};
         return metrics::HttpResponse{200, std::string(metrics::kTextContentType),
                                      metrics::Serialize(all)};
       }},
      {"/healthz",
       [this](const metrics::HttpRequest&) {
         const std::string reason = table_->snapshot().unhealthy_reason;
         metrics::HttpResponse response;
         response.status = reason.empty() ? 200 : 503;
         response.body = reason.empty() ? "ok\n" : reason + "\n";
         return response;
       }},
  };
  if (options_.http.empty()) {
    HEARTH_ASSIGN_OR_RETURN(http_, metrics::HttpServer::StartOnFreePort("127.0.0.1", kFirstHttpPort,
                                                                        kHttpPorts, handlers));
  } else {
    HEARTH_ASSIGN_OR_RETURN(http_, metrics::HttpServer::Start(options_.http, handlers));
  }
  const std::string address =
      JoinHostPort(IsAnyAddress(http_->host()) ? advertise_ : http_->host(), http_->port());
  table_->SetHttpAddress(address);
  HEARTH_LOG_INFO("worker {} ({}, {} threads), metrics at {}, checkpoints in {}", options_.name,
                  device_.model(), device_.threads(), address, root_.path());
  return ReplaceFile(Env::Real(), options_.data_dir + "/endpoints.json",
                     absl::StrCat(R"({"name": ")", options_.name, R"(", "http": ")", address,
                                  R"(", "pid": )", getpid(), "}\n"));
}

absl::Status Daemon::StartAgent() {
  HEARTH_ASSIGN_OR_RETURN(rpc::CoordinatorList coordinators,
                          rpc::CoordinatorList::Parse(options_.coordinator));
  const Agent::Options agent{
      .coordinators = std::move(coordinators),
      .tls = {options_.tls_cert, options_.tls_key, options_.tls_ca},
      .token_file = options_.token_file,
      .backoff = {.cap = kReconnectCap},
  };
  // The agent may call Tick at once, from its own thread: everything that Tick reads exists by now.
  absl::MutexLock lock(&mu_);
  agent_ = std::make_unique<Agent>(
      agent, *table_, clock_, [this] { Tick(); },
      [this](const absl::Status& status) { OnFatal(status); });
  return absl::OkStatus();
}

void Daemon::StopAgent() {
  // The agent is destroyed outside the lock: its thread may be in Tick, which takes the lock.
  std::unique_ptr<Agent> agent;
  {
    absl::MutexLock lock(&mu_);
    agent = std::move(agent_);
  }
}

void Daemon::Tick() {
  const absl::Duration now = clock_.Monotonic();
  const UsageSampler::Usage usage = sampler_.Look(
      supervisor_->running_pid(), absl::ToDoubleSeconds(now - last_look_), device_.threads());
  last_look_ = now;
  v1::DeviceStatus status;
  if (gpu_ != nullptr) {
    status = gpu_->Status();
  } else {
    status.set_memory_used_bytes(usage.resident_bytes);
    status.set_utilization_ratio(usage.utilization_ratio);
  }
  // 0 where the machine does not say how much it has.
  status.set_host_memory_available_bytes(
      std::min(AvailableMemory(Env::Real()), device_.host_memory_bytes()));
  table_->Tick(status, UnhealthyReason(), disk_->free_bytes());
  absl::MutexLock lock(&mu_);
  usage_ = usage;
}

std::string Daemon::UnhealthyReason() const {
  std::string reason = supervisor_->unhealthy_reason();
  return reason.empty() && gpu_ != nullptr ? gpu_->unhealthy_reason() : reason;
}

void Daemon::OnFatal(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    fatal_ = status;
  }
  // Run waits for this event; the agent must not be destroyed in its own thread.
  const uint64_t one = 1;
  static_cast<void>(!write(fatal_event_.get(), &one, sizeof(one)));
}

WorkerMetricValues Daemon::ReadMetrics() const {
  WorkerMetricValues values;
  values.tasks = table_->snapshot();
  values.device_memory_bytes = device_.memory_bytes();
  if (gpu_ != nullptr) {
    values.gpu = gpu_->Reading();
  }
  absl::MutexLock lock(&mu_);
  if (agent_ != nullptr) {
    values.agent = agent_->counters();
  }
  values.trainer = usage_;
  return values;
}

ExitCode Daemon::Run(int signals) {
  if (const absl::Status status = StartAgent(); !status.ok()) {
    HEARTH_LOG_ERROR("{}", status.ToString());
    return kExitError;
  }
  pollfd fds[] = {{signals, POLLIN, 0}, {fatal_event_.get(), POLLIN, 0}};
  while (true) {
    if (poll(fds, std::size(fds), -1) < 0 && errno != EINTR) {
      HEARTH_LOG_ERROR("poll: errno {}", errno);
      return KillAndLeave();
    }
    if (fds[1].revents != 0) {
      return LeaveFenced();
    }
    if (const int number = TakeSignal(signals); number != 0) {
      HEARTH_LOG_INFO("signal {}: stopping; a second one kills", number);
      return StopInOrder(signals);
    }
  }
}

void Daemon::WaitFor(int signals,
                     absl::Duration timeout,
                     const std::function<bool()>& done,
                     bool& signalled) {
  const absl::Duration deadline = clock_.Monotonic() + timeout;
  while (!signalled && !done() && clock_.Monotonic() < deadline) {
    pollfd fd = {signals, POLLIN, 0};
    // Short, because `done` is asked again only after it.
    poll(&fd, 1, 20);
    signalled = TakeSignal(signals) != 0;
  }
}

ExitCode Daemon::StopInOrder(int signals) {
  bool signalled = false;
  // First the tasks end, then their last reports reach the coordinator, then it hears goodbye. In
  // another order it would take an orderly stop for a lost worker.
  const absl::Duration grace = table_->StopAll();
  WaitFor(
      signals, grace + 2 * options_.gone_bound,
      [this] { return table_->AwaitNoTask(absl::ZeroDuration()); }, signalled);
  WaitFor(
      signals, kDeliveryTimeout, [this] { return table_->AwaitDelivered(absl::ZeroDuration()); },
      signalled);
  if (signalled) {
    HEARTH_LOG_WARNING("second signal: killing what runs");
    return KillAndLeave();
  }
  table_->SayGoodbye("stopped");
  // A coordinator that never answered gets no goodbye, and would let us wait for nothing.
  if (table_->welcomed()) {
    WaitFor(
        signals, kGoodbyeTimeout, [this] { return table_->goodbye_sent(); }, signalled);
  }
  StopAgent();
  HEARTH_LOG_INFO("stopped");
  return kExitOk;
}

ExitCode Daemon::KillAndLeave() {
  // The GPU must be free when this process is gone, so it waits until the kernel has reaped them.
  table_->KillAllNow();
  table_->AwaitNoTask(2 * options_.gone_bound);
  StopAgent();
  return kExitKilled;
}

ExitCode Daemon::LeaveFenced() {
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    status = fatal_;
  }
  // The coordinator has given our tasks to others: they must not go on writing checkpoints.
  HEARTH_LOG_ERROR("leaving: {}", status.ToString());
  KillAndLeave();
  if (absl::IsAborted(status)) {
    return kExitReplaced;
  }
  return absl::IsAlreadyExists(status) ? kExitNameTaken : kExitError;
}

}  // namespace hearth::worker
