#include "common/spec/optimizer/optimizer_table.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "common/base/table_rows.h"

namespace hearth::spec {
namespace {

#define HEARTH_ROW(type, name, comment, ...) \
  OptimizerRow{name, comment, std::vector<StateSpec>{__VA_ARGS__}},

}  // namespace

bool IsHiddenMatrix(const Parameter& parameter) {
  return parameter.group == ParameterGroup::kMatrix;
}

bool IsNotHiddenMatrix(const Parameter& parameter) {
  return !IsHiddenMatrix(parameter);
}

bool OptimizerRow::needs_master() const {
  return std::any_of(states.begin(), states.end(), [](const StateSpec& s) { return s.fixed; });
}

absl::Span<const OptimizerRow> Optimizers() {
  static const auto& rows = *new std::vector<OptimizerRow>{HEARTH_OPTIMIZERS(HEARTH_ROW)};
  return rows;
}

const OptimizerRow* FindOptimizer(std::string_view name) {
  return FindRow(Optimizers(), &OptimizerRow::name, name);
}

std::vector<std::string_view> OptimizerNames() {
  return ColumnOf(Optimizers(), &OptimizerRow::name);
}

std::vector<ParameterState> StatesOf(const OptimizerRow& optimizer, const Parameter& parameter) {
  std::vector<ParameterState> states;
  for (const StateSpec& state : optimizer.states) {
    if (state.Has(parameter)) {
      states.push_back({state.name, state.dtype});
    }
  }
  return states;
}

GroupOptions ResolveGroupOptions(const v1::OptimizerSpec& optimizer, ParameterGroup group) {
  GroupOptions options;
  options.weight_decay = DecaysByDefault(group) ? optimizer.weight_decay() : 0.0;
  const std::string_view name = ParameterGroupNames()[static_cast<size_t>(group)];
  const auto it = optimizer.groups().find(std::string(name));
  if (it != optimizer.groups().end()) {
    if (it->second.has_lr_scale()) {
      options.lr_scale = it->second.lr_scale();
    }
    if (it->second.has_weight_decay()) {
      options.weight_decay = it->second.weight_decay();
    }
  }
  return options;
}

}  // namespace hearth::spec
