#include "worker/trainer/step/program.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/fault/fault.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/context.h"
#include "kernels/gemm/native_error.h"
#include "kernels/grad_norm/grad_norm.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/model/weight_walk.h"
#include "worker/trainer/step/injection.h"

namespace hearth::trainer {
namespace {

// HEARTH_GRAPHS=0 launches everything one by one: for debuggers and profilers.
bool UseGraphs() {
  const char* value = GetEnv("HEARTH_GRAPHS");
  return value == nullptr || std::string_view(value) != "0";
}

// The error that a product without an algorithm would give, where a test asks for it.
absl::Status CheckNativeProducts(const Engine& engine) {
  if (!engine.precision().quantised() || !engine.options().no_native_blocks.empty()) {
    return absl::OkStatus();
  }
  const absl::Status injected = fault::Check("trainer.native_gemm");
  return injected.ok() ? injected
                       : kernels::NativeGemmError(absl::UnimplementedError(injected.message()));
}

// Up to here a row of attention's output or gradient may differ from our own kernels': both round
// probabilities and results to bf16, 0.2 % rms each. A wrong tile differs by tens of per cent.
constexpr double kAttentionTolerance = 0.05;

// Length of a random batch's documents. As many documents as fit into a bound are no test of the
// slots that stay empty: one a sample less, but one.
int64_t RandomDocument(const Engine& engine, int64_t documents) {
  const int64_t sequence = engine.options().spec.data().sequence_length();
  if (!engine.documents()) {
    return sequence;
  }
  if (documents > 0) {
    const int64_t each = std::max<int64_t>(1, documents / engine.options().micro_batch - 1);
    return (sequence + each - 1) / each;
  }
  // Two at least, unless all that is before a token in a sample is in its document.
  const double share = engine.options().seen > 0.99 ? 1.0 : std::min(engine.options().seen, 0.75);
  return std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(sequence)));
}

}  // namespace

void StageRandomBatch(const Engine& engine, int64_t documents) {
  const BatchBuffers batch = engine.StagedBatch(0);
  const kernels::RngKey key{1, kernels::RngPurpose::kTest, 0, 0, 0};
  const int64_t sequence = engine.options().spec.data().sequence_length();
  const auto vocab = static_cast<uint32_t>(engine.shape().vocab);
  const int64_t document = RandomDocument(engine, documents);
  for (int64_t i = 0; i < engine.model_rows(); ++i) {
    const auto token = [&](int64_t n) {
      return static_cast<int32_t>(kernels::RngWord(key, static_cast<uint64_t>(n)) % vocab);
    };
    batch.tokens[i] = token(i);
    batch.targets[i] = token(i + 1);
    batch.loss_weight[i] = 1.0F;
    batch.position[i] = static_cast<int32_t>(i % sequence % document);
    batch.start[i] = static_cast<int32_t>(i % sequence) - batch.position[i];
  }
  for (int64_t s = 0; batch.source != nullptr && s < engine.model_rows() / sequence; ++s) {
    batch.source[s] = static_cast<int32_t>(s % engine.sources());
  }
}

StepProgram::StepProgram(Engine& engine,
                         Collective* comm,
                         double d_loss,
                         int64_t micro_batches,
                         Exchanged exchanged,
                         bool sits_out)
    : engine_(engine),
      comm_(comm),
      d_loss_(d_loss),
      micro_batches_(micro_batches),
      exchanged_(exchanged),
      idle_first_(sits_out && engine.parameters().gradients_divided() &&
                  exchanged == Exchanged::kGradients),
      stored_weights_(engine.parameters().weights_stored() && !engine.parameters().weights_divided()
                          ? std::make_unique<StoredWeights>(engine.parameters())
                          : nullptr) {}

std::vector<MicroBatchKind> StepProgram::Kinds(const spec::StepFormat& format) const {
  // First, middle and last differ in what they do: the first begins the step and gathers weights,
  // the last reduces gradients. A step of one or two has fewer kinds. Where each exchanges
  // gradients, all ranks have as many turns, and so as many kinds.
  std::vector<MicroBatchKind> kinds = {Kind(0, format)};
  if (turns() > 2) {
    kinds.push_back(Kind(1, format));
  }
  if (turns() > 1) {
    kinds.push_back(Kind(turns() - 1, format));
  }
  return kinds;
}

