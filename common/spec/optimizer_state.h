// The optimizer table: which state an optimizer keeps for a parameter. Step functions live in the
// engine, keyed by OptimizerKind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "common/spec/parameter_table.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

enum class OptimizerKind : uint8_t { kAdamW };

// A tensor of state kept with a parameter; starts as zeros.
struct StateSpec {
  std::string name;  // "exp_avg"
  std::vector<int64_t> shape;
  DType dtype = DType::kFp32;
};

struct OptimizerRow {
  OptimizerKind kind = OptimizerKind::kAdamW;
  std::string_view name;
  std::string_view comment;
  std::vector<StateSpec> (*state_specs)(const Parameter& parameter) = nullptr;
};

absl::Span<const OptimizerRow> Optimizers();
const OptimizerRow* FindOptimizer(std::string_view name);
std::vector<std::string_view> OptimizerNames();

// Peak-relative learning rate and decay of one parameter, after optimizer.groups.
struct GroupOptions {
  double lr_scale = 1.0;
  double weight_decay = 0.0;
};

// Expects a resolved spec.
GroupOptions ResolveGroupOptions(const v1::OptimizerSpec& optimizer, const Parameter& parameter);

}  // namespace hearth::spec
