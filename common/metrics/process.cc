// What the kernel says about this process. prometheus-cpp 1.0.1 has no process collector.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

#include "common/base/version.h"
#include "common/metrics/metrics.h"

namespace hearth::metrics {
namespace {

constexpr MetricDef kDefs[] = {
    {"hearth_build_info", MetricType::kGauge, "Always 1; the labels say which build runs.",
     "program,version,commit", Stability::kStable},
    {"process_cpu_seconds_total", MetricType::kCounter, "User and system CPU time of the process.",
     "", Stability::kStable},
    {"process_resident_memory_bytes", MetricType::kGauge, "Resident memory of the process.", "",
     Stability::kStable},
    {"process_open_fds", MetricType::kGauge, "Open file descriptors of the process.", "",
     Stability::kStable},
    {"process_start_time_seconds", MetricType::kGauge, "Start of the process, as Unix time.", "",
     Stability::kStable},
};

std::string Slurp(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

struct ProcessStat {
  double cpu_seconds = 0;
  double start_seconds = 0;  // since boot
};

// proc(5): the second field is "(comm)" and may hold spaces; utime, stime and starttime are fields
// 14, 15 and 22.
ProcessStat ReadStat() {
  ProcessStat out;
  const std::string text = Slurp("/proc/self/stat");
  const size_t end = text.rfind(')');
  if (end == std::string::npos) {
    return out;
  }
  std::istringstream fields(text.substr(end + 1));
  const double ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::string word;
  for (int field = 3; fields >> word && field <= 22; ++field) {
    if (field == 14 || field == 15) {
      out.cpu_seconds += std::stod(word) / ticks_per_second;
    } else if (field == 22) {
      out.start_seconds = std::stod(word) / ticks_per_second;
    }
  }
  return out;
}

// Unix time of the boot; /proc/stat, line "btime N".
double BootTime() {
  std::ifstream in("/proc/stat");
  std::string key;
  while (in >> key) {
    if (key == "btime") {
      double value = 0;
      in >> value;
      return value;
    }
    std::getline(in, key);
  }
  return 0;
}

double ResidentBytes() {
  std::istringstream fields(Slurp("/proc/self/statm"));
  double total = 0;
  double resident = 0;
  fields >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenFds() {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/self/fd", error);
  // One of them is the iterator's own.
  return error ? 0 : static_cast<double>(std::distance(begin(entries), end(entries)) - 1);
}

prometheus::MetricFamily Family(const MetricDef& def, double value) {
  prometheus::MetricFamily family;
  family.name = std::string(def.name);
  family.help = std::string(def.help);
  prometheus::ClientMetric metric;
  if (def.type == MetricType::kCounter) {
    family.type = prometheus::MetricType::Counter;
    metric.counter.value = value;
  } else {
    family.type = prometheus::MetricType::Gauge;
    metric.gauge.value = value;
  }
  family.metric.push_back(metric);
  return family;
}

}  // namespace

absl::Span<const MetricDef> ProcessDefs() {
  return kDefs;
}

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  const ProcessStat stat = ReadStat();
  std::vector<prometheus::MetricFamily> families;
  prometheus::MetricFamily build = Family(kDefs[0], 1);
  build.metric[0].label = {{"program", program_},
                           {"version", std::string(Version())},
                           {"commit", std::string(GitCommit())}};
  families.push_back(std::move(build));
  families.push_back(Family(kDefs[1], stat.cpu_seconds));
  families.push_back(Family(kDefs[2], ResidentBytes()));
  families.push_back(Family(kDefs[3], OpenFds()));
  families.push_back(Family(kDefs[4], BootTime() + stat.start_seconds));
  return families;
}

}  // namespace hearth::metrics
