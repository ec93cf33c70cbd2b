#include "kernels/gemm/tuned_plans.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hearth::kernels {
namespace {

// "key hex*8 workspace microseconds"
bool Parse(const std::string& line, std::string& key, TunedPlan& plan) {
  std::istringstream in(line);
  in >> key;
  for (uint64_t& word : plan.algorithm) {
    in >> std::hex >> word;
  }
  std::string end;
  in >> std::dec >> plan.workspace_bytes >> plan.microseconds >> end;
  return end == "." && plan.workspace_bytes >= 0;
}

TunedPlans Read(std::istream& in, const std::string& header) {
  TunedPlans plans;
  std::string line;
  if (!std::getline(in, line) || line != header) {
    return plans;
  }
  while (std::getline(in, line)) {
    std::string key;
    TunedPlan plan;
    if (Parse(line, key, plan)) {
      plans[key] = plan;
    }
  }
  return plans;
}

}  // namespace

std::string TunedPlansText(const std::string& header, const TunedPlans& plans) {
  std::string text = absl::StrCat(header, "\n");
  for (const auto& [key, plan] : plans) {
    absl::StrAppend(&text, key);
    for (uint64_t word : plan.algorithm) {
      absl::StrAppendFormat(&text, " %x", word);
    }
    // The full stop tells a whole line from a torn one.
    absl::StrAppendFormat(&text, " %d %.2f .\n", plan.workspace_bytes, plan.microseconds);
  }
  return text;
}

TunedPlans ParseTunedPlans(const std::string& text, const std::string& header) {
  std::istringstream in(text);
  return Read(in, header);
}

MergedTunedPlans MergeTunedPlans(const TunedPlans& from, const TunedPlans& used, TunedPlans& into) {
  MergedTunedPlans merged;
  for (const auto& [key, plan] : from) {
    const auto run = used.find(key);
    // Only such a product has another algorithm from now on: what was recorded with it is out of
    // date.
    merged.used |= run != used.end() && run->second.algorithm != plan.algorithm;
    const auto [it, added] = into.emplace(key, plan);
    if (!added && it->second.algorithm == plan.algorithm &&
        it->second.workspace_bytes == plan.workspace_bytes) {
      continue;
    }
    it->second = plan;
    merged.stored = true;
  }
  return merged;
}

TunedPlans ReadTunedPlans(const std::string& path, const std::string& header) {
  std::ifstream in(path);
  return Read(in, header);
}

absl::Status WriteTunedPlans(const std::string& path,
                             const std::string& header,
                             const TunedPlans& plans) {
  const std::filesystem::path target(path);
  std::error_code error;
  if (target.has_parent_path()) {
    std::filesystem::create_directories(target.parent_path(), error);
  }
  // By rename, so that another process reads the old file or the new one.
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  std::ofstream out(temporary, std::ios::trunc);
  out << TunedPlansText(header, plans);
  out.close();
  if (!out) {
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat("plans: ", temporary, " cannot be written"));
  }
  std::filesystem::rename(temporary, target, error);
  if (error) {
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat("plans: ", path, ": ", error.message()));
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels
