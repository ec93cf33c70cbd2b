// What the steps of one job come to since this coordinator started, by the rows of
// metrics::StepMetrics(). A counter starts at 0 with the coordinator: what was shown before, steps
// that were done again included, is not known any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/metrics/step_metrics.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

class StepTotals {
 public:
  // `before`: the report up to which positions (metric_options.proto) do not count.
  explicit StepTotals(const v1::StepReport& before);

  // `tokens_of_step`: what a step adds to positions when it is done again after a rewind, >= 0.
  void Add(const v1::StepReport& step, double tokens_of_step);

  // Adds the series of row number `row`; none where no report had the number yet.
  void Show(size_t row, const std::string& job_id, metrics::Series& out) const;

 private:
  // One row's; which of it counts follows from the row's kind.
  struct Total {
    std::optional<double> value;    // the sum, or the newest
    double position = 0;            // in the report that was added last
    std::vector<uint64_t> buckets;  // cumulative, as metrics::LatencyBuckets()
    uint64_t count = 0;
  };

  std::vector<Total> totals_;  // one each row
};

// Whether the row shows what the steps since the coordinator's start come to, rather than the last
// report alone.
bool IsTotal(const metrics::StepMetric& row);

}  // namespace hearth::coordinator
