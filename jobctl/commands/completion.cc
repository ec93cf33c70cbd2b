// Completion scripts made from the command table itself: CLI11 has none of its own.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/spec/fields/facts.h"
#include "common/spec/fields/rows.h"
#include "common/spec/model/presets.h"
#include "jobctl/commands/access/callers.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/views/metrics_plot.h"

namespace hearth::jobctl {
namespace {

struct Entry {
  std::string path;  // "" for jobctl itself, "dataset build"
  std::string help;
  std::vector<std::string> subcommands;
  std::vector<std::string> options;  // with dashes
  std::vector<std::string> valued;   // the options among them that take a value
  const char* live = nullptr;        // kind of the live names that it takes: "job"
  bool takes_field = false;          // of the job file
};

// Live names come from the coordinator or the context file; none when it does not answer.
struct LiveNames {
  const char* kind;  // of the argument, and before the slash in `-o name`
  const char* command;
};
constexpr LiveNames kLiveNames[] = {
    {"job", "jobctl list -o name --limit 0 2>/dev/null | sed 's,^job/,,'"},
    {"worker", "jobctl workers -o name 2>/dev/null | sed 's,^worker/,,'"},
    {"token", "jobctl token list -o name 2>/dev/null | sed 's,^token/,,'"},
    {"context", "jobctl context list -o name 2>/dev/null | sed 's,^context/,,'"},
};

std::string CommandOfKind(const std::string& kind) {
  for (const LiveNames& row : kLiveNames) {
    if (kind == row.kind) {
      return row.command;
    }
  }
  return "";
}

void Walk(const CLI::App& app, const std::string& path, std::vector<Entry>& entries) {
  Entry entry;
  entry.path = path;
  entry.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      entry.options.push_back("--" + name);
    }
    for (const std::string& name : option->get_snames()) {
      entry.options.push_back("-" + name);
    }
    if (option->get_items_expected_max() > 0 && !option->get_positional()) {
      for (const std::string& name : option->get_lnames()) {
        entry.valued.push_back("--" + name);
      }
      for (const std::string& name : option->get_snames()) {
        entry.valued.push_back("-" + name);
      }
    }
    for (const LiveNames& row : kLiveNames) {
      entry.live = entry.live == nullptr && option->get_name() == row.kind ? row.kind : entry.live;
    }
    entry.takes_field = entry.takes_field || option->get_name() == "field";
  }
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* subcommand : subcommands) {
    entry.subcommands.push_back(subcommand->get_name());
  }
  entries.push_back(entry);
  for (const CLI::App* subcommand : subcommands) {
    Walk(*subcommand, path.empty() ? subcommand->get_name() : path + " " + subcommand->get_name(),
         entries);
  }
}

constexpr const char* kStates =
    "queued starting running recovering pausing requeueing cancelling paused succeeded failed "
    "cancelled";

std::string PresetWords() {
  std::string words;
  for (const std::string_view name : spec::PresetNames()) {
    absl::StrAppend(&words, words.empty() ? "" : " ", std::string(name));
  }
  return words;
}

// The fields that --set takes, those that a resume may change, and all with their sections.
struct Fields {
  std::string settable;   // "train.steps= ..."
  std::string resumable;  // "train.steps= ..."
  std::string all;
  // Lines of a case statement: the values of fields that have names, by path.
  std::string value_cases;
  std::string with_values;  // for fish: "train.steps= optimizer.name=adamw ..."
};

Fields FieldsOfRows() {
  Fields out;
  for (const spec::FieldFacts& facts : spec::JobFileFields()) {
    if (facts.path.find_first_of("[N") != std::string::npos) {
      continue;  // elements of lists and entries of maps have no path of their own
    }
    absl::StrAppend(&out.all, facts.path, " ");
    if (spec::HasRows(*facts.field)) {
      continue;
    }
    absl::StrAppend(&out.settable, facts.path, "= ");
    absl::StrAppend(&out.resumable, facts.resumable ? absl::StrCat(facts.path, "= ") : "");
    std::vector<std::string_view> values =
        facts.field->is_map() ? std::vector<std::string_view>() : facts.names;
    if (facts.type == "boolean") {
      values = {"true", "false"};
    }
    absl::StrAppend(&out.with_values, values.empty() ? absl::StrCat(facts.path, "= ") : "");
    std::string names;
    for (const std::string_view value : values) {
      absl::StrAppend(&names, names.empty() ? "" : " ", std::string(value));
      absl::StrAppend(&out.with_values, facts.path, "=", std::string(value), " ");
    }
    if (!names.empty()) {
      absl::StrAppend(&out.value_cases, "    ", facts.path, ") echo \"", names, "\" ;;\n");
    }
  }
  return out;
}

