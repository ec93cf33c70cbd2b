// What users feel while many jobs run. N workers (a stream and a connection each, played by this
// process) run a job each, report R steps and two heartbeats a second and a log line each ten
// steps; meanwhile one user after another submits, cancels, looks at and lists jobs. Coordinator
// and workers share the machine. Prints the calls' latencies, the time from a report to its
// acknowledgement and the commits; exit code 1 when a call's p99 misses its target (<= 50 ms).
// Usage: bench_load [jobs = 1000] [steps a second = 1] [seconds = 30] [data-dir]
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/log/log.h"
#include "coordinator/coordinator.h"
#include "tests/bench/bench_folder.h"
#include "tests/bench/load_user.h"
#include "tests/bench/played_agent.h"
#include "tests/support/coordinator/loopback_options.h"

namespace hearth::coordinator {
namespace {

constexpr double kTargetMs = 50;

// Lets all agents live until `over`: their steps and heartbeats are spread over each second.
void Live(const PlayedAgents& agents, double steps_per_second, const std::atomic<bool>& over) {
  // Each comes twice for a step: workers send a heartbeat more often than slow steps come.
  const absl::Duration slot =
      absl::Seconds(0.5 / steps_per_second) / static_cast<double>(agents.size());
  absl::Time due = absl::Now();
  std::vector<absl::Time> beat(agents.size(), absl::InfinitePast());
  for (size_t turn = 0; !over.load(); ++turn) {
    const size_t i = turn % agents.size();
    due += slot;
    absl::SleepFor(due - absl::Now());
    if (turn / agents.size() % 2 == 0) {
      agents[i]->Step();
    }
    if (absl::Now() - beat[i] >= 0.9 * CoreOptions{}.heartbeat) {
      beat[i] = absl::Now();
      agents[i]->Beat();
    }
  }
}

// True when every call's p99 keeps to the target.
bool Report(const LoadUser& user) {
  bool ok = user.failures() == 0;
  std::vector<double> all;
  for (const auto& [name, ms] : user.latencies_ms()) {
    PrintPercentiles(name, ms);
    all.insert(all.end(), ms.begin(), ms.end());
    ok = ok && Percentile(ms, 0.99) <= kTargetMs;
  }
  PrintPercentiles("all calls", all);
  std::printf("%d calls failed; target p99 <= %.0f ms: %s\n", user.failures(), kTargetMs,
              ok ? "ok" : "MISSED");
  return ok;
}

int Run(int jobs, double rate, int seconds, const std::string& data_dir) {
  RaiseFileLimit();
  auto coordinator = Coordinator::Start(LoopbackOptions(data_dir));
  if (!coordinator.ok()) {
    std::printf("%s\n", coordinator.status().ToString().c_str());
    return 1;
  }
  const std::string& address = (*coordinator)->listen_address();
  const PlayedAgents agents = PlayAgents(address, jobs);
  std::atomic<bool> over{false};
  std::thread life([&] { Live(agents, rate, over); });
  LoadUser user(address);
  std::string some_job;
  for (int i = 0; i < jobs; ++i) {
    some_job = user.Submit();
  }
  const auto running = [&] {
    return std::count_if(agents.begin(), agents.end(),
                         [](auto& a) { return !a->job_id().empty(); });
  };
  for (int i = 0; i < 120 && running() < jobs; ++i) {
    absl::SleepFor(absl::Seconds(1));
  }
  absl::SleepFor(absl::Seconds(5));
  std::printf("%d jobs, %.1f steps/s each, %d s; %d running\n", jobs, rate, seconds,
              static_cast<int>(running()));
  user.Forget();
  for (const std::unique_ptr<PlayedAgent>& agent : agents) {
    agent->TakeAcks();
  }
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  while (absl::Now() < end) {
    const std::string job = user.Submit();
    user.Get(some_job);
    user.List();
    user.Cancel(job);
    absl::SleepFor(absl::Milliseconds(20));
  }
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  std::vector<double> acks;
  for (const std::unique_ptr<PlayedAgent>& agent : agents) {
    const std::vector<double> some = agent->TakeAcks();
    acks.insert(acks.end(), some.begin(), some.end());
  }
  over = true;
  life.join();
  const bool ok = Report(user);
  PrintPercentiles("report to acknowledgement", acks);
  const auto cpu = [](const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  };
  std::printf("cores busy, coordinator and workers together: %.2f\n",
              (cpu(after) - cpu(before)) / seconds);
  LeaveAll(agents);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace hearth::coordinator

int main(int argc, char** argv) {
  hearth::log::Init("bench_load", "warning").IgnoreError();
  const int jobs = argc > 1 ? std::atoi(argv[1]) : 1000;
  const double rate = argc > 2 ? std::atof(argv[2]) : 1;
  const int seconds = argc > 3 ? std::atoi(argv[3]) : 30;
  const hearth::BenchFolder folder("bench_load", argc > 4 ? argv[4] : "");
  return hearth::coordinator::Run(jobs, rate, seconds, folder.path());
}
