// A table that is drawn again and again on a terminal.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hearth::jobctl {

// Redraws what `frame` returns, cut to the terminal, until q or Ctrl-C. If `frame` fails, shows the
// error in place of new numbers and goes on. Returns an ExitCode.
int ShowLive(absl::Duration every, const std::function<absl::StatusOr<std::string>()>& frame);

}  // namespace hearth::jobctl
