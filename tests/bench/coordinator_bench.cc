// How fast the control plane is, over loopback gRPC and a real disk:
//   submits per second, acknowledged durably, with 16 concurrent clients      (target >= 800/s)
//   one page of ListJobs with 10,000 jobs                                     (target <= 100 ms)
//   one scrape of /metrics with 10,000 jobs                                   (target <= 100 ms)
// Prints each with its target and ratio; exit code 1 when one is missed. Usage: bench_coordinator
// [data-dir]
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/ids.h"
#include "common/base/system.h"
#include "common/log/log.h"
#include "common/rpc/bearer.h"
#include "common/rpc/channel.h"
#include "coordinator/coordinator.h"
#include "grpcpp/create_channel.h"
#include "hearth/v1/job.grpc.pb.h"
#include "tests/support/coordinator/loopback_options.h"

namespace hearth::coordinator {
namespace {

constexpr int kClients = 16;
constexpr int kJobs = 10'000;
constexpr double kSubmitsPerSecond = 800;
constexpr double kListMs = 100;

v1::JobSpec Spec() {
  v1::JobSpec spec;
  spec.set_name("bench");
  (*spec.mutable_labels())["team"] = "research";
  spec.mutable_model()->set_preset("hearth-112m");
  spec.mutable_model()->set_vocab(49152);
  spec.mutable_data()->add_train()->set_path("/data/train");
  spec.mutable_data()->set_sequence_length(2048);
  spec.mutable_train()->set_steps(1000);
  return spec;
}

std::unique_ptr<v1::JobService::Stub> Connect(const std::string& address, int client) {
  grpc::ChannelArguments arguments = rpc::ClientArguments();
  arguments.SetInt("hearth.client", client);  // a connection for each client
  return v1::JobService::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

// The token that the coordinator left for this account.
rpc::Credentials LocalCredentials(const std::string& address) {
  const auto token = rpc::FindToken(address, "", rpc::LocalToken::kAdmin);
  return {token.ok() ? *token : "", ""};
}

double Percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

bool Report(const char* what, double value, const char* unit, double target, bool more_is_better) {
  const double ratio = more_is_better ? value / target : target / value;
  std::printf("%-46s %10.1f %-5s target %s %.0f  ratio %.2f  %s\n", what, value, unit,
              more_is_better ? ">=" : "<=", target, ratio, ratio >= 1 ? "ok" : "MISSED");
  return ratio >= 1;
}

// Submits `count` jobs from kClients threads; fills the latencies in ms and returns jobs per
// second.
double SubmitAll(const std::string& address, int count, std::vector<double>& latencies_ms) {
  const rpc::Credentials credentials = LocalCredentials(address);
  std::vector<std::vector<double>> per_client(kClients);
  std::atomic<int> left{count};
  std::atomic<int> failures{0};
  std::vector<std::thread> clients;
  const absl::Time start = absl::Now();
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      const auto stub = Connect(address, client);
      while (left.fetch_sub(1) > 0) {
        v1::CreateJobRequest request;
        *request.mutable_spec() = Spec();
        request.set_request_id(RandomUuid());
        grpc::ClientContext context;
        rpc::SetDeadline(context);
        rpc::Authorize(context, credentials);
        v1::Job job;
        const absl::Time before = absl::Now();
        failures += stub->CreateJob(&context, request, &job).ok() ? 0 : 1;
        per_client[client].push_back(absl::ToDoubleMilliseconds(absl::Now() - before));
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (const std::vector<double>& latencies : per_client) {
    latencies_ms.insert(latencies_ms.end(), latencies.begin(), latencies.end());
  }
  if (failures > 0) {
    std::printf("%d submits failed\n", failures.load());
  }
  return (count - failures) / seconds;
}

std::vector<double> ListPages(const std::string& address, int page_size, const char* filter) {
  const auto stub = Connect(address, 0);
  const rpc::Credentials credentials = LocalCredentials(address);
  std::vector<double> latencies;
  v1::ListJobsRequest request;
  request.set_page_size(page_size);
  request.set_filter(filter);
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    rpc::SetDeadline(context);
    rpc::Authorize(context, credentials);
    v1::ListJobsResponse response;
    const absl::Time before = absl::Now();
    if (!stub->ListJobs(&context, request, &response).ok()) {
      std::printf("list failed\n");
    }
    latencies.push_back(absl::ToDoubleMilliseconds(absl::Now() - before));
    request.set_page_token(response.next_page_token());
  }
  return latencies;
}

int Run(const std::string& data_dir) {
  SetEnv("HEARTH_HOME", data_dir.c_str());  // where the token will be
  CoordinatorOptions options = LoopbackOptions(data_dir + "/data");
  options.no_auth = false;
  auto coordinator = Coordinator::Start(options);
  if (!coordinator.ok()) {
    std::printf("%s\n", coordinator.status().ToString().c_str());
    return 1;
  }
  const std::string& address = (*coordinator)->listen_address();
  std::vector<double> warm_up;
  SubmitAll(address, 200, warm_up);
  std::vector<double> latencies;
  const double rate = SubmitAll(address, kJobs - 200, latencies);
  bool ok = Report("submits/s, durable, 16 clients", rate, "/s", kSubmitsPerSecond, true);
  std::printf("  latency p50 %.1f ms, p99 %.1f ms; %d jobs stored\n", Percentile(latencies, 0.5),
              Percentile(latencies, 0.99), kJobs);
  for (const auto& [page_size, filter] : {std::pair<int, const char*>{50, ""},
                                          {1000, ""},
                                          {50, "name=none"},
                                          {1000, "label.team=research state=queued"}}) {
    const std::vector<double> pages = ListPages(address, page_size, filter);
    const std::string what =
        absl::StrCat("list p99, page ", page_size, *filter == 0 ? "" : ", filter ", filter);
    ok = Report(what.c_str(), Percentile(pages, 0.99), "ms", kListMs, false) && ok;
  }
  ok = Report("scrape of /metrics, p99", Percentile((*coordinator)->TimeScrapes(20), 0.99), "ms",
              kListMs, false) &&
       ok;
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace hearth::coordinator

int main(int argc, char** argv) {
  hearth::log::Init("bench_coordinator", "warning").IgnoreError();
  std::string dir = argc > 1 ? argv[1] : "";
  const bool temporary = dir.empty();
  if (temporary) {
    dir = "/var/tmp/bench_coordinator_" + hearth::RandomHex(4);  // a disk, where /tmp may be none
  }
  const int code = hearth::coordinator::Run(dir);
  if (temporary) {
    std::filesystem::remove_all(dir);
  }
  return code;
}
