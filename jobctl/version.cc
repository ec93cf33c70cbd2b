#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "jobctl/command.h"

namespace hearth::jobctl {

Action SetupVersion(CLI::App& app) {
  auto client_only = std::make_shared<bool>(false);
  app.add_flag("--client", *client_only, "Do not ask the coordinator");
  return [client_only](Context& context) -> absl::StatusOr<int> {
    WriteOut(absl::StrCat("jobctl ", std::string(VersionString()), "\n"));
    if (*client_only) {
      return kExitOk;
    }
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const v1::GetVersionResponse version, client->GetVersion());
    WriteOut(absl::StrCat("coordinator ", version.version(), " (", version.commit(),
                          "), generation ", version.generation(), ", since ",
                          TimeText(version.start_time()), "\n"));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
