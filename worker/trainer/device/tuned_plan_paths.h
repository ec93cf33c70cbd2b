// Where a trainer finds and keeps tuned plans of matrix products.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hearth::trainer {

struct TunedPlanPaths {
  std::string own;            // written; empty = none
  std::string shipped;        // folder, only read; empty = none
  double tuning_seconds = 5;  // CudaOptions::tuning_seconds
};

// The folder of the plans that come with `program`, the path of an installed program (../configs)
// or of one in a build folder of the source tree (../../../configs). "" if there is none.
std::string ShippedPlansOf(const std::string& program);

// plans.txt of this user and the folder of this program, or what HEARTH_PLANS and
// HEARTH_TUNING_SECONDS say. kInvalidArgument: the latter is not a number of seconds.
absl::StatusOr<TunedPlanPaths> FindTunedPlanPaths();

}  // namespace hearth::trainer
