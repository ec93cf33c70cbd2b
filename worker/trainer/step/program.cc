#include "worker/trainer/step/program.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/core/rng.h"
#include "kernels/grad_norm/grad_norm.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::trainer {
namespace {

// HEARTH_GRAPHS=0 launches everything one by one: for debuggers and profilers.
bool UseGraphs() {
  const char* value =
      std::getenv("HEARTH_GRAPHS");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value == nullptr || std::string_view(value) != "0";
}

}  // namespace

void StageRandomBatch(const Engine& engine) {
  const BatchBuffers batch = engine.StagedBatch(0);
  const kernels::RngKey key{1, kernels::RngPurpose::kTest, 0, 0, 0};
  const int64_t sequence = engine.options().spec.data().sequence_length();
  const auto vocab = static_cast<uint32_t>(engine.shape().vocab);
  for (int64_t i = 0; i < engine.model_rows(); ++i) {
    const auto token = [&](int64_t n) {
      return static_cast<int32_t>(kernels::RngWord(key, static_cast<uint64_t>(n)) % vocab);
    };
    batch.tokens[i] = token(i);
    batch.targets[i] = token(i + 1);
    batch.loss_weight[i] = 1.0F;
    batch.position[i] = static_cast<int32_t>(i % sequence);
    batch.segment[i] = 0;
  }
}

absl::Status StepProgram::LaunchMicroBatch(const MicroBatchKind& kind, const Pass& pass) {
  const kernels::Exec& exec = engine_.exec();
  kernels::StepState* state = engine_.step_state();
  if (kind.first) {
    HEARTH_RETURN_IF_ERROR(kernels::BeginStep(exec, engine_.step_inputs(), state));
  }
  Pass full = pass;
  full.seed = static_cast<uint64_t>(engine_.options().spec.train().seed());
  full.dropout = true;
  full.accumulate = !kind.first;
  full.quantised = kind.quantised;
  full.record = true;
  full.position = engine_.step_inputs();
  return engine_.model().ForwardBackward(exec, full, d_loss_, &state->loss_sum, &state->weight_sum);
}

absl::Status StepProgram::LaunchUpdate(bool quantise_weights) {
  const kernels::Exec& exec = engine_.exec();
  kernels::StepState* state = engine_.step_state();
  kernels::SumSquaresArgs norm;
  norm.tensors = absl::MakeConstSpan(&engine_.parameters().flat_gradients(), 1);
  norm.sum_squares = &state->sum_squares;
  norm.nonfinite = &state->nonfinite;
  HEARTH_RETURN_IF_ERROR(kernels::SumSquares(exec, norm));
  HEARTH_RETURN_IF_ERROR(kernels::JudgeStep(exec, engine_.step_inputs(), state));
  const QuantState& quant = engine_.quant();
  HEARTH_RETURN_IF_ERROR(quant.ForgetWeightAmax(exec));
  UpdateArgs update;
  update.inputs = engine_.step_inputs();
  update.grad_scale = &state->grad_scale;
  update.skip = &state->skip;
  HEARTH_RETURN_IF_ERROR(engine_.optimizer().Step(exec, update));
  HEARTH_RETURN_IF_ERROR(quant.UpdateActivations(exec, &state->skip));
  HEARTH_RETURN_IF_ERROR(quant.UpdateWeights(exec, &state->skip));
  return quantise_weights ? quant.QuantizeWeights(exec, &state->skip, &state->weight_quantizations)
                          : absl::OkStatus();
}

absl::Status StepProgram::MicroBatch(const MicroBatchKind& kind, const Pass& pass) {
  const std::unique_ptr<kernels::Graph>& graph = micro_batch_[kind.first][kind.quantised];
  return graph != nullptr ? graph->Launch(engine_.exec()) : LaunchMicroBatch(kind, pass);
}

absl::Status StepProgram::Update(bool quantise_weights) {
  const std::unique_ptr<kernels::Graph>& graph = update_[quantise_weights];
  return graph != nullptr ? graph->Launch(engine_.exec()) : LaunchUpdate(quantise_weights);
}

