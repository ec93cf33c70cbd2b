#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/facts/complete_spec.h"
#include "common/io/env.h"
#include "common/reasons/reason_codes.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/speed/calibration.h"
#include "common/spec/fields/idle.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/resolve/resolve.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_file/load_job_file.h"
#include "jobctl/commands/jobs/follow.h"
#include "jobctl/commands/jobs/job_actions.h"
#include "jobctl/commands/jobs/start_options.h"
#include "jobctl/commands/jobs/wait.h"

namespace hearth::jobctl {
namespace {

struct Options {
  std::string file;
  std::vector<std::string> assignments;
  std::string job_id;
  std::string request_id;
  std::string dry_run;
  std::string timeout;
  StartOptions start;
  bool watch = false;
  bool wait = false;
};

absl::StatusOr<int> DryRunClient(v1::JobSpec spec) {
  HEARTH_RETURN_IF_ERROR(spec::ResolveSubmitted(spec));
  HEARTH_RETURN_IF_ERROR(facts::CheckWhatIsHere(spec, Env::Real()));
  WriteOut(config::ToYaml(spec));
  return kExitOk;
}

// Warns if the job would wait for workers that are not there.
void WarnAboutWorkers(Client& client, const v1::Job& job) {
  const auto workers = client.Call<v1::ListWorkersResponse>(v1::ListWorkersRequest());
  if (!workers.ok() || Ended(job.state())) {
    return;  // the job is submitted; this is a hint, not a check
  }
  const std::string text = WorkersWarning(job.spec().resources(),
                                          {workers->workers().begin(), workers->workers().end()});
  if (!text.empty()) {
    WriteErr(absl::StrCat("warning: ", text, "\n"));
  }
}

// Before the job is sent, prints one line of its plan on the largest GPU that a worker offers. This
// is a hint, not a check: if anything needed for it is missing, nothing is printed.
void SayWhatItTakes(Client& client, const Context& context, v1::JobSpec spec) {
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(spec, violations);
  if (!violations.empty() || spec.resources().device() != "cuda" ||
      !facts::CompleteForPlan(spec, Env::Real()).ok()) {
    return;
  }
  const auto workers = client.Call<v1::ListWorkersResponse>(v1::ListWorkersRequest());
  const v1::DeviceInfo* largest = nullptr;
  const auto devices = workers.ok() ? *workers : v1::ListWorkersResponse();
  for (const v1::Worker& worker : devices.workers()) {
    const v1::DeviceInfo& device = worker.device();
    if (device.kind() == "cuda" &&
        (largest == nullptr || device.memory_bytes() > largest->memory_bytes())) {
      largest = &device;
    }
  }
  const spec::GpuRow* const gpu = largest == nullptr ? nullptr : spec::FindGpu(largest->model());
  if (gpu == nullptr) {
    return;
  }
  spec::FeasibilityQuery query;
  query.prices = context.prices;
  query.memory_bytes = largest->memory_bytes();
  query.host_memory_bytes = largest->host_memory_bytes();
  const absl::StatusOr<spec::Feasibility> plan =
      spec::AssessFeasibility(spec, *gpu, spec::CalibrationFor(*gpu), query);
  if (plan.ok()) {
    WriteErr(absl::StrCat("plan for ", gpu->name, ": ",
                          spec::FeasibilityLine(*plan, query.prices.currency), "\n"));
  }
}

// The answer to a repeated request is the job's present state.
std::string SubmittedText(const v1::Job& job) {
  return job.reason_code() == reasons::kSubmitted
             ? "submitted"
             : absl::StrCat("was submitted before and is ", StateName(job.state()));
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const absl::Duration timeout, ParseTimeout(options.timeout, "--timeout"));
  HEARTH_ASSIGN_OR_RETURN(v1::JobSpec spec, LoadJobFile(options.file, options.assignments));
  HEARTH_RETURN_IF_ERROR(TakeStart(options.start, spec));
  // Before a client is made: this works without a coordinator.
  if (options.dry_run == "client") {
    if (context.format.kind() != OutputFormat::kTable &&
        context.format.kind() != OutputFormat::kYaml) {
      WriteErr("error: --dry-run client prints the job file, which is YAML; leave -o out\n");
      return kExitUsage;
    }
    return DryRunClient(std::move(spec));
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  if (!context.quiet) {
    // It completes a copy. The coordinator gets the spec as the file has it, and fills in defaults
    // itself.
    SayWhatItTakes(*client, context, spec);
  }
  v1::CreateJobRequest request;
  *request.mutable_spec() = std::move(spec);
  request.set_job_id(options.job_id);
  request.set_validate_only(options.dry_run == "server");
  HEARTH_ASSIGN_OR_RETURN(const v1::Job job, CallWithId(*client, options.request_id, request));
  for (const std::string& warning : job.warnings()) {
    WriteErr(absl::StrCat("warning: ", warning, "\n"));
  }
  WarnAboutWorkers(*client, job);
  const bool dry = request.validate_only();
  HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                       absl::StrCat("job/", job.job_id()),
                                       dry ? "would be submitted" : SubmittedText(job), job));
  if (dry || !(options.watch || options.wait)) {
    return kExitOk;
  }
  if (!options.watch) {
    return WaitForJobs(context, {job.job_id()}, timeout);
  }
  FollowOptions follow;
  follow.job_id = job.job_id();
  follow.timeout = timeout;
  return FollowJob(context, follow);
}

}  // namespace

Action SetupSubmit(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("-f,--file,file", options->file, "Job file (YAML), - for standard input")
      ->required();
  app.add_option("--set", options->assignments, "Override a field: path=value, repeatable")
      ->allow_extra_args(false);
  AddStartOptions(app, options->start);
  app.add_option("--job-id", options->job_id, "Id of the job (default: made from its name)");
  AddRequestId(app, options->request_id);
  app.add_option(
         "--dry-run", options->dry_run,
         "client: check what can be checked here and print the resolved job file; server: run "
         "all checks, store nothing")
      ->check(CLI::IsMember({"client", "server"}));
  app.add_flag("-w,--watch", options->watch,
               "Follow the job until it ends; exit codes as for wait");
  app.add_flag("--wait", options->wait,
               "Wait for the end; exit 0, 100, 101, 102 or 103 (see wait)");
  app.add_option("--timeout", options->timeout,
                 "With --wait or --watch: give up after this time, e.g. 10m");
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
