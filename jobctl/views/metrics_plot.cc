#include "jobctl/views/metrics_plot.h"

#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "jobctl/client/history.h"
#include "jobctl/views/terminal.h"

namespace hearth::jobctl {

using metrics::StepMetric;
using metrics::StepMetrics;

std::string PlotMetricNames(std::string_view separator) {
  std::string names;
  for (const StepMetric& row : StepMetrics()) {
    if (!row.option().plot().empty()) {
      absl::StrAppend(&names, names.empty() ? "" : std::string(separator), row.option().plot());
    }
  }
  return names;
}

absl::StatusOr<std::vector<const StepMetric*>> ParsePlotMetrics(std::string_view names) {
  std::vector<const StepMetric*> found;
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(std::string(names), ',', absl::SkipWhitespace()))) {
    const StepMetric* match = nullptr;
    for (const StepMetric& row : StepMetrics()) {
      const std::string& plot = row.option().plot();
      match = !plot.empty() && (name == plot || name == row.field()) ? &row : match;
    }
    if (match == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("--plot: '", name, "' is none of ", PlotMetricNames(", ")));
    }
    found.push_back(match);
  }
  if (found.empty()) {
    return absl::InvalidArgumentError("--plot: no metric is named");
  }
  return found;
}

PlotSeries SeriesOf(const StepMetric& metric,
                    const std::string& job_id,
                    const std::vector<v1::StepReport>& steps) {
  PlotSeries series;
  series.name = EscapeControl(job_id, /*keep_lines=*/false);
  for (const v1::StepReport& step : steps) {
    const std::optional<double> value = metric.Value(step);
    if (value.has_value() || !metric.option().sparse()) {
      series.x.push_back(static_cast<double>(step.step()));
      series.y.push_back(value.value_or(std::numeric_limits<double>::quiet_NaN()));
    }
  }
  return series;
}

absl::StatusOr<int> PlotJobs(Context& context,
                             const std::vector<std::string>& job_ids,
                             int64_t from_step,
                             const std::vector<const StepMetric*>& rows) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  std::vector<std::vector<v1::StepReport>> histories;
  for (const std::string& job_id : job_ids) {
    HEARTH_ASSIGN_OR_RETURN(History history, LoadHistory(*client, job_id));
    std::erase_if(history.steps,
                  [from_step](const v1::StepReport& step) { return step.step() < from_step; });
    histories.push_back(std::move(history.steps));
  }
  PlotOptions options;
  options.color = ColorWanted() && !context.no_color;
  options.utf8 = !IsTerminal() || Utf8Locale();  // files and pipes are read elsewhere
  options.width = SizeOfTerminal().columns;
  std::string out;
  for (const StepMetric* row : rows) {
    std::vector<PlotSeries> series;
    for (size_t i = 0; i < job_ids.size(); ++i) {
      series.push_back(SeriesOf(*row, job_ids[i], histories[i]));
    }
    const std::string title = job_ids.size() == 1 ? absl::StrCat(row->option().plot(), " of ",
                                                                 series.front().name, " by step")
                                                  : absl::StrCat(row->option().plot(), " by step");
    absl::StrAppend(&out, out.empty() ? "" : "\n", RenderPlot(title, series, options));
  }
  WriteTerminal(out);
  return kExitOk;
}

}  // namespace hearth::jobctl
