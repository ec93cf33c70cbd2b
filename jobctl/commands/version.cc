#include "common/base/version.h"

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {
namespace {

// {"client": "0.1.0 (commit)", "coordinator": GetVersionResponse}, the second absent under
// --client.
absl::StatusOr<int> PrintWhole(Context& context, bool client_only) {
  google::protobuf::Struct out;
  (*out.mutable_fields())["client"].set_string_value(std::string(VersionString()));
  if (!client_only) {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const v1::GetVersionResponse version,
                            client->Call<v1::GetVersionResponse>(v1::GetVersionRequest()));
    HEARTH_ASSIGN_OR_RETURN(const std::string json, ToJson(version));
    const auto parsed = google::protobuf::util::JsonStringToMessage(
        json, (*out.mutable_fields())["coordinator"].mutable_struct_value());
    if (!parsed.ok()) {
      return absl::InternalError(std::string(parsed.message()));
    }
  }
  HEARTH_RETURN_IF_ERROR(PrintMessage(context.format, out).status());
  return kExitOk;
}

}  // namespace

Action SetupVersion(CLI::App& app) {
  auto client_only = std::make_shared<bool>(false);
  app.add_flag("--client", *client_only, "Do not ask the coordinator");
  return [client_only](Context& context) -> absl::StatusOr<int> {
    if (context.format.data()) {
      return PrintWhole(context, *client_only);
    }
    WriteOut(absl::StrCat("jobctl ", std::string(VersionString()), "\n"));
    if (*client_only) {
      return kExitOk;
    }
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const v1::GetVersionResponse version,
                            client->Call<v1::GetVersionResponse>(v1::GetVersionRequest()));
    WriteOut(absl::StrCat("coordinator ", version.version(), " (", version.commit(),
                          "), generation ", version.generation(), ", since ",
                          TimeText(version.start_time()), "\n"));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
