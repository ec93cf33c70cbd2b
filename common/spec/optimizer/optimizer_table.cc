#include "common/spec/optimizer/optimizer_table.h"

#include <cstddef>
#include <string>

namespace hearth::spec {
namespace {

#define HEARTH_ROW(type, name, comment, ...) \
  OptimizerRow{name, comment, std::vector<StateSpec>{__VA_ARGS__}},

}  // namespace

absl::Span<const OptimizerRow> Optimizers() {
  static const auto& rows = *new std::vector<OptimizerRow>{HEARTH_OPTIMIZERS(HEARTH_ROW)};
  return rows;
}

const OptimizerRow* FindOptimizer(std::string_view name) {
  for (const OptimizerRow& row : Optimizers()) {
    if (row.name == name) {
      return &row;
    }
  }
  return nullptr;
}

std::vector<std::string_view> OptimizerNames() {
  std::vector<std::string_view> names;
  for (const OptimizerRow& row : Optimizers()) {
    names.push_back(row.name);
  }
  return names;
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