absl::Status StepProgram::OpenParts() {
  if (engine_.by_bucket() && turns() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(engine_.fused() ? "optimizer.fused: true" : "gradients.store: fp8",
                     " needs one micro-batch of each worker in a step, but here it has ", turns()));
  }
  if (exchange_ == nullptr && comm_ != nullptr && comm_->world_size() > 1) {
    HEARTH_ASSIGN_OR_RETURN(exchange_, GradientExchange::New(engine_, *comm_, exchanged_));
    if (engine_.parameters().weights_divided()) {
      HEARTH_ASSIGN_OR_RETURN(divided_weights_,
                              DividedWeights::New(engine_, *comm_, exchange_->beside(),
                                                  exchanged_ == Exchanged::kGradients));
    }
  }
  if (bucket_pass_ == nullptr && engine_.fused()) {
    fused_ = std::make_unique<FusedUpdate>(engine_, exchange_.get());
    bucket_pass_ = fused_.get();
  } else if (bucket_pass_ == nullptr && engine_.coded()) {
    coded_ = std::make_unique<CodedGradients>(engine_, exchange_.get());
    bucket_pass_ = coded_.get();
  }
  return absl::OkStatus();
}

int64_t StepProgram::comm_bytes() const {
  const int64_t weights = divided_weights_ == nullptr ? 0 : divided_weights_->BytesPerPass();
  return exchange_ == nullptr ? 0 : exchange_->bytes_per_step(turns()) + turns() * weights;
}

absl::Status StepProgram::LaunchMicroBatch(const MicroBatchKind& kind,
                                           const Pass& pass,
                                           const MicroBatchExtra& extra) {
  const kernels::Exec& exec = engine_.exec();
  kernels::StepState* state = engine_.step_state();
  if (kind.first) {
    HEARTH_RETURN_IF_ERROR(kernels::BeginStep(exec, engine_.step_inputs(), state));
  }
  Pass full = pass;
  full.seed = static_cast<uint64_t>(engine_.options().spec.train().seed());
  full.dropout = true;
  full.accumulate = !kind.first && !engine_.parameters().gradients_divided();
  full.format = kind.format;
  full.count = extra.count;
  full.record = true;
  full.position = engine_.step_inputs();
  full.source_sums = engine_.sources() > 0 ? &state->source_sums[0][0] : nullptr;
  full.weights = weights();
  full.weight_quantizations = &state->weight_quantizations;
  PassHook* const hook =
      bucket_pass_ != nullptr ? static_cast<PassHook*>(bucket_pass_) : exchange_.get();
  GradientSpoiler spoiler(engine_, hook);
  full.hook = extra.spoil_gradient ? static_cast<PassHook*>(&spoiler) : hook;
  HEARTH_RETURN_IF_ERROR(bucket_pass_ != nullptr ? bucket_pass_->Begin(exec) : absl::OkStatus());
  if (exchange_ != nullptr) {
    // Quantised weights were gathered where they were quantised.
    HEARTH_RETURN_IF_ERROR(exchange_->BeginPass(exec, {.gather = kind.first && !kind.format.own(),
                                                       .first = kind.first,
                                                       .last = kind.last,
                                                       .idle = kind.idle}));
  }
  if (kind.first && kind.format.own()) {
    HEARTH_RETURN_IF_ERROR(engine_.quant().BeginStep(exec));
  }
  Model& model = engine_.model();
  HEARTH_RETURN_IF_ERROR(
      kind.idle ? model.IdleForwardBackward(exec, full)
                : model.ForwardBackward(exec, full, d_loss_, &state->loss_sum, &state->weight_sum));
  HEARTH_RETURN_IF_ERROR(exchange_ != nullptr ? exchange_->FinishPass(exec) : absl::OkStatus());
  return bucket_pass_ != nullptr ? bucket_pass_->Finish(exec) : absl::OkStatus();
}

absl::Status StepProgram::SumSquares() {
  kernels::StepState* state = engine_.step_state();
  // Buckets that were taken in the pass have added theirs.
  if (bucket_pass_ == nullptr) {
    kernels::SumSquaresArgs norm;
    norm.tensors = engine_.parameters().owned_gradients();
    norm.sum_squares = &state->sum_squares;
    norm.nonfinite = &state->nonfinite;
    HEARTH_RETURN_IF_ERROR(kernels::SumSquares(engine_.exec(), norm));
  }
  return exchange_ == nullptr ? absl::OkStatus() : exchange_->ReduceNorm(engine_.exec());
}

