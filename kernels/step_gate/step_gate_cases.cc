#include <cmath>
#include <limits>

#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "kernels/harness/cases.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels::harness {
namespace {

struct Row {
  const char* name;
  double loss_sum, weight_sum, sum_squares, loss_limit, norm_limit, max_norm;
  int64_t nonfinite;
  int32_t skip;
  double last_norm;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Row kRows[] = {
    {"good_clipped", 1234.567, 321.5, 17.25, kInfinity, kInfinity, 1.0, 0, 0, 0},
    {"good_unclipped", 1234.567, 321.5, 17.25, 5.0, kInfinity, 0.0, 0, 0, 2.5},
    {"spike", 1234.567, 321.5, 1e-3, 3.5, kInfinity, 1.0, 0, 0, 0.5},
    {"grad_spike", 1234.567, 321.5, 17.25, 5.0, 6.0, 1.0, 0, 0, 3.25},
    {"sticky", 1234.567, 321.5, 1e-3, kInfinity, kInfinity, 1.0, 0, 1, 7.5},
    {"not_finite", 1.0, 321.5, kInfinity, kInfinity, kInfinity, 1.0, 3, 0, 0},
};

// Class exact: the same doubles on both devices, compared as bytes.
OpCase MakeCase(const Row& row) {
  const StepInputs inputs = {.loss_limit = row.loss_limit,
                             .grad_norm_limit = row.norm_limit,
                             .tokens = 512,
                             .max_norm = row.max_norm,
                             .norm_before = 1.75,
                             .step = 41,
                             .control = {0, 3}};
  const StepState state = {.loss_sum = row.loss_sum,
                           .weight_sum = row.weight_sum,
                           .sum_squares = row.sum_squares,
                           .nonfinite = row.nonfinite,
                           .skip = row.skip,
                           .last_norm = row.last_norm};
  StepState fused = state;
  fused.part_squares = row.sum_squares;
  fused.part_nonfinite = row.nonfinite;
  StepState old = state;
  old.verdict = 1;
  old.weight_quantizations = 99;
  old.ended_ns = 77;
  OpCase c = NewExactCase("step_gate", row.name);
  c.buffers = {Struct("inputs", inputs), Struct("state", state, Role::kAccumulate),
               Struct("fused", fused, Role::kAccumulate), Struct("old", old, Role::kAccumulate)};
  c.forward = [](const Exec& exec, const Buffers& b) {
    const StepInputs* given = b["inputs"].as<StepInputs>();
    HEARTH_RETURN_IF_ERROR(JudgeStep(exec, given, b["state"].as<StepState>()));
    StepState* const fused_state = b["fused"].as<StepState>();
    HEARTH_RETURN_IF_ERROR(JudgeLoss(exec, given, fused_state));
    HEARTH_RETURN_IF_ERROR(JudgePart(exec, fused_state));
    StepState* const old_state = b["old"].as<StepState>();
    HEARTH_RETURN_IF_ERROR(BeginStep(exec, given, old_state));
    HEARTH_RETURN_IF_ERROR(StampTime(exec, &old_state->reduced_ns));
    // The clocks' readings are nobody's to compare.
    HEARTH_RETURN_IF_ERROR(Zero(exec, &old_state->started_ns, sizeof(uint64_t)));
    return Zero(exec, &old_state->reduced_ns, sizeof(uint64_t));
  };
  return c;
}

}  // namespace

std::vector<OpCase> StepGateCases() {
  return CasesOf(kRows, MakeCase);
}

}  // namespace hearth::kernels::harness
