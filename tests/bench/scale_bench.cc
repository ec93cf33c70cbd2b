// What users and the scheduler feel of a full cluster with a long queue. The coordinator is a
// process of its own; this one plays N workers (a stream and a connection each) that report a step
// and two heartbeats a second, and users. More jobs wait than can run, of several sizes; some
// running jobs end each second, so that others start, while a user submits, cancels, looks at and
// lists jobs. Prints the calls' latencies, the coordinator's own histograms of plans and of turns
// of its event loop, and its share of a core; exit code 1 when a target is missed.
// Usage: bench_scale [workers = 1000] [queued = 10000] [seconds = 60] [ends a second = 10]
//                    [data-dir]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/log/log.h"
#include "coordinator/coordinator.h"
#include "tests/bench/bench_folder.h"
#include "tests/bench/load_user.h"
#include "tests/bench/played_agent.h"
#include "tests/support/coordinator/loopback_options.h"

namespace hearth::coordinator {
namespace {

constexpr double kPlanMs = 50;
constexpr double kSubmitMs = 20;
constexpr int kClients = 16;
// Workers that the jobs of the queue want, in turn.
constexpr int kSizes[] = {1, 1, 2, 1, 4, 1, 1, 8, 1, 2};

// The coordinator's process, forked before this one has threads.
struct Server {
  pid_t pid = 0;
  int stop = -1;  // it ends when this is closed
  std::string listen;
  std::string http;
};

void Serve(const std::string& data_dir, int out, int in) {
  RaiseFileLimit();
  CoordinatorOptions options = LoopbackOptions(data_dir);
  options.open_metrics = true;
  auto coordinator = Coordinator::Start(options);
  const std::string said = coordinator.ok() ? absl::StrCat((*coordinator)->listen_address(), " ",
                                                           (*coordinator)->http_address(), "\n")
                                            : coordinator.status().ToString() + "\n";
  if (write(out, said.data(), said.size()) < 0 || !coordinator.ok()) {
    return;
  }
  char byte = 0;
  while (read(in, &byte, 1) > 0) {
  }
}

Server Launch(const std::string& data_dir) {
  int from[2];
  int to[2];
  if (pipe(from) != 0 || pipe(to) != 0) {
    std::exit(2);  // NOLINT(concurrency-mt-unsafe): no other thread runs yet
  }
  Server server;
  server.pid = fork();
  if (server.pid == 0) {
    close(from[0]);
    close(to[1]);
    Serve(data_dir, from[1], to[0]);
    std::_Exit(0);
  }
  close(from[1]);
  close(to[0]);
  server.stop = to[1];
  std::string said;
  char byte = 0;
  while (read(from[0], &byte, 1) == 1 && byte != '\n') {
    said.push_back(byte);
  }
  const std::vector<std::string> addresses = absl::StrSplit(said, ' ');
  if (addresses.size() != 2) {
    std::printf("%s\n", said.c_str());
    std::exit(2);  // NOLINT(concurrency-mt-unsafe): no other thread runs yet
  }
  server.listen = addresses[0];
  server.http = addresses[1];
  return server;
}

std::string Fetch(const std::string& address, const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(parts.back().c_str())));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string text;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string ask =
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", address, "\r\nConnection: close\r\n\r\n");
    char buffer[65536];
    ssize_t got = send(fd, ask.data(), ask.size(), MSG_NOSIGNAL);
    while (got > 0 && (got = read(fd, buffer, sizeof(buffer))) > 0) {
      text.append(buffer, static_cast<size_t>(got));
    }
  }
  close(fd);
  return text;
}

// A histogram of /metrics: upper bound in seconds -> observations up to it.
using Histogram = std::map<double, double>;

Histogram ReadHistogram(const std::string& metrics, const std::string& name) {
  Histogram histogram;
  const std::string prefix = name + "_bucket{le=\"";
  for (const absl::string_view line : absl::StrSplit(metrics, '\n')) {
    if (!absl::StartsWith(line, prefix)) {
      continue;
    }
    const std::vector<std::string> parts =
        absl::StrSplit(std::string(line.substr(prefix.size())), "\"} ");
    double bound = HUGE_VAL;
    double count = 0;
    if (parts[0] != "+Inf" && !absl::SimpleAtod(parts[0], &bound)) {
      continue;
    }
    if (parts.size() == 2 && absl::SimpleAtod(parts[1], &count)) {
      histogram[bound] = count;
    }
  }
  return histogram;
}

// Milliseconds: the upper bound of the bucket in which that share of the new observations ends.
double QuantileMs(const Histogram& before, const Histogram& after, double fraction) {
  const auto count = [&](double bound) {
    const auto found = before.find(bound);
    return after.at(bound) - (found == before.end() ? 0 : found->second);
  };
  const double wanted = after.empty() ? 0 : fraction * count(after.rbegin()->first);
  for (const auto& [bound, unused] : after) {
    if (count(bound) >= wanted) {
      return 1000 * bound;
    }
  }
  return HUGE_VAL;
}

double PrintHistogram(const std::string& what,
                      const std::string& name,
                      const std::string& before,
                      const std::string& after) {
  const Histogram old = ReadHistogram(before, name);
  const Histogram now = ReadHistogram(after, name);
  const double p99 = QuantileMs(old, now, 0.99);
  const double n =
      now.empty() ? 0 : now.rbegin()->second - (old.empty() ? 0 : old.rbegin()->second);
  std::printf("%-28s n %6.0f  p50 <= %5.1f  p90 <= %5.1f  p99 <= %5.1f  max <= %5.1f ms\n",
              what.c_str(), n, QuantileMs(old, now, 0.5), QuantileMs(old, now, 0.9), p99,
              QuantileMs(old, now, 1));
  return p99;
}

