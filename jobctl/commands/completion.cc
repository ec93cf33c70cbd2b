// Completion scripts made from the command table itself: CLI11 has none of its own.
#include <algorithm>
#include <memory>
#include <set>
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
#include "jobctl/views/plots/metrics_plot.h"

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

// The words that a value of an option is one of.
struct OptionWords {
  std::string path;  // of the command; "*" = every command that has the option
  std::string name;  // without dashes
  std::string short_name;
  std::string words;
};

std::vector<OptionWords> WordsOfOptions(const std::vector<Entry>& entries) {
  std::vector<OptionWords> rows = {
      {"metrics", "output", "o", "table wide csv json"},
      {"report", "output", "o", "md html json"},
      {"plan", "output", "o", "table json md html"},
      {"", "output", "o", "table wide json yaml name jsonpath="},
      {"*", "plot", "", PlotMetricNames(" ")},
      {"*", "preset", "", PresetWords()},
      {"metrics", "x", "", PlotAxisNames(" ")},
      {"*", "dry-run", "", "client server"},
      {"*", "role", "", absl::StrJoin(RoleNames(), " ")},
      {"*", "state", "", kStates},
  };
  for (const Entry& entry : entries) {
    const FormatSet formats = FormatsOf(entry.path).value_or(kPrintsText);
    const bool has_its_own = std::any_of(rows.begin(), rows.end(), [&](const OptionWords& row) {
      return row.path == entry.path && row.name == "output";
    });
    if (!has_its_own && formats != kPrintsText) {
      const std::string words = absl::StrJoin(FormatNames(formats), " ");
      rows.push_back(
          {entry.path, "output", "o",
           absl::StrCat("table ", absl::StrReplaceAll(words, {{"jsonpath", "jsonpath="}}))});
    }
  }
  return rows;
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
// zsh runs these scripts, too: it takes ${words[@]:0:N} for another thing than ${words[@]:0:$N},
// and to it `path` and `words` are special.
constexpr const char* kBashSet = R"bash(_jobctl_values() {
  case "$1" in
@VALUES@  esac
}
_jobctl_set() {
  local cur="${COMP_WORDS[COMP_CWORD]}" before=("${COMP_WORDS[@]:0:$COMP_CWORD}") n=$COMP_CWORD fields
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

// Lines of a case statement over "COMMAND OPTION".
std::string BashOptionCases(const std::vector<Entry>& entries) {
  std::string cases;
  for (const OptionWords& row : WordsOfOptions(entries)) {
    const std::string at = row.path == "*" ? "*" : absl::StrCat("\"", row.path, "\"");
    absl::StrAppend(
        &cases, "    ", at, "\" --", row.name, "\"",
        row.short_name.empty() ? "" : absl::StrCat("|", at, "\" -", row.short_name, "\""),
        ") COMPREPLY=($(compgen -W \"", row.words, "\" -- \"$cur\")); return ;;\n");
  }
  return cases;
}

std::string BashCommandCases(const std::vector<Entry>& entries, const Fields& fields) {
  std::string cases;
  for (const Entry& entry : entries) {
    std::string live;
    if (entry.live != nullptr) {
      live = absl::StrCat(" $(", CommandOfKind(entry.live), ")");
    } else if (entry.takes_field) {
      live = " " + fields.all;
    }
    absl::StrAppend(&cases, "    \"", entry.path, "\") choices=\"", Words(entry), live, "\" ;;\n");
  }
  return cases;
}

// Sets COMPREPLY. Jobs' -f is a flag in logs and metrics, so only the options of jobctl itself tell
// where the command begins.
constexpr const char* kBashFunction = R"bash(_jobctl() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" at="" choices="" i
  COMPREPLY=()
  _jobctl_set && return
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${COMP_WORDS[i]}" in
      @VALUED@)
        i=$((i + 1)); [ "${COMP_WORDS[i]}" = = ] && i=$((i + 1))
        [ "${COMP_WORDS[i + 1]}" = : ] && i=$((i + 2)) ;;  # host:port is three words to readline
      -*) ;;
      *) case "$at ${COMP_WORDS[i]}" in
           @NESTED@) at="$at ${COMP_WORDS[i]}" ;;
           *) [ -z "$at" ] && at="${COMP_WORDS[i]}" ;;
         esac ;;
    esac
  done
  [[ "$cur" == -* ]] || case "$at $prev" in
    "submit -f"|"submit --file"|"plan -f"|"plan --file"|"submit submit"|"plan plan"|*" --input"|*" --out"|*" --tls-"*|*" --token-file"|*" --output-file"|"init -f"|"init --file"|"init --from"|"init --data")
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
@OPTIONS@    *" --context") COMPREPLY=($(compgen -W "$(@CONTEXTS@)" -- "$cur")); return ;;
    *" --tokenizer") COMPREPLY=($(compgen -W "bytes sentencepiece:" -- "$cur") $(compgen -f -X '!*.model' -- "$cur")); return ;;
    "completion completion") COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")); return ;;
  esac
  case "$at" in
@COMMANDS@  esac
  case "$cur" in
    job/*|worker/*|token/*|context/*) COMPREPLY=($(compgen -P "${cur%%/*}/" -W "$choices" -- "${cur#*/}")) ;;
    *) COMPREPLY=($(compgen -W "$choices" -- "$cur")) ;;
  esac
}
)bash";

std::string BashFunctions(const std::vector<Entry>& entries) {
  const Fields fields = FieldsOfRows();
  return absl::StrCat(
      BashSet(fields),
      absl::StrReplaceAll(kBashFunction, {{"@VALUED@", absl::StrJoin(entries.front().valued, "|")},
                                          {"@NESTED@", NestedPaths(entries)},
                                          {"@OPTIONS@", BashOptionCases(entries)},
                                          {"@CONTEXTS@", CommandOfKind("context")},
                                          {"@COMMANDS@", BashCommandCases(entries, fields)}}));
}

