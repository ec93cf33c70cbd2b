// `jobctl metrics --plot`: which numbers of a step can be drawn.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/command.h"
#include "jobctl/plot.h"

namespace hearth::jobctl {

struct PlotMetric {
  const char* name;       // as --plot takes it
  const char* long_name;  // the column of `metrics -o csv`, taken as well
  double (*value)(const v1::StepReport& report);
  bool sparse;  // on some steps only: those without are left out, not gaps
};

// "loss,tok_s". kInvalidArgument: an unknown name (all are listed), or none.
absl::StatusOr<std::vector<const PlotMetric*>> ParsePlotMetrics(std::string_view names);

// What --plot knows, e.g. "loss, val_loss".
std::string PlotMetricNames(std::string_view separator);

// The number over the steps; steps in which it is not measured are not drawn.
PlotSeries SeriesOf(const PlotMetric& metric,
                    const std::string& job_id,
                    const std::vector<v1::StepReport>& steps);

// A plot a metric with a line a job, to standard output.
absl::StatusOr<int> PlotJobs(Context& context,
                             const std::vector<std::string>& job_ids,
                             int64_t from_step,
                             const std::vector<const PlotMetric*>& metrics);

}  // namespace hearth::jobctl
