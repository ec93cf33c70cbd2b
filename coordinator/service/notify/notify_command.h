// One attempt to hand a notification to a program of the operator's.
#pragma once

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace hearth::coordinator {

// Runs `path` without arguments and without a shell, in a process group of its own, with `body` on
// standard input and of the environment only PATH, HOME and LANG. What it writes goes where the
// coordinator's own log goes. Blocks until it ends; kills the group at the timeout, or when `stop`
// is true. OK: exit code 0. kAborted: stopped; kUnavailable: anything else. Thread-safe.
absl::Status RunNotifyCommand(const std::string& path,
                              const std::string& body,
                              absl::Duration timeout,
                              const std::atomic<bool>& stop);

}  // namespace hearth::coordinator