std::string Bash(const std::vector<Entry>& entries) {
  return absl::StrCat("# jobctl completion for bash: source <(jobctl completion bash)\n",
                      BashFunctions(entries), "complete -o default -F _jobctl jobctl\n");
}

// The functions of bash run in zsh with its compgen. Words that end in = or / are not complete, so
// no blank follows them; where there is none, files are offered.
constexpr const char* kZshFunction = R"zsh(_jobctl_zsh() {
  local -a COMP_WORDS COMPREPLY
  local COMP_CWORD=$((CURRENT - 1))
  COMP_WORDS=("${words[@]}")
  _jobctl_as_bash
  local -a whole=(${COMPREPLY:#*[=/]}) begun=(${(M)COMPREPLY:#*[=/]})
  local none=1
  compadd -a whole && none=0
  compadd -S '' -a begun && none=0
  (( none )) && _default
}
_jobctl_as_bash() {
  emulate -L sh
  setopt kshglob noshglob braceexpand
  typeset -h words
  _jobctl
}
compdef _jobctl_zsh jobctl
)zsh";

std::string Zsh(const std::vector<Entry>& entries) {
  return absl::StrCat(
      "#compdef jobctl\n# jobctl completion for zsh, after compinit: source <(jobctl completion "
      "zsh)\n"
      "autoload -U +X bashcompinit && bashcompinit\n",
      BashFunctions(entries), kZshFunction);
}

// Whether the words before the cursor lead to the command $argv[1].
constexpr const char* kFishFunction = R"fish(function __jobctl_at
    set -l at
    set -l tokens (commandline -opc)
    set -e tokens[1]
    set -l skip 0
    for token in $tokens
        if test $skip = 1
            set skip 0
        else if contains -- $token @VALUED@
            set skip 1
        else if string match -q -- '-*' $token
            continue
        else if test -z "$at"
            set at $token
        else if contains -- "$at $token" @NESTED@
            set at "$at $token"
        end
    end
    test "$at" = "$argv[1]"
end
)fish";

std::string FishHead(const Entry& entry) {
  return absl::StrCat("complete -c jobctl -n '__jobctl_at \"", entry.path, "\"' ");
}

// The options of a command, with the words of their values.
std::string FishOptions(const Entry& entry,
                        const std::vector<OptionWords>& rows,
                        const Fields& fields) {
  const std::string head = FishHead(entry);
  std::string out;
  std::set<std::string> said;
  const auto add = [&](const std::string& name, const std::string& short_name,
                       const std::string& words) {
    said.insert({"--" + name, "-" + short_name});
    absl::StrAppend(&out, head, "-l ", name, short_name.empty() ? "" : " -s ", short_name,
                    " -x -a \"", words, "\"\n");
  };
  const auto has = [&entry](const std::string& option) {
    return std::find(entry.options.begin(), entry.options.end(), option) != entry.options.end();
  };
  for (const OptionWords& row : rows) {
    const bool its_own = row.path == entry.path;  // -o may be one of jobctl itself
    if (its_own || (row.path == "*" && has("--" + row.name))) {
      add(row.name, row.short_name, row.words);
    }
  }
  if (has("--set")) {
    add("set", "", entry.path == "resume" ? fields.resumable : fields.with_values);
  }
  if (has("--context")) {
    add("context", "", absl::StrCat("(", CommandOfKind("context"), ")"));
  }
  for (const std::string& option : entry.options) {
    const bool is_long = option.rfind("--", 0) == 0;
    const bool valued =
        std::find(entry.valued.begin(), entry.valued.end(), option) != entry.valued.end();
    if (said.count(option) == 0) {
      absl::StrAppend(&out, head, is_long ? "-l " : "-s ", option.substr(is_long ? 2 : 1),
                      valued ? " -r\n" : "\n");
    }
  }
  return out;
}

std::string Fish(const std::vector<Entry>& entries) {
  const Fields fields = FieldsOfRows();
  const std::vector<OptionWords> rows = WordsOfOptions(entries);
  std::string out = absl::StrCat(
      "# jobctl completion for fish: jobctl completion fish | source\n",
      absl::StrReplaceAll(kFishFunction,
                          {{"@VALUED@", absl::StrJoin(entries.front().valued, " ")},
                           {"@NESTED@", absl::StrReplaceAll(NestedPaths(entries), {{"|", " "}})}}));
  for (const Entry& entry : entries) {
    const std::string head = FishHead(entry);
    for (const std::string& subcommand : entry.subcommands) {
      absl::StrAppend(&out, head, "-f -a ", subcommand, "\n");
    }
    out += FishOptions(entry, rows, fields);
    if (entry.live != nullptr) {
      const std::string command = CommandOfKind(entry.live);
      absl::StrAppend(&out, head, "-f -a \"(", command, ")\"\n");
      // The form with its kind, once the person has begun it.
      absl::StrAppend(&out, "complete -c jobctl -n '__jobctl_at \"", entry.path,
                      "\"; and string match -q \"", entry.live,
                      "/*\" -- (commandline -ct)' -f -a \"(", command, " | sed 's,^,", entry.live,
                      "/,')\"\n");
    }
    if (entry.takes_field) {
      absl::StrAppend(&out, head, "-f -a \"", fields.all, "\"\n");
    }
    if (entry.path == "completion") {
      absl::StrAppend(&out, head, "-f -a \"bash zsh fish\"\n");
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
