#include "common/spec/optimizer_state.h"

#include <cstddef>

namespace hearth::spec {
namespace {

std::vector<StateSpec> AdamWState(const Parameter& parameter) {
  return {{"exp_avg", parameter.shape, DType::kFp32},
          {"exp_avg_sq", parameter.shape, DType::kFp32}};
}

constexpr OptimizerRow kOptimizers[] = {
    {OptimizerKind::kAdamW, "adamw", "Adam with decoupled weight decay; both moments in fp32",
     AdamWState},
};

}  // namespace

absl::Span<const OptimizerRow> Optimizers() {
  return kOptimizers;
}

const OptimizerRow* FindOptimizer(std::string_view name) {
  for (const OptimizerRow& row : kOptimizers) {
    if (row.name == name) {
      return &row;
    }
  }
  return nullptr;
}

std::vector<std::string_view> OptimizerNames() {
  std::vector<std::string_view> names;
  for (const OptimizerRow& row : kOptimizers) {
    names.push_back(row.name);
  }
  return names;
}

GroupOptions ResolveGroupOptions(const v1::OptimizerSpec& optimizer, const Parameter& parameter) {
  GroupOptions options;
  options.weight_decay = parameter.decay ? optimizer.weight_decay() : 0.0;
  const std::string_view group = ParameterGroupNames()[static_cast<size_t>(parameter.group)];
  const auto it = optimizer.groups().find(std::string(group));
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
