// What standard output is, and what may be written to it.
#pragma once

namespace hearth::jobctl {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// Whether standard output is a terminal; otherwise there are no colours and no redrawing.
bool IsTerminal();
// 80 x 24 when standard output is none.
TerminalSize SizeOfTerminal();
// Whether the locale's characters are UTF-8.
bool Utf8Locale();
// A terminal, neither NO_COLOR nor TERM=dumb is set.
bool ColorWanted();

}  // namespace hearth::jobctl
