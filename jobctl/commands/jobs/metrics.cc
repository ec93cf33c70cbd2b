#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/metrics/step_metrics.h"
#include "google/protobuf/util/json_util.h"
#include "jobctl/client/history.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/client/retry.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_choice.h"
#include "jobctl/commands/jobs/tensorboard_export.h"
#include "jobctl/views/output/table.h"
#include "jobctl/views/plots/metrics_plot.h"
#include "jobctl/views/text/terminal.h"

namespace hearth::jobctl {
namespace {

using metrics::StepMetric;

struct Options {
  JobChoice choice;
  std::string plot;  // names of metrics; empty = numbers
  std::string axis = "step";
  int smooth = 1;
  std::string tensorboard;  // a folder; empty = none
  std::string format;       // csv, or empty for the global -o
  int64_t from_step = 1;
  bool follow = false;
};

// The rows of a step's numbers that have a column, of the table alone or of the CSV.
std::vector<const StepMetric*> Columns(bool of_table) {
  std::vector<const StepMetric*> columns;
  for (const StepMetric& row : metrics::StepMetrics()) {
    const v1::Metric::Column column = row.option().column();
    if (!row.of_entries() &&
        (column == v1::Metric::TABLE || (column == v1::Metric::CSV && !of_table))) {
      columns.push_back(&row);
    }
  }
  return columns;
}

std::vector<std::string> Names(const std::vector<const StepMetric*>& columns) {
  std::vector<std::string> names;
  for (const StepMetric* column : columns) {
    names.push_back(column->field());
  }
  return names;
}

// For a terminal that is too narrow for all digits: the names that --plot takes, and five digits.
std::vector<std::string> ShortNames(const std::vector<const StepMetric*>& columns) {
  std::vector<std::string> names;
  for (const StepMetric* column : columns) {
    const std::string& plot = column->option().plot();
    names.push_back(plot.empty() ? column->field() : plot);
  }
  return names;
}

constexpr double kWhole = 1e4;  // from here on a fraction is no news

std::vector<std::string> ShortCells(const std::vector<const StepMetric*>& columns,
                                    const v1::StepReport& report) {
  std::vector<std::string> cells;
  for (const StepMetric* column : columns) {
    const std::string whole = column->Text(report);
    double value = 0.0;
    const bool fraction = absl::StrContains(whole, '.') && absl::SimpleAtod(whole, &value);
    cells.push_back(!fraction                   ? whole
                    : std::abs(value) >= kWhole ? absl::StrFormat("%.0f", value)
                                                : absl::StrFormat("%.5g", value));
  }
  return cells;
}

// A column of the CSV for each label of a field of entries, in order.
struct EntryColumn {
  const StepMetric* row;
  std::string label;

  std::string name() const { return absl::StrCat(row->path(), " ", label); }
};

// Labels are those of the job's newest report: the header comes before any step is read.
std::vector<EntryColumn> EntryColumns(const v1::StepReport& newest) {
  std::vector<EntryColumn> columns;
  for (const StepMetric& row : metrics::StepMetrics()) {
    if (!row.of_entries() || row.option().column() == v1::Metric::NO_COLUMN) {
      continue;
    }
    for (std::string& label : row.Labels(newest)) {
      columns.push_back({&row, std::move(label)});
    }
  }
  return columns;
}

std::string EntryCell(const EntryColumn& column, const v1::StepReport& report) {
  std::string cell;
  column.row->ForEach(report, [&](const std::string& label, double value) {
    cell = label == column.label ? metrics::MetricText(value) : cell;
  });
  return cell;
}

// A cell of a CSV file (RFC 4180): paths may hold commas and quotes.
std::string Quoted(const std::string& cell) {
  return cell.find_first_of(",\"\r\n") == std::string::npos
             ? cell
             : absl::StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
}

std::string CsvLine(std::vector<std::string> cells) {
  for (std::string& cell : cells) {
    cell = Quoted(cell);
  }
  return absl::StrJoin(cells, ",") + "\n";
}

std::vector<std::string> Cells(const std::vector<const StepMetric*>& columns,
                               const v1::StepReport& report) {
  std::vector<std::string> cells;
  for (const StepMetric* column : columns) {
    cells.push_back(column->Text(report));
  }
  return cells;
}

// The lines of -o csv.
struct Csv {
  std::vector<const StepMetric*> columns;
  std::vector<EntryColumn> entries;

