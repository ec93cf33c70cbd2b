// Which attention a job runs on, and whether it is right at the job's shape.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"

namespace hearth::kernels {

struct AttentionEngines {
  std::string forward;   // "cuDNN 9.19.0" or "own"; "" on the CPU
  std::string backward;  // the same
  std::string refused;   // why cuDNN's is not used although it takes the shape; "" = it is right

  bool own() const { return forward == "own" && backward == "own"; }
};

// On a GPU where cuDNN would run `forward` or `backward`, runs both passes with cuDNN and with our
// own kernels on normal numbers and compares outputs and gradients (LargestRowDifference). If they
// differ by more than `tolerance`, or cuDNN fails, this context uses our own kernels for calls with
// their `documents` from then on and `refused` says so. Overwrites all tensors of both but the
// starts, which name no more than `documents`; waits for the stream.
// Errors: those of our own kernels and of copies.
absl::StatusOr<AttentionEngines> CheckAttention(const Exec& exec,
                                                const AttentionForwardArgs& forward,
                                                const AttentionBackwardArgs& backward,
                                                double tolerance);

}  // namespace hearth::kernels
