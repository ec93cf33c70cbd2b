#include "coordinator/coordinator.h"

#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/fault/fault.h"
#include "common/io/env.h"
#include "common/log/log.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/http/access.h"
#include "coordinator/http/http.h"
#include "coordinator/service/api/coordinator_service.h"
#include "coordinator/service/api/generate_service.h"
#include "coordinator/service/api/plan_service.h"
#include "coordinator/service/checks/limits.h"
#include "coordinator/service/identity/identity_service.h"
#include "coordinator/service/identity/local_tokens.h"
#include "coordinator/service/metrics/rpc_metrics.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"
#include "nlohmann/json.hpp"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
constexpr const char* kServices[] = {"",
                                     "hearth.v1.JobService",
                                     "hearth.v1.WorkerService",
                                     "hearth.v1.AgentService",
                                     "hearth.v1.IdentityService",
                                     "hearth.v1.CoordinatorService",
                                     "hearth.v1.GenerateService",
                                     "hearth.v1.PlanService"};

std::string JoinHostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

// The core knows what of the receivers its decisions need.
LoopOptions WithReceivers(const CoordinatorOptions& options) {
  LoopOptions loop = options.loop;
  const NotifySettings& settings = options.notify.settings;
  loop.core.notify = settings.all_jobs;
  loop.core.notify_url_prefixes = settings.url_prefixes;
  for (const auto& [name, path] : settings.commands) {
    loop.core.notify_commands.insert(name);
  }
  return loop;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const CoordinatorOptions& options,
                                                                Clock& clock) {
  const bool tls = !options.tls.cert.empty();
  HEARTH_RETURN_IF_ERROR(rpc::CheckListenAddress(options.listen, tls, options.insecure));
  HEARTH_RETURN_IF_ERROR(rpc::CheckListenAddress(options.http, tls, options.insecure));
  rpc::KeepGrpc();
  std::unique_ptr<Coordinator> coordinator(new Coordinator(options, clock));
  HEARTH_RETURN_IF_ERROR(coordinator->StartParts());
  return coordinator;
}

Coordinator::~Coordinator() {
  Stop();
}

absl::Status Coordinator::StartBackups() {
  BackupFolder folder = options_.backups;
  if (folder.path.empty()) {
    folder.path = DefaultBackupFolder(options_.store.data_dir);
  }
  folder.min_free_bytes = options_.loop.min_free_bytes;
  HEARTH_RETURN_IF_ERROR(CheckBackupFolder(folder.path, options_.store.data_dir));
  backups_ = std::make_unique<Backups>(options_.store.data_dir, std::move(folder), clock_);
  return absl::OkStatus();
}

absl::Status Coordinator::StartParts() {
  HEARTH_RETURN_IF_ERROR(StartBackups());
  HEARTH_ASSIGN_OR_RETURN(store_, Store::Open(options_.store));
  HEARTH_ASSIGN_OR_RETURN(const LoadedState state, store_->Load());
  for (const std::string& warning : state.warnings) {
    HEARTH_LOG_WARNING("{}", warning);
  }
  start_time_ = clock_.Monotonic();
  view_ = std::make_unique<View>(options_.store.events);
  metrics_ = std::make_unique<CoordinatorMetrics>(store_->generation(), state.set_aside);
  inspector_ = std::make_unique<Inspector>(hub_, clock_, store_->generation());
  executor_ = std::make_unique<Executor>(options_.stream_threads);
  loop_ = std::make_unique<Loop>(WithReceivers(options_), clock_, *store_, state, *view_, hub_,
                                 *inspector_, *metrics_);
  notifier_ = std::make_unique<Notifier>(
      options_.notify, clock_, [this](const DeliveryRequest& request, const absl::Status& status) {
        loop_->PostFromAgent(DeliveryDone{request.job_id, request.id, status}, nullptr);
      });
  checker_ = std::make_unique<SpecChecker>(*loop_, *view_, *inspector_);
  HEARTH_CHECK(CallTableProblem().empty(), CallTableProblem().c_str());
  gate_ = std::make_unique<Gate>(*view_, *loop_, clock_, options_.no_auth);
  HEARTH_RETURN_IF_ERROR(fault::Check("coordinator.before_serve"));
  loop_->Start([this](const InspectionRequest& request) { checker_->Inspect(request); },
               [this](DeliveryRequest request) { notifier_->Send(std::move(request)); },
               [this](const absl::Status& status) {
                 absl::MutexLock lock(&mu_);
                 failure_ = status;
                 failed_ = true;
                 serving_ = false;
               },
               [this] {
                 sessions_.Check(clock_.Monotonic(), [this](const TokenPtr& token) {
                   return gate_->StillValid(token);
                 });
               },
               [this](const Origin& origin, const v1::JobRecord* job) {
                 return gate_->Recheck(origin, job);
               });
  // The ports open last: a caller who gets through finds every part running.
  HEARTH_RETURN_IF_ERROR(StartGrpc());
  HEARTH_RETURN_IF_ERROR(StartHttp());
  HEARTH_RETURN_IF_ERROR(WriteEndpoints());
  serving_ = true;
  HEARTH_LOG_INFO("generation {}: {} jobs, {} workers known; gRPC on {}, HTTP on {}",
                  store_->generation(), state.core.jobs.size(), state.core.workers.size(),
                  listen_address_, http_address_);
  return absl::OkStatus();
}