  std::string Header() const {
    std::vector<std::string> names = Names(columns);
    for (const EntryColumn& entry : entries) {
      names.push_back(entry.name());
    }
    return CsvLine(std::move(names));
  }
  std::string Line(const v1::StepReport& report) const {
    std::vector<std::string> cells = Cells(columns, report);
    for (const EntryColumn& entry : entries) {
      cells.push_back(EntryCell(entry, report));
    }
    return CsvLine(std::move(cells));
  }
};

// Streams CSV or JSON lines; collects rows for the table.
absl::StatusOr<int> PrintNumbers(Context& context,
                                 const Options& options,
                                 const std::string& job_id) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  const bool csv = options.format == "csv";
  const bool json = !csv && context.format == OutputFormat::kJson;
  const std::vector<const StepMetric*> columns = Columns(/*of_table=*/!csv);
  Table table(Names(columns));
  Table short_table(ShortNames(columns));
  Csv lines{columns, {}};
  if (csv || options.follow) {  // says at once that there is no such job, or no coordinator
    v1::GetJobRequest get;
    get.set_job_id(job_id);
    HEARTH_ASSIGN_OR_RETURN(const v1::Job job, client->Call<v1::Job>(get));
    lines.entries = EntryColumns(job.last_report());
  }
  if (csv) {
    WriteOut(lines.Header());
  }
  v1::StreamMetricsRequest request;
  request.set_job_id(job_id);
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
          WriteOut(lines.Line(record.step()));
        } else if (record.has_step()) {
          table.Add(Cells(columns, record.step()));
          short_table.Add(ShortCells(columns, record.step()));
        }
      }
      return true;
    });
  };
  const absl::Status status = options.follow ? RetryStream(once) : once([] {});
  // Ctrl-C is the usual end of --follow: what came until then is shown.
  if (!status.ok() && !Interrupted()) {
    return status;
  }
  if (options.follow && Interrupted()) {
    SayDetached("metrics -f", {job_id});
  }
  if (!csv && !json) {
    const int width = context.format == OutputFormat::kWide ? 0 : FitColumns();
    WriteOut(width > 0 && table.Width() > width ? short_table.Render(width) : table.Render());
  }
  return kExitOk;
}

std::vector<std::string> AxisNames() {
  std::vector<std::string> names;
  for (const PlotAxis& axis : PlotAxes()) {
    names.emplace_back(axis.name);
  }
  return names;
}

absl::StatusOr<int> Plot(Context& context,
                         const std::vector<std::string>& job_ids,
                         const PlotRequest& request) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  std::vector<std::vector<v1::StepReport>> histories;
  for (const std::string& job_id : job_ids) {
    HEARTH_ASSIGN_OR_RETURN(History history, LoadHistory(*client, job_id));
    std::erase_if(history.steps, [&request](const v1::StepReport& step) {
      return step.step() < request.from_step;
    });
    histories.push_back(std::move(history.steps));
  }
  PlotOptions options;
  options.color = ColorWanted() && !context.no_color;
  options.utf8 = !IsTerminal() || Utf8Locale();  // files and pipes are read elsewhere
  options.width = SizeOfTerminal().columns;
  options.x_text = request.axis->text;
  WriteTerminal(RenderPlots(job_ids, histories, request, options));
  return kExitOk;
}

int Usage(std::string_view text) {
  WriteErr(absl::StrCat("error: ", std::string(text), "\n"));
  return kExitUsage;
}

absl::StatusOr<int> Run(Context& context,
                        const Options& options,
                        const std::vector<std::string>& job_ids) {
  if (options.format == "json" || options.format == "wide") {
    context.format = *ParseOutputFormat(options.format);
  }
  if (!options.tensorboard.empty()) {
    if (options.follow && job_ids.size() > 1) {
      return Usage("--tensorboard takes one job with --follow");
    }
    return WriteTensorBoard(context, job_ids, options.tensorboard, options.follow);
  }
  if (options.plot.empty()) {
    return job_ids.size() == 1 ? PrintNumbers(context, options, job_ids.front())
                               : Usage("several jobs need --plot or --tensorboard");
  }
  if (options.follow || options.format == "csv" || context.format != OutputFormat::kTable) {
    return Usage("--plot cannot be combined with --follow or --output");
  }
  const auto rows = ParsePlotMetrics(options.plot);
  if (!rows.ok()) {
    return Usage({rows.status().message().data(), rows.status().message().size()});
  }
  return Plot(context, job_ids,
              {*rows, options.from_step, FindPlotAxis(options.axis), options.smooth});
}

}  // namespace

Action SetupMetrics(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddJobChoice(app, options->choice, Labelled::kAll)
      ->description("Job id; several with --plot and --tensorboard");
  CLI::Option* const plot = app.add_option(
      "--plot", options->plot, "Draw these, e.g. loss,tok_s; several jobs share a plot");
  app.add_option("--x", options->axis,
                 absl::StrCat("With --plot, draw by ", PlotAxisNames(", "),
                              " (since the job's first step)"))
      ->needs(plot)
      ->check(CLI::IsMember(AxisNames()))
      ->capture_default_str();
  app.add_option("--smooth", options->smooth, "With --plot, draw the mean of this many points")
      ->needs(plot)
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  CLI::Option* const from =
      app.add_option("--from-step", options->from_step, "Leave out the steps before this one")
          ->capture_default_str();
  app.add_flag("-f,--follow", options->follow,
               "Continue with new steps until the job ends (csv, json, --tensorboard)");
  CLI::Option* const output =
      app.add_option("-o,--output", options->format, "table, wide, csv, json")
          ->check(CLI::IsMember({"table", "wide", "csv", "json"}));
  app.add_option("--tensorboard", options->tensorboard,
                 "Write TensorBoard's event files to DIR/JOB, with the job file for HPARAMS")
      ->type_name("DIR")
      ->excludes(plot)
      ->excludes(from)
      ->excludes(output);
  return [options](Context& context) {
    return ForChosenJobs(context, options->choice, [&](const std::vector<std::string>& job_ids) {
      return Run(context, *options, job_ids);
    });
  };
}

}  // namespace hearth::jobctl
