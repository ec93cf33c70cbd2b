#include "coordinator/service/metrics/job_collector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/metrics/step_metrics.h"
#include "common/spec/objective/objective_table.h"
#include "coordinator/core/jobs/held_jobs.h"
#include "coordinator/core/transitions.h"
#include "coordinator/service/metrics/step_totals.h"

namespace hearth::coordinator {
namespace {

using metrics::MetricDef;
using metrics::MetricType;
using metrics::Series;
using metrics::Stability;
using metrics::StepMetric;
using metrics::StepMetrics;

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

// A job has a bound on its series (docs/metrics.md); more slow ranks than this have one cause.
constexpr int kStragglersShown = 8;

// What a scrape shows of one job.
struct JobFacts {
  const v1::Job& job;
  const JobSeries* series;  // null: nothing is accumulated for it
  bool held;                // IsHeld, and it is queued
};

// A family with series of jobs: its row, and what adds those of one job.
struct JobFamily {
  MetricDef def;
  void (*add)(const JobFacts& facts, Series& out);
};

void AddInfo(const JobFacts& facts, Series& out) {
  const v1::Job& job = facts.job;
  out.Add(1, {job.job_id(), job.spec().name(), ModelName(job.spec().model()),
              job.spec().precision().recipe(), job.spec().resources().device(),
              absl::StrCat(job.run_info().world_size())});
}

void AddState(const JobFacts& facts, Series& out) {
  for (int state = v1::JobState_MIN + 1; state <= v1::JobState_MAX; ++state) {
    out.Add(facts.job.state() == state ? 1 : 0,
            {facts.job.job_id(), LowerName(v1::JobState_Name(state), "JOB_STATE_")});
  }
}

void AddPrecision(const JobFacts& facts, Series& out) {
  const v1::Job& job = facts.job;
  const std::string& of_step = job.last_report().recipe();
  const std::string& recipe = of_step.empty() ? job.run_info().recipe() : of_step;
  if (!recipe.empty()) {
    out.Add(1, {job.job_id(), recipe, job.run_info().recipe_execution()});
  }
}

// A job that lives has all causes from the start at 0.
void AddRestarts(const JobFacts& facts, Series& out) {
  std::map<std::string, int64_t> counts;
  if (!IsTerminal(facts.job.state())) {
    static const auto* const causes = new std::vector<std::string>(RecoveryCauses());
    for (const std::string& cause : *causes) {
      counts[cause] = 0;
    }
  }
  if (facts.series != nullptr) {
    for (const auto& [cause, count] : facts.series->restarts) {
      counts[cause] = count;
    }
  }
  for (const auto& [cause, count] : counts) {
    out.Add(static_cast<double>(count), {facts.job.job_id(), cause});
  }
}

constexpr JobFamily kJobFamilies[] = {
    {{"hearth_job_info", MetricType::kGauge, "Facts about a job to join on; always 1.",
      "job_id,name,model,precision,device,world_size", Stability::kBeta},
     AddInfo},
    {{"hearth_job_state", MetricType::kGauge,
      "1 for the state that the job is in, 0 for the others.", "job_id,state", Stability::kBeta},
     AddState},
    {{"hearth_job_phase", MetricType::kGauge,
      "1 for what rank 0 does: loading, rendezvous, trial, training, evaluating or saving (its "
      "last checkpoint; others are written beside the training). No row while it does not run.",
      "job_id,phase", Stability::kBeta},
     [](const JobFacts& facts, Series& out) {
       if (!facts.job.phase().empty()) {
         out.Add(1, {facts.job.job_id(), facts.job.phase()});
       }
     }},
    {{"hearth_job_held", MetricType::kGauge,
      "1 while a queued job waits for its start time or for another job (start of its job file).",
      "job_id", Stability::kBeta},
     [](const JobFacts& facts, Series& out) {
       if (facts.held) {
         out.Add(1, {facts.job.job_id()});
       }
     }},
    {{"hearth_job_step", MetricType::kGauge, "Last completed step.", "job_id", Stability::kBeta},
     [](const JobFacts& facts, Series& out) {
       out.Add(static_cast<double>(facts.job.step()), {facts.job.job_id()});
     }},
    {{"hearth_job_target_step", MetricType::kGauge, "train.steps of the job.", "job_id",
      Stability::kBeta},
     [](const JobFacts& facts, Series& out) {
       out.Add(static_cast<double>(spec::TotalSteps(facts.job)), {facts.job.job_id()});
     }},
    {{"hearth_job_precision_info", MetricType::kGauge,
      "The recipe in force at the last step, native or emulated; always 1.",
      "job_id,recipe,execution", Stability::kBeta},
     AddPrecision},
    {{"hearth_job_checkpoint_duration_seconds", MetricType::kGauge,
      "Time that the newest checkpoint took to write, mostly while steps went on.", "job_id",
      Stability::kBeta},
     [](const JobFacts& facts, Series& out) {
       if (facts.series != nullptr && facts.series->checkpoint_write_seconds > 0) {
         out.Add(facts.series->checkpoint_write_seconds, {facts.job.job_id()});
       }
     }},
    {{"hearth_job_last_checkpoint_timestamp_seconds", MetricType::kGauge,
      "Time of the newest recorded checkpoint.", "job_id", Stability::kBeta},
     [](const JobFacts& facts, Series& out) {
       if (facts.job.has_checkpoint()) {
         out.Add(Seconds(facts.job.checkpoint().create_time()), {facts.job.job_id()});
       }
     }},
    {{"hearth_job_restarts_total", MetricType::kCounter,
      "Recoveries since the coordinator started, by cause.", "job_id,cause", Stability::kBeta},
     AddRestarts},
    {{"hearth_job_straggler_ratio", MetricType::kGauge,
      "Time of the own work of a rank that the others wait for, divided by the median of theirs. "
      "No row while there is none.",
      "job_id,rank,worker_id", Stability::kBeta},
     [](const JobFacts& facts, Series& out) {
       for (int i = 0; i < std::min(facts.job.stragglers_size(), kStragglersShown); ++i) {
         const v1::Straggler& straggler = facts.job.stragglers(i);
         out.Add(straggler.ratio(),
                 {facts.job.job_id(), absl::StrCat(straggler.rank()), straggler.worker_id()});
       }
     }},
    {{"hearth_job_recovery_seconds", MetricType::kGauge,
      "Last recovery: time from a rank's last sign of life to the next step.", "job_id",
      Stability::kBeta},
     [](const JobFacts& facts, Series& out) {
       if (facts.job.recovery().seconds() > 0.0) {
         out.Add(facts.job.recovery().seconds(), {facts.job.job_id()});
       }
     }},
};

// A family that counts what there is.
struct CountFamily {
  MetricDef def;
  void (*add)(const std::vector<JobPtr>& jobs, const View& view, Series& out);
};

constexpr CountFamily kCountFamilies[] = {
    {{"hearth_jobs", MetricType::kGauge, "Jobs by state.", "state", Stability::kBeta},
     [](const std::vector<JobPtr>& jobs, const View&, Series& out) {
       std::map<int, int64_t> counts;
       for (const JobPtr& record : jobs) {
         ++counts[record->job().state()];
       }
       for (int state = v1::JobState_MIN + 1; state <= v1::JobState_MAX; ++state) {
         out.Add(static_cast<double>(counts[state]),
                 {LowerName(v1::JobState_Name(state), "JOB_STATE_")});
       }
     }},
    {{"hearth_workers", MetricType::kGauge, "Workers by state.", "state", Stability::kBeta},
     [](const std::vector<JobPtr>&, const View& view, Series& out) {
       std::map<int, int64_t> counts;
       for (const WorkerPtr& worker : view.Workers()) {
         ++counts[worker->state()];
       }
       for (int state = v1::WorkerState_MIN + 1; state <= v1::WorkerState_MAX; ++state) {
         out.Add(static_cast<double>(counts[state]),
                 {LowerName(v1::WorkerState_Name(state), "WORKER_STATE_")});
       }
     }},
};

MetricDef DefOf(const StepMetric& row) {
  MetricType type = MetricType::kCounter;
  if (row.option().kind() == v1::Metric::GAUGE) {
    type = MetricType::kGauge;
  } else if (row.option().kind() == v1::Metric::HISTOGRAM) {
    type = MetricType::kHistogram;
  }
  return {row.family(), type, row.option().help(), row.labels(), Stability::kBeta};
}

// One exported family of a step's numbers: rows first .. last of StepMetrics().
struct StepFamily {
  MetricDef def;
  size_t first = 0;
  size_t last = 0;
};

std::vector<StepFamily> StepFamilies() {
  std::vector<StepFamily> families;
  for (size_t i = 0; i < StepMetrics().size(); ++i) {
    const StepMetric& row = StepMetrics()[i];
    if (row.family().empty()) {
      continue;
    }
    // Relies on the rows of a family standing side by side: Prometheus refuses one that comes
    // twice.
    if (families.empty() || families.back().def.name != row.family()) {
      families.push_back({DefOf(row), i, i});
    }
    families.back().last = i;
  }
  return families;
}

void AddStepNumber(size_t row, const JobFacts& facts, Series& out) {
  const StepMetric& metric = StepMetrics()[row];
  const std::string& job_id = facts.job.job_id();
  if (IsTotal(metric)) {
    if (facts.series != nullptr) {
      facts.series->steps.Show(row, job_id, out);
    } else if (metric.option().kind() == v1::Metric::POSITION && facts.job.has_last_report()) {
      out.Add(0, {job_id});  // of before this coordinator's start
    }
  } else if (metric.option().kind() == v1::Metric::COUNT || facts.job.has_last_report()) {
    const bool labelled = metric.labels() != "job_id";
    metric.ForEach(facts.job.last_report(), [&](const std::string& label, double value) {
      out.Add(value, labelled ? std::vector<std::string>{job_id, label}
                              : std::vector<std::string>{job_id});
    });
  }
}

}  // namespace

std::vector<MetricDef> JobMetricDefs() {
  std::vector<MetricDef> defs;
  for (const CountFamily& family : kCountFamilies) {
    defs.push_back(family.def);
  }
  for (const JobFamily& family : kJobFamilies) {
    defs.push_back(family.def);
  }
  for (const StepFamily& family : StepFamilies()) {
    defs.push_back(family.def);
  }
  return defs;
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
  // In this order, as the last ones are dropped: jobs that wait have the least to show.
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
  // Over all jobs, also those that get no series of their own.
  for (const CountFamily& family : kCountFamilies) {
    Series out(family.def);
    family.add(all, view, out);
    families_.push_back(out.Take());
  }
  size_t dropped = 0;
  const std::vector<JobPtr> jobs = ChooseJobs(all, dropped);
  dropped_series_ = dropped * kSeriesPerJob;  // no more than that
  std::vector<JobFacts> facts;
  for (const JobPtr& record : jobs) {
    const auto found = series.find(record->job().job_id());
    facts.push_back({record->job(), found == series.end() ? nullptr : found->second.get(),
                     record->job().state() == v1::JOB_STATE_QUEUED && IsHeld(*record)});
  }
  for (const JobFamily& family : kJobFamilies) {
    Series out(family.def);
    for (const JobFacts& job : facts) {
      family.add(job, out);
    }
    families_.push_back(out.Take());
  }
  for (const StepFamily& family : StepFamilies()) {
    Series out(family.def);
    for (const JobFacts& job : facts) {
      for (size_t row = family.first; row <= family.last; ++row) {
        AddStepNumber(row, job, out);
      }
    }
    families_.push_back(out.Take());
  }
}

}  // namespace hearth::coordinator
