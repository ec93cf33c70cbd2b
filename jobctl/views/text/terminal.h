// What standard output is, and what may be written to it.
#pragma once

#include <termios.h>

namespace hearth::jobctl {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// While it exists, keys are read one by one without echo, and the cursor is hidden. Does nothing if
// standard input or output is not a terminal.
class KeyInput {
 public:
  KeyInput();
  ~KeyInput();
  KeyInput(const KeyInput&) = delete;
  KeyInput& operator=(const KeyInput&) = delete;

  // Takes the keys pressed since the last call; true when `key` was among them.
  bool Pressed(char key) const;

 private:
  termios before_{};
  bool active_ = false;
};

// Whether standard output is a terminal; otherwise there are no colours and no redrawing.
bool IsTerminal();
// 80 x 24 when standard output is not a terminal.
TerminalSize SizeOfTerminal();
// Whether the locale's characters are UTF-8.
bool Utf8Locale();
// A terminal, neither NO_COLOR nor TERM=dumb is set.
bool ColorWanted();

}  // namespace hearth::jobctl
