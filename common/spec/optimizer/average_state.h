// The running average of the weights (train.ema): one more state of each parameter, beside those of
// the optimizer.
#pragma once

#include <string_view>
#include <vector>

#include "common/spec/model/parameter.h"

namespace hearth::spec {

// In checkpoints "ema.<parameter>", fp32.
inline constexpr std::string_view kAverageState = "ema";

// Gives each parameter of the table the state, after those that it has.
inline void AddAverageState(std::vector<Parameter>& table) {
  for (Parameter& parameter : table) {
    parameter.states.push_back({kAverageState, DType::kF32});
  }
}

inline bool IsAverageState(const ParameterState& state) {
  return state.name == kAverageState;
}

inline bool HasAverageState(const Parameter& parameter) {
  return !parameter.states.empty() && IsAverageState(parameter.states.back());
}

// The states that the optimizer keeps.
inline std::vector<ParameterState> OptimizerStates(const Parameter& parameter) {
  std::vector<ParameterState> states = parameter.states;
  if (HasAverageState(parameter)) {
    states.pop_back();
  }
  return states;
}

}  // namespace hearth::spec
