#include "jobctl/commands/job_file/load_job_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/io/env.h"
#include "jobctl/client/paths.h"
#include "jobctl/commands/arguments.h"

namespace hearth::jobctl {

std::string WorkersWarning(const v1::ResourceSpec& resources,
                           const std::vector<v1::Worker>& workers) {
  const std::string& device = resources.device();
  const auto of_device = [&](const v1::Worker& worker) { return worker.device().kind() == device; };
  const std::string daemon =
      absl::StrCat("hearth-worker --device ", device == "cuda" ? "cuda:0" : device);
  if (std::none_of(workers.begin(), workers.end(), of_device)) {
    const std::string all = workers.empty()
                                ? "there is no worker yet"
                                : absl::StrCat("no worker has resources.device ", device);
    const bool other = !workers.empty() && device == "cuda";
    return absl::StrCat(all, "; the job waits until ", daemon, " joins",
                        other ? " (on the CPU: --set resources.device=cpu)" : "");
  }
  const auto connected =
      std::count_if(workers.begin(), workers.end(), [&](const v1::Worker& worker) {
        return of_device(worker) && worker.state() != v1::WORKER_STATE_LOST &&
               worker.state() != v1::WORKER_STATE_OFFLINE;
      });
  // One that is away may come back: a single worker is not worth a warning.
  const int least = resources.min_workers() > 0 ? resources.min_workers() : resources.workers();
  if (connected >= least || least == 1) {
    return "";
  }
  return absl::StrCat(
      "the job asks for ", least < resources.workers() ? "at least " : "", least,
      " workers with resources.device ", device, "; ", connected, connected == 1 ? " is" : " are",
      " connected; it waits until more join (", daemon, ")",
      connected == 0
          ? ""
          : absl::StrCat("; --set resources.workers=", connected, " uses those that are there"));
}

absl::Status ApplyAssignments(const std::vector<std::string>& assignments, v1::JobSpec& spec) {
  for (const std::string& assignment : assignments) {
    const absl::Status applied = config::ApplyOverride(spec, assignment);
    if (!applied.ok()) {
      return Annotate(applied, absl::StrCat("--set ", assignment));
    }
  }
  return absl::OkStatus();
}

absl::Status ChangeStoredSpec(const std::vector<std::string>& assignments, v1::JobSpec& spec) {
  const v1::ResourceSpec before = spec.resources();
  HEARTH_RETURN_IF_ERROR(ApplyAssignments(assignments, spec));
  v1::ResourceSpec& after = *spec.mutable_resources();
  // Where the two were equal min_workers came from workers, and follows it.
  if (before.min_workers() == before.workers() && after.has_workers() &&
      after.min_workers() == before.min_workers()) {
    after.set_min_workers(after.workers());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path,
                                        const std::vector<std::string>& assignments) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  HEARTH_ASSIGN_OR_RETURN(v1::JobSpec spec,
                          config::ParseJobSpec(text, path == "-" ? "<stdin>" : path));
  HEARTH_RETURN_IF_ERROR(ApplyAssignments(assignments, spec));
  const char* home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::current_path(error);
  MakePathsAbsolute(spec, home == nullptr ? "" : home, error ? "/" : folder.string());
  return spec;
}

}  // namespace hearth::jobctl