// Seconds of CPU that a process has used.
double CpuSeconds(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  const std::vector<std::string> fields = absl::StrSplit(line.substr(line.rfind(')') + 2), ' ');
  return (std::atof(fields[11].c_str()) + std::atof(fields[12].c_str())) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

// A step and two heartbeats a second of each agent, spread over it; `ends` jobs a second finish.
void Live(const PlayedAgents& agents,
          const std::atomic<double>& ends,
          const std::atomic<bool>& over) {
  const absl::Duration slot = absl::Seconds(0.5) / static_cast<double>(agents.size());
  absl::Time due = absl::Now();
  double owed = 0;
  for (size_t turn = 0; !over.load(); ++turn) {
    const size_t i = turn % agents.size();
    due += slot;
    absl::SleepFor(due - absl::Now());
    if (turn / agents.size() % 2 == 0) {
      agents[i]->Step();
    }
    agents[i]->Beat();
    owed += ends.load() * absl::ToDoubleSeconds(slot);
    const std::string job = owed < 1 ? "" : agents[(i * 7) % agents.size()]->job_id();
    if (!job.empty()) {
      owed -= 1;
      for (const std::unique_ptr<PlayedAgent>& agent : agents) {
        agent->Finish(job);
      }
    }
  }
}

// One job for each worker, and then those that wait, by several clients.
void FillQueue(const std::string& address, int workers, int queued) {
  const auto submit = [&address](int count, bool sized) {
    std::atomic<int> next{0};
    std::vector<std::thread> clients;
    for (int c = 0; c < kClients; ++c) {
      clients.emplace_back([&] {
        LoadUser user(address);
        for (int i = next++; i < count; i = next++) {
          user.Submit(sized ? kSizes[static_cast<size_t>(i) % std::size(kSizes)] : 1);
        }
      });
    }
    for (std::thread& client : clients) {
      client.join();
    }
  };
  submit(workers, false);
  submit(queued, true);
}

int64_t Running(const PlayedAgents& agents) {
  return std::count_if(agents.begin(), agents.end(),
                       [](const auto& agent) { return !agent->job_id().empty(); });
}

bool Measure(const Server& server, const PlayedAgents& agents, int seconds) {
  LoadUser user(server.listen);
  const std::string some_job = user.Submit();
  user.Forget();
  for (const std::unique_ptr<PlayedAgent>& agent : agents) {
    agent->TakeAcks();
  }
  const std::string before = Fetch(server.http, "/metrics");
  const double cpu = CpuSeconds(server.pid);
  const absl::Time start = absl::Now();
  while (absl::Now() - start < absl::Seconds(seconds)) {
    const std::string job = user.Submit();
    user.Get(some_job);
    user.List();
    user.Cancel(job);
    absl::SleepFor(absl::Milliseconds(20));
  }
  const double took = absl::ToDoubleSeconds(absl::Now() - start);
  const double used = CpuSeconds(server.pid) - cpu;
  const std::string after = Fetch(server.http, "/metrics");
  std::vector<double> acks;
  for (const std::unique_ptr<PlayedAgent>& agent : agents) {
    const std::vector<double> some = agent->TakeAcks();
    acks.insert(acks.end(), some.begin(), some.end());
  }
  for (const auto& [name, ms] : user.latencies_ms()) {
    PrintPercentiles(name, ms);
  }
  PrintPercentiles("report to acknowledgement", acks);
  const double plan = PrintHistogram("passes that plan",
                                     "hearth_coordinator_schedule_duration_seconds", before, after);
  PrintHistogram("turns of the event loop", "hearth_coordinator_turn_duration_seconds", before,
                 after);
  PrintHistogram("commits", "hearth_coordinator_commit_duration_seconds", before, after);
  std::printf("the coordinator keeps %.2f cores busy; %d calls failed\n", used / took,
              user.failures());
  const double submit = Percentile(user.latencies_ms().at("submit"), 0.99);
  const bool planned = PrintTarget("plan, p99", plan, kPlanMs);
  return PrintTarget("submit, p99", submit, kSubmitMs) && planned && user.failures() == 0;
}

int Run(int workers, int queued, int seconds, double ends, const Server& server) {
  RaiseFileLimit();
  const PlayedAgents agents = PlayAgents(server.listen, workers);
  std::atomic<bool> over{false};
  std::atomic<double> ends_now{0};
  std::thread life([&] { Live(agents, ends_now, over); });
  FillQueue(server.listen, workers, queued);
  for (int i = 0; i < 120 && Running(agents) < workers; ++i) {
    absl::SleepFor(absl::Seconds(1));
  }
  ends_now = ends;
  absl::SleepFor(absl::Seconds(5));
  std::printf(
      "%d workers, %d with a task; %d jobs submitted to wait; %.1f jobs end a second; %d s\n",
      workers, static_cast<int>(Running(agents)), queued, ends, seconds);
  const bool ok = Measure(server, agents, seconds);
  over = true;
  life.join();
  LeaveAll(agents);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace hearth::coordinator

int main(int argc, char** argv) {
  hearth::log::Init("bench_scale", "warning").IgnoreError();
  const int workers = argc > 1 ? std::atoi(argv[1]) : 1000;
  const int queued = argc > 2 ? std::atoi(argv[2]) : 10'000;
  const int seconds = argc > 3 ? std::atoi(argv[3]) : 60;
  const double ends = argc > 4 ? std::atof(argv[4]) : 10;
  const hearth::BenchFolder folder("bench_scale", argc > 5 ? argv[5] : "");
  const hearth::coordinator::Server server = hearth::coordinator::Launch(folder.path());
  const int code = hearth::coordinator::Run(workers, queued, seconds, ends, server);
  close(server.stop);
  waitpid(server.pid, nullptr, 0);
  return code;
}
