// The system calls that trainers may not make. Linux only.
#pragma once

#include <linux/filter.h>

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace hearth::worker {

struct DeniedCall {
  std::string_view name;  // as libseccomp knows it
  std::string_view why;   // what it would let a trainer do
};

// Everything that is not here is allowed. A denied call fails with EPERM.
absl::Span<const DeniedCall> DeniedCalls();

// The filter as a program for SECCOMP_SET_MODE_FILTER: it denies DeniedCalls() and making processes
// in namespaces of their own. clone3 fails with ENOSYS, for its flags lie in memory that a filter
// cannot read; C libraries then use clone. Calls of another architecture fail with ENOSYS. Children
// inherit it, and nothing takes it away. kInternal: libseccomp does not make it.
absl::StatusOr<std::vector<sock_filter>> MakeCallFilter();

}  // namespace hearth::worker
