#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/access/callers.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {

Action SetupWhoAmI(CLI::App&) {
  return [](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const v1::Caller caller, client->Call<v1::Caller>(v1::WhoAmIRequest()));
    HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintMessage(context.format, caller));
    if (printed) {
      return kExitOk;
    }
    if (context.format == OutputFormat::kName) {
      WriteOut(absl::StrCat("user/", caller.user(), "\n"));
      return kExitOk;
    }
    WriteOut(absl::StrCat(CallerName(caller), " (", RoleName(caller.role()), ")",
                          caller.token().empty() ? "" : absl::StrCat(", token ", caller.token()),
                          caller.address().empty() ? "" : absl::StrCat(", from ", caller.address()),
                          "\n"));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