v1::GetVersionResponse Coordinator::MakeVersion() const {
  v1::GetVersionResponse version;
  version.set_version(std::string(Version()));
  version.set_commit(std::string(GitCommit()));
  version.set_generation(store_->generation());
  version.mutable_start_time()->set_seconds(absl::ToUnixSeconds(clock_.Now()));
  const CoreOptions& core = options_.loop.core;
  version.set_heartbeat_seconds(absl::ToDoubleSeconds(core.heartbeat));
  version.set_silence_seconds(absl::ToDoubleSeconds(core.silence));
  version.set_reattach_grace_seconds(absl::ToDoubleSeconds(core.reattach_grace));
  version.set_reattach_prompt_seconds(absl::ToDoubleSeconds(core.reattach_prompt));
  version.set_data_dir(std::filesystem::absolute(options_.store.data_dir).string());
  version.set_isolation_grace_seconds(absl::ToDoubleSeconds(core.isolation_grace));
  return version;
}

absl::Status Coordinator::StartGrpc() {
  const ServiceParts parts{*loop_,   *view_,    *store_, hub_,   *inspector_, *checker_, *executor_,
                           streams_, *metrics_, clock_,  *gate_, sessions_,   *backups_};
  job_service_ = MakeJobService(parts, MakeVersion());
  worker_service_ = MakeWorkerService(parts);
  agent_service_ = MakeAgentService(parts);
  identity_service_ = MakeIdentityService(parts);
  coordinator_service_ = MakeCoordinatorService(parts);
  generate_service_ = MakeGenerateService(parts);
  plan_service_ = MakePlanService(parts);

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  // gRPC answers health checks without a descriptor; naming ours links it in, so that reflection
  // can describe the service.
  static_cast<void>(grpc::health::v1::HealthCheckRequest::descriptor());
  grpc::ServerBuilder builder;
  rpc::ConfigureServer(builder);
  builder.SetMaxReceiveMessageSize(kReceiveBytes);
  HEARTH_ASSIGN_OR_RETURN(const auto credentials, rpc::MakeServerCredentials(options_.tls));
  HEARTH_ASSIGN_OR_RETURN(const rpc::HostPort address, rpc::ParseHostPort(options_.listen));
  // Before the first call where the port is known; where it is not, nobody calls yet.
  if (!options_.no_auth && address.port != 0) {
    HEARTH_RETURN_IF_ERROR(AllowLocalTokens(address.port, *gate_));
  }
  int port = 0;
  // A second process must not share the port silently.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(options_.listen, credentials, &port);
  builder.RegisterService(job_service_.get());
  builder.RegisterService(worker_service_.get());
  builder.RegisterService(agent_service_.get());
  builder.RegisterService(identity_service_.get());
  builder.RegisterService(coordinator_service_.get());
  builder.RegisterService(generate_service_.get());
  builder.RegisterService(plan_service_.get());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<RpcMetricsFactory>(*metrics_, clock_));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options_.listen, " (--listen): is the port taken?"));
  }
  if (!options_.no_auth && address.port == 0) {
    HEARTH_RETURN_IF_ERROR(AllowLocalTokens(port, *gate_));
  }
  for (const char* service : kServices) {
    server_->GetHealthCheckService()->SetServingStatus(service, true);
  }
  listen_address_ = JoinHostPort(address.host, port);
  return absl::OkStatus();
}

