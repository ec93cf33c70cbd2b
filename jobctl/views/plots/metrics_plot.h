// `jobctl metrics --plot`: draws the numbers of a step whose row has a name for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/metrics/step_metrics.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/views/plots/plot.h"

namespace hearth::jobctl {

// "loss,tok_s", or their columns. kInvalidArgument: an unknown name (all are listed), or none.
absl::StatusOr<std::vector<const metrics::StepMetric*>> ParsePlotMetrics(std::string_view names);

// What --plot knows, e.g. "loss, val_loss".
std::string PlotMetricNames(std::string_view separator);

// What a point's place along the curve is counted in: a row of PlotAxes().
struct PlotAxis {
  const char* name;  // of --x, and in titles
  // Its x; nothing: the step has none. `first` is the job's first step that is drawn.
  std::optional<double> (*x)(const v1::StepReport& step, const v1::StepReport& first);
  std::string (*text)(double x);  // as the axis shows it
};
absl::Span<const PlotAxis> PlotAxes();
// nullptr: there is no such axis.
const PlotAxis* FindPlotAxis(std::string_view name);
// "step, tokens, time".
std::string PlotAxisNames(std::string_view separator);

// How curves are drawn.
struct PlotRequest {
  std::vector<const metrics::StepMetric*> rows;  // a plot each
  int64_t from_step = 1;
  const PlotAxis* axis = nullptr;  // not null
  int smooth = 1;                  // a point is the mean of this many, >= 1
};

// A field of entries: a line for each value of their label, in its order, over the steps that have
// it. Its name is the label, after a job_id that is not empty.
std::vector<PlotSeries> EntriesOf(const metrics::StepMetric& metric,
                                  const PlotAxis& axis,
                                  const std::string& job_id,
                                  const std::vector<v1::StepReport>& steps);

// Any other number over `axis`; steps in which it is not measured are not drawn.
PlotSeries SeriesOf(const metrics::StepMetric& metric,
                    const PlotAxis& axis,
                    const std::string& job_id,
                    const std::vector<v1::StepReport>& steps);

// Each y becomes the mean of the finite ones among it and the `points` - 1 before it. A y that is
// not finite stays so, and parts the line as before.
void Smooth(int points, PlotSeries& series);

// One plot per metric with one line per job, or per job and label. `histories` has the steps of
// each of `job_ids`; `options.x_text` is the axis' own.
std::string RenderPlots(const std::vector<std::string>& job_ids,
                        const std::vector<std::vector<v1::StepReport>>& histories,
                        const PlotRequest& request,
                        const PlotOptions& options);

}  // namespace hearth::jobctl
