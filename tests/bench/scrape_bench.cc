// How long a scrape of a coordinator takes that has 1,000 finished and 100 running jobs, each with
// all that a job can have, through its HTTP port (target <= 100 ms), and how many series it has
// (within the documented bound). Exit code 1 when one is missed. Usage: bench_scrape
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/metrics/http_server.h"
#include "common/time/clock.h"
#include "coordinator/core/transitions.h"
#include "coordinator/http/http.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "coordinator/service/view/view.h"

namespace hearth::coordinator {
namespace {

constexpr struct {
  int finished = 1000;
  int running = 100;
} kJobs;
constexpr int kScrapes = 50;
constexpr double kTargetMs = 100;

void AddJob(Effects& effects, const std::string& id, v1::JobState state, int number) {
  v1::Job& job = *effects.jobs.emplace_back().record.mutable_job();
  job.set_job_id(id);
  job.set_state(state);
  job.set_epoch(2);
  job.mutable_create_time()->set_seconds(number);
  job.mutable_end_time()->set_seconds(number);
  job.mutable_spec()->set_name("bench");
  job.mutable_spec()->mutable_model()->set_preset("hearth-112m");
  job.mutable_spec()->mutable_precision()->set_recipe("fp8");
  job.mutable_run_info()->set_recipe_execution("native");
  job.mutable_checkpoint()->mutable_create_time()->set_seconds(number);
  job.mutable_recovery()->set_seconds(3.5);
  v1::StepReport report;
  report.set_step(1000 + number);
  report.set_tokens(1'000'000'000 + number);
  report.set_loss(2.7182818);
  report.set_grad_norm(0.57721);
  report.set_learning_rate(3e-4);
  report.set_step_seconds(0.123);
  report.set_tokens_per_second(1.9e5);
  report.set_recipe("fp8");
  report.set_energy_joules(70);
  report.set_validation_loss(2.8);
  report.set_comm_seconds(0.01);
  report.set_comm_bytes(1 << 20);
  report.mutable_time()->set_seconds(number);
  *job.mutable_last_report() = report;
  *effects.history.emplace_back(HistoryAppend{id, {}}).record.mutable_step() = report;
  effects.checkpoint_writes.push_back({id, 1.25});
  for (const std::string& cause : RecoveryCauses()) {
    v1::JobEvent& event = effects.events.emplace_back();
    event.set_job_id(id);
    event.set_type("state");
    event.set_from_state(v1::JOB_STATE_RUNNING);
    event.set_to_state(v1::JOB_STATE_RECOVERING);
    event.set_reason_code(cause);
  }
}

// The body of an answer; empty when there was none.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n");
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      std::vector<char> buffer(1 << 16);
      for (ssize_t n = 0; (n = read(fd, buffer.data(), buffer.size())) > 0;) {
        answer.append(buffer.data(), static_cast<size_t>(n));
      }
    }
  }
  close(fd);
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

int Run() {
  View view(EventBounds{100});
  CoordinatorMetrics metrics(1);
  std::vector<Effects> batch(1);
  for (int i = 0; i < kJobs.finished; ++i) {
    AddJob(batch[0], absl::StrCat("finished-", i), v1::JOB_STATE_SUCCEEDED, i);
  }
  for (int i = 0; i < kJobs.running; ++i) {
    AddJob(batch[0], absl::StrCat("running-", i), v1::JOB_STATE_RUNNING, kJobs.finished + i);
  }
  metrics.Observe(batch, view);
  view.Apply(absl::MakeSpan(batch));
  HttpParts parts{view, metrics, [] { return false; }, [] { return true; }, {}, {}};
  const auto server = metrics::HttpServer::Start("127.0.0.1:0", MakeHttpHandlers(parts));
  if (!server.ok()) {
    std::printf("%s\n", server.status().ToString().c_str());
    return 1;
  }
  std::vector<double> ms;
  std::string body;
  for (int i = 0; i < kScrapes; ++i) {
    const absl::Duration start = Clock::Real().Monotonic();
    body = Get((*server)->port(), "/metrics");
    ms.push_back(absl::ToDoubleMilliseconds(Clock::Real().Monotonic() - start));
  }
  std::sort(ms.begin(), ms.end());
  size_t series = 0;
  for (const absl::string_view line : absl::StrSplit(body, '\n', absl::SkipEmpty())) {
    series += absl::StartsWith(line, "#") ? 0 : 1;
  }
  const size_t bound = (kJobs.running + kRecentJobs) * kSeriesPerJob + kSeriesFixed;
  const double p99 = ms[static_cast<size_t>(0.99 * (kScrapes - 1))];
  std::printf(
      "scrape, %d finished and %d running jobs: p50 %.1f ms, p99 %.1f ms (target <= %.0f)\n",
      kJobs.finished, kJobs.running, ms[kScrapes / 2], p99, kTargetMs);
  std::printf("%zu series (bound %zu), %.1f MiB\n", series, bound,
              static_cast<double>(body.size()) / (1 << 20));
  const bool ok = p99 <= kTargetMs && series > size_t{kJobs.running} * 20 && series <= bound;
  std::printf("%s\n", ok ? "ok" : "MISSED");
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace hearth::coordinator

int main() {
  return hearth::coordinator::Run();
}
