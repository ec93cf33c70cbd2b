#include "jobctl/views/text/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "common/base/system.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {
namespace {

const char* Variable(const char* name) {
  const char* value = GetEnv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool IsTerminal() {
  return isatty(STDOUT_FILENO) == 1;
}

KeyInput::KeyInput() {
  if (isatty(STDIN_FILENO) != 1 || !IsTerminal() || tcgetattr(STDIN_FILENO, &before_) != 0) {
    return;
  }
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;  // read() returns at once
  raw.c_cc[VTIME] = 0;
  active_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  WriteTerminal("\033[?25l");
}

KeyInput::~KeyInput() {
  if (active_) {
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    WriteTerminal("\033[?25h");
  }
}

bool KeyInput::Pressed(char key) const {
  if (!active_) {
    return false;
  }
  char keys[64];
  const ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
  return count > 0 && std::find(keys, keys + count, key) != keys + count;
}

TerminalSize SizeOfTerminal() {
  TerminalSize size;
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
    size = {window.ws_col, window.ws_row};
  }
  return size;
}

bool Utf8Locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = Variable(name);
    if (*value != '\0') {
      return std::strstr(value, "UTF-8") != nullptr || std::strstr(value, "utf8") != nullptr;
    }
  }
  return false;
}

bool ColorWanted() {
  return IsTerminal() && *Variable("NO_COLOR") == '\0' &&
         std::strcmp(Variable("TERM"), "dumb") != 0;
}

}  // namespace hearth::jobctl
