// Whether an ended trainer has released its device.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace hearth::worker {

// Thread-safe. Calls return at once: they report the last sample and never wait for a new one.
class DeviceCheck {
 public:
  virtual ~DeviceCheck() = default;

  // Bytes of device memory in use that no other process accounts for; absent when that is not
  // known. Ask before a trainer starts.
  virtual std::optional<int64_t> Baseline() = 0;

  // What process `trainer` still holds, by a sample taken after `gone` (on the clock's
  // Monotonic()); "" = nothing. Absent: there is no such sample yet; ask again.
  virtual std::optional<std::string> Held(pid_t trainer,
                                          std::optional<int64_t> baseline,
                                          absl::Duration gone) = 0;
};

}  // namespace hearth::worker
