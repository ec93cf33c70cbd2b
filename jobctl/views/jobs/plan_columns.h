// The columns of plans of many GPUs, a row each; tables of every format loop over them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/spec/feasibility/feasibility.h"

namespace hearth::jobctl {

struct PlanColumn {
  const char* title;
  std::string (*text)(const spec::Feasibility& f, const std::string& currency);
  // What a page sorts by; nullopt: not known. Null: by its text.
  std::optional<double> (*number)(const spec::Feasibility& f);
  bool is_word = false;  // the number is only the order of its words

  bool shows_number() const { return number != nullptr && !is_word; }
};

absl::Span<const PlanColumn> PlanColumns();

// A figure that plans of many GPUs have been asked for or have anyway, which a picture draws
// against time.
struct PlanCost {
  const char* name;  // "cost of renting"
  bool money;        // in the currency of the question; else in kWh
  std::optional<double> (*value)(const spec::Feasibility& f);
};

// The first that all have is drawn.
absl::Span<const PlanCost> PlanCosts();

}  // namespace hearth::jobctl
