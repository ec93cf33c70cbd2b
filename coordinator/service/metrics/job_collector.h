// The series of jobs and workers in a scrape, made from a snapshot: rows of the tables in
// job_collector.cc, and one family for each exported number of a step (metrics::StepMetrics()).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/metrics/metrics.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "coordinator/service/view/view.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace hearth::coordinator {

// Jobs whose series are shown, by the rule of coordinator_metrics.h; the rest is in `dropped`.
std::vector<JobPtr> ChooseJobs(const std::vector<JobPtr>& all, size_t& dropped);

// Rows of all families of a JobCollector.
std::vector<metrics::MetricDef> JobMetricDefs();

class JobCollector : public prometheus::Collectable {
 public:
  JobCollector(const View& view,
               const std::map<std::string, std::shared_ptr<const JobSeries>>& series);
  std::vector<prometheus::MetricFamily> Collect() const override { return families_; }
  size_t dropped_series() const { return dropped_series_; }

 private:
  std::vector<prometheus::MetricFamily> families_;
  size_t dropped_series_ = 0;
};

}  // namespace hearth::coordinator
