#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "jobctl/commands/access/callers.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {
namespace {

std::string Counted(int64_t n, const std::string& one, const std::string& many) {
  return absl::StrCat(n, " ", n == 1 ? one : many);
}

// For people: where it is first, so that it can be copied.
std::string Sentence(const v1::MakeBackupResponse& made) {
  const double seconds =
      static_cast<double>(made.duration().seconds()) + 1e-9 * made.duration().nanos();
  return absl::StrCat(
      made.path(), "\n", Counted(made.jobs(), "job", "jobs"), ", ",
      Counted(made.files(), "history or log", "histories and logs"), ", ",
      FormatBytes(made.bytes()), ", copied and read back in ", absl::StrFormat("%.1f s", seconds),
      "; the coordinator has ", Counted(made.kept(), "copy", "copies"),
      made.removed().empty()
          ? ""
          : absl::StrCat(" and removed ", Counted(made.removed_size(), "older one", "older ones")),
      "\n");
}

}  // namespace

Action SetupBackup(CLI::App& app) {
  auto timeout = std::make_shared<std::string>("1h");
  app.add_option("--timeout", *timeout,
                 "How long to wait for the copy; the coordinator finishes it in any case")
      ->capture_default_str();
  return [timeout](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(context.connect.unary_deadline, ParseTimeout(*timeout, "--timeout"));
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const v1::MakeBackupResponse made,
                            client->Call<v1::MakeBackupResponse>(v1::MakeBackupRequest()));
    HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintMessage(context.format, made));
    if (!printed) {
      WriteOut(context.format == OutputFormat::kName || context.quiet
                   ? absl::StrCat(made.path(), "\n")
                   : Sentence(made));
    }
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
