// jobctl: the command line of Hearth.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/base/version.h"
#include "common/fault/fault.h"
#include "common/io/env.h"
#include "common/spec/violations/field_violation.h"
#include "google/rpc/error_details.pb.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/client/job_names.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/settings.h"
#include "jobctl/commands/usage.h"

namespace {

using hearth::jobctl::Action;
using hearth::jobctl::CommandDef;
using hearth::jobctl::Context;
using hearth::jobctl::InScripts;
using hearth::jobctl::OutputFormat;

std::string Environment(const char* name) {
  const char* value = hearth::GetEnv(name);
  return value == nullptr ? "" : value;
}

absl::Status ApplySettings(const CLI::App& app, Context& context) {
  const std::string config_home = Environment("XDG_CONFIG_HOME");
  const std::string home = config_home.empty() ? Environment("HOME") + "/.config" : config_home;
  context.context_path = home + "/hearth/context.json";
  if (app.got_subcommand("context")) {
    return absl::OkStatus();  // it changes the file, which may name a context that is gone
  }
  const auto text = hearth::Env::Real().ReadFile(context.context_path);
  return hearth::jobctl::ApplySettings(app, Environment, context.context_path,
                                       text.ok() ? *text : "", context);
}

int Fail(const absl::Status& status) {
  std::string text = absl::StrCat("error: ", status.message(), "\n");
  const auto payload = status.GetPayload(hearth::spec::kBadRequestUrl);
  google::rpc::BadRequest details;
  if (payload.has_value() && details.ParseFromString(std::string(*payload))) {
    for (const auto& violation : details.field_violations()) {
      // The text may list them already (a spec refused locally).
      if (text.find(violation.field()) == std::string::npos) {
        absl::StrAppend(&text, "  ", violation.field(), ": ", violation.description(), "\n");
      }
    }
  }
  hearth::jobctl::WriteErr(text);
  return hearth::jobctl::IsRefusedCaller(status) ? hearth::jobctl::kExitAuth
                                                 : hearth::jobctl::kExitError;
}

struct Bound {
  const CommandDef* def;
  CLI::App* app;
  Action action;
};

// Replaces beginnings of ids in the arguments. A person sees on standard error which job was
// chosen; a script does not, and there the id of a deleted job would name another one.
absl::Status CompleteJobIds(const CLI::App& app, const Bound& command, Context& context) {
  const bool seen = !context.quiet && isatty(STDERR_FILENO) == 1;
  return hearth::jobctl::CompleteJobIds(
      app,
      [&context](const std::string& typed) -> absl::StatusOr<std::string> {
        const absl::StatusOr<hearth::jobctl::Client*> client = context.client();
        return client.ok() ? hearth::jobctl::WholeJobId(**client, typed) : client.status();
      },
      {.taken = seen || command.def->in_scripts == InScripts::kBeginnings, .told = !context.quiet});
}

absl::StatusOr<int> Run(const CLI::App& app, const Bound& command, Context& context) {
  HEARTH_RETURN_IF_ERROR(CompleteJobIds(app, command, context));
  return command.action(context);
}

// What is wrong with -o for the command that was parsed; OK: the command prints that format.
absl::Status CheckFormat(const CLI::App& app, const OutputFormat& format) {
  std::string path;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    absl::StrAppend(&path, path.empty() ? "" : " ", at->get_name());
  }
  return hearth::jobctl::CheckFormat(path, format);
}

int Dispatch(const CLI::App& app, const std::vector<Bound>& commands, Context& context) {
  for (const Bound& command : commands) {
    if (command.app->parsed()) {
      const absl::StatusOr<int> code = Run(app, command, context);
      if (code.ok()) {
        return *code;
      }
      const int failed = Fail(code.status());
      return absl::IsNotFound(code.status()) && command.app->get_name() == "wait"
                 ? static_cast<int>(hearth::jobctl::kExitNotFound)
                 : failed;
    }
  }
  return hearth::jobctl::kExitUsage;
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): only a failed allocation can escape
int main(int argc, char** argv) {
  hearth::jobctl::BlockInterrupts();
  Context context;
  std::string format = "table";
  CLI::App app("jobctl drives Hearth: submit training jobs, watch, cancel and resume them.",
               "jobctl");
  app.set_version_flag("--version", "jobctl " + hearth::VersionString());
  app.require_subcommand(1);
  app.fallthrough();
  hearth::jobctl::AddSettings(app, context);
  app.add_option("-o,--output", format, "table, wide, json, yaml, name, jsonpath=TEMPLATE");
  app.add_flag("-q,--quiet", context.quiet, "Print names only");
  app.add_flag("--no-color", context.no_color, "No colours in plots (as with NO_COLOR)");

  std::vector<Bound> commands;
  for (const CommandDef& def : hearth::jobctl::Commands()) {
    CLI::App* command = app.add_subcommand(def.name, def.help);
    commands.push_back({&def, command, def.setup(*command)});
    hearth::jobctl::AcceptResourceNames(*command);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string text =
        hearth::jobctl::UsageText(app, std::vector<std::string>(argv + 1, argv + argc), error);
    if (!text.empty()) {
      hearth::jobctl::WriteErr(text);
      return hearth::jobctl::kExitUsage;
    }
    const int code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(hearth::jobctl::kExitUsage);
  }
  if (const absl::Status applied = ApplySettings(app, context); !applied.ok()) {
    Fail(applied);
    return hearth::jobctl::kExitUsage;
  }
  const auto parsed = hearth::jobctl::ParseOutputFormat(format);
  if (!parsed.ok()) {
    Fail(parsed.status());
    return hearth::jobctl::kExitUsage;
  }
  if (const absl::Status printed = CheckFormat(app, *parsed); !printed.ok()) {
    Fail(printed);
    return hearth::jobctl::kExitUsage;
  }
  if (const absl::Status faults = hearth::fault::InitFromEnvironment(); !faults.ok()) {
    Fail(faults);
    return hearth::jobctl::kExitUsage;
  }
  const bool names = context.quiet && *parsed == hearth::jobctl::OutputFormat::kTable;
  context.format = names ? hearth::jobctl::OutputFormat::kName : *parsed;
  return Dispatch(app, commands, context);
}
