#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "jobctl/client/job_names.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {
namespace {

// The formats of -o of commands in a command.
struct SubcommandFormats {
  std::string_view path;
  FormatSet formats;
};
constexpr SubcommandFormats kSubcommandFormats[] = {
    {"checkpoints average", kPrintsText}, {"checkpoints download", kPrintsMessage},
    {"checkpoints export", kPrintsText},  {"checkpoints prune", kPrintsMessage},
    {"context add", kPrintsName},         {"context list", kPrintsData | kPrintsName},
    {"context remove", kPrintsName},      {"context use", kPrintsName},
    {"dataset build", kPrintsText},       {"dataset inspect", kPrintsData},
    {"dataset mix", kPrintsData},         {"token create", kPrintsChange},
    {"token list", kPrintsRows},          {"token revoke", kPrintsChange},
};

}  // namespace

absl::Span<const CommandDef> Commands() {
#define JOBCTL_ROW(type, name, help, in_scripts, formats) \
  {name, help, InScripts::in_scripts, formats, Setup##type},
  static constexpr CommandDef kCommands[] = {JOBCTL_COMMANDS(JOBCTL_ROW)};
#undef JOBCTL_ROW
  return kCommands;
}

std::optional<FormatSet> FormatsOf(std::string_view path) {
  for (const SubcommandFormats& row : kSubcommandFormats) {
    if (row.path == path) {
      return row.formats;
    }
  }
  for (const CommandDef& def : Commands()) {
    if (def.name == path) {
      return def.formats;
    }
  }
  return std::nullopt;
}

absl::Status CheckFormat(std::string_view path, const OutputFormat& format) {
  const FormatSet formats = FormatsOf(path).value_or(kPrintsText);
  if ((formats & 1U << format.kind()) != 0) {
    return absl::OkStatus();
  }
  const std::vector<std::string> names = FormatNames(formats);
  return absl::InvalidArgumentError(absl::StrCat(
      "jobctl ", std::string(path), " does not take -o ", FormatNames(1U << format.kind()).front(),
      names.empty() ? "; it prints text only"
                    : absl::StrCat("; give ", absl::StrJoin(names, ", "), " or leave -o out")));
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
