// What attention this GPU runs, per head size: cuDNN's and our own, against the CPU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/exec.h"

namespace hearth::kernels {

struct AttentionProbe {
  std::string name;  // "cudnn head 64", "own head 128"
  bool ok = false;
  std::string status;  // "ok", or why not
  double max_relative_error =
      0.0;  // largest of output and gradient, by the largest reference value
};

// Whether our own kernel stands in for the one that the probe of this name tries.
bool OwnKernelStandsIn(std::string_view name);

// Forward and backward of 2 sequences of 192 tokens, 4 heads on 2 key/value heads, BF16, for head
// sizes 64 and 128. Allocates and waits for the stream. Empty on the CPU and without CUDA.
std::vector<AttentionProbe> ProbeAttention(const Exec& exec);

}  // namespace hearth::kernels
