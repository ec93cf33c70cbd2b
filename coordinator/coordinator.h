// A whole coordinator in one object: store, event loop, gRPC and HTTP servers. main() runs one;
// tests and benchmarks run several.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/metrics/http_server.h"
#include "common/rpc/security.h"
#include "common/time/clock.h"
#include "coordinator/service/api/job_service.h"
#include "coordinator/service/api/worker_service.h"
#include "coordinator/service/checks/spec_check.h"
#include "coordinator/service/identity/gate.h"
#include "coordinator/service/identity/sessions.h"
#include "coordinator/service/loop/backups.h"
#include "coordinator/service/loop/executor.h"
#include "coordinator/service/loop/loop.h"
#include "coordinator/service/notify/notifier.h"
#include "coordinator/service/streams/stream_reactor.h"
#include "coordinator/store/store.h"
#include "grpcpp/server.h"

namespace hearth::coordinator {

struct CoordinatorOptions {
  StoreOptions store;  // data_dir is required
  LoopOptions loop;
  NotifierOptions notify;
  BackupFolder backups;  // path "" = DefaultBackupFolder; min_free_bytes is the loop's
  std::string listen = "127.0.0.1:7070";  // port 0 = any free one
  std::string http = "127.0.0.1:7071";
  bool open_metrics = false;            // /metrics and /sd/workers need no token
  std::vector<std::string> http_hosts;  // HttpAccessOptions::hosts
  bool insecure = false;                // clear text on non-loopback addresses
  rpc::TlsFiles tls;
  bool no_auth = false;  // everyone who reaches the coordinator may do everything
  int stream_threads = 2;
};

class Coordinator {
 public:
  // Opens the store, starts everything and writes <data-dir>/endpoints.json: {"listen":
  // "host:port", "http": "host:port", "pid": N, "generation": N}. Errors as Store::Open;
  // kInvalidArgument: addresses, TLS files; kUnavailable: a port is taken.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options,
                                                            Clock& clock = Clock::Real());
  // Stop()s.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // In order: health NOT_SERVING, streams ended with UNAVAILABLE, what was accepted committed and
  // answered, store closed.
  void Stop();

  // Where gRPC and HTTP listen, "host:port".
  const std::string& listen_address() const { return listen_address_; }
  const std::string& http_address() const { return http_address_; }
  int64_t generation() const { return store_->generation(); }

  // True once the store has failed: the process must end, with `failure`.
  bool failed() const { return failed_.load(); }
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mu_);
  // Milliseconds that rendering /metrics takes, `count` times; for benchmarks.
  std::vector<double> TimeScrapes(int count);
  // Runs `work` on the event loop between two batches; for tests.
  void OnLoop(std::function<void()> work);
  // Blocks until the store fails, or `stop` (polled) is true.
  void WaitUntil(const std::function<bool()>& stop);

 private:
  Coordinator(const CoordinatorOptions& options, Clock& clock) : options_(options), clock_(clock) {}
  absl::Status StartParts();
  absl::Status StartBackups();
  absl::Status StartGrpc();
  absl::Status StartHttp();
  absl::Status WriteEndpoints();
  v1::GetVersionResponse MakeVersion() const;

  const CoordinatorOptions options_;
  Clock& clock_;
  absl::Duration start_time_;
  std::string listen_address_;
  std::string http_address_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> serving_{false};
  bool stopped_ = false;

  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);

  // Destroyed from the last to the first.
  std::unique_ptr<Store> store_;
  std::unique_ptr<View> view_;
  std::unique_ptr<CoordinatorMetrics> metrics_;
  AgentHub hub_;
  StreamSet streams_;
  std::unique_ptr<Inspector> inspector_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<SpecChecker> checker_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Backups> backups_;
  Sessions sessions_;
  std::unique_ptr<grpc::Service> job_service_;
  std::unique_ptr<grpc::Service> worker_service_;
  std::unique_ptr<grpc::Service> agent_service_;
  std::unique_ptr<grpc::Service> identity_service_;
  std::unique_ptr<grpc::Service> coordinator_service_;
  std::unique_ptr<grpc::Service> generate_service_;
  std::unique_ptr<grpc::Service> plan_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<metrics::HttpServer> http_server_;
};

}  // namespace hearth::coordinator
