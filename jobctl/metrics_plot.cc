#include "jobctl/metrics_plot.h"

#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "jobctl/history.h"
#include "jobctl/terminal.h"

namespace hearth::jobctl {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

// Zero stands for "not measured" in these.
double OrAbsent(double value) {
  return value == 0.0 ? kAbsent : value;
}

constexpr PlotMetric kMetrics[] = {
    {"loss", "loss", [](const v1::StepReport& r) { return r.loss(); }, false},
    {"val_loss", "validation_loss",
     [](const v1::StepReport& r) {
       return r.has_validation_loss() ? r.validation_loss() : kAbsent;
     },
     true},
    {"grad_norm", "grad_norm", [](const v1::StepReport& r) { return r.grad_norm(); }, false},
    {"lr", "learning_rate", [](const v1::StepReport& r) { return r.learning_rate(); }, false},
    {"tok_s", "tokens_per_second", [](const v1::StepReport& r) { return r.tokens_per_second(); },
     false},
    {"step_s", "step_seconds", [](const v1::StepReport& r) { return r.step_seconds(); }, false},
    {"mfu", "mfu", [](const v1::StepReport& r) { return OrAbsent(r.mfu()); }, false},
    {"memory", "memory_bytes",
     [](const v1::StepReport& r) { return OrAbsent(static_cast<double>(r.memory_bytes())); },
     false},
    {"power", "power_watts", [](const v1::StepReport& r) { return OrAbsent(r.power_watts()); },
     false},
    {"energy", "energy_joules", [](const v1::StepReport& r) { return OrAbsent(r.energy_joules()); },
     true},
    {"tokens", "tokens", [](const v1::StepReport& r) { return static_cast<double>(r.tokens()); },
     false},
    {"data_wait", "data_wait_seconds",
     [](const v1::StepReport& r) { return r.data_wait_seconds(); }, false},
    {"comm", "comm_seconds", [](const v1::StepReport& r) { return r.comm_seconds(); }, false},
};

}  // namespace

std::string PlotMetricNames(std::string_view separator) {
  std::string names;
  for (const PlotMetric& metric : kMetrics) {
    absl::StrAppend(&names, names.empty() ? "" : std::string(separator), metric.name);
  }
  return names;
}

absl::StatusOr<std::vector<const PlotMetric*>> ParsePlotMetrics(std::string_view names) {
  std::vector<const PlotMetric*> found;
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(std::string(names), ',', absl::SkipWhitespace()))) {
    const PlotMetric* match = nullptr;
    for (const PlotMetric& metric : kMetrics) {
      match = name == metric.name || name == metric.long_name ? &metric : match;
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

PlotSeries SeriesOf(const PlotMetric& metric,
                    const std::string& job_id,
                    const std::vector<v1::StepReport>& steps) {
  PlotSeries series;
  series.name = EscapeControl(job_id, /*keep_lines=*/false);
  for (const v1::StepReport& step : steps) {
    const double value = metric.value(step);
    if (!metric.sparse || value == value) {
      series.x.push_back(static_cast<double>(step.step()));
      series.y.push_back(value);
    }
  }
  return series;
}

absl::StatusOr<int> PlotJobs(Context& context,
                             const std::vector<std::string>& job_ids,
                             int64_t from_step,
                             const std::vector<const PlotMetric*>& metrics) {
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
  for (const PlotMetric* metric : metrics) {
    std::vector<PlotSeries> series;
    for (size_t i = 0; i < job_ids.size(); ++i) {
      series.push_back(SeriesOf(*metric, job_ids[i], histories[i]));
    }
    const std::string title =
        job_ids.size() == 1 ? absl::StrCat(metric->name, " of ", series.front().name, " by step")
                            : absl::StrCat(metric->name, " by step");
    absl::StrAppend(&out, out.empty() ? "" : "\n", RenderPlot(title, series, options));
  }
  WriteTerminal(out);
  return kExitOk;
}

}  // namespace hearth::jobctl
