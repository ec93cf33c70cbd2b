// What is said about a command line that cannot be read: what was probably meant.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace hearth::jobctl {

// What people type for a command or option of another name: "ls" is "list".
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
