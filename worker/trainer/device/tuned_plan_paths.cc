#include "worker/trainer/device/tuned_plan_paths.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/system.h"
#include "common/io/home.h"

namespace hearth::trainer {

std::string ShippedPlansOf(const std::string& program) {
  const std::filesystem::path folder = std::filesystem::path(program).parent_path();
  for (const char* up : {"..", "../../.."}) {
    const std::filesystem::path plans = (folder / up / "configs/plans").lexically_normal();
    std::error_code error;
    if (std::filesystem::is_directory(plans, error)) {
      return plans.string();
    }
  }
  return "";
}

absl::StatusOr<TunedPlanPaths> FindTunedPlanPaths() {
  TunedPlanPaths files;
  if (const std::string home = HearthHome(); !home.empty()) {
    files.own = home + "/plans.txt";
  }
  if (const char* shipped = GetEnv("HEARTH_PLANS"); shipped != nullptr) {
    files.shipped = shipped;
  } else {
    std::error_code error;
    files.shipped = ShippedPlansOf(std::filesystem::read_symlink("/proc/self/exe", error).string());
  }
  const char* tuning = GetEnv("HEARTH_TUNING_SECONDS");
  if (tuning != nullptr &&
      (!absl::SimpleAtod(tuning, &files.tuning_seconds) || !(files.tuning_seconds >= 0.0))) {
    return absl::InvalidArgumentError(
        absl::StrCat("HEARTH_TUNING_SECONDS=", tuning, ": must be a number of seconds from 0 on"));
  }
  return files;
}

}  // namespace hearth::trainer
