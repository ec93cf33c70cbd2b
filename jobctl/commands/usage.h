// Error messages for a command line that cannot be parsed, with what was probably meant.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace hearth::jobctl {

// Names from other programs for a command or option: "ls" means "list".
struct Alias {
  const char* typed;
  const char* meant;
};
const std::vector<Alias>& CommandAliases();

// Lines "error: ..." about the words of `args` (without the program) that no command or option
// takes, in the order in which they were typed; "" if `error` is about something else. `root` has
// tried to parse `args`.
std::string UsageText(const CLI::App& root,
                      const std::vector<std::string>& args,
                      const CLI::ParseError& error);

}  // namespace hearth::jobctl
