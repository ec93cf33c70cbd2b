// Writes the tables of docs/metrics.md from the rows of the programs.
//
//   metrics_doc FILE           exits with 1 when a table of the file is not that of the programs
//   metrics_doc --write FILE   puts them in
//
// A table stands between the lines "<!-- NAME: made by tools/metrics_doc.cc -->" and "<!-- end
// -->".
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/metrics/step_metrics.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "worker/daemon/worker_metrics.h"

namespace hearth {
namespace {

// Replaces the text after the section's mark. False when the file has no such section.
bool Replace(const std::string& name, const std::string& table, std::string& text) {
  const std::string mark = "<!-- " + name + ": made by tools/metrics_doc.cc -->\n";
  const size_t begin = text.find(mark);
  const size_t end = text.find("<!-- end -->", begin);
  if (begin == std::string::npos || end == std::string::npos) {
    return false;
  }
  text.replace(begin + mark.size(), end - begin - mark.size(), "\n" + table + "\n");
  return true;
}

int Run(const std::string& path, bool write) {
  std::ifstream in(path);
  const std::string before((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::string after = before;
  const std::pair<std::string, std::string> tables[] = {
      {"every program", metrics::ToMarkdown(metrics::ProcessDefs())},
      {"hearth-coordinator", metrics::ToMarkdown(coordinator::CoordinatorMetricDefs())},
      {"hearth-worker", metrics::ToMarkdown(worker::WorkerMetricDefs())},
      {"numbers of a step", metrics::StepMetricsMarkdown()}};
  for (const auto& [name, table] : tables) {
    if (!Replace(name, table, after)) {
      std::fprintf(stderr, "%s: no place for \"%s\"\n", path.c_str(), name.c_str());
      return 1;
    }
  }
  if (after == before) {
    return 0;
  }
  if (!write) {
    std::fprintf(stderr, "%s is not what the programs have: run metrics_doc --write %s\n",
                 path.c_str(), path.c_str());
    return 1;
  }
  std::ofstream out(path);
  out << after;
  return out.flush() ? 0 : 1;
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  const bool write = argc == 3 && std::strcmp(argv[1], "--write") == 0;
  if (argc != 2 && !write) {
    std::fprintf(stderr, "usage: metrics_doc [--write] FILE\n");
    return 2;
  }
  return hearth::Run(argv[argc - 1], write);
}