// The part of the bash script about --set. readline cuts PATH=VALUE into three words, zsh does not.
constexpr const char* kBashSet = R"bash(_jobctl_values() {
  case "$1" in
@VALUES@  esac
}
_jobctl_set() {
  local cur="${COMP_WORDS[COMP_CWORD]}" before=("${COMP_WORDS[@]:0:COMP_CWORD}") n=$COMP_CWORD fields
  if [ "$cur" = = ] && [ "$n" -gt 2 ] && [ "${before[n - 2]}" = --set ]; then
    COMPREPLY=($(compgen -W "$(_jobctl_values "${before[n - 1]}")")); return 0
  elif [ "$n" -gt 3 ] && [ "${before[n - 1]}" = = ] && [ "${before[n - 3]}" = --set ]; then
    COMPREPLY=($(compgen -W "$(_jobctl_values "${before[n - 2]}")" -- "$cur")); return 0
  elif [ "$n" -lt 2 ] || [ "${before[n - 1]}" != --set ]; then
    return 1
  elif [[ "$cur" == *=* ]]; then
    COMPREPLY=($(compgen -P "${cur%%=*}=" -W "$(_jobctl_values "${cur%%=*}")" -- "${cur#*=}")); return 0
  fi
  fields="@SETTABLE@"
  [[ " ${before[*]} " == *" resume "* ]] && fields="@RESUMABLE@"
  compopt -o nospace 2>/dev/null
  COMPREPLY=($(compgen -W "$fields" -- "$cur")); return 0
}
)bash";

std::string BashSet(const Fields& fields) {
  return absl::StrReplaceAll(kBashSet, {{"@VALUES@", fields.value_cases},
                                        {"@SETTABLE@", fields.settable},
                                        {"@RESUMABLE@", fields.resumable}});
}

std::string Words(const Entry& entry) {
  std::vector<std::string> words = entry.subcommands;
  words.insert(words.end(), entry.options.begin(), entry.options.end());
  return absl::StrJoin(words, " ");
}

// The commands of two words, as a pattern: "dataset build"|"dataset inspect"|...
std::string NestedPaths(const std::vector<Entry>& entries) {
  std::string nested;
  for (const Entry& entry : entries) {
    if (entry.path.find(' ') != std::string::npos) {
      absl::StrAppend(&nested, nested.empty() ? "" : "|", "\"", entry.path, "\"");
    }
  }
  return nested;
}

