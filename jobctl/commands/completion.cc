// Completion scripts made from the command table itself: CLI11 has none of its own.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "jobctl/commands/command.h"
#include "jobctl/views/metrics_plot.h"

namespace hearth::jobctl {
namespace {

struct Entry {
  std::string path;  // "" for jobctl itself, "dataset build"
  std::string help;
  std::vector<std::string> subcommands;
  std::vector<std::string> options;  // with dashes
  std::vector<std::string> valued;   // the options among them that take a value
  bool takes_job = false;
  bool takes_worker = false;
};

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
    entry.takes_job = entry.takes_job || option->get_name() == "job";
    entry.takes_worker = entry.takes_worker || option->get_name() == "worker";
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

// Live names come from the coordinator; none when it does not answer.
constexpr const char* kJobs = "jobctl list -o name --limit 0 2>/dev/null | sed 's,^job/,,'";
constexpr const char* kWorkers = "jobctl workers -o name 2>/dev/null | sed 's,^worker/,,'";

constexpr const char* kStates =
    "queued starting running recovering pausing requeueing cancelling paused succeeded failed "
    "cancelled";

std::string Words(const Entry& entry) {
  std::vector<std::string> words = entry.subcommands;
  words.insert(words.end(), entry.options.begin(), entry.options.end());
  return absl::StrJoin(words, " ");
}

std::string Bash(const std::vector<Entry>& entries) {
  std::string cases;
  for (const Entry& entry : entries) {
    std::string live;
    if (entry.takes_job) {
      live = absl::StrCat(" $(", kJobs, ")");
    } else if (entry.takes_worker) {
      live = absl::StrCat(" $(", kWorkers, ")");
    }
    absl::StrAppend(&cases, "    \"", entry.path, "\") words=\"", Words(entry), live, "\" ;;\n");
  }
  // Jobs' -f is a flag in logs and metrics, so only the options of jobctl itself tell where the
  // command begins.
  const std::string valued = absl::StrJoin(entries.front().valued, "|");
  return absl::StrCat(R"(# jobctl completion for bash: source <(jobctl completion bash)
_jobctl() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path="" words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${COMP_WORDS[i]}" in
      )",
                      valued, R"()
        i=$((i + 1)); [ "${COMP_WORDS[i]}" = = ] && i=$((i + 1))
        [ "${COMP_WORDS[i + 1]}" = : ] && i=$((i + 2)) ;;  # host:port is three words to readline
      -*) ;;
      dataset|build|inspect|checkpoints|prune) path="${path:+$path }${COMP_WORDS[i]}" ;;
      *) [ -z "$path" ] && path="${COMP_WORDS[i]}" ;;
    esac
  done
  [[ "$cur" == -* ]] || case "$path $prev" in
    "submit -f"|"submit --file"|"plan -f"|"plan --file"|"submit submit"|"plan plan"|*" --input"|*" --out"|*" --tls-"*)
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
    "metrics -o"|"metrics --output") COMPREPLY=($(compgen -W "table csv json" -- "$cur")); return ;;
    "report -o"|"report --output") COMPREPLY=($(compgen -W "md html json" -- "$cur")); return ;;
    *" --plot") COMPREPLY=($(compgen -W ")",
                      PlotMetricNames(" "), R"(" -- "$cur")); return ;;
    *" -o"|*" --output") COMPREPLY=($(compgen -W "table wide json yaml name" -- "$cur")); return ;;
    *" --dry-run") COMPREPLY=($(compgen -W "client server" -- "$cur")); return ;;
    *" --state") COMPREPLY=($(compgen -W ")",
                      kStates, R"(" -- "$cur")); return ;;
    *" --tokenizer") COMPREPLY=($(compgen -W "bytes sentencepiece:" -- "$cur") $(compgen -f -X '!*.model' -- "$cur")); return ;;
    "completion completion") COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")); return ;;
  esac
  case "$path" in
)",
                      cases, R"(  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
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
  std::string out = "# jobctl completion for fish: jobctl completion fish | source\n";
  for (const Entry& entry : entries) {
    const bool root = entry.path.empty();
    const std::string when = root ? "__fish_use_subcommand"
                                  : absl::StrCat("__fish_seen_subcommand_from ",
                                                 entry.path.substr(entry.path.rfind(' ') + 1));
    const std::string head = absl::StrCat("complete -c jobctl -n '", when, "' ");
    for (const std::string& subcommand : entry.subcommands) {
      absl::StrAppend(&out, head, "-f -a ", subcommand, "\n");
    }
    for (const std::string& option : entry.options) {
      const bool is_long = option.rfind("--", 0) == 0;
      absl::StrAppend(&out, head, is_long ? "-l " : "-s ", option.substr(is_long ? 2 : 1), "\n");
    }
    if (entry.takes_job || entry.takes_worker) {
      absl::StrAppend(&out, head, "-f -a \"(",
                      absl::StrReplaceAll(entry.takes_job ? kJobs : kWorkers, {{"\"", "\\\""}}),
                      ")\"\n");
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
