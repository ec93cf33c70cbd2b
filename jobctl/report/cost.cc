#include "jobctl/report/cost.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/spec/objective/objective_table.h"
#include "jobctl/views/text/display_text.h"

namespace hearth::jobctl {
namespace {

constexpr size_t kRecentSteps = 50;

// Seconds a step takes at present, by the last steps; 0 = not known.
double RecentStepSeconds(const History& history) {
  const size_t count = std::min(kRecentSteps, history.steps.size());
  double seconds = 0.0;
  for (size_t i = history.steps.size() - count; i < history.steps.size(); ++i) {
    seconds += history.steps[i].step_seconds();
  }
  return count == 0 ? 0.0 : seconds / static_cast<double>(count);
}

}  // namespace

Usage UsageOf(const v1::Job& job, const History& history, const Prices& prices) {
  Usage usage;
  usage.tokens = history.steps.empty() ? 0 : history.steps.back().tokens();
  usage.seconds = job.running_seconds();
  usage.devices = job.workers_size() > 0 ? job.workers_size() : job.run_info().world_size();
  const double tokens = static_cast<double>(usage.tokens);
  if (history.energy_joules > 0.0) {
    usage.joules = history.energy_joules;
    usage.tokens_per_joule = tokens / history.energy_joules;
  }
  const double step_seconds = RecentStepSeconds(history);
  const int64_t done = history.steps.empty() ? 0 : history.steps.back().step();
  const int64_t left = job.state() == v1::JOB_STATE_SUCCEEDED
                           ? 0
                           : std::max<int64_t>(0, spec::TotalSteps(job) - done);
  // A job that ended before its last step has no remaining cost.
  const bool gave_up =
      job.state() == v1::JOB_STATE_FAILED || job.state() == v1::JOB_STATE_CANCELLED;
  if (step_seconds > 0.0 && !gave_up) {
    usage.seconds_left = step_seconds * static_cast<double>(left);
  }
  // With only a price of energy, the cost is unknown if no energy is measured.
  const bool energy = prices.per_kwh > 0.0 && usage.joules.has_value();
  if (!energy && !(prices.per_gpu_hour > 0.0)) {
    return usage;
  }
  usage.cost = EnergyCost(usage.joules.value_or(0.0), prices.per_kwh) +
               DeviceCost(usage.seconds, usage.devices, prices.per_gpu_hour);
  if (tokens > 0.0) {
    usage.cost_per_billion_tokens = *usage.cost / tokens * 1e9;
  }
  if (usage.seconds_left.has_value() && done > 0) {
    const double joules_left =
        usage.joules.value_or(0.0) / static_cast<double>(done) * static_cast<double>(left);
    usage.cost_left = EnergyCost(joules_left, prices.per_kwh) +
                      DeviceCost(*usage.seconds_left, usage.devices, prices.per_gpu_hour);
  }
  return usage;
}

bool HasUsage(const v1::Job& job, const Prices& prices) {
  const v1::StepReport& last = job.last_report();
  return job.step() > 0 &&
         (prices.per_gpu_hour > 0.0 || last.energy_joules() > 0.0 || last.power_watts() > 0.0);
}

std::vector<ExtraCell> UsageCells(const Usage& usage, const std::string& currency) {
  std::vector<ExtraCell> cells;
  if (usage.joules.has_value()) {
    const std::string energy = EnergyText(*usage.joules);
    cells.push_back(
        {"ENERGY", absl::StrReplaceAll(energy.substr(0, energy.find(" (")), {{" ", ""}})});
    cells.push_back({"TOK/J", Number(*usage.tokens_per_joule, 1)});
  }
  if (usage.cost.has_value()) {
    cells.push_back({"COST", MoneyText(*usage.cost, currency)});
    cells.push_back(
        {"TO-END", usage.cost_left.has_value() ? MoneyText(*usage.cost_left, currency) : "-"});
  }
  return cells;
}

std::string EnergySentence(const Usage& usage) {
  return usage.joules.has_value()
             ? absl::StrFormat("%s, %.4g tokens per joule", EnergyText(*usage.joules),
                               *usage.tokens_per_joule)
             : "not measured";
}

std::string CostSentence(const Usage& usage, const std::string& currency) {
  if (!usage.cost.has_value()) {
    return "";
  }
  std::string out = absl::StrCat(MoneyText(*usage.cost, currency), " so far");
  if (usage.cost_left.has_value()) {
    absl::StrAppend(&out, ", ", MoneyText(*usage.cost_left, currency), " to the end");
  }
  if (usage.cost_per_billion_tokens.has_value()) {
    absl::StrAppend(&out, ", ", MoneyText(*usage.cost_per_billion_tokens, currency),
                    " per billion tokens");
  }
  return out;
}

}  // namespace hearth::jobctl