std::string Bash(const std::vector<Entry>& entries) {
  const Fields fields = FieldsOfRows();
  std::string cases;
  for (const Entry& entry : entries) {
    std::string live;
    if (entry.live != nullptr) {
      live = absl::StrCat(" $(", CommandOfKind(entry.live), ")");
    } else if (entry.takes_field) {
      live = " " + fields.all;
    }
    absl::StrAppend(&cases, "    \"", entry.path, "\") words=\"", Words(entry), live, "\" ;;\n");
  }
  // Jobs' -f is a flag in logs and metrics, so only the options of jobctl itself tell where the
  // command begins.
  const std::string valued = absl::StrJoin(entries.front().valued, "|");
  return absl::StrCat("# jobctl completion for bash: source <(jobctl completion bash)\n",
                      BashSet(fields), R"(_jobctl() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path="" words="" i
  _jobctl_set && return
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${COMP_WORDS[i]}" in
      )",
                      valued, R"()
        i=$((i + 1)); [ "${COMP_WORDS[i]}" = = ] && i=$((i + 1))
        [ "${COMP_WORDS[i + 1]}" = : ] && i=$((i + 2)) ;;  # host:port is three words to readline
      -*) ;;
      *) case "$path ${COMP_WORDS[i]}" in
           )",
                      NestedPaths(entries), R"() path="$path ${COMP_WORDS[i]}" ;;
           *) [ -z "$path" ] && path="${COMP_WORDS[i]}" ;;
         esac ;;
    esac
  done
  [[ "$cur" == -* ]] || case "$path $prev" in
    "submit -f"|"submit --file"|"plan -f"|"plan --file"|"submit submit"|"plan plan"|*" --input"|*" --out"|*" --tls-"*|*" --token-file"|*" --output-file"|"init -f"|"init --file"|"init --from"|"init --data")
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
    "metrics -o"|"metrics --output") COMPREPLY=($(compgen -W "table csv json" -- "$cur")); return ;;
    "report -o"|"report --output") COMPREPLY=($(compgen -W "md html json" -- "$cur")); return ;;
    *" --plot") COMPREPLY=($(compgen -W ")",
                      PlotMetricNames(" "), R"(" -- "$cur")); return ;;
    *" -o"|*" --output") COMPREPLY=($(compgen -W "table wide json yaml name jsonpath=" -- "$cur")); return ;;
    *" --preset") COMPREPLY=($(compgen -W ")",
                      PresetWords(), R"(" -- "$cur")); return ;;
    "metrics --x") COMPREPLY=($(compgen -W ")",
                      PlotAxisNames(" "), R"(" -- "$cur")); return ;;
    *" --dry-run") COMPREPLY=($(compgen -W "client server" -- "$cur")); return ;;
    *" --role") COMPREPLY=($(compgen -W ")",
                      absl::StrJoin(RoleNames(), " "), R"(" -- "$cur")); return ;;
    *" --context") COMPREPLY=($(compgen -W "$()",
                      CommandOfKind("context"), ")", R"(" -- "$cur")); return ;;
    *" --state") COMPREPLY=($(compgen -W ")",
                      kStates, R"(" -- "$cur")); return ;;
    *" --tokenizer") COMPREPLY=($(compgen -W "bytes sentencepiece:" -- "$cur") $(compgen -f -X '!*.model' -- "$cur")); return ;;
    "completion completion") COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")); return ;;
  esac
  case "$path" in
)",
                      cases, R"(  esac
  case "$cur" in
    job/*|worker/*|token/*|context/*) COMPREPLY=($(compgen -P "${cur%%/*}/" -W "$words" -- "${cur#*/}")) ;;
    *) COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;
  esac
}
complete -o default -F _jobctl jobctl
)");
}

std::string Zsh(const std::vector<Entry>& entries) {
  return absl::StrCat(
      "#compdef jobctl\n# jobctl completion for zsh: source <(jobctl completion zsh)\n"
      "autoload -U +X bashcompinit && bashcompinit\n",
      Bash(entries));
}

std::string Fish(const std::vector<Entry>& entries) {
  const Fields fields = FieldsOfRows();
  std::string out = "# jobctl completion for fish: jobctl completion fish | source\n";
  for (const Entry& entry : entries) {
    const bool root = entry.path.empty();
    const std::string when =
        root ? "__fish_use_subcommand"
             : absl::StrCat(
                   "__fish_seen_subcommand_from ",
                   absl::StrReplaceAll(entry.path, {{" ", "; and __fish_seen_subcommand_from "}}));
    const std::string head = absl::StrCat("complete -c jobctl -n '", when, "' ");
    for (const std::string& subcommand : entry.subcommands) {
      absl::StrAppend(&out, head, "-f -a ", subcommand, "\n");
    }
    for (const std::string& option : entry.options) {
      const bool is_long = option.rfind("--", 0) == 0;
      absl::StrAppend(&out, head, is_long ? "-l " : "-s ", option.substr(is_long ? 2 : 1), "\n");
    }
    if (entry.live != nullptr) {
      const std::string command = CommandOfKind(entry.live);
      absl::StrAppend(&out, head, "-f -a \"(", absl::StrReplaceAll(command, {{"\"", "\\\""}}),
                      ")\"\n");
      // The form with its kind, once the person has begun it.
      absl::StrAppend(&out, "complete -c jobctl -n '", when, "; and string match -q \"", entry.live,
                      "/*\" -- (commandline -ct)' -f -a \"(", command, " | sed 's,^,", entry.live,
                      "/,')\"\n");
    }
    if (entry.takes_field) {
      absl::StrAppend(&out, head, "-f -a \"", fields.all, "\"\n");
    }
    for (const std::string& option : entry.valued) {
      if (option == "--set") {
        absl::StrAppend(&out, head, "-l set -x -a \"",
                        entry.path == "resume" ? fields.resumable : fields.with_values, "\"\n");
      }
    }
  }
  return out;
}

}  // namespace

Action SetupCompletion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  const CLI::App* root = app.get_parent();
  return [shell, root](Context&) -> absl::StatusOr<int> {
    std::vector<Entry> entries;
    Walk(*root, "", entries);
    WriteOut(*shell == "bash" ? Bash(entries) : *shell == "zsh" ? Zsh(entries) : Fish(entries));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
