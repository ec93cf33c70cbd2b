// Jobs as people name them: by their id, or by the beginning of one.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "jobctl/client/client.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hearth::jobctl {

// The id of the job that `typed` names: `typed` itself if there is such a job, else the only id
// that begins with it. kNotFound: none does; kInvalidArgument: several do, and the text has some;
// other errors are the coordinator's.
absl::StatusOr<std::string> WholeJobId(Client& client, const std::string& typed);

// An argument or an option that names jobs.
struct JobArgument {
  const char* name;
  bool or_folder;  // it may also name a folder, which goes before a job
};

// What `option` is among them; null: it names no jobs.
const JobArgument* FindJobArgument(const CLI::Option& option);

// `text` names a folder where `argument` may name one.
bool NamesFolder(const JobArgument& argument, const std::string& text);

// What becomes of the beginning of an id.
struct BeginningRule {
  bool taken = true;  // false: it is refused, and the error names the job that it would mean
  bool told = true;   // says on standard error which job it means
};

// In the commands that `app` has parsed, replaces beginnings of ids by whole ids: in all arguments
// and options that FindJobArgument knows, except names of folders. `whole` finds the whole id
// (WholeJobId). With an option that cannot be undone (--yes, --now) a beginning is refused whatever
// the rule. kNotFound: the rule refuses it; kInvalidArgument: such an option does, or `whole`
// returned it. On other errors of `whole` a name is left unchanged, and the command reports what is
// wrong with it.
absl::Status CompleteJobIds(
    const CLI::App& app,
    const std::function<absl::StatusOr<std::string>(const std::string& typed)>& whole,
    BeginningRule rule);

}  // namespace hearth::jobctl
