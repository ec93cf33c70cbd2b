#include "jobctl/commands/job_file/load_job_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/config/yaml_writer.h"
#include "common/io/env.h"
#include "common/spec/fields/rows.h"
#include "common/spec/rules/worker_match.h"
#include "common/spec/violations/checker.h"
#include "jobctl/client/paths.h"
#include "jobctl/commands/arguments.h"

namespace hearth::jobctl {

namespace {

// What the workers must have: "resources.device cpu and resources.selector {zone: a}".
std::string Wanted(const v1::ResourceSpec& resources) {
  const auto& selector =
      *v1::ResourceSpec::descriptor()->FindFieldByNumber(v1::ResourceSpec::kSelectorFieldNumber);
  return absl::StrCat(
      "resources.device ", resources.device(),
      resources.selector().empty()
          ? ""
          : absl::StrCat(" and resources.selector ", config::WriteFlow(resources, selector)));
}

// The command that starts such a worker.
std::string DaemonFor(const v1::ResourceSpec& resources) {
  const std::string& device = resources.device();
  std::string command =
      absl::StrCat("hearth-worker --device ", device == "cuda" ? "cuda:0" : device);
  const std::map<std::string, std::string> labels(resources.selector().begin(),
                                                  resources.selector().end());
  for (const auto& [key, value] : labels) {
    absl::StrAppend(&command, " --label ", key, "=", value);
  }
  return command;
}

}  // namespace

std::string WorkersWarning(const v1::ResourceSpec& resources,
                           const std::vector<v1::Worker>& workers) {
  const std::string& device = resources.device();
  const auto of_device = [&](const v1::Worker& worker) { return worker.device().kind() == device; };
  const auto wanted = [&](const v1::Worker& worker) {
    return spec::HasKindAndLabels(worker, device, resources.selector());
  };
  const std::string daemon = DaemonFor(resources);
  if (std::none_of(workers.begin(), workers.end(), wanted)) {
    const std::string all = workers.empty() ? "there is no worker yet"
                                            : absl::StrCat("no worker has ", Wanted(resources));
    const bool other = !workers.empty() && device == "cuda" &&
                       std::none_of(workers.begin(), workers.end(), of_device);
    return absl::StrCat(all, "; the job waits until ", daemon, " joins",
                        other ? " (on the CPU: --set resources.device=cpu)" : "");
  }
  const auto connected =
      std::count_if(workers.begin(), workers.end(), [&](const v1::Worker& worker) {
        return wanted(worker) && worker.state() != v1::WORKER_STATE_LOST &&
               worker.state() != v1::WORKER_STATE_OFFLINE;
      });
  // One that is away may come back: a single worker is not worth a warning.
  const int least = resources.min_workers() > 0 ? resources.min_workers() : resources.workers();
  if (connected >= least || least == 1) {
    return "";
  }
  return absl::StrCat(
      "the job asks for ", least < resources.workers() ? "at least " : "", least, " workers with ",
      Wanted(resources), "; ", connected, connected == 1 ? " is" : " are",
      " connected; it waits until more join (", daemon, ")",
      connected == 0
          ? ""
          : absl::StrCat("; --set resources.workers=", connected, " uses those that are there"));
}

namespace {

// Values out of range and unknown names. What a job file lacks is no mistake yet: the key may be
// there under a wrong name.
std::vector<spec::FieldViolation> WrongValues(const v1::JobSpec& spec) {
  std::vector<spec::FieldViolation> violations;
  spec::Checker check(violations);
  spec::CheckRows(spec, "", check);
  std::erase_if(violations, [](const spec::FieldViolation& violation) {
    return absl::StartsWith(violation.description, "required");
  });
  return violations;
}

// All that is wrong, one a line: what was `found` while `spec` was read, and the values that were
// read. Without anything found, values are for the rules to judge, which see the defaults too.
absl::Status AllMistakes(const std::vector<absl::Status>& found, const v1::JobSpec& spec) {
  if (found.empty()) {
    return absl::OkStatus();
  }
  std::vector<std::string> texts;
  for (const absl::Status& status : found) {
    texts.emplace_back(status.message());
  }
  for (const spec::FieldViolation& violation : WrongValues(spec)) {
    texts.push_back(absl::StrCat(violation.field, ": ", violation.description));
  }
  return texts.size() == 1 ? found.front() : absl::InvalidArgumentError(absl::StrJoin(texts, "\n"));
}

// Applies all that can be applied, and appends what is wrong with the others.
void Apply(const std::vector<std::string>& assignments,
           v1::JobSpec& spec,
           std::vector<absl::Status>& found) {
  for (const std::string& assignment : assignments) {
    const absl::Status applied = config::ApplyOverride(spec, assignment);
    if (!applied.ok()) {
      found.push_back(Annotate(applied, absl::StrCat("--set ", assignment)));
    }
  }
}

}  // namespace

absl::Status ApplyAssignments(const std::vector<std::string>& assignments, v1::JobSpec& spec) {
  std::vector<absl::Status> found;
  Apply(assignments, spec, found);
  return AllMistakes(found, spec);
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
  v1::JobSpec spec;
  std::vector<absl::Status> found;
  const absl::Status read = config::ParseInto(text, path == "-" ? "<stdin>" : path, spec);
  if (!read.ok()) {
    found.push_back(read);
  }
  Apply(assignments, spec, found);
  HEARTH_RETURN_IF_ERROR(AllMistakes(found, spec));
  const char* home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::current_path(error);
  MakePathsAbsolute(spec, home == nullptr ? "" : home, error ? "/" : folder.string());
  return spec;
}

}  // namespace hearth::jobctl
