#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/env.h"
#include "common/io/private_files.h"
#include "jobctl/client/context_file.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/settings.h"
#include "jobctl/views/output/table.h"

namespace hearth::jobctl {
namespace {

struct Options {
  const CLI::App* root = nullptr;
  CLI::App* add = nullptr;
  CLI::App* list = nullptr;
  CLI::App* use = nullptr;
  CLI::App* remove = nullptr;
  std::string name;
};

absl::StatusOr<ContextFile> Load(const std::string& path) {
  if (!Env::Real().Exists(path)) {
    return ContextFile::Parse(path, "");
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, Env::Real().ReadFile(path));
  return ContextFile::Parse(path, text);
}

absl::Status Save(const ContextFile& file) {
  const std::string folder = std::filesystem::path(file.path()).parent_path().string();
  HEARTH_RETURN_IF_ERROR(CreatePrivateDir(Env::Real(), folder));
  return WritePrivateFile(file.path(), file.Text());
}

void Say(const Context& context, const std::string& name, const char* verbed) {
  const bool bare = context.quiet || context.format == OutputFormat::kName;
  WriteOut(absl::StrCat("context/", name, bare ? "" : absl::StrCat(" ", verbed), "\n"));
}

// A setting for the table; "-" when the context has none.
std::string Cell(const nlohmann::json& settings, const char* key) {
  const auto it = settings.find(key);
  return it == settings.end() ? "-" : it->is_string() ? it->get<std::string>() : it->dump();
}

absl::StatusOr<int> Add(Context& context, const Options& options, ContextFile& file) {
  std::error_code error;
  const std::string folder = std::filesystem::current_path(error).string();
  nlohmann::json settings = SettingsGiven(*options.root, error ? "/" : folder);
  if (!settings.contains("coordinator")) {
    WriteErr("error: context add needs --coordinator HOST:PORT\n");
    return kExitUsage;
  }
  HEARTH_RETURN_IF_ERROR(file.Set(options.name, std::move(settings)));
  HEARTH_RETURN_IF_ERROR(Save(file));
  Say(context, options.name, file.current() == options.name ? "added, and in use" : "added");
  return kExitOk;
}

absl::StatusOr<int> List(const Context& context, const ContextFile& file) {
  if (context.format == OutputFormat::kJson || context.format == OutputFormat::kYaml) {
    // JSON is YAML.
    WriteOut(file.Text());
    return kExitOk;
  }
  Table table({"NAME", "USED", "COORDINATOR", "TOKEN-FILE", "TLS-CA"});
  for (const std::string& name : file.names()) {
    if (context.format == OutputFormat::kName) {
      WriteOut(absl::StrCat("context/", name, "\n"));
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const nlohmann::json settings, file.Get(name));
    table.Add({name, name == file.current() ? "yes" : "-", Cell(settings, "coordinator"),
               Cell(settings, "token_file"), Cell(settings, "tls_ca")});
  }
  if (context.format != OutputFormat::kName) {
    WriteOut(table.Render(FitColumns()));
  }
  return kExitOk;
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(ContextFile file, Load(context.context_path));
  if (options.add->parsed()) {
    return Add(context, options, file);
  }
  if (options.list->parsed()) {
    return List(context, file);
  }
  const bool use = options.use->parsed();
  HEARTH_RETURN_IF_ERROR(use ? file.Use(options.name) : file.Remove(options.name));
  HEARTH_RETURN_IF_ERROR(Save(file));
  Say(context, options.name, use ? "in use" : "removed");
  return kExitOk;
}

}  // namespace

Action SetupContexts(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->root = app.get_parent();
  app.require_subcommand(1);
  options->add = app.add_subcommand(
      "add",
      "Save the settings given as flags (--coordinator, --token-file, --tls-ca, ...) under a name");
  options->list = app.add_subcommand("list", "List contexts");
  options->use = app.add_subcommand("use", "Make a context the default");
  options->remove = app.add_subcommand("remove", "Forget a context; its token file stays");
  options->add->add_option("name", options->name, "Name of the context")->required();
  for (CLI::App* command : {options->use, options->remove}) {
    command->add_option("context", options->name, "Name of the context")->required();
  }
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
