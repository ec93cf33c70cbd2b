#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "google/protobuf/util/json_util.h"
#include "jobctl/command.h"
#include "jobctl/metrics_plot.h"

namespace hearth::jobctl {
namespace {

struct Options {
  std::vector<std::string> job_ids;
  std::string plot;    // names of metrics; empty = numbers
  std::string format;  // csv, or empty for the global -o
  int64_t from_step = 1;
  bool follow = false;
};

// A column of the CSV and of the table; one row per number of a step.
struct Column {
  const char* name;
  std::string (*text)(const v1::StepReport& report);
  bool in_table;
};

std::string Exact(double value) {
  return absl::StrFormat("%.9g", value);
}

constexpr Column kColumns[] = {
    {"step", [](const v1::StepReport& r) { return absl::StrCat(r.step()); }, true},
    {"epoch", [](const v1::StepReport& r) { return absl::StrCat(r.epoch()); }, true},
    {"loss", [](const v1::StepReport& r) { return Exact(r.loss()); }, true},
    {"validation_loss",
     [](const v1::StepReport& r) {
       return r.has_validation_loss() ? Exact(r.validation_loss()) : std::string();
     },
     true},
    {"grad_norm", [](const v1::StepReport& r) { return Exact(r.grad_norm()); }, true},
    {"learning_rate", [](const v1::StepReport& r) { return Exact(r.learning_rate()); }, true},
    {"tokens", [](const v1::StepReport& r) { return absl::StrCat(r.tokens()); }, true},
    {"tokens_per_second", [](const v1::StepReport& r) { return Exact(r.tokens_per_second()); },
     true},
    {"step_seconds", [](const v1::StepReport& r) { return Exact(r.step_seconds()); }, true},
    {"mfu", [](const v1::StepReport& r) { return Exact(r.mfu()); }, false},
    {"memory_bytes", [](const v1::StepReport& r) { return absl::StrCat(r.memory_bytes()); }, false},
    {"energy_joules", [](const v1::StepReport& r) { return Exact(r.energy_joules()); }, false},
    {"power_watts", [](const v1::StepReport& r) { return Exact(r.power_watts()); }, false},
    {"recipe", [](const v1::StepReport& r) { return r.recipe(); }, false},
    {"skipped_steps", [](const v1::StepReport& r) { return absl::StrCat(r.skipped_steps()); },
     false},
    {"redone_steps", [](const v1::StepReport& r) { return absl::StrCat(r.guard().redone_steps()); },
     false},
    {"data_wait_seconds", [](const v1::StepReport& r) { return Exact(r.data_wait_seconds()); },
     false},
    {"comm_seconds", [](const v1::StepReport& r) { return Exact(r.comm_seconds()); }, false},
    {"comm_bytes", [](const v1::StepReport& r) { return absl::StrCat(r.comm_bytes()); }, false},
    {"time",
     [](const v1::StepReport& r) {
       return absl::FormatTime(TimeOf(r.time()), absl::UTCTimeZone());
     },
     false},
};

std::string CsvLine(const v1::StepReport& report) {
  std::string line;
  for (const Column& column : kColumns) {
    absl::StrAppend(&line, line.empty() ? "" : ",", column.text(report));
  }
  return line + "\n";
}

// Streams CSV or JSON lines; collects rows for the table.
absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  const bool csv = options.format == "csv";
  const bool json = !csv && context.format == OutputFormat::kJson;
  std::vector<std::string> header;
  std::string csv_header;
  for (const Column& column : kColumns) {
    if (column.in_table) {
      header.emplace_back(column.name);
    }
    absl::StrAppend(&csv_header, csv_header.empty() ? "" : ",", column.name);
  }
  Table table(header);
  if (csv) {
    WriteOut(csv_header + "\n");
  }
  v1::StreamMetricsRequest request;
  request.set_job_id(options.job_ids.front());
  request.set_from_step(options.from_step);
  request.set_follow(options.follow);
  const auto once = [&](const std::function<void()>& progressed) {
    return client->StreamMetrics(request, [&](const v1::StreamMetricsResponse& response) {
      progressed();
      for (const v1::MetricRecord& record : response.records()) {
        request.set_cursor(record.cursor());  // from there, should the stream break
        if (json) {
          std::string line;
          (void)google::protobuf::util::MessageToJsonString(record, &line);
          WriteOut(line + "\n");
        } else if (record.has_step() && csv) {
          WriteOut(CsvLine(record.step()));
        } else if (record.has_step()) {
          std::vector<std::string> row;
          for (const Column& column : kColumns) {
            if (column.in_table) {
              row.push_back(column.text(record.step()));
            }
          }
          table.Add(std::move(row));
        }
      }
      return true;
    });
  };
  if (options.follow) {  // says at once that there is no such job, or no coordinator
    v1::GetJobRequest get;
    get.set_job_id(options.job_ids.front());
    HEARTH_RETURN_IF_ERROR(client->GetJob(get).status());
  }
  const absl::Status status = options.follow ? RetryStream(once) : once([] {});
  if (!status.ok() && !Interrupted()) {
    return status;
  }
  if (options.follow && Interrupted()) {
    SayDetached("metrics -f", request.job_id());
  }
  if (!csv && !json) {
    WriteOut(table.Render(FitColumns()));
  }
  return kExitOk;
}

}  // namespace

Action SetupMetrics(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("job", options->job_ids, "Job id; several with --plot")->required();
  app.add_option("--plot", options->plot,
                 "Draw these by step, e.g. loss,tok_s; several jobs share a plot");
  app.add_option("--from-step", options->from_step, "First step")->capture_default_str();
  app.add_flag("-f,--follow", options->follow,
               "Go on with new steps until the job ends (csv, json)");
  app.add_option("-o,--output", options->format, "table, csv, json")
      ->check(CLI::IsMember({"table", "csv", "json"}));
  return [options](Context& context) -> absl::StatusOr<int> {
    const auto usage = [](std::string_view text) {
      WriteErr(absl::StrCat("error: ", std::string(text), "\n"));
      return kExitUsage;
    };
    if (options->format == "json") {
      context.format = OutputFormat::kJson;
    }
    if (options->plot.empty()) {
      return options->job_ids.size() == 1 ? Run(context, *options)
                                          : usage("several jobs are shown with --plot only");
    }
    if (options->follow || options->format == "csv" || context.format != OutputFormat::kTable) {
      return usage("--plot goes with neither --follow nor --output");
    }
    const auto metrics = ParsePlotMetrics(options->plot);
    return metrics.ok()
               ? PlotJobs(context, options->job_ids, options->from_step, *metrics)
               : usage({metrics.status().message().data(), metrics.status().message().size()});
  };
}

}  // namespace hearth::jobctl