absl::Status StepProgram::JudgeAndUpdate(const UpdateArgs& update) {
  const kernels::Exec& exec = engine_.exec();
  kernels::StepState* state = engine_.step_state();
  HEARTH_RETURN_IF_ERROR(SumSquares());
  HEARTH_RETURN_IF_ERROR(kernels::JudgeStep(exec, engine_.step_inputs(), state));
  if (fused_ != nullptr) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(engine_.quant().ForgetWeightAmax(exec));
  if (coded_ != nullptr) {
    return coded_->UpdateAll(exec);
  }
  return engine_.optimizer().Step(exec, update);
}

absl::Status StepProgram::LaunchUpdate(bool quantise_weights) {
  const kernels::Exec& exec = engine_.exec();
  kernels::StepState* state = engine_.step_state();
  const QuantState& quant = engine_.quant();
  UpdateArgs update;
  update.inputs = engine_.step_inputs();
  update.grad_scale = &state->grad_scale;
  update.skip = &state->skip;
  update.whole = sharded() ? exchange_.get() : nullptr;
  // Once it is judged the device knows whether the step counts. What follows reads `skip` and
  // leaves the weights, states and scales of a refused step alone, so the host need not wait for
  // the verdict.
  HEARTH_RETURN_IF_ERROR(JudgeAndUpdate(update));
  if (WeightAverage* const average = engine_.average(); average != nullptr) {
    HEARTH_RETURN_IF_ERROR(average->Step(exec, update));
  }
  HEARTH_RETURN_IF_ERROR(quant.UpdateActivations(exec, &state->skip));
  if (exchange_ != nullptr) {
    // Each rank has updated its pieces alone: scales are of the largest magnitude of all, and whole
    // weights are needed to quantise them.
    HEARTH_RETURN_IF_ERROR(exchange_->ReduceWeightAmax(exec));
    HEARTH_RETURN_IF_ERROR(quantise_weights ? exchange_->GatherWeights(exec) : absl::OkStatus());
  }
  HEARTH_RETURN_IF_ERROR(quant.UpdateWeights(exec, &state->skip));
  if (quantise_weights) {
    HEARTH_RETURN_IF_ERROR(quant.QuantizeWeights(exec, &state->skip, &state->weight_quantizations));
  }
  return kernels::StampTime(exec, &state->ended_ns);
}

int64_t StepProgram::DocumentBound(int slot) const {
  if (bounds_.size() == 1) {
    return 0;
  }
  const int32_t* const start = engine_.StagedBatch(slot).start;
  const int64_t sequence = engine_.options().spec.data().sequence_length();
  int64_t documents = 0;
  for (int64_t row = 0; row < engine_.model_rows(); ++row) {
    documents += start[row] == row % sequence ? 1 : 0;
  }
  // Ascending behind the 0, which stands for any number.
  const auto bound = std::lower_bound(bounds_.begin() + 1, bounds_.end(), documents);
  return bound == bounds_.end() ? 0 : *bound;
}

kernels::Graph* StepProgram::FindGraph(const MicroBatchKind& kind, int64_t documents) const {
  for (const Recorded& recorded : micro_batch_) {
    if (recorded.kind == kind && recorded.documents == documents) {
      return recorded.graph.get();
    }
  }
  return nullptr;
}

absl::Status StepProgram::MicroBatch(const MicroBatchKind& kind,
                                     const Pass& pass,
                                     const MicroBatchExtra& extra) {
  HEARTH_RETURN_IF_ERROR(OpenParts());
  // A graph has what it recorded; extras are in none.
  kernels::Graph* const graph = extra.any() ? nullptr : FindGraph(kind, pass.documents);
  // The first micro-batch gathers what the update before has left divided.
  weights_partial_ = weights_partial_ && !kind.first;
  return graph != nullptr ? graph->Launch(engine_.exec()) : LaunchMicroBatch(kind, pass, extra);
}

absl::Status StepProgram::Update(bool quantise_weights) {
  const std::unique_ptr<kernels::Graph>& graph = update_[quantise_weights];
  weights_partial_ = sharded() && !quantise_weights;
  return graph != nullptr ? graph->Launch(engine_.exec()) : LaunchUpdate(quantise_weights);
}

absl::Status StepProgram::CompleteWeights() {
  return std::exchange(weights_partial_, false) ? exchange_->GatherWeights(engine_.exec())
                                                : absl::OkStatus();
}

