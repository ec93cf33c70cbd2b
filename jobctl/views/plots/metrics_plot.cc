#include "jobctl/views/plots/metrics_plot.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/spec/violations/names.h"
#include "jobctl/views/output/output.h"
#include "jobctl/views/text/display_text.h"

namespace hearth::jobctl {

using metrics::StepMetric;
using metrics::StepMetrics;

namespace {

constexpr std::optional<double> Some(double value) {
  return value;
}

std::optional<double> SecondsSince(const v1::StepReport& step, const v1::StepReport& first) {
  if (!step.has_time()) {
    return std::nullopt;
  }
  return absl::ToDoubleSeconds(TimeOf(step.time()) - TimeOf(first.time()));
}

}  // namespace

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
    std::vector<std::string_view> plots;
    std::vector<std::string_view> fields;
    for (const StepMetric& row : StepMetrics()) {
      const std::string& plot = row.option().plot();
      if (plot.empty()) {
        continue;
      }
      // A field of entries may be called as one of the report.
      const bool by_field = !row.of_entries() && name == row.field();
      match = name == plot || by_field ? &row : match;
      plots.emplace_back(plot);
      fields.emplace_back(row.of_entries() ? plot : row.field());
    }
    if (match == nullptr) {
      std::string_view meant = spec::NearestName(name, plots);
      meant = meant.empty() ? spec::NearestName(name, fields) : meant;
      return absl::InvalidArgumentError(
          absl::StrCat("--plot: ", spec::UnknownNameText(name, "metric", plots, meant)));
    }
    found.push_back(match);
  }
  if (found.empty()) {
    return absl::InvalidArgumentError("--plot: no metric is named");
  }
  return found;
}

absl::Span<const PlotAxis> PlotAxes() {
  static constexpr PlotAxis kAxes[] = {
      {"step", [](const auto& step, const auto&) { return Some(static_cast<double>(step.step())); },
       [](double x) { return absl::StrCat(static_cast<int64_t>(x)); }},
      {"tokens",
       [](const auto& step, const auto&) { return Some(static_cast<double>(step.tokens())); },
       FormatCount},
      {"time", SecondsSince, [](double x) { return HumanDuration(absl::Seconds(x)); }},
  };
  return kAxes;
}

const PlotAxis* FindPlotAxis(std::string_view name) {
  for (const PlotAxis& axis : PlotAxes()) {
    if (axis.name == name) {
      return &axis;
    }
  }
  return nullptr;
}

std::string PlotAxisNames(std::string_view separator) {
  std::string names;
  for (const PlotAxis& axis : PlotAxes()) {
    absl::StrAppend(&names, names.empty() ? "" : std::string(separator), axis.name);
  }
  return names;
}

std::vector<PlotSeries> EntriesOf(const StepMetric& metric,
                                  const PlotAxis& axis,
                                  const std::string& job_id,
                                  const std::vector<v1::StepReport>& steps) {
  std::map<std::string, PlotSeries> by_label;
  for (const v1::StepReport& step : steps) {
    const std::optional<double> x = axis.x(step, steps.front());
    if (!x.has_value()) {
      continue;
    }
    metric.ForEach(step, [&](const std::string& label, double value) {
      PlotSeries& series = by_label[label];
      series.x.push_back(*x);
      series.y.push_back(value);
    });
  }
  std::vector<PlotSeries> all;
  for (auto& [label, series] : by_label) {
    series.name = EscapeControl(job_id.empty() ? label : absl::StrCat(job_id, " ", label),
                                /*keep_lines=*/false);
    all.push_back(std::move(series));
  }
  return all;
}

PlotSeries SeriesOf(const StepMetric& metric,
                    const PlotAxis& axis,
                    const std::string& job_id,
                    const std::vector<v1::StepReport>& steps) {
  PlotSeries series;
  series.name = EscapeControl(job_id, /*keep_lines=*/false);
  for (const v1::StepReport& step : steps) {
    const std::optional<double> value = metric.Value(step);
    const std::optional<double> x = axis.x(step, steps.front());
    // A sparse metric exists at some steps only, and its points are joined. In any other one a
    // missing value is a gap that the plot shows.
    if (x.has_value() && (value.has_value() || !metric.option().sparse())) {
      series.x.push_back(*x);
      series.y.push_back(value.value_or(std::numeric_limits<double>::quiet_NaN()));
    }
  }
  return series;
}

void Smooth(int points, PlotSeries& series) {
  const std::vector<double> y = series.y;
  const auto window = static_cast<size_t>(points);
  double sum = 0.0;
  size_t count = 0;
  // A gap (NaN) stays out of the running sum, which it would spoil for all later points.
  const auto add = [&](double value, double sign) {
    if (std::isfinite(value)) {
      sum += sign * value;
      count += sign > 0 ? 1 : -1;
    }
  };
  for (size_t i = 0; i < y.size(); ++i) {
    add(y[i], 1.0);
    if (i >= window) {
      add(y[i - window], -1.0);
    }
    if (std::isfinite(y[i])) {
      series.y[i] = sum / static_cast<double>(count);
    }
  }
}

std::string RenderPlots(const std::vector<std::string>& job_ids,
                        const std::vector<std::vector<v1::StepReport>>& histories,
                        const PlotRequest& request,
                        const PlotOptions& options) {
  std::string out;
  for (const StepMetric* row : request.rows) {
    const bool one_job = job_ids.size() == 1;
    std::vector<PlotSeries> series;
    for (size_t i = 0; i < job_ids.size(); ++i) {
      std::vector<PlotSeries> lines;
      if (row->of_entries()) {
        lines = EntriesOf(*row, *request.axis, one_job ? "" : job_ids[i], histories[i]);
      } else {
        lines.push_back(SeriesOf(*row, *request.axis, job_ids[i], histories[i]));
      }
      for (PlotSeries& line : lines) {
        Smooth(request.smooth, line);
        series.push_back(std::move(line));
      }
    }
    const std::string whose =
        one_job ? absl::StrCat(" of ", EscapeControl(job_ids.front(), /*keep_lines=*/false))
                : std::string();
    const std::string mean =
        request.smooth > 1 ? absl::StrCat(", mean of ", request.smooth, " points") : "";
    absl::StrAppend(
        &out, out.empty() ? "" : "\n",
        RenderPlot(absl::StrCat(row->option().plot(), whose, " by ", request.axis->name, mean),
                   series, options));
  }
  return out;
}

}  // namespace hearth::jobctl
