// The file that keeps tuned matrix products from run to run: one line of text a plan.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace hearth::kernels {

struct TunedPlan {
  std::array<uint64_t, 8> algorithm = {};  // the library's own, opaque
  int64_t workspace_bytes = 0;
  double microseconds = 0.0;  // when it was chosen
};

// By key: text without spaces.
using TunedPlans = std::map<std::string, TunedPlan>;

// `header`, then a line a plan.
std::string TunedPlansText(const std::string& header, const TunedPlans& plans);
// The plans of such a text if its first line is `header`, else none. Lines that do not parse are
// passed over.
TunedPlans ParseTunedPlans(const std::string& text, const std::string& header);

// What a merge changed. Times alone do not count.
struct MergedTunedPlans {
  bool stored = false;  // a plan became another one, or is new
  bool used = false;    // one that had been used became another one
};

// Puts `from` into `into`, which loses to it where both have a plan. `used`: the plans that
// products were run with, whether or not they are in `into`; their workspaces do not matter.
MergedTunedPlans MergeTunedPlans(const TunedPlans& from, const TunedPlans& used, TunedPlans& into);

// The plans of `path` if its first line is `header`; none if there is no such file or it was made
// for something else. Lines that do not parse are passed over (a torn or foreign file costs a new
// search, never a run).
TunedPlans ReadTunedPlans(const std::string& path, const std::string& header);

// Replaces `path` at once (temporary file and rename); makes its folders. kUnavailable: what
// failed.
absl::Status WriteTunedPlans(const std::string& path,
                             const std::string& header,
                             const TunedPlans& plans);

}  // namespace hearth::kernels
