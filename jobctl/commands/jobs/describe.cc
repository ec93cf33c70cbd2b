#include "jobctl/commands/jobs/describe.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/config/config.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/recipe/recipe.h"
#include "jobctl/client/history.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"
#include "jobctl/report/cost.h"
#include "jobctl/report/report.h"
#include "jobctl/views/output/table.h"
#include "jobctl/views/text/display_text.h"

namespace hearth::jobctl {
namespace {

constexpr int kValueColumn = 15;

// "Name:  value" lines.
struct Sheet {
  int columns = 0;  // as in Table::Render
  std::string text;

  // Indents a value of several lines so that it stays right of the names.
  void Line(std::string_view name, std::string_view value) {
    const std::string shown =
        columns > 0 ? WrapText(value, std::max(columns - kValueColumn, kValueColumn), kValueColumn)
                    : absl::StrReplaceAll(std::string(value),
                                          {{"\n", "\n" + std::string(kValueColumn, ' ')}});
    absl::StrAppendFormat(&text, "%-14s %s\n", absl::StrCat(std::string(name), ":"), shown);
  }
};

// What the epoch counts, for somebody who has not met the word.
std::string EpochText(const v1::Job& job) {
  if (job.epoch() == 0) {
    return "0: the gang, all of the job's workers together, has not started yet";
  }
  return absl::StrCat(job.epoch(), ": the gang, all of the job's workers together, has started ",
                      job.epoch() == 1 ? "once" : absl::StrCat(job.epoch(), " times"), "; ",
                      job.restarts(), " of ", job.spec().resources().max_restarts(),
                      " restarts used since the last ",
                      spec::Trains(job.spec()) ? "checkpoint" : "result");
}

// The recipe that runs, and what emulated means.
std::string PrecisionText(const v1::RunInfo& info) {
  return absl::StrCat(
      info.recipe(), " (", info.recipe_execution(), ") on ", info.device(),
      info.recipe_execution() == spec::ExecutionName(spec::Execution::kEmulated)
          ? ": values are rounded to the recipe's formats, but multiplied in a wider one, because "
            "the device has no units for them"
          : ": the matrix products run in the formats of this recipe");
}

std::string BatchText(const v1::RunInfo& info) {
  return absl::StrCat(
      info.global_batch_tokens(), " tokens a step, in micro-batches of ", info.micro_batch_size(),
      info.micro_batch_size() == 1 ? " sequence" : " sequences", " on ",
      info.world_size() == 1
          ? std::string("one rank")
          : absl::StrCat(info.world_size(), " ranks (processes, one a worker), which add up their ",
                         "gradients through ", info.comm()));
}

// What the job file asks for; a job that is paused meanwhile has another reason to wait.
std::string StartText(const v1::StartSpec& start) {
  std::vector<std::string> waits;
  if (start.has_not_before()) {
    waits.push_back(absl::StrCat("not before ", TimeText(start.not_before())));
  }
  if (!start.after().empty()) {
    waits.push_back(absl::StrCat("when job ", start.after(), " has succeeded"));
  }
  return absl::StrJoin(waits, ", ");
}

void AppendProgress(Sheet& out, const v1::Job& job) {
  const v1::StepReport& report = job.last_report();
  const bool trains = spec::Trains(job.spec());
  out.Line(spec::StepHeading(job.spec()), absl::StrCat(job.step(), " of ", spec::TotalSteps(job)));
  if (trains && job.step() > 0) {
    out.Line("Loss", absl::StrFormat("%.4f (gradient norm %.3f, learning rate %.3e)", report.loss(),
                                     report.grad_norm(), report.learning_rate()));
    out.Line("Speed",
             absl::StrFormat("%s tok/s, %.3f s a step", FormatCount(report.tokens_per_second()),
                             report.step_seconds()));
    out.Line("Tokens", FormatCount(static_cast<double>(report.tokens())));
    for (const v1::SourceReport& source : report.sources()) {
      out.Line("Source", spec::SourceText(source));
    }
  }
  if (job.has_checkpoint()) {
    const v1::Checkpoint& checkpoint = job.checkpoint();
    out.Line("Checkpoint",
             absl::StrCat("step ", checkpoint.step(), ", ", FormatBytes(checkpoint.bytes()), ", ",
                          checkpoint.path(), ", written ", TimeText(checkpoint.create_time())));
  }
  if (report.skipped_checkpoints() > 0) {
    out.Line("Skipped",
             absl::StrCat(report.skipped_checkpoints(),
                          report.skipped_checkpoints() == 1 ? " checkpoint" : " checkpoints",
                          " since the last start: the one before was still being written"));
  }
  if (report.resume_seconds() > 0) {
    out.Line("Resumed", absl::StrFormat("%.1f s from the trainer's start to its first step",
                                        report.resume_seconds()));
  }
}

void AppendRunInfo(Sheet& out, const v1::Job& job) {
  if (!job.has_run_info()) {
    return;
  }
  const v1::RunInfo& info = job.run_info();
  out.Line("Model",
           absl::StrCat(FormatCount(static_cast<double>(info.parameters())), " parameters"));
  out.Line("Precision", PrecisionText(info));
  if (!spec::Trains(job.spec())) {
    return;
  }
  out.Line("Batch", BatchText(info));
  out.Line("Deterministic", info.deterministic() ? "yes" : "no");
  out.Line("Memory", absl::StrCat(FormatBytes(info.planned_bytes()), " planned a rank"));
}

// The devices it ran on and how hot they became.
void AppendDevices(Sheet& out, const v1::Job& job, double temperature_limit) {
  for (const v1::DeviceGroup& group : job.devices().groups()) {
    std::string text =
        absl::StrCat(group.worker_ids_size(), " x ", group.model(), " on ", group.host());
    if (!group.driver_version().empty()) {
      absl::StrAppend(&text, ", driver ", group.driver_version(), ", CUDA ", group.cuda_version());
    }
    out.Line("Devices", absl::StrCat(text, ", hearth ", group.version()));
  }
  if (job.devices().hottest_celsius() > 0.0) {
    const Finding found = JudgeTemperature(job, temperature_limit);
    out.Line("Temperature", absl::StrCat(VerdictName(found.verdict), ", ", found.text));
  }
}

// What the guard did, and which of its measures are in force.
std::string GuardText(const v1::Job& job) {
  const v1::GuardCounts& counts = job.last_report().guard();
  const int64_t refused = counts.non_finite() + counts.spike() + counts.grad_spike();
  std::string text =
      refused == 0
          ? "no step refused"
          : absl::StrCat(refused, " refused (", counts.non_finite(), " not finite, ",
                         counts.spike(), " loss spikes, ", counts.grad_spike(),
                         " gradient spikes), ", counts.redone_steps(), " done again, ",
                         counts.remedies(), " remedies, ", counts.fallbacks(), " fallbacks");
  const v1::GuardDecision& last = job.last_decision();
  if (last.until_step() > job.step()) {
    absl::StrAppend(&text, "; ", last.to(), " up to step ", last.until_step());
  }
  return job.has_last_decision() ? absl::StrCat(text, "; last at ", last.text()) : text;
}

// For each role the worst operand of each kind, when last measured.
void AppendTensors(Sheet& out, const v1::Job& job) {
  for (const char* role : {"x", "dy", "w"}) {
    v1::TensorStats low;
    v1::TensorStats high;
    v1::TensorStats largest;
    for (const v1::TensorStats& row : job.last_report().worst_tensors()) {
      if (row.role() != role) {
        continue;
      }
      low = low.role().empty() || row.underflow_ratio() > low.underflow_ratio() ? row : low;
      high = high.role().empty() || row.saturation_ratio() > high.saturation_ratio() ? row : high;
      largest = largest.role().empty() || row.amax() > largest.amax() ? row : largest;
    }
    if (!low.role().empty()) {
      out.Line(absl::StrCat("Tensors ", role),
               absl::StrFormat("underflow %.3g %% (%s), saturation %.3g %% (%s), largest %.4g (%s)",
                               100 * low.underflow_ratio(), low.parameter(),
                               100 * high.saturation_ratio(), high.parameter(), largest.amax(),
                               largest.parameter()));
    }
  }
}

void AppendEvaluations(Sheet& out, const v1::Job& job) {
  for (const std::string& text : spec::ResultTexts(job)) {
    out.Line("Evaluation", text);
  }
  for (const v1::SampleText& sample : job.last_report().samples()) {
    out.Line("Sample", absl::StrCat("after step ", sample.step(), ": ",
                                    spec::SampleLine(sample, /*whole=*/true)));
  }
}

std::string UsageLines(const Usage& usage, const std::string& currency) {
  Sheet out{FitColumns(), ""};
  out.Line("Energy", EnergySentence(usage));
  if (usage.cost.has_value()) {
    out.Line("Cost", CostSentence(usage, currency));
  }
  return out.text;
}

std::string RecoveryText(const v1::Recovery& recovery) {
  const std::string lost = absl::StrCat("lost rank ", recovery.rank(), " on ", recovery.worker_id(),
                                        " (", recovery.reason(), ")");
  return recovery.seconds() == 0.0
             ? absl::StrCat("under way since ", TimeText(recovery.fault_time()), ": ", lost)
             : absl::StrFormat("%.1f s at %s: %s, resumed from step %d with %d worker%s",
                               recovery.seconds(), TimeText(recovery.fault_time()), lost,
                               recovery.step(), recovery.workers(),
                               recovery.workers() == 1 ? "" : "s");
}

std::string NotificationText(const v1::Notification& notification) {
  const std::string attempts = absl::StrCat(
      notification.attempts(), notification.attempts() == 1 ? " attempt" : " attempts");
  const std::string what = absl::StrCat(notification.on(), " to ", notification.target(), ": ");
  switch (notification.state()) {
    case v1::NOTIFICATION_STATE_DELIVERED:
      return absl::StrCat(what, "delivered ", TimeText(notification.attempt_time()), ", ",
                          attempts);
    case v1::NOTIFICATION_STATE_ABANDONED:
      return absl::StrCat(what, "given up after ", attempts, ": ", notification.error());
    default:
      return absl::StrCat(
          what, "pending",
          notification.attempts() == 0
              ? ""
              : absl::StrCat(", ", attempts, " failed, last at ",
                             TimeText(notification.attempt_time()), ": ", notification.error()));
  }
}

// What people are told, and what they should know or have noted.
void AppendRemarks(Sheet& out, const v1::Job& job, const v1::ListEventsResponse& events) {
  for (const v1::Notification& notification : job.notifications()) {
    out.Line("Notification", NotificationText(notification));
  }
  for (const std::string& warning : job.warnings()) {
    out.Line("Warning", warning);
  }
  for (const v1::JobEvent& event : events.events()) {
    if (event.type() == "note") {
      out.Line("Note", absl::StrCat(event.message(), " (", event.actor(), ", ",
                                    TimeText(event.time()), ")"));
    }
  }
}

std::string Indent(const std::string& text) {
  return absl::StrCat(
      "  ", absl::StrReplaceAll(text.substr(0, text.find_last_not_of('\n') + 1), {{"\n", "\n  "}}),
      "\n");
}

}  // namespace

std::string DescribeText(const v1::Job& job,
                         const v1::ListEventsResponse& events,
                         const v1::GetVersionResponse& version,
                         const std::string& usage,
                         double temperature_limit,
                         int columns) {
  Sheet out{columns, ""};
  out.Line("Job", job.job_id());
  out.Line("Owner", job.owner().empty() ? "-" : job.owner());
  out.Line("State", absl::StrCat(StateName(job.state()), " since ", TimeText(job.state_time())));
  if (!job.phase().empty()) {
    out.Line("Phase", job.phase());
  }
  out.Line("Reason", job.reason().empty() ? "-" : job.reason());
  if (!job.isolation().empty()) {
    out.Line("Cut off", job.isolation());
  }
  if (job.has_stuck_since()) {
    out.Line("Stuck", absl::StrCat("no step since ", TimeText(job.stuck_since())));
  }
  out.Line("Created", TimeText(job.create_time()));
  if (job.spec().has_start() && job.epoch() == 0 && !Ended(job.state())) {
    out.Line("Starts", StartText(job.spec().start()));
  }
  out.Line("Started", TimeText(job.start_time()));
  out.Line("Ended", TimeText(job.end_time()));
  out.Line("Running for", HumanDuration(absl::Seconds(job.running_seconds())));
  out.Line("Workers", job.workers_size() == 0
                          ? absl::StrCat("none (wants ", job.spec().resources().workers(), ")")
                          : absl::StrJoin(job.workers(), ", "));
  for (const v1::Straggler& slow : job.stragglers()) {
    out.Line(
        "Straggler",
        absl::StrFormat("rank %d on %s is %.1f x slower than the median of the others since %s",
                        slow.rank(), slow.worker_id(), slow.ratio(), TimeText(slow.since())));
  }
  out.Line("Epoch", EpochText(job));
  AppendProgress(out, job);
  out.text += usage;
  AppendRunInfo(out, job);
  if (job.has_trial()) {
    out.Line("Trial", job.trial().text());
  }
  AppendDevices(out, job, temperature_limit);
  if (spec::Trains(job.spec()) && job.step() > 0) {
    out.Line("Guard", GuardText(job));
    AppendTensors(out, job);
  }
  AppendEvaluations(out, job);
  if (job.recovery().has_fault_time()) {
    out.Line("Recovery", RecoveryText(job.recovery()));
  }
  out.Line(
      "Detection",
      absl::StrFormat("a worker that is silent for %g s without progress counts as lost; after a "
                      "restart of the coordinator it has %g s to come back (%g s once the "
                      "rest of its gang is back)",
                      version.silence_seconds(), version.reattach_grace_seconds(),
                      version.reattach_prompt_seconds()));
  AppendRemarks(out, job, events);
  absl::StrAppend(&out.text, "Spec:\n", Indent(config::ToYaml(job.spec())));
  absl::StrAppend(&out.text, "Events:\n");
  Table table({"  TIME", "TYPE", "ACTOR", "EPOCH", "STEP", "WHAT"});
  table.Keep(0);
  for (const v1::JobEvent& event : events.events()) {
    table.Add({absl::StrCat("  ", TimeText(event.time())), event.type(), event.actor(),
               absl::StrCat(event.epoch()), absl::StrCat(event.step()), event.message()});
  }
  return out.text + table.Render(columns);
}

namespace {

absl::StatusOr<std::string> Describe(Context& context,
                                     Client& client,
                                     const v1::Job& job,
                                     const v1::GetVersionResponse& version) {
  v1::ListEventsRequest request;
  request.set_job_id(job.job_id());
  HEARTH_ASSIGN_OR_RETURN(const v1::ListEventsResponse events,
                          client.Call<v1::ListEventsResponse>(request));
  std::string usage;
  if (HasUsage(job, context.prices)) {
    HEARTH_ASSIGN_OR_RETURN(const History history, LoadHistory(client, job.job_id()));
    usage = UsageLines(UsageOf(job, history, context.prices), context.prices.currency);
  }
  return DescribeText(job, events, version, usage, context.temperature_limit,
                      context.format == OutputFormat::kWide ? 0 : FitColumns());
}

// `list`: programs get the list of jobs, even if it has only one.
absl::StatusOr<int> Run(Context& context, const std::vector<std::string>& job_ids, bool list) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  HEARTH_ASSIGN_OR_RETURN(const v1::ListJobsResponse all, GetJobs(*client, job_ids));
  if (context.format.data() || context.format == OutputFormat::kName) {
    const std::vector<v1::Job> jobs(all.jobs().begin(), all.jobs().end());
    HEARTH_RETURN_IF_ERROR(list ? PrintJobs(context.format, jobs, all)
                                : PrintJobs(context.format, jobs, jobs.front()));
    return kExitOk;
  }
  HEARTH_ASSIGN_OR_RETURN(const v1::GetVersionResponse version,
                          client->Call<v1::GetVersionResponse>(v1::GetVersionRequest()));
  std::string_view between;
  for (const v1::Job& job : all.jobs()) {
    HEARTH_ASSIGN_OR_RETURN(const std::string text, Describe(context, *client, job, version));
    WriteOut(between);
    WriteOut(text);
    between = "\n";
  }
  return kExitOk;
}

}  // namespace

Action SetupDescribe(CLI::App& app) {
  auto choice = std::make_shared<JobChoice>();
  AddJobChoice(app, *choice, Labelled::kAll);
  return [choice](Context& context) {
    return ForChosenJobs(context, *choice, [&](const std::vector<std::string>& job_ids) {
      return Run(context, job_ids, choice->several());
    });
  };
}

}  // namespace hearth::jobctl
