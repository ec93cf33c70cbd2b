// How Hearth's programs talk gRPC: keepalive, retries, backoff, a list of coordinators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "grpc/support/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"

namespace hearth::rpc {

inline constexpr int kDefaultPort = 7070;
inline constexpr absl::Duration kUnaryDeadline = absl::Seconds(10);
inline constexpr int kMaxMessageBytes = 16 << 20;

// Keepalive (ping every 10 s, answer within 5 s, also without calls) and the retry policy: 4
// attempts, 0.1 s to 1 s, x2, on UNAVAILABLE, for the unary calls of hearth.v1 that have an
// idempotency_level.
grpc::ChannelArguments ClientArguments();

// The service config of ClientArguments, as JSON.
std::string RetryServiceConfig();

// Keepalive of the server side, and tolerance for the client's pings.
void ConfigureServer(grpc::ServerBuilder& builder);

// Holds gRPC until the process ends. Without it, the one who destroys the last channel or server
// waits up to 10 s for sockets that peers have not closed yet; the end of the process closes them
// anyway. Connect and whoever starts a server call it. Any thread.
void KeepGrpc();

// A channel to one coordinator ("host:port"; a missing port is 7070).
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(std::string_view address,
                                                       const TlsFiles& files,
                                                       bool use_tls);

// `timeout` from now, for gRPC, on its monotonic clock: a jump of the wall clock does not move it.
gpr_timespec DeadlineAfter(absl::Duration timeout);

// Sets the deadline from now.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout = kUnaryDeadline);

// Delays between attempts: initial, doubled each time, at most `cap`, each times a factor in
// [0.8, 1.2). Not thread-safe.
class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(100);
    absl::Duration cap = absl::Seconds(5);
    double multiplier = 2.0;
    double jitter = 0.2;
  };
  // `uniform` returns numbers in [0, 1).
  Backoff(const Options& options, std::function<double()> uniform);
  // Seeded from getrandom.
  explicit Backoff(const Options& options);

  absl::Duration Next();
  void Reset();

 private:
  Options options_;
  std::function<double()> uniform_;
  absl::Duration next_;
};

// The coordinators to try, in order, round and round. Not thread-safe.
class CoordinatorList {
 public:
  // "A,B:7071,[::1]:7070": missing ports are 7070. kInvalidArgument: empty list or a malformed
  // entry.
  static absl::StatusOr<CoordinatorList> Parse(std::string_view text);

  const std::string& current() const { return addresses_[index_]; }
  // The one after; true when the list has wrapped, which is when to back off.
  bool Advance();
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  explicit CoordinatorList(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {}
  std::vector<std::string> addresses_;
  size_t index_ = 0;
};

}  // namespace hearth::rpc
