// Errors of products that block-scaled matrix units were to compute: the caller that prepares a
// step tells them from others and goes on with such products emulated.
#pragma once

#include "absl/status/status.h"

namespace hearth::kernels {

// `cause` (not OK), marked; Annotate() keeps the mark.
absl::Status NativeGemmError(const absl::Status& cause);
bool IsNativeGemmError(const absl::Status& status);

}  // namespace hearth::kernels
