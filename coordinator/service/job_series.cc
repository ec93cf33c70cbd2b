#include "coordinator/service/job_series.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace hearth::coordinator {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

std::string LowerName(absl::string_view name, absl::string_view prefix) {
  absl::ConsumePrefix(&name, prefix);
  return absl::AsciiStrToLower(name);
}

double Seconds(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + static_cast<double>(time.nanos()) * 1e-9;
}

std::string ModelName(const v1::ModelSpec& model) {
  if (!model.preset().empty()) {
    return model.preset();
  }
  return model.from().empty() ? "custom" : model.from();
}

}  // namespace

absl::Span<const metrics::MetricDef> CoordinatorMetricDefs() {
  return kAllDefs;
}

std::vector<JobPtr> ChooseJobs(const std::vector<JobPtr>& all, size_t& dropped) {
  std::vector<JobPtr> live;
  std::vector<JobPtr> ended;
  std::vector<JobPtr> waiting;
  for (const JobPtr& record : all) {
    const v1::Job& job = record->job();
    if (IsTerminal(job.state())) {
      ended.push_back(record);
    } else if (job.epoch() > 0) {
      live.push_back(record);
    } else {
      waiting.push_back(record);
    }
  }
  std::sort(ended.begin(), ended.end(), [](const JobPtr& a, const JobPtr& b) {
    return Seconds(a->job().end_time()) > Seconds(b->job().end_time());
  });
  // Ended jobs beyond the recent ones have had their time; they are not "dropped".
  ended.resize(std::min(ended.size(), kRecentJobs));
  std::vector<JobPtr> out = std::move(live);
  out.insert(out.end(), ended.begin(), ended.end());
  out.insert(out.end(), waiting.begin(), waiting.end());
  dropped = out.size() > kJobsMax ? out.size() - kJobsMax : 0;
  out.resize(out.size() - dropped);
  return out;
}

JobCollector::JobCollector(const View& view,
                           const std::map<std::string, std::shared_ptr<const JobSeries>>& series) {
  const std::vector<JobPtr> all = view.AllJobs();
  CountStates(all, view);
  size_t dropped = 0;
  const std::vector<JobPtr> jobs = ChooseJobs(all, dropped);
  dropped_series_ = dropped * kSeriesPerJob;  // no more than that
  AddInfo(jobs);
  AddLastReport(jobs);
  AddPrecision(jobs);
  AddGuard(jobs);
  AddTensors(jobs);
  AddTimes(jobs);
  AddAccumulated(jobs, series);
  AddRestarts(jobs, series);
}

size_t JobCollector::AddFamily(const MetricDef& def) {
  prometheus::MetricFamily& family = families_.emplace_back();
  family.name = std::string(def.name);
  family.help = std::string(def.help);
  family.type = def.type == MetricType::kCounter     ? prometheus::MetricType::Counter
                : def.type == MetricType::kHistogram ? prometheus::MetricType::Histogram
                                                     : prometheus::MetricType::Gauge;
  return families_.size() - 1;
}

void JobCollector::AddGauge(size_t family, Labels labels, double value) {
  prometheus::ClientMetric& metric = families_[family].metric.emplace_back();
  metric.label = std::move(labels);
  metric.gauge.value = value;
}

void JobCollector::AddCounter(size_t family, Labels labels, double value) {
  prometheus::ClientMetric& metric = families_[family].metric.emplace_back();
  metric.label = std::move(labels);
  metric.counter.value = value;
}

void JobCollector::CountStates(const std::vector<JobPtr>& all, const View& view) {
  std::map<int, int64_t> jobs;
  for (const JobPtr& record : all) {
    ++jobs[record->job().state()];
  }
  const size_t job_family = AddFamily(kJobs);
  for (int state = v1::JobState_MIN + 1; state <= v1::JobState_MAX; ++state) {
    AddGauge(job_family, {{"state", LowerName(v1::JobState_Name(state), "JOB_STATE_")}},
             static_cast<double>(jobs[state]));
  }
  std::map<int, int64_t> workers;
  for (const WorkerPtr& worker : view.Workers()) {
    ++workers[worker->state()];
  }
  const size_t worker_family = AddFamily(kWorkers);
  for (int state = v1::WorkerState_MIN + 1; state <= v1::WorkerState_MAX; ++state) {
    AddGauge(worker_family, {{"state", LowerName(v1::WorkerState_Name(state), "WORKER_STATE_")}},
             static_cast<double>(workers[state]));
  }
}

