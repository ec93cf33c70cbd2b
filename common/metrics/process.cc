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

struct Family {
  MetricDef def;
  void (*add)(const std::string& program, const ProcessStat& stat, Series& out);
};

constexpr Family kFamilies[] = {
    {{"hearth_build_info", MetricType::kGauge, "Always 1; the labels say which build runs.",
      "program,version,commit", Stability::kStable},
     [](const std::string& program, const ProcessStat&, Series& out) {
       out.Add(1, {program, std::string(Version()), std::string(GitCommit())});
     }},
    {{"process_cpu_seconds_total", MetricType::kCounter, "User and system CPU time of the process.",
      "", Stability::kStable},
     [](const std::string&, const ProcessStat& stat, Series& out) { out.Add(stat.cpu_seconds); }},
    {{"process_resident_memory_bytes", MetricType::kGauge, "Resident memory of the process.", "",
      Stability::kStable},
     [](const std::string&, const ProcessStat&, Series& out) { out.Add(ResidentBytes()); }},
    {{"process_open_fds", MetricType::kGauge, "Open file descriptors of the process.", "",
      Stability::kStable},
     [](const std::string&, const ProcessStat&, Series& out) { out.Add(OpenFds()); }},
    {{"process_start_time_seconds", MetricType::kGauge, "Start of the process, as Unix time.", "",
      Stability::kStable},
     [](const std::string&, const ProcessStat& stat, Series& out) {
       out.Add(BootTime() + stat.start_seconds);
     }},
};

}  // namespace

std::vector<MetricDef> ProcessDefs() {
  return DefsOf(kFamilies);
}

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  return FamiliesOf(kFamilies, program_, ReadStat());
}

}  // namespace hearth::metrics
