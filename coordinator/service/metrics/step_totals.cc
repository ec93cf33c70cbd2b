#include "coordinator/service/metrics/step_totals.h"

#include <algorithm>

namespace hearth::coordinator {

using metrics::StepMetric;
using metrics::StepMetrics;

bool IsTotal(const StepMetric& row) {
  switch (row.option().kind()) {
    case v1::Metric::SUM:
    case v1::Metric::POSITION:
    case v1::Metric::HISTOGRAM:
      return true;
    default:
      return row.optional() && !row.of_entries();  // the job's last report keeps its entries
  }
}

StepTotals::StepTotals(const v1::StepReport& before) : totals_(StepMetrics().size()) {
  for (size_t i = 0; i < totals_.size(); ++i) {
    const StepMetric& row = StepMetrics()[i];
    Total& total = totals_[i];
    if (row.option().kind() == v1::Metric::POSITION) {
      total.position = row.Value(before).value_or(0);
    } else if (row.option().kind() == v1::Metric::HISTOGRAM) {
      total.buckets.resize(metrics::LatencyBuckets().size());
    }
    if (IsTotal(row) && !row.optional()) {
      total.value = 0;
    }
  }
}

void StepTotals::Add(const v1::StepReport& step, double tokens_of_step) {
  for (size_t i = 0; i < totals_.size(); ++i) {
    const StepMetric& row = StepMetrics()[i];
    if (!IsTotal(row)) {
      continue;
    }
    const std::optional<double> value = row.Value(step);
    if (!value.has_value()) {
      continue;
    }
    Total& total = totals_[i];
    switch (row.option().kind()) {
      case v1::Metric::POSITION: {
        const double gained = *value - total.position;
        *total.value += gained > 0 ? gained : tokens_of_step;
        total.position = *value;
        break;
      }
      case v1::Metric::HISTOGRAM: {
        const auto& bounds = metrics::LatencyBuckets();
        for (size_t bucket = 0; bucket < bounds.size(); ++bucket) {
          total.buckets[bucket] += *value <= bounds[bucket] ? 1 : 0;
        }
        ++total.count;
        *total.value += *value;
        break;
      }
      case v1::Metric::SUM:
        *total.value += *value;
        break;
      default:
        total.value = value;
    }
  }
}

void StepTotals::Show(size_t row, const std::string& job_id, metrics::Series& out) const {
  const Total& total = totals_[row];
  if (!total.value.has_value()) {
    return;
  }
  if (StepMetrics()[row].option().kind() == v1::Metric::HISTOGRAM) {
    out.AddHistogram(total.buckets, total.count, *total.value, {job_id});
  } else {
    out.Add(*total.value, {job_id});
  }
}

}  // namespace hearth::coordinator