absl::Status StepProgram::RunAllOnce(bool quantised) {
  const kernels::Exec& exec = engine_.exec();
  for (const bool first : {true, false}) {
    HEARTH_RETURN_IF_ERROR(LaunchMicroBatch({first, quantised}, Pass{}));
  }
  Pass evaluation;
  evaluation.quantised = quantised;
  kernels::StepState* state = engine_.step_state();
  HEARTH_RETURN_IF_ERROR(
      engine_.model().ForwardLoss(exec, evaluation, &state->loss_sum, &state->weight_sum));
  // With `skip` set every kernel of the update runs and none writes.
  kernels::StepState* staged = engine_.StagedState(0);
  *staged = kernels::StepState{};
  staged->skip = 1;
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, engine_.step_state(), staged, sizeof(*staged)));
  HEARTH_RETURN_IF_ERROR(LaunchUpdate(quantised));
  return kernels::Synchronize(exec);
}

absl::Status StepProgram::RecordMicroBatch(const MicroBatchKind& kind) {
  HEARTH_RETURN_IF_ERROR(kernels::Graph::Begin(engine_.exec()));
  const absl::Status launched = LaunchMicroBatch(kind, Pass{});
  auto graph = kernels::Graph::End(engine_.exec(), "recording forward and backward");
  HEARTH_RETURN_IF_ERROR(launched);
  HEARTH_ASSIGN_OR_RETURN(micro_batch_[kind.first][kind.quantised], std::move(graph));
  return absl::OkStatus();
}

absl::Status StepProgram::RecordUpdate(bool quantise_weights) {
  HEARTH_RETURN_IF_ERROR(kernels::Graph::Begin(engine_.exec()));
  const absl::Status launched = LaunchUpdate(quantise_weights);
  auto graph = kernels::Graph::End(engine_.exec(), "recording the update");
  HEARTH_RETURN_IF_ERROR(launched);
  HEARTH_ASSIGN_OR_RETURN(update_[quantise_weights], std::move(graph));
  return absl::OkStatus();
}

absl::Status StepProgram::RecordAll(bool quantised) {
  HEARTH_RETURN_IF_ERROR(RecordMicroBatch({true, quantised}));
  HEARTH_RETURN_IF_ERROR(RecordMicroBatch({false, quantised}));
  return RecordUpdate(quantised);
}

absl::Status StepProgram::Prepare() {
  if (!engine_.on_gpu()) {
    return absl::OkStatus();
  }
  const kernels::Exec& exec = engine_.exec();
  const spec::PrecisionPlan& precision = engine_.precision();
  const bool quantised[2] = {precision.HasPlainPhase(static_cast<int>(engine_.shape().layers)),
                             precision.per_tensor};
  kernels::StepInputs* inputs = engine_.StagedInputs(0);
  *inputs = kernels::StepInputs{};
  inputs->step = 1;
  inputs->tokens = 1 / d_loss_;
  HEARTH_RETURN_IF_ERROR(
      kernels::Copy(exec, engine_.step_inputs(), inputs, sizeof(kernels::StepInputs)));
  StageRandomBatch(engine_);
  HEARTH_RETURN_IF_ERROR(engine_.UploadBatch(0));
  HEARTH_RETURN_IF_ERROR(engine_.quant().StartWeights(exec));
  // Everything has run once before anything is recorded: code is loaded, plans are chosen.
  for (const bool mode : {false, true}) {
    HEARTH_RETURN_IF_ERROR(quantised[mode] ? RunAllOnce(mode) : absl::OkStatus());
  }
  for (const bool mode : {false, true}) {
    HEARTH_RETURN_IF_ERROR(quantised[mode] && UseGraphs() ? RecordAll(mode) : absl::OkStatus());
  }
  // The last step before a BF16 tail quantises nothing.
  if (UseGraphs() && update_[0] == nullptr) {
    HEARTH_RETURN_IF_ERROR(RecordUpdate(false));
  }
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, engine_.step_state(), sizeof(kernels::StepState)));
  HEARTH_RETURN_IF_ERROR(engine_.quant().Reset(exec));
  return kernels::Synchronize(exec);
}

int64_t StepProgram::graph_nodes() const {
  int64_t nodes = 0;
  for (const bool mode : {false, true}) {
    if (micro_batch_[1][mode] != nullptr && nodes == 0) {
      nodes = static_cast<int64_t>(micro_batch_[1][mode]->nodes() + update_[mode]->nodes());
    }
  }
  return nodes;
}

}  // namespace hearth::trainer
