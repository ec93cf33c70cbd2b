#include "jobctl/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace hearth::jobctl {
namespace {

// NOLINTNEXTLINE(concurrency-mt-unsafe): nothing sets the environment
const char* Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool IsTerminal() {
  return isatty(STDOUT_FILENO) == 1;
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
