#include "jobctl/commands/usage.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/spec/fields/facts.h"
#include "common/spec/fields/rows.h"
#include "common/spec/violations/names.h"

namespace hearth::jobctl {
namespace {

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The command that the words lead to: the innermost that was found.
const CLI::App& Innermost(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
  }
  return *app;
}

// "jobctl dataset" of the command dataset.
std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr
             ? app.get_name()
             : absl::StrCat(FullName(*app.get_parent()), " ", app.get_name());
}

// For commands in a command: the first row whose command is there.
constexpr Alias kSubcommandAliases[] = {
    {"ls", "list"},       {"show", "list"},    {"show", "inspect"},  {"info", "inspect"},
    {"rm", "remove"},     {"rm", "revoke"},    {"rm", "prune"},      {"delete", "remove"},
    {"delete", "revoke"}, {"delete", "prune"}, {"remove", "revoke"}, {"revoke", "remove"},
    {"add", "create"},    {"new", "create"},   {"new", "add"},       {"create", "add"},
    {"create", "build"},  {"make", "build"},   {"switch", "use"},    {"set", "use"},
    {"merge", "mix"},     {"combine", "mix"},
};

std::string NoCommand(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) {
    names.push_back(command->get_name());
  }
  std::string meant;
  if (app.get_parent() == nullptr) {
    for (const Alias& alias : CommandAliases()) {
      meant = word == alias.typed ? alias.meant : meant;
    }
  }
  for (const Alias& alias : kSubcommandAliases) {
    if (meant.empty() && word == alias.typed &&
        std::find(names.begin(), names.end(), alias.meant) != names.end()) {
      meant = alias.meant;
    }
  }
  if (meant.empty()) {
    meant = std::string(spec::NearestName(word, {names.begin(), names.end()}));
  }
  const std::string name = FullName(app);
  return absl::StrCat("error: ", name, " has no command \"", word, "\"; ",
                      meant.empty() ? absl::StrCat(name, " --help lists them\n")
                                    : absl::StrCat("did you mean ", name, " ", meant, "?\n"));
}

// The long names of the options that count for `app`: its own and those of the commands around it.
std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent()) {
    for (const CLI::Option* option : at->get_options()) {
      names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    }
  }
  return names;
}

// "--set train.steps=VALUE or --set evaluate.steps=VALUE": the fields of the job file that people
// call `name`, of the outermost sections that have any; "": none, or so many that nothing can be
// guessed.
std::string SettersCalled(const std::string& name) {
  constexpr size_t kMost = 2;
  std::vector<std::string> found;
  std::ptrdiff_t depth = 0;  // of those found
  for (const spec::FieldFacts& facts : spec::JobFileFields()) {
    const google::protobuf::FieldDescriptor& field = *facts.field;
    const bool settable = !spec::HasRows(field) && facts.path.find('[') == std::string::npos &&
                          facts.path.find("NAME") == std::string::npos;
    const auto dots = std::count(facts.path.begin(), facts.path.end(), '.');
    if (!settable || (!found.empty() && dots > depth) ||
        (field.name() != name && spec::FindSynonym(name, *field.containing_type()) != &field)) {
      continue;
    }
    if (dots < depth) {
      found.clear();
    }
    depth = dots;
    found.push_back(absl::StrCat("--set ", facts.path, "=VALUE"));
  }
  return found.size() > kMost ? "" : absl::StrJoin(found, " or ");
}

std::string NoOption(const CLI::App& app, const std::string& word) {
  const std::string typed = word.substr(0, word.find('='));
  const std::string name(absl::StripPrefix(absl::StripPrefix(typed, "-"), "-"));
  const std::vector<std::string> names = OptionNames(app);
  std::string meant;
  // A single letter is near to every short name.
  if (name.size() > 1) {
    const std::string_view nearest = spec::NearestName(name, {names.begin(), names.end()});
    meant = nearest.empty() ? "" : absl::StrCat("--", std::string(nearest));
  }
  const bool sets = std::find(names.begin(), names.end(), "set") != names.end();
  const std::string setters =
      sets && name.size() > 1 ? SettersCalled(absl::StrReplaceAll(name, {{"-", "_"}})) : "";
  if (!setters.empty()) {
    meant = setters;
  }
  const std::string full = FullName(app);
  return absl::StrCat("error: ", full, " has no option ", typed, "; ",
                      meant.empty() ? absl::StrCat(full, " --help lists them\n")
                                    : absl::StrCat("did you mean ", meant, "?\n"));
}

