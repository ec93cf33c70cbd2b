// Cases in processes of their own: after a sticky CUDA error, a crash or a hang the next case still
// runs.
#pragma once

#include <string>
#include <vector>

#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {

inline constexpr int kExitNoGpu = 77;  // ctest: skipped
inline constexpr int kExitBroken = 3;  // the GPU's context is lost; the case has said so

// Runs this program again for each op of `cases` with `arguments` and
//   --op NAME --from K --progress FD
// (the op's cases from the K-th on; before a case its index is written to FD as one int32), at most
// `limit_s` seconds each, and from the case after it where one died. Calls no CUDA function.
// Exit code: 0 all good, 1 something failed, kExitNoGpu.
int RunIsolated(const std::vector<OpCase>& cases,
                const std::vector<std::string>& arguments,
                int limit_s);

}  // namespace hearth::kernels::harness
