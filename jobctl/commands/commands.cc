#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "jobctl/client/job_names.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {

absl::Span<const CommandDef> Commands() {
#define JOBCTL_ROW(type, name, help, in_scripts) {name, help, InScripts::in_scripts, Setup##type},
  static constexpr CommandDef kCommands[] = {JOBCTL_COMMANDS(JOBCTL_ROW)};
#undef JOBCTL_ROW
  return kCommands;
}

void AcceptResourceNames(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const JobArgument* job = FindJobArgument(*option);
    const std::string kind = job != nullptr ? "job" : option->get_name();
    const bool named = kind == "worker" || kind == "token" || kind == "context";
    if (job != nullptr || (named && option->get_positional())) {
      option->transform([job, kind](const std::string& text) {
        return job != nullptr && NamesFolder(*job, text)
                   ? text
                   : std::string(absl::StripPrefix(text, absl::StrCat(kind, "/")));
      });
    }
  }
  for (CLI::App* subcommand : app.get_subcommands([](CLI::App*) { return true; })) {
    AcceptResourceNames(*subcommand);
  }
}

}  // namespace hearth::jobctl
