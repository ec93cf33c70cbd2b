// The file that keeps tuned matrix products from run to run: one line of text a plan.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace hearth::kernels {

struct StoredPlan {
  std::array<uint64_t, 8> algorithm = {};  // the library's own, opaque
  int64_t workspace_bytes = 0;
  double microseconds = 0.0;  // when it was chosen
};

// By key: text without spaces.
using StoredPlans = std::map<std::string, StoredPlan>;

// `header`, then a line a plan.
std::string PlansText(const std::string& header, const StoredPlans& plans);
// The plans of such a text if its first line is `header`, else none. Lines that do not parse are
// passed over.
StoredPlans ParsePlans(const std::string& text, const std::string& header);

// What a merge changed. Times alone do not count.
struct MergedPlans {
  bool stored = false;  // a plan became another one, or is new
  bool used = false;    // one that had been used became another one
};

// Puts `from` into `into`, which loses to it where both have a plan. `used`: the plans that
// products were run with, whether or not they are in `into`; their workspaces do not matter.
MergedPlans MergePlans(const StoredPlans& from, const StoredPlans& used, StoredPlans& into);

// The plans of `path` if its first line is `header`; none if there is no such file or it was made
// for something else. Lines that do not parse are passed over (a torn or foreign file costs a new
// search, never a run).
StoredPlans ReadPlanFile(const std::string& path, const std::string& header);

// Replaces `path` at once (temporary file and rename); makes its folders. kUnavailable: what
// failed.
absl::Status WritePlanFile(const std::string& path,
                           const std::string& header,
                           const StoredPlans& plans);

}  // namespace hearth::kernels