void JobCollector::AddInfo(const std::vector<JobPtr>& jobs) {
  const size_t info = AddFamily(kJobInfo);
  const size_t state_family = AddFamily(kJobState);
  const size_t target = AddFamily(kJobTargetStep);
  const size_t phase = AddFamily(kJobPhase);
  for (const JobPtr& record : jobs) {
    const v1::Job& job = record->job();
    const std::string& id = job.job_id();
    AddGauge(info,
             {{"job_id", id},
              {"name", job.spec().name()},
              {"model", ModelName(job.spec().model())},
              {"precision", job.spec().precision().recipe()},
              {"device", job.spec().resources().device()},
              {"world_size", absl::StrCat(job.run_info().world_size())}},
             1);
    for (int state = v1::JobState_MIN + 1; state <= v1::JobState_MAX; ++state) {
      AddGauge(state_family,
               {{"job_id", id}, {"state", LowerName(v1::JobState_Name(state), "JOB_STATE_")}},
               job.state() == state ? 1 : 0);
    }
    AddGauge(target, {{"job_id", id}}, static_cast<double>(job.spec().train().steps()));
    if (!job.phase().empty()) {
      AddGauge(phase, {{"job_id", id}, {"phase", job.phase()}}, 1);
    }
  }
}

void JobCollector::AddLastReport(const std::vector<JobPtr>& jobs) {
  const size_t step = AddFamily(kJobStep);
  for (const JobPtr& record : jobs) {
    AddGauge(step, {{"job_id", record->job().job_id()}}, static_cast<double>(record->job().step()));
  }
  const std::pair<const MetricDef*, double (v1::StepReport::*)() const> columns[] = {
      {&kJobLoss, &v1::StepReport::loss},
      {&kJobGradNorm, &v1::StepReport::grad_norm},
      {&kJobLearningRate, &v1::StepReport::learning_rate},
      {&kJobTokensPerSecond, &v1::StepReport::tokens_per_second},
      {&kJobMfu, &v1::StepReport::mfu}};
  for (const auto& [def, value] : columns) {
    const size_t family = AddFamily(*def);
    for (const JobPtr& record : jobs) {
      // A device whose peak is not known has no MFU, which is not an MFU of 0.
      const bool measured = def != &kJobMfu || record->job().last_report().mfu() > 0.0;
      if (record->job().has_last_report() && measured) {
        AddGauge(family, {{"job_id", record->job().job_id()}},
                 (record->job().last_report().*value)());
      }
    }
  }
}

void JobCollector::AddPrecision(const std::vector<JobPtr>& jobs) {
  const size_t family = AddFamily(kJobPrecision);
  for (const JobPtr& record : jobs) {
    const v1::Job& job = record->job();
    const std::string& of_step = job.last_report().recipe();
    const std::string& recipe = of_step.empty() ? job.run_info().recipe() : of_step;
    if (!recipe.empty()) {
      AddGauge(family,
               {{"job_id", job.job_id()},
                {"recipe", recipe},
                {"execution", job.run_info().recipe_execution()}},
               1);
    }
  }
}

void JobCollector::AddGuard(const std::vector<JobPtr>& jobs) {
  const size_t skipped = AddFamily(kJobSkipped);
  const size_t redone = AddFamily(kJobRedone);
  const size_t measures = AddFamily(kJobMeasures);
  const auto number = [](int64_t count) { return static_cast<double>(count); };
  for (const JobPtr& record : jobs) {
    const std::string& id = record->job().job_id();
    const v1::GuardCounts& counts = record->job().last_report().guard();
    AddCounter(skipped, {{"job_id", id}, {"cause", "non_finite"}}, number(counts.non_finite()));
    AddCounter(skipped, {{"job_id", id}, {"cause", "spike"}}, number(counts.spike()));
    AddCounter(skipped, {{"job_id", id}, {"cause", "grad_spike"}}, number(counts.grad_spike()));
    AddCounter(redone, {{"job_id", id}}, number(counts.redone_steps()));
    AddCounter(measures, {{"job_id", id}, {"kind", "remedy"}}, number(counts.remedies()));
    AddCounter(measures, {{"job_id", id}, {"kind", "fallback"}}, number(counts.fallbacks()));
  }
}

void JobCollector::AddTensors(const std::vector<JobPtr>& jobs) {
  const std::pair<const MetricDef*, double (v1::TensorStats::*)() const> columns[] = {
      {&kJobTensorAmax, &v1::TensorStats::amax},
      {&kJobTensorUnderflow, &v1::TensorStats::underflow_ratio},
      {&kJobTensorSaturation, &v1::TensorStats::saturation_ratio}};
  for (const auto& [def, value] : columns) {
    const size_t family = AddFamily(*def);
    for (const JobPtr& record : jobs) {
      std::map<std::string, double> worst;  // by role
      for (const v1::TensorStats& row : record->job().last_report().worst_tensors()) {
        const auto [found, first] = worst.try_emplace(row.role(), (row.*value)());
        found->second = std::max(found->second, (row.*value)());
      }
      for (const auto& [role, number] : worst) {
        AddGauge(family, {{"job_id", record->job().job_id()}, {"role", role}}, number);
      }
    }
  }
}

