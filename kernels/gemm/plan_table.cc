#include "kernels/gemm/plan_table.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kHeaderStart[] = "hearth gemm plans";

// The header up to the driver's number.
std::string LibraryHeader(const PlanOrigin& origin) {
  return absl::StrFormat("%s 1; %s; sm_%d%d; cuBLASLt %d; driver ", kHeaderStart, origin.gpu,
                         origin.major, origin.minor, origin.library);
}

}  // namespace

std::string PlanOrigin::Header() const {
  return absl::StrCat(LibraryHeader(*this), driver);
}

TunedPlans ReadShippedPlans(const std::string& folder, const PlanOrigin& origin) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".plans") {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  TunedPlans plans;
  for (const std::string& file : files) {
    std::ifstream in(file);
    std::string header;
    // Whatever the driver: cuBLASLt checks a plan before it is used.
    if (std::getline(in, header) && absl::StartsWith(header, LibraryHeader(origin))) {
      plans.merge(ReadTunedPlans(file, header));
    }
  }
  return plans;
}

PlanTable::PlanTable(const PlanOrigin& origin,
                     const std::string& own_file,
                     const std::string& shipped_folder)
    : header_(origin.Header()), own_file_(own_file) {
  if (!own_file.empty()) {
    own_ = ReadTunedPlans(own_file, header_);
  }
  if (!shipped_folder.empty()) {
    shipped_ = ReadShippedPlans(shipped_folder, origin);
  }
}

const TunedPlan* PlanTable::Find(const std::string& key) const {
  for (const TunedPlans* plans : {&own_, &shipped_}) {
    if (const auto it = plans->find(key); it != plans->end()) {
      return &it->second;
    }
  }
  return nullptr;
}

void PlanTable::Use(const std::string& key) {
  if (const auto it = shipped_.find(key); it != shipped_.end() && own_.count(key) == 0) {
    // From here on it is a plan of this run, saved and exported with the others.
    Record(key, it->second);
    ++shipped_used_;
  }
}

void PlanTable::Record(const std::string& key, const TunedPlan& plan) {
  own_[key] = plan;
  unsaved_ = true;
}

absl::Status PlanTable::Save() {
  if (!unsaved_ || own_file_.empty()) {
    return absl::OkStatus();
  }
  // Another process of the same GPU model may have written since.
  TunedPlans plans = ReadTunedPlans(own_file_, header_);
  for (const auto& [key, plan] : own_) {
    plans[key] = plan;
  }
  HEARTH_RETURN_IF_ERROR(WriteTunedPlans(own_file_, header_, plans));
  unsaved_ = false;
  return absl::OkStatus();
}

std::string PlanTable::Export() const {
  return TunedPlansText(header_, own_);
}

absl::StatusOr<bool> PlanTable::Import(const std::string& text, const TunedPlans& used) {
  if (!absl::StartsWith(text, kHeaderStart)) {
    return absl::InvalidArgumentError("this is no text of gemm plans");
  }
  const MergedTunedPlans merged = MergeTunedPlans(ParseTunedPlans(text, header_), used, own_);
  unsaved_ |= merged.stored;
  return merged.used;
}

}  // namespace hearth::kernels