absl::Status StepProgram::TakeWholeWeights() {
  HEARTH_RETURN_IF_ERROR(CompleteWeights());
  return weights() == nullptr ? absl::OkStatus()
                              : VisitUnits(engine_.exec(), *weights(), engine_.parameters().units(),
                                           [this](int unit) { return engine_.TakeWhole(unit); });
}

absl::Status StepProgram::MeasureWeights() {
  const kernels::Exec& exec = engine_.exec();
  const QuantState& quant = engine_.quant();
  // Blocks have no values where they lie.
  if (!engine_.parameters().weights_stored()) {
    return quant.MeasureWeights(exec);
  }
  HEARTH_RETURN_IF_ERROR(quant.ForgetWeightAmax(exec));
  return VisitUnits(exec, *weights(), engine_.parameters().units(),
                    [&](int unit) { return quant.MeasureUnit(exec, unit); });
}

absl::Status StepProgram::StartWeights() {
  const kernels::Exec& exec = engine_.exec();
  HEARTH_RETURN_IF_ERROR(OpenParts());
  HEARTH_RETURN_IF_ERROR(MeasureWeights());
  // Each rank has measured what it keeps.
  HEARTH_RETURN_IF_ERROR(divided_weights_ != nullptr ? exchange_->ReduceWeightAmax(exec)
                                                     : absl::OkStatus());
  return engine_.quant().ScaleWeights(exec);
}

absl::Status StepProgram::RunAllOnce(const spec::StepFormat& format) {
  const kernels::Exec& exec = engine_.exec();
  // With `skip` set every kernel of an update runs, also where backward updates, and none writes.
  kernels::StepState* staged = engine_.StagedState(0);
  *staged = kernels::StepState{};
  staged->skip = 1;
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, engine_.step_state(), staged, sizeof(*staged)));
  for (const int64_t documents : bounds_) {
    Pass pass;
    pass.documents = documents;
    HEARTH_RETURN_IF_ERROR(documents > 0 ? PlaceRandomBatch(documents) : absl::OkStatus());
    for (const MicroBatchKind& kind : Kinds(format)) {
      HEARTH_RETURN_IF_ERROR(LaunchMicroBatch(kind, pass));
    }
  }
  Pass evaluation;
  evaluation.format = format;
  evaluation.weights = weights();
  kernels::StepState* state = engine_.step_state();
  HEARTH_RETURN_IF_ERROR(
      engine_.model().ForwardLoss(exec, evaluation, &state->loss_sum, &state->weight_sum));
  HEARTH_RETURN_IF_ERROR(LaunchUpdate(format.own()));
  return kernels::Synchronize(exec);
}

// Runs once what only a step that counts launches. Its code must be loaded before ranks wait for
// one another on their GPUs.
absl::Status StepProgram::CountOnce() {
  const QuantState& quant = engine_.quant();
  if (quant.empty() || !engine_.precision().stats) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(quant.BeginCounts(engine_.exec()));
  MicroBatchExtra extra;
  extra.count = true;
  HEARTH_RETURN_IF_ERROR(LaunchMicroBatch(Kind(turns() - 1, spec::OwnIf(true)), Pass{}, extra));
  HEARTH_RETURN_IF_ERROR(quant.FinishCounts(engine_.exec(), true));
  return kernels::Synchronize(engine_.exec());
}

absl::Status StepProgram::RunAndCompare(const std::vector<spec::StepFormat>& formats) {
  // A test asks for a mismatch.
  const bool injected = !fault::Check("trainer.native_product").ok();
  products_ = std::make_unique<kernels::ProductCheck>(injected ? -1.0 : kernels::kProductTolerance);
  kernels::CudaContext& cuda = *engine_.options().cuda;
  cuda.CheckProducts(products_.get());
  absl::Status ran;
  for (const spec::StepFormat& format : formats) {
    if (ran.ok()) {
      ran = RunAllOnce(format);
    }
  }
  cuda.CheckProducts(nullptr);
  return ran;
}

