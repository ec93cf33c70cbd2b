#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {

absl::Span<const CommandDef> Commands() {
#define JOBCTL_ROW(type, name, help) {name, help, Setup##type},
  static constexpr CommandDef kCommands[] = {JOBCTL_COMMANDS(JOBCTL_ROW)};
#undef JOBCTL_ROW
  return kCommands;
}

void AcceptResourceNames(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    // The job that another one is compared with, or starts after.
    const std::string name = option->get_name();
    const bool job = name == "other" || name == "--after";
    const std::string kind = job ? "job" : name;
    const bool named = kind == "job" || kind == "worker" || kind == "token" || kind == "context";
    if (named && (option->get_positional() || name == "--after")) {
      option->transform([kind](const std::string& text) {
        return std::string(absl::StripPrefix(text, absl::StrCat(kind, "/")));
      });
    }
  }
  for (CLI::App* subcommand : app.get_subcommands([](CLI::App*) { return true; })) {
    AcceptResourceNames(*subcommand);
  }
}

}  // namespace hearth::jobctl
