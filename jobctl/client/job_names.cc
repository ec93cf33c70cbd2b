#include "jobctl/client/job_names.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {
namespace {

constexpr int kPage = 1000;
constexpr size_t kNamed = 5;  // ids in the message about several

constexpr JobArgument kJobArguments[] = {
    {"job", false}, {"other", false}, {"--after", false}, {"--job", false}, {"source", true},
};

bool MayBeginAnId(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
}

// The given option that cannot be undone, "" = none was given.
std::string Final(const CLI::App& app) {
  for (const char* name : {"--yes", "--now"}) {
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option != nullptr && option->count() > 0) {
      return name;
    }
  }
  return "";
}

using Whole = std::function<absl::StatusOr<std::string>(const std::string& typed)>;

absl::Status CompleteArgument(const CLI::App& app,
                              const JobArgument& argument,
                              CLI::Option& option,
                              const Whole& whole_of,
                              BeginningRule rule) {
  std::vector<std::string> ids;
  std::string said;
  for (const std::string& typed : std::vector<std::string>(option.results())) {
    if (NamesFolder(argument, typed) || !MayBeginAnId(typed)) {
      ids.push_back(typed);
      continue;
    }
    const absl::StatusOr<std::string> whole = whole_of(typed);
    if (absl::IsInvalidArgument(whole.status())) {
      return whole.status();
    }
    if (!whole.ok() && !absl::IsNotFound(whole.status())) {
      return absl::OkStatus();  // the coordinator does not answer: the command reports it
    }
    ids.push_back(whole.ok() ? *whole : typed);
    if (ids.back() == typed) {
      continue;
    }
    if (const std::string final = Final(app); !final.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("no job ", typed, "; with ", final,
                                                     " give the whole id: ", ids.back(), "?"));
    }
    if (!rule.taken) {
      return absl::NotFoundError(absl::StrCat(
          "no job ", typed, "; did you mean ", ids.back(), "? ", app.get_name(),
          " needs the whole id in a script (no terminal, or -q), because the beginning of an id "
          "means another job once its job is deleted"));
    }
    absl::StrAppend(&said, typed, " is job/", ids.back(), "\n");
  }
  if (said.empty()) {
    return absl::OkStatus();
  }
  if (rule.told) {
    WriteErr(said);
  }
  // The command's variable still has what was typed; the callback fills it from the new results.
  option.clear();
  for (const std::string& id : ids) {
    option.add_result(id);
  }
  option.run_callback();
  return absl::OkStatus();
}

}  // namespace

const JobArgument* FindJobArgument(const CLI::Option& option) {
  for (const JobArgument& row : kJobArguments) {
    if (option.get_name() == row.name && (option.get_positional() || *row.name == '-')) {
      return &row;
    }
  }
  return nullptr;
}

bool NamesFolder(const JobArgument& argument, const std::string& text) {
  std::error_code unknown;
  return argument.or_folder && std::filesystem::is_directory(text, unknown);
}

absl::StatusOr<std::string> WholeJobId(Client& client, const std::string& typed) {
  // A whole id means that job, even where others begin with it.
  v1::GetJobRequest get;
  get.set_job_id(typed);
  const absl::Status known = client.Call<v1::Job>(get).status();
  if (known.ok() || !absl::IsNotFound(known) || !MayBeginAnId(typed)) {
    return known.ok() ? absl::StatusOr<std::string>(typed) : known;
  }
  std::vector<std::string> ids;
  v1::ListJobsRequest list;
  list.set_page_size(kPage);
  do {
    const absl::StatusOr<v1::ListJobsResponse> page = client.Call<v1::ListJobsResponse>(list);
    if (!page.ok()) {
      return page.status();
    }
    for (const v1::Job& job : page->jobs()) {
      if (absl::StartsWith(job.job_id(), typed)) {
        ids.push_back(job.job_id());
      }
    }
    list.set_page_token(page->next_page_token());
    // One more than the message names is enough to end it with "...".
  } while (!list.page_token().empty() && ids.size() <= kNamed);
  if (ids.size() < 2) {
    return ids.empty() ? absl::StatusOr<std::string>(known) : ids.front();
  }
  const bool more = ids.size() > kNamed;
  ids.resize(std::min(ids.size(), kNamed));
  return absl::InvalidArgumentError(absl::StrCat("no job ", typed, "; several begin with it: ",
                                                 absl::StrJoin(ids, ", "), more ? ", ..." : ""));
}

absl::Status CompleteJobIds(const CLI::App& app, const Whole& whole, BeginningRule rule) {
  for (CLI::App* command : app.get_subcommands()) {
    for (CLI::Option* option : command->get_options()) {
      const JobArgument* argument = FindJobArgument(*option);
      if (argument != nullptr && option->count() > 0) {
        HEARTH_RETURN_IF_ERROR(CompleteArgument(*command, *argument, *option, whole, rule));
      }
    }
    HEARTH_RETURN_IF_ERROR(CompleteJobIds(*command, whole, rule));
  }
  return absl::OkStatus();
}

}  // namespace hearth::jobctl
