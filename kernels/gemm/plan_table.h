// The tuned plans that a process knows: the user's own, kept from run to run, and behind them those
// that come with the program.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/gemm/tuned_plans.h"

namespace hearth::kernels {

// What plans hold for.
struct PlanOrigin {
  std::string gpu;  // "NVIDIA H200"
  int major = 0;    // compute capability
  int minor = 0;
  size_t library = 0;  // cuBLASLt's number of its version
  int driver = 0;

  // The first line of a plan file.
  std::string Header() const;
};

// The plans of all files "*.plans" of `folder` that were made on the same GPU model with the same
// cuBLASLt; their driver may be another one. None if there is no such folder. Where files have a
// plan in common, the first by name has it.
TunedPlans ReadShippedPlans(const std::string& folder, const PlanOrigin& origin);

// Used by one thread at a time.
class PlanTable {
 public:
  PlanTable() = default;
  // `own_file`: written by Save(), empty = none. A file of another origin is ignored and later
  // replaced. `shipped_folder`: only read, empty = none.
  PlanTable(const PlanOrigin& origin,
            const std::string& own_file,
            const std::string& shipped_folder);

  // The own plan of `key`, else the shipped one; null if there is neither.
  const TunedPlan* Find(const std::string& key) const;
  // Says that the plan found is run. A shipped one becomes an own one: its bits stay, even if a
  // later version of the program ships another plan.
  void Use(const std::string& key);
  // Keeps an own plan.
  void Record(const std::string& key, const TunedPlan& plan);
  // Shipped plans that were used.
  int shipped_used() const { return shipped_used_; }

  // Writes the own file if own plans are new. kUnavailable: what failed.
  absl::Status Save();
  // Own plans as text.
  std::string Export() const;
  // Takes over the plans of such a text in place of own ones: true if one of `used`, those that
  // products were run with, is another one now. Text of another origin: false. kInvalidArgument: no
  // such text.
  absl::StatusOr<bool> Import(const std::string& text, const TunedPlans& used);

 private:
  std::string header_;
  std::string own_file_;
  TunedPlans own_;
  TunedPlans shipped_;
  bool unsaved_ = false;
  int shipped_used_ = 0;
};

}  // namespace hearth::kernels