absl::Status StepProgram::RecordMicroBatch(const MicroBatchKind& kind, int64_t documents) {
  Pass pass;
  pass.documents = documents;
  HEARTH_RETURN_IF_ERROR(kernels::Graph::Begin(engine_.exec()));
  const absl::Status launched = LaunchMicroBatch(kind, pass);
  // The recording is ended also where a launch has failed: a stream that still records refuses
  // everything else.
  auto graph = kernels::Graph::End(engine_.exec(), "recording forward and backward");
  HEARTH_RETURN_IF_ERROR(launched);
  Recorded recorded;
  recorded.kind = kind;
  recorded.documents = documents;
  HEARTH_ASSIGN_OR_RETURN(recorded.graph, std::move(graph));
  micro_batch_.push_back(std::move(recorded));
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

absl::Status StepProgram::RecordAll(const spec::StepFormat& format) {
  for (const MicroBatchKind& kind : Kinds(format)) {
    for (const int64_t documents : bounds_) {
      HEARTH_RETURN_IF_ERROR(kind.idle && documents > 0 ? absl::OkStatus()
                                                        : RecordMicroBatch(kind, documents));
    }
  }
  return update_[format.own()] == nullptr ? RecordUpdate(format.own()) : absl::OkStatus();
}

absl::Status StepProgram::PlaceRandomBatch(int64_t documents) {
  // What was staged before has been read.
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(engine_.exec()));
  StageRandomBatch(engine_, documents);
  return engine_.UploadBatch(0);
}

absl::Status StepProgram::CheckAttention() {
  const kernels::Exec& exec = engine_.exec();
  const Model& model = engine_.model();
  // A test asks for a mismatch.
  const double tolerance = fault::Check("trainer.attention").ok() ? kAttentionTolerance : -1.0;
  HEARTH_ASSIGN_OR_RETURN(const kernels::AttentionEngines any,
                          model.CheckAttention(exec, 0, tolerance));
  attention_ = any;
  for (const int64_t documents : model.DocumentBounds(exec)) {
    HEARTH_RETURN_IF_ERROR(PlaceRandomBatch(documents));
    HEARTH_ASSIGN_OR_RETURN(const kernels::AttentionEngines bounded,
                            model.CheckAttention(exec, documents, tolerance));
    if (bounded.own()) {
      attention_.refused = bounded.refused.empty()
                               ? attention_.refused
                               : absl::StrCat("with up to ", documents,
                                              " documents in a micro-batch: ", bounded.refused);
      continue;
    }
    bounds_.push_back(documents);
    const auto name = [&](const std::string& within, const std::string& beyond) {
      return within == beyond ? within
                              : absl::StrCat(within, " (", beyond, " for more than ", documents,
                                             " documents in a micro-batch)");
    };
    attention_.forward = name(bounded.forward, any.forward);
    attention_.backward = name(bounded.backward, any.backward);
  }
  return absl::OkStatus();
}

absl::Status StepProgram::Prepare() {
  HEARTH_RETURN_IF_ERROR(OpenParts());
  HEARTH_RETURN_IF_ERROR(CheckNativeProducts(engine_));
  if (!engine_.on_gpu()) {
    return absl::OkStatus();
  }
  const kernels::Exec& exec = engine_.exec();
  const std::vector<spec::StepFormat> formats = engine_.precision().Formats();
  micro_batch_.clear();
  for (std::unique_ptr<kernels::Graph>& graph : update_) {
    graph.reset();
  }
  kernels::StepInputs* inputs = engine_.StagedInputs(0);
  *inputs = kernels::StepInputs{};
  inputs->step = 1;
  engine_.optimizer().Scalars(inputs->step, absl::MakeSpan(inputs->optimizer));
  inputs->tokens = 1 / d_loss_;
  HEARTH_RETURN_IF_ERROR(
      kernels::Copy(exec, engine_.step_inputs(), inputs, sizeof(kernels::StepInputs)));
  HEARTH_RETURN_IF_ERROR(PlaceRandomBatch(0));
  // Before anything is recorded: a library whose results are wrong is refused here, and graphs then
  // hold our own kernels. Once, as Prepare may come again.
  if (attention_.forward.empty()) {
    HEARTH_RETURN_IF_ERROR(CheckAttention());
  }
  HEARTH_RETURN_IF_ERROR(StartWeights());
  // Everything has run once before anything is recorded: code is loaded, plans are chosen.
  HEARTH_RETURN_IF_ERROR(RunAndCompare(formats));
  HEARTH_RETURN_IF_ERROR(CountOnce());
  for (const spec::StepFormat& format : formats) {
    HEARTH_RETURN_IF_ERROR(UseGraphs() ? RecordAll(format) : absl::OkStatus());
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
  for (const bool own : {false, true}) {
    const kernels::Graph* const graph = FindGraph(Kind(0, spec::OwnIf(own)), 0);
    if (graph != nullptr) {
      return static_cast<int64_t>(graph->nodes() + update_[own]->nodes());
    }
  }
  return 0;
}

}  // namespace hearth::trainer
