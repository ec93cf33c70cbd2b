// `jobctl metrics --plot`: draws the numbers of a step whose row has a name for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/metrics/step_metrics.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/views/plot.h"

namespace hearth::jobctl {

// "loss,tok_s", or their columns. kInvalidArgument: an unknown name (all are listed), or none.
absl::StatusOr<std::vector<const metrics::StepMetric*>> ParsePlotMetrics(std::string_view names);

// What --plot knows, e.g. "loss, val_loss".
std::string PlotMetricNames(std::string_view separator);

// The number over the steps; steps in which it is not measured are not drawn.
PlotSeries SeriesOf(const metrics::StepMetric& metric,
                    const std::string& job_id,
                    const std::vector<v1::StepReport>& steps);

// One plot per metric with one line per job, to standard output.
absl::StatusOr<int> PlotJobs(Context& context,
                             const std::vector<std::string>& job_ids,
                             int64_t from_step,
                             const std::vector<const metrics::StepMetric*>& rows);

}  // namespace hearth::jobctl
