// Judgements of many GPUs, and of one, in the formats of `jobctl plan`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/largest.h"

namespace hearth::jobctl {

// The cost of a judgement by the prices that were given: rent, else power, else a bought GPU's
// share; absent without prices.
std::optional<double> CostOf(const spec::Feasibility& f);

// By "hours", "cost", "memory" or "name"; what is not known comes last.
void SortPlans(const std::string& by, std::vector<spec::Feasibility>& plans);

// One row per GPU.
std::string PlanTable(const std::vector<spec::Feasibility>& plans,
                      const spec::FeasibilityQuery& query,
                      int columns);
std::string PlanMarkdown(const std::vector<spec::Feasibility>& plans,
                         const spec::FeasibilityQuery& query);
// One page that needs no network: the rows, which its script sorts by a click on a heading, time
// against cost as a picture, and each GPU's text.
std::string PlanHtml(const std::vector<spec::Feasibility>& plans,
                     const spec::FeasibilityQuery& query);
// {"schema": "hearth.plan/v1", "plans": [..]}; what is not known is null.
std::string PlanJson(const std::vector<spec::Feasibility>& plans);

// The largest model of the job's family on each of the GPUs by what lies with a parameter, and the
// largest by bytes a parameter alone. `gpus`: of one host together.
std::string LargestTable(const std::vector<spec::FormatFamily>& families,
                         const std::vector<const spec::GpuRow*>& rows,
                         int gpus,
                         int columns);
// The same of one GPU, a row for each format.
std::string LargestOfGpu(const std::vector<spec::FormatFamily>& families,
                         const spec::GpuRow& gpu,
                         int gpus,
                         int columns);
// {"schema": "hearth.largest/v1", "gpus": [..]}: for each format the largest model and the next one
// of the family, which is too large; null: there is none.
std::string LargestJson(const std::vector<spec::FormatFamily>& families,
                        const std::vector<const spec::GpuRow*>& rows);

}  // namespace hearth::jobctl