absl::Status Coordinator::StartHttp() {
  HttpParts parts{
      *view_,
      *metrics_,
      [this] { return clock_.Monotonic() - start_time_ < options_.loop.core.reattach_grace; },
      [this] { return serving_.load(); },
      [this](std::string_view job_id) { return store_->Find(job_id, StreamKind::kHistory); },
      [this](std::string_view job_id) { return store_->Find(job_id, StreamKind::kLog); }};
  HEARTH_ASSIGN_OR_RETURN(const rpc::HostPort address, rpc::ParseHostPort(options_.http));
  const bool loopback = rpc::IsLoopback(address.host);
  metrics::HttpAccess access;
  access.guard = MakeHttpGuard(
      {loopback, options_.no_auth, options_.open_metrics, options_.http_hosts},
      [this](const metrics::HttpRequest& request) {
        return gate_->AdmitReader(request.authorization, request.address, request.path).status();
      });
  if (!loopback && !options_.tls.cert.empty()) {
    HEARTH_ASSIGN_OR_RETURN(access.tls_cert, Env::Real().ReadFile(options_.tls.cert));
    HEARTH_ASSIGN_OR_RETURN(access.tls_key, Env::Real().ReadFile(options_.tls.key));
  }
  HEARTH_ASSIGN_OR_RETURN(
      http_server_,
      metrics::HttpServer::Start(options_.http, MakeHttpHandlers(parts), {}, std::move(access)));
  http_address_ = JoinHostPort(http_server_->host(), http_server_->port());
  return absl::OkStatus();
}

absl::Status Coordinator::WriteEndpoints() {
  const nlohmann::json endpoints = {{"listen", listen_address_},
                                    {"http", http_address_},
                                    {"pid", getpid()},
                                    {"generation", store_->generation()}};
  return ReplaceFile(Env::Real(), options_.store.data_dir + "/endpoints.json",
                     endpoints.dump() + "\n");
}

void Coordinator::Stop() {
  if (stopped_) {
    return;
  }
  stopped_ = true;
  serving_ = false;
  const absl::Status stopping =
      rpc::UnavailableError("the coordinator is stopping", "STOPPING", absl::Seconds(1));
  if (server_ != nullptr) {
    server_->GetHealthCheckService()->SetServingStatus(false);
    streams_.CloseAll(stopping);
    hub_.CloseAll(stopping);
    backups_->Stop();
    server_->Shutdown(rpc::DeadlineAfter(kShutdownGrace));
    server_->Wait();
  }
  http_server_.reset();
  // Before the loop, which still takes down what was delivered.
  if (notifier_ != nullptr) {
    notifier_->Stop();
  }
  // After the server: calls that were under way still waited for the loop's answers.
  if (loop_ != nullptr) {
    loop_->Stop();
  }
  // Last: streams that end run on it.
  if (executor_ != nullptr) {
    executor_->Stop();
  }
}

absl::Status Coordinator::failure() const {
  absl::MutexLock lock(&mu_);
  return failure_;
}

std::vector<double> Coordinator::TimeScrapes(int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    const absl::Duration start = Clock::Real().Monotonic();
    metrics_->Render(*view_);
    out.push_back(absl::ToDoubleMilliseconds(Clock::Real().Monotonic() - start));
  }
  return out;
}

void Coordinator::OnLoop(std::function<void()> work) {
  loop_->Query([work = std::move(work)](const Core*) { work(); });
}

void Coordinator::WaitUntil(const std::function<bool()>& stop) {
  // The real clock, whatever the coordinator itself runs on: signals arrive in real time.
  while (!stop()) {
    absl::MutexLock lock(&mu_);
    const auto has_failed = [this] { return failed_.load(); };
    if (Clock::Real().AwaitWithTimeout(mu_, absl::Condition(&has_failed), absl::Milliseconds(50))) {
      return;
    }
  }
}

}  // namespace hearth::coordinator
