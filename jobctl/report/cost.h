// What a job used and what that costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/spec/feasibility/prices.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/client/history.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {

using spec::CostPerBillionTokens;
using spec::DeviceCost;
using spec::EnergyCost;
using spec::EnergyText;
using spec::MoneyText;
using spec::Prices;

// Absent: not measured, or not known yet.
struct Usage {
  int64_t tokens = 0;    // of the steps in force
  double seconds = 0.0;  // in RUNNING, over all epochs
  int devices = 0;       // of the present epoch, or the last one; earlier epochs count as it
  std::optional<double> joules;  // over all steps, void ones included
  std::optional<double> tokens_per_joule;
  std::optional<double> cost;  // so far
  // From here to the last step: 0 when there is none left, absent for a job that failed or was
  // cancelled.
  std::optional<double> cost_left;
  std::optional<double> cost_per_billion_tokens;  // of what was paid and trained so far
  std::optional<double> seconds_left;             // absent as cost_left
};

// The rest of the job is estimated from the speed of the last 50 steps and the energy per token so
// far.
Usage UsageOf(const v1::Job& job, const History& history, const Prices& prices);

// Whether there is anything to show: energy is measured or a price is known. If not, there is no
// need to read the history.
bool HasUsage(const v1::Job& job, const Prices& prices);

// What `get` shows of it: ENERGY, TOK/J where measured, COST, TO-END where priced.
std::vector<ExtraCell> UsageCells(const Usage& usage, const std::string& currency);
// For people: "1.52 MJ (0.422 kWh), 341 tokens per joule", "not measured".
std::string EnergySentence(const Usage& usage);
// "$1.230 so far, $4.560 to the end, $0.7090 per billion tokens"; empty without prices.
std::string CostSentence(const Usage& usage, const std::string& currency);

}  // namespace hearth::jobctl