void JobCollector::AddTimes(const std::vector<JobPtr>& jobs) {
  const size_t progress = AddFamily(kJobLastProgress);
  const size_t checkpoint = AddFamily(kJobLastCheckpoint);
  const size_t recovery = AddFamily(kJobRecovery);
  for (const JobPtr& record : jobs) {
    const v1::Job& job = record->job();
    if (job.has_last_report()) {
      AddGauge(progress, {{"job_id", job.job_id()}}, Seconds(job.last_report().time()));
    }
    if (job.has_checkpoint()) {
      AddGauge(checkpoint, {{"job_id", job.job_id()}}, Seconds(job.checkpoint().create_time()));
    }
    if (job.recovery().seconds() > 0.0) {
      AddGauge(recovery, {{"job_id", job.job_id()}}, job.recovery().seconds());
    }
  }
}

void JobCollector::AddRestarts(
    const std::vector<JobPtr>& jobs,
    const std::map<std::string, std::shared_ptr<const JobSeries>>& series) {
  const size_t family = AddFamily(kJobRestarts);
  std::map<std::string, int64_t> none;
  for (const std::string& cause : RecoveryCauses()) {
    none[cause] = 0;
  }
  for (const JobPtr& record : jobs) {
    std::map<std::string, int64_t> counts;
    if (!IsTerminal(record->job().state())) {
      counts = none;
    }
    const auto found = series.find(record->job().job_id());
    if (found != series.end()) {
      for (const auto& [cause, count] : found->second->restarts) {
        counts[cause] = count;
      }
    }
    for (const auto& [cause, count] : counts) {
      AddCounter(family, {{"job_id", record->job().job_id()}, {"cause", cause}},
                 static_cast<double>(count));
    }
  }
}

void JobCollector::AddAccumulated(
    const std::vector<JobPtr>& jobs,
    const std::map<std::string, std::shared_ptr<const JobSeries>>& series) {
  const std::pair<const MetricDef*, double JobSeries::*> counters[] = {
      {&kJobTokens, &JobSeries::tokens},
      {&kJobEnergy, &JobSeries::energy_joules},
      {&kJobCommunicationSeconds, &JobSeries::comm_seconds},
      {&kJobCommunicationBytes, &JobSeries::comm_bytes},
      {&kJobDataWait, &JobSeries::data_wait_seconds},
      {&kJobCheckpointSeconds, &JobSeries::checkpoint_stall_seconds}};
  std::vector<size_t> counter_families;
  for (const auto& [def, value] : counters) {
    counter_families.push_back(AddFamily(*def));
  }
  const size_t validation = AddFamily(kJobValidationLoss);
  const size_t checkpoint = AddFamily(kJobCheckpointDuration);
  const size_t steps = AddFamily(kJobStepSeconds);
  const auto& bounds = metrics::LatencyBuckets();
  for (const JobPtr& record : jobs) {
    const std::string& id = record->job().job_id();
    const auto found = series.find(id);
    if (found == series.end()) {
      if (record->job().has_last_report()) {  // of before this coordinator's start
        AddCounter(counter_families[0], {{"job_id", id}}, 0);
      }
      continue;
    }
    const JobSeries& s = *found->second;
    for (size_t i = 0; i < counter_families.size(); ++i) {
      AddCounter(counter_families[i], {{"job_id", id}}, s.*counters[i].second);
    }
    if (s.has_validation_loss) {
      AddGauge(validation, {{"job_id", id}}, s.validation_loss);
    }
    if (s.checkpoint_write_seconds > 0) {
      AddGauge(checkpoint, {{"job_id", id}}, s.checkpoint_write_seconds);
    }
    prometheus::ClientMetric& histogram = families_[steps].metric.emplace_back();
    histogram.label = {{"job_id", id}};
    histogram.histogram.sample_count = s.steps;
    histogram.histogram.sample_sum = s.step_seconds;
    for (size_t i = 0; i < bounds.size(); ++i) {
      histogram.histogram.bucket.push_back({s.step_buckets[i], bounds[i]});
    }
    histogram.histogram.bucket.push_back({s.steps, std::numeric_limits<double>::infinity()});
  }
}

}  // namespace hearth::coordinator
