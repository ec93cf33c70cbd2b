// Memory of the machine that is left.
#pragma once

#include <cstdint>

#include "common/io/env.h"

namespace hearth {

// Bytes that this process may still take: what the machine has available, or what is left of the
// control group's limit if that is less. A very large number if the machine does not say.
int64_t AvailableMemory(Env& env);

}  // namespace hearth