// `rest` in the order of `args`: CLI11 has options of a command and of jobctl in two lists.
std::vector<std::string> InOrder(const std::vector<std::string>& args,
                                 std::vector<std::string> rest) {
  std::vector<std::string> ordered;
  for (const std::string& arg : args) {
    // CLI11 takes "--name=value" apart.
    const auto it = std::find_if(rest.begin(), rest.end(), [&](const std::string& word) {
      return word == arg || (word[0] == '-' && absl::StartsWith(arg, word + "="));
    });
    if (it != rest.end()) {
      ordered.push_back(*it);
      rest.erase(it);
    }
  }
  ordered.insert(ordered.end(), rest.begin(), rest.end());
  return ordered;
}

}  // namespace

const std::vector<Alias>& CommandAliases() {
  static const auto& aliases = *new std::vector<Alias>{
      {"abort", "cancel"},
      {"add", "submit"},
      {"apply", "submit"},
      {"attach", "watch"},
      {"check", "doctor"},
      {"clone", "rerun"},
      {"compare", "diff"},
      {"config", "explain"},
      {"continue", "resume"},
      {"create", "submit"},
      {"edit", "update"},
      {"estimate", "plan"},
      {"export", "checkpoints export"},
      {"extend", "resume JOB --set train.steps=STEPS"},
      {"fields", "explain"},
      {"follow", "watch"},
      {"gpus", "workers"},
      {"help", "--help"},
      {"history", "events"},
      {"hosts", "workers"},
      {"info", "describe"},
      {"inspect", "describe"},
      {"jobs", "list"},
      {"kill", "cancel --now"},
      {"launch", "submit"},
      {"ls", "list"},
      {"memory", "plan"},
      {"new", "init"},
      {"nodes", "workers"},
      {"plot", "metrics JOB --plot loss"},
      {"presets", "plan --presets"},
      {"ps", "list"},
      {"purge", "checkpoints prune"},
      {"queue", "list"},
      {"remove", "delete"},
      {"restart", "resume"},
      {"retry", "resume"},
      {"rm", "delete"},
      {"run", "submit"},
      {"sbatch", "submit"},
      {"scancel", "cancel"},
      {"schema", "explain"},
      {"set", "update"},
      {"show", "describe"},
      {"sinfo", "workers"},
      {"squeue", "list"},
      {"start", "submit FILE, or jobctl resume JOB"},
      {"stat", "describe"},
      {"status", "describe"},
      {"stop", "pause JOB, or jobctl cancel JOB"},
      {"suspend", "pause"},
      {"tail", "logs -f"},
      {"template", "init"},
      {"tensorboard", "metrics JOB --tensorboard DIR"},
      {"train", "submit"},
      {"unpause", "resume"},
      {"validate", "submit --dry-run client"},
  };
  return aliases;
}

std::string UsageText(const CLI::App& root,
                      const std::vector<std::string>& args,
                      const CLI::ParseError& error) {
  const CLI::App& app = Innermost(root);
  std::vector<std::string> rest = root.remaining();
  for (const CLI::App* at = &app; at != &root; at = at->get_parent()) {
    const std::vector<std::string> more = at->remaining();
    rest.insert(rest.end(), more.begin(), more.end());
  }
  const bool unread = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  // The other errors of CLI11 say what is wrong.
  if (!unread) {
    return "";
  }
  const bool lacks_command = !CommandsOf(app).empty();
  std::string text;
  for (const std::string& word : InOrder(args, rest)) {
    if (word.size() > 1 && word[0] == '-') {
      text += NoOption(app, word);
    } else if (lacks_command) {
      return NoCommand(app, word);  // what follows are the words of that command
    }
  }
  if (text.empty() && !rest.empty() && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const std::string& word : InOrder(args, rest)) {
      absl::StrAppend(&text, "error: ", FullName(app), " does not take \"", word, "\"\n");
    }
  }
  return text;
}

}  // namespace hearth::jobctl
