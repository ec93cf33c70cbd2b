// Series of jobs and workers, made from a snapshot.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/service/coordinator_metrics.h"
#include "coordinator/service/metric_defs.h"
#include "coordinator/service/view.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace hearth::coordinator {

// Jobs whose series are shown, by the rule of coordinator_metrics.h; the rest is in `dropped`.
std::vector<JobPtr> ChooseJobs(const std::vector<JobPtr>& all, size_t& dropped);

class JobCollector : public prometheus::Collectable {
 public:
  JobCollector(const View& view,
               const std::map<std::string, std::shared_ptr<const JobSeries>>& series);
  std::vector<prometheus::MetricFamily> Collect() const override { return families_; }
  size_t dropped_series() const { return dropped_series_; }

 private:
  // Adds an empty family and returns its index.
  size_t AddFamily(const MetricDef& def);
  void AddGauge(size_t family, std::vector<prometheus::ClientMetric::Label> labels, double value);
  void AddCounter(size_t family, std::vector<prometheus::ClientMetric::Label> labels, double value);
  void CountStates(const std::vector<JobPtr>& all, const View& view);
  void AddInfo(const std::vector<JobPtr>& jobs);
  void AddLastReport(const std::vector<JobPtr>& jobs);
  void AddGuard(const std::vector<JobPtr>& jobs);
  void AddTensors(const std::vector<JobPtr>& jobs);
  void AddPrecision(const std::vector<JobPtr>& jobs);
  void AddTimes(const std::vector<JobPtr>& jobs);
  void AddRestarts(const std::vector<JobPtr>& jobs,
                   const std::map<std::string, std::shared_ptr<const JobSeries>>& series);
  void AddAccumulated(const std::vector<JobPtr>& jobs,
                      const std::map<std::string, std::shared_ptr<const JobSeries>>& series);

  std::vector<prometheus::MetricFamily> families_;
  size_t dropped_series_ = 0;
};

}  // namespace hearth::coordinator
