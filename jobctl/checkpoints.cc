#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "jobctl/command.h"

namespace hearth::jobctl {

Action SetupCheckpoints(CLI::App& app) {
  auto job_id = std::make_shared<std::string>();
  app.add_option("job", *job_id, "Job id")->required();
  return [job_id](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    v1::ListCheckpointsRequest request;
    request.set_job_id(*job_id);
    HEARTH_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse response,
                            client->ListCheckpoints(request));
    if (context.format == OutputFormat::kJson || context.format == OutputFormat::kYaml) {
      HEARTH_ASSIGN_OR_RETURN(const std::string text, context.format == OutputFormat::kJson
                                                          ? ToJson(response)
                                                          : ToYaml(response));
      WriteOut(text);
      return kExitOk;
    }
    Table table({"STEP", "EPOCH", "SIZE", "HELD-OUT-LOSS", "CREATED", "PATH"});
    for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
      table.Add({absl::StrCat(checkpoint.step()), absl::StrCat(checkpoint.epoch()),
                 FormatBytes(checkpoint.bytes()),
                 checkpoint.validation_loss() > 0 ? Number(checkpoint.validation_loss(), 4) : "-",
                 TimeText(checkpoint.create_time()), checkpoint.path()});
    }
    WriteOut(table.Render(FitColumns()));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
