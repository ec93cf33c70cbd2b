#include "common/rpc/channel.h"

#include <grpc/grpc.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/create_channel.h"
#include "hearth/v1/identity.pb.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::rpc {
namespace {

constexpr int kKeepaliveTimeMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
constexpr int kMinPingIntervalMs = 5'000;

// Adds the default port to "host", "1.2.3.4" and "[::1]".
absl::StatusOr<std::string> WithPort(std::string_view text) {
  const std::string address(
      absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
  const bool bracketed = !address.empty() && address.front() == '[';
  const bool has_port =
      bracketed ? address.find("]:") != std::string::npos : address.find(':') != std::string::npos;
  const std::string full = has_port ? address : absl::StrCat(address, ":", kDefaultPort);
  HEARTH_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(full));
  if (parsed.port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", full, "\": port 0 cannot be dialled"));
  }
  return full;
}

// Unary calls that the proto says may be repeated. Callers of streams reconnect with a cursor.
bool IsRepeatable(const google::protobuf::MethodDescriptor& method) {
  return !method.client_streaming() && !method.server_streaming() &&
         method.options().idempotency_level() !=
             google::protobuf::MethodOptions::IDEMPOTENCY_UNKNOWN;
}

}  // namespace

std::string RetryServiceConfig() {
  std::vector<std::string> names;
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::Worker::descriptor()->file(),
        v1::Token::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const google::protobuf::ServiceDescriptor& service = *file->service(i);
      for (int k = 0; k < service.method_count(); ++k) {
        if (IsRepeatable(*service.method(k))) {
          names.push_back(absl::StrCat(R"({"service":")", service.full_name(), R"(","method":")",
                                       service.method(k)->name(), R"("})"));
        }
      }
    }
  }
  return absl::StrCat(R"({"methodConfig":[{"name":[)", absl::StrJoin(names, ","),
                      R"(],"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.1s",)",
                      R"("maxBackoff":"1s","backoffMultiplier":2,)",
                      R"("retryableStatusCodes":["UNAVAILABLE"]}}],)",
                      R"("retryThrottling":{"maxTokens":10,"tokenRatio":0.1}})");
}

grpc::ChannelArguments ClientArguments() {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // 0 = no bound. Else gRPC stops its pings after two without data, and a cut cable goes unnoticed.
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 1);
  // gRPC's own reconnect delay starts at 1 s and grows to 2 min: too long after a coordinator
  // restart.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  // This is what one attempt may take at least, not a pause: a busy machine needs more than a
  // moment for the handshake.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  args.SetServiceConfigJSON(RetryServiceConfig());
  return args;
}

void ConfigureServer(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Below the clients' keepalive time, or their pings count as abuse and end the connection
  // (GOAWAY, too_many_pings).
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  // Without this a second coordinator on the same port would silently share it.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
}

void KeepGrpc() {
  static const bool kept = [] {
    grpc_init();
    return true;
  }();
  static_cast<void>(kept);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(std::string_view address,
                                                       const TlsFiles& files,
                                                       bool use_tls) {
  HEARTH_ASSIGN_OR_RETURN(const std::string full, WithPort(address));
  HEARTH_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                          MakeChannelCredentials(files, use_tls));
  KeepGrpc();
  return grpc::CreateCustomChannel(full, credentials, ClientArguments());
}

gpr_timespec DeadlineAfter(absl::Duration timeout) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN));
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(DeadlineAfter(timeout));
}

Backoff::Backoff(const Options& options, std::function<double()> uniform)
    : options_(options), uniform_(std::move(uniform)), next_(options.initial) {}

Backoff::Backoff(const Options& options)
    : Backoff(options,
              [engine = std::mt19937_64(std::stoull(RandomHex(8), nullptr, 16))]() mutable {
                return std::uniform_real_distribution<double>(0.0, 1.0)(engine);
              }) {}

absl::Duration Backoff::Next() {
  const absl::Duration base = std::min(next_, options_.cap);
  next_ = std::min(next_ * options_.multiplier, options_.cap);
  return base * (1.0 - options_.jitter + 2.0 * options_.jitter * uniform_());
}

void Backoff::Reset() {
  next_ = options_.initial;
}

absl::StatusOr<CoordinatorList> CoordinatorList::Parse(std::string_view text) {
  std::vector<std::string> addresses;
  for (const absl::string_view item :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',', absl::SkipWhitespace())) {
    HEARTH_ASSIGN_OR_RETURN(std::string address,
                            WithPort(std::string_view(item.data(), item.size())));
    addresses.push_back(std::move(address));
  }
  if (addresses.empty()) {
    return absl::InvalidArgumentError("no coordinator address given (--coordinator host:port,...)");
  }
  return CoordinatorList(std::move(addresses));
}

bool CoordinatorList::Advance() {
  index_ = (index_ + 1) % addresses_.size();
  return index_ == 0;
}

}  // namespace hearth::rpc
