#include "jobctl/commands/live.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/time/clock.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/commands/command_context.h"
#include "jobctl/commands/workers/top.h"
#include "jobctl/views/text/display_text.h"
#include "jobctl/views/text/terminal.h"

namespace hearth::jobctl {

int ShowLive(absl::Duration every, const std::function<absl::StatusOr<std::string>()>& frame) {
  OnInterrupt([] {});
  absl::Mutex mu;
  const bool never = false;
  std::string shown;
  WriteTerminal("\033[2J");
  const KeyInput keys;
  bool quit = false;
  while (!quit && !Interrupted()) {
    const absl::StatusOr<std::string> drawn = frame();
    std::string note = "q ends";
    if (drawn.ok()) {
      shown = *drawn;
    } else {
      note = EscapeControl(absl::StrCat("error: ", drawn.status().message()), false);
    }
    const TerminalSize size = SizeOfTerminal();
    // From the top left, each line erased behind its end: clearing the whole screen would flicker.
    std::string screen = "\033[H";
    for (const auto& line : absl::StrSplit(
             FitScreen(absl::StrCat(note, "\n", shown), size.columns, size.rows - 1), '\n')) {
      absl::StrAppend(&screen, line, "\033[K\n");
    }
    // Drops the last line break, and clears what an earlier, longer table left.
    WriteTerminal(absl::StrCat(screen.substr(0, screen.size() - 4), "\033[J"));
    const absl::Duration until = Clock::Real().Monotonic() + every;
    while (!quit && !Interrupted() && Clock::Real().Monotonic() < until) {
      absl::MutexLock lock(&mu);
      Clock::Real().AwaitWithTimeout(mu, absl::Condition(&never), absl::Milliseconds(100));
      quit = keys.Pressed('q');
    }
  }
  return kExitOk;
}

}  // namespace hearth::jobctl
