// The running average of a job's weights (train.ema), as a checkpoint's state/ has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/env.h"
#include "common/spec/model/parameter.h"
#include "common/weights/state_files.h"

namespace hearth::weights {

// Immutable, thread-safe.
class StateAverage {
 public:
  // `dir`: a checkpoint. kFailedPrecondition: it has no average, or no state/; kDataLoss: a part of
  // a parameter is missing, or a file is damaged.
  static absl::StatusOr<StateAverage> Open(Env& env,
                                           const std::string& dir,
                                           const std::vector<spec::Parameter>& table);

  // Elements [first, first + out.size()) of parameter `k`, without padding, as they lie in memory.
  void Read(size_t k, int64_t first, absl::Span<float> out) const;

 private:
  StateFiles files_;
  std::vector<StateFiles::Pieces> parameters_;  // in the order of the table, without a gap; fp32
};

}  // namespace hearth::weights
