// How often a thread that "hold:FILE" stops looks for its file.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace hearth::fault {

// Until the next look, after so long: a thread that is held for long sleeps nearly all the time, as
// one that hangs does. On a busy machine one that looks often is seen to run.
inline absl::Duration HoldPause(absl::Duration held) {
  return std::clamp(held / 10, absl::Milliseconds(2), absl::Milliseconds(200));
}

}  // namespace hearth::fault
