#include "jobctl/commands/for_each.h"

#include "absl/strings/str_cat.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {

absl::StatusOr<int> ForEach(std::string_view kind,
                            const std::vector<std::string>& names,
                            const std::function<absl::Status(const std::string& name)>& change) {
  int code = kExitOk;
  for (const std::string& name : names) {
    const absl::Status changed = change(name);
    if (changed.ok()) {
      continue;
    }
    if (names.size() == 1 || IsRefusedCaller(changed)) {
      return changed;
    }
    WriteErr(absl::StrCat("error: ", std::string(kind), "/", name, ": ", changed.message(), "\n"));
    code = kExitError;
  }
  return code;
}

}  // namespace hearth::jobctl
