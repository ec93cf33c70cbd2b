#include "worker/trainer/step/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/io/available_memory.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/offload.h"
#include "common/spec/plan/plan_report.h"
#include "common/spec/plan/weight_units.h"
#include "kernels/cuda/device.h"
#include "kernels/gemm/gemm_probe.h"
#include "kernels/grad_norm/grad_norm.h"
#include "worker/trainer/device/rank_device.h"

namespace hearth::trainer {
using kernels::DType;

static_assert(spec::kReportedSourcesMax <= kernels::kSourcesMax);

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(options));
  HEARTH_RETURN_IF_ERROR(engine->Prepare());
  return engine;
}

Engine::~Engine() {
  model_.reset();
  average_.reset();
  optimizers_.clear();
  if (exec_.stream != nullptr) {
    // Kernels that are under way still use the arena.
    static_cast<void>(kernels::Synchronize(exec_));
    lanes_.reset();
    lane_.reset();
    arena_.reset();
    kernels::DeleteStream(exec_.stream);
  }
}

absl::Status Engine::CheckDevice() const {
  const std::string& device = options_.spec.resources().device();
  if ((device == "cuda") != on_gpu()) {
    return absl::InvalidArgumentError(absl::StrCat("resources.device: the job is for ", device,
                                                   ", this process runs on ",
                                                   on_gpu() ? "a GPU" : "the CPU"));
  }
  const spec::Recipe* const fp8 = precision().NeedsFp8Units();
  if (!on_gpu() || fp8 == nullptr) {
    return absl::OkStatus();
  }
  const kernels::GpuProperties& gpu = options_.cuda->gpu();
  if (spec::UnitsFor(*fp8, gpu.major * 10 + gpu.minor).has_value()) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      "precision.", fp8 == precision().fallback ? "fallback: " : "recipe: ", std::string(fp8->name),
      " needs FP8 units, which ", gpu.name, " (compute capability ", gpu.major, ".", gpu.minor,
      ") lacks; set it to bf16"));
}

absl::Status Engine::CheckFits(const spec::MemoryPlan& plan) const {
  HEARTH_ASSIGN_OR_RETURN(const int64_t whole,
                          WholeMemoryBytes(options_.cuda, options_.world_size));
  int64_t available = whole;
  if (on_gpu()) {
    HEARTH_ASSIGN_OR_RETURN(available, GpuMemoryBytes(*options_.cuda, options_.world_size));
  }
  const int64_t needed = plan.arena_bytes(spec::MemoryTier::kDevice);
  if (needed <= available) {
    return absl::OkStatus();
  }
  const bool beyond_device = needed > whole;
  // What others hold now may be free the next time; what the device does not have will not be.
  const int64_t limit = beyond_device ? whole : available;
  spec::TrainingPlanOptions smaller = job_plan_->options;
  smaller.op_workspace_bytes = 0;  // that of the batch that does not fit
  int64_t largest = 0;
  int64_t too_large = options_.micro_batch;
  // Memory grows with the micro-batch, so the largest that fits is found by halving.
  while (largest + 1 < too_large) {
    smaller.micro_batch = largest + (too_large - largest) / 2;
    HEARTH_ASSIGN_OR_RETURN(const spec::MemoryPlan tried, spec::PlanTraining(smaller));
    (tried.arena_bytes() <= limit ? largest : too_large) = smaller.micro_batch;
  }
  const std::string fits =
      largest > 0 ? absl::StrCat("; ", options_.micro_batch_name, ": ", largest, " would fit")
                  : absl::StrCat("; not even a micro-batch of 1 would fit: ",
                                 spec::LessMemoryAdvice(job_plan_->options));
  const std::string has =
      beyond_device
          ? absl::StrCat(on_gpu() ? "this GPU has " : "this machine has ", FormatBytes(limit))
          : absl::StrCat(FormatBytes(limit), " are available");
  const std::string message =
      absl::StrCat(options_.micro_batch_name, " ", options_.micro_batch, " needs ",
                   FormatBytes(needed), on_gpu() ? " of GPU memory, " : " of memory, ", has, fits);
  if (!beyond_device) {
    return absl::ResourceExhaustedError(message);
  }
  // The next start may be on a GPU with more memory than this one.
  return !on_gpu() || options_.too_large_is_bad_spec ? absl::InvalidArgumentError(message)
                                                     : DeviceTooSmallError(message);
}

absl::Status Engine::CheckFitsHost(const spec::MemoryPlan& plan) const {
  if (!options_.training || !job_plan_->options.offload.any()) {
    return absl::OkStatus();
  }
  // Pinned memory cannot be swapped out. A process that takes more than there is gets killed.
  const int64_t available =
      options_.host_bytes.has_value() ? *options_.host_bytes : AvailableMemory(Env::Real());
  const int64_t needed = plan.arena_bytes(spec::MemoryTier::kPinnedHost);
  if (needed <= available) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("offload needs ", FormatBytes(needed),
                   " of the host's memory for this rank, but only ", FormatBytes(available),
                   " is free for it; ", spec::LessOnHostAdvice(job_plan_->options.offload)));
}

absl::Status Engine::Prepare() {
  seed_ = static_cast<uint64_t>(options_.spec.train().seed());
  HEARTH_ASSIGN_OR_RETURN(
      job_plan_, spec::MakePlanInputs(options_.spec, options_.micro_batch, options_.threads,
                                      options_.training, options_.world_size, options_.shard));
  buckets_ = spec::PlanBuckets(job_plan_->options);
  HEARTH_ASSIGN_OR_RETURN(numerics_,
                          MakeNumerics(recipe(), spec::GradientFormats(table()), DType::kF32));
  HEARTH_RETURN_IF_ERROR(CheckDevice());
  exec_.threads = options_.threads;
  if (on_gpu()) {
    exec_.device = kernels::Device::kCuda;
    exec_.cuda = options_.cuda;
    HEARTH_ASSIGN_OR_RETURN(exec_.stream, kernels::NewStream(*options_.cuda));
    HEARTH_RETURN_IF_ERROR(ChooseProducts());
  }
  HEARTH_RETURN_IF_ERROR(OpenLanes());
  // Twice: the operations can say how much scratch they need only once they are bound to shapes,
  // and that size moves what lies behind it in the arena. The first arena has addresses but no
  // memory.
  HEARTH_ASSIGN_OR_RETURN(spec::TrainingPlan sizing, spec::PlanTraining(job_plan_->options));
  HEARTH_RETURN_IF_ERROR(CheckFits(sizing));
  HEARTH_RETURN_IF_ERROR(Bind(Arena::WithoutMemory(std::move(sizing), exec_.device, DType::kF32)));
  job_plan_->options.op_workspace_bytes =
      static_cast<int64_t>(std::max<size_t>(WorkspaceBytes(), 64));
  HEARTH_ASSIGN_OR_RETURN(spec::TrainingPlan plan, spec::PlanTraining(job_plan_->options));
  HEARTH_RETURN_IF_ERROR(CheckFits(plan));
  HEARTH_RETURN_IF_ERROR(CheckFitsHost(plan));
  absl::StatusOr<std::unique_ptr<Arena>> arena =
      on_gpu() ? Arena::AllocateOnGpu(std::move(plan), exec_)
               : Arena::Allocate(std::move(plan), DType::kF32);
  HEARTH_RETURN_IF_ERROR(arena.status());
  HEARTH_RETURN_IF_ERROR(Bind(*std::move(arena)));
  if (!parameters_->units().empty() && options_.rank == 0) {
    whole_ = std::make_unique<WholeWeights>(*parameters_);
  }
  return quant_->Reset(exec_);
}

absl::Status Engine::OpenLanes() {
  const spec::HostClasses& away = job_plan_->options.offload;
  if (!options_.training) {
    return absl::OkStatus();
  }
  if (away.Has(spec::BufferClass::kMasters) || away.Has(spec::BufferClass::kOptimizer)) {
    HEARTH_ASSIGN_OR_RETURN(lanes_, OffloadLanes::New(exec_));
  }
  if (away.Has(spec::BufferClass::kActivations)) {
    HEARTH_ASSIGN_OR_RETURN(lane_, ActivationLane::New(exec_));
  }
  return absl::OkStatus();
}

absl::Status Engine::ChooseProducts() {
  if (!precision().quantised()) {
    return absl::OkStatus();
  }
  const std::optional<formats::UnitProducts> products = UnitProductsOf(recipe());
  const std::string format =
      products.has_value() ? products->name() : "operands in several formats";
  const bool needs_units = recipe().on_cuda == spec::Execution::kEmulated;
  const std::string& refused = options_.no_native_blocks;
  // Then all products in blocks are emulated, also those whose two operands have one layout.
  const bool allow_native = refused.empty() && products.has_value();
  for (const kernels::BlockGemmChoice& choice : kernels::ChooseBlockGemms(exec_, allow_native)) {
    if (products != choice.products) {
      continue;
    }
    native_blocks_ = choice.native;
    // Plain FP8 has units of its own; the block-scaled ones are merely faster where they exist.
    execution_note_ = needs_units || choice.native ? absl::StrCat(format, ": ", choice.why) : "";
  }
  if (!products.has_value()) {
    execution_note_ = absl::StrCat(format, ": products are emulated");
  } else if (!refused.empty()) {
    execution_note_ = absl::StrCat(format, ": not on block-scaled units: ", refused);
  }
  if (needs_units && !native_blocks_ && !options_.spec.precision().emulate()) {
    return absl::UnimplementedError(
        absl::StrCat("precision.recipe: this GPU does not run ", options_.spec.precision().recipe(),
                     " natively (", execution_note_, ") and precision.emulate is false"));
  }
  return absl::OkStatus();
}

spec::Execution Engine::execution() const {
  return on_gpu() && native_blocks_
             ? spec::Execution::kNative
             : spec::RecipeExecution(recipe(), options_.spec.resources().device());
}

absl::Status Engine::Bind(std::unique_ptr<Arena> arena) {
  model_.reset();
  optimizers_.clear();
  quant_.reset();
  parameters_.reset();
  arena_ = std::move(arena);
  parameters_ = std::make_unique<ParameterStore>(
      table(), *arena_, numerics_, options_.training,
      StoreShards{options_.rank, shards(), buckets_, spec::PlanWeightUnits(job_plan_->options)});
  quant_ = std::make_unique<QuantState>(precision(), *parameters_, *arena_);
  const spec::ObjectiveRow* row = spec::FindObjective(options_.spec.task());
  const ObjectiveDef* objective = row == nullptr ? nullptr : FindObjectiveDef(row->kind);
  if (objective == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("task: this engine has no objective \"", options_.spec.task(), "\""));
  }
  ModelContext context;
  context.plan = job_plan_->options;
  context.numerics = numerics_;
  context.arena = arena_.get();
  context.parameters = parameters_.get();
  context.quant = quant_.get();
  context.documents = documents();
  context.lane = lane_.get();
  model_ = std::make_unique<Model>(context, *objective);
  if (lanes_ != nullptr) {
    lanes_->SetSlots(*arena_);
  }
  if (lane_ != nullptr) {
    lane_->SetLayers(*arena_);
  }
  if (options_.training) {
    MakeOptimizers();
    average_ = WeightAverage::Of(options_.spec.train().ema(), *parameters_, lanes_.get());
  }
  const spec::StepBuffers& ids = arena_->ids();
  step_inputs_ = arena_->As<kernels::StepInputs>(ids.step_inputs);
  // A recorded graph reads step and micro-batch from this place in memory, so that it fits every
  // step.
  quant_->BindStep(seed_, step_inputs_);
  step_state_ = arena_->As<kernels::StepState>(ids.step_state);
  BindStaging();
  exec_.workspace = {arena_->Bytes(ids.workspace),
                     static_cast<size_t>(arena_->BytesOf(ids.workspace))};
  return absl::OkStatus();
}

void Engine::MakeOptimizers() {
  OptimizerContext context = {&options_.spec.optimizer(),
                              parameters_.get(),
                              quant_.get(),
                              numerics_,
                              seed_,
                              exec_.device,
                              options_.rank,
                              shards(),
                              nullptr,
                              -1,
                              lanes_.get()};
  const int groups = by_bucket() ? static_cast<int>(buckets_.size()) : 1;
  for (int group = 0; group < groups; ++group) {
    context.group = by_bucket() ? group : -1;
    optimizers_.push_back(MakeOptimizer(optimizer_row(), context));
  }
}

size_t Engine::WorkspaceBytes() const {
  size_t bytes = model_->WorkspaceBytes(exec_);
  if (!options_.training) {
    return bytes;
  }
  kernels::SumSquaresArgs norm;
  norm.tensors = parameters_->owned_gradients();
  bytes = std::max(bytes, kernels::SumSquaresWorkspaceBytes(norm));
  for (const std::unique_ptr<Optimizer>& optimizer : optimizers_) {
    bytes = std::max(bytes, optimizer->WorkspaceBytes());
  }
  return bytes;
}

ReductionTensors Engine::reduction() const {
  const spec::ReductionBuffers& ids = arena_->ids().reduction;
  return {arena_->Floats(ids.sums), arena_->Floats(ids.sent), arena_->Floats(ids.sent_scales),
          arena_->Floats(ids.received), arena_->Floats(ids.received_scales)};
}

void Engine::BindStaging() {
  for (int slot = 0; slot < spec::kStagingSlots; ++slot) {
    Staged& staged = staged_[slot];
    if (!on_gpu()) {
      staged = {model_->batch(), step_inputs_, step_state_};
      continue;
    }
    const spec::StagingBuffers& ids = arena_->ids().staging[static_cast<size_t>(slot)];
    uint8_t* const host = arena_->Bytes(ids.batch);
    staged.batch.tokens = reinterpret_cast<int32_t*>(host + ids.layout.tokens);
    staged.batch.targets = reinterpret_cast<int32_t*>(host + ids.layout.targets);
    staged.batch.position = reinterpret_cast<int32_t*>(host + ids.layout.positions);
    staged.batch.start = reinterpret_cast<int32_t*>(host + ids.layout.starts);
    staged.batch.loss_weight = reinterpret_cast<float*>(host + ids.layout.loss_weight);
    if (sources() > 0) {
      staged.batch.source = reinterpret_cast<int32_t*>(host + ids.layout.sources);
    }
    staged.inputs = arena_->As<kernels::StepInputs>(ids.inputs);
    staged.state = arena_->As<kernels::StepState>(ids.state);
  }
}

absl::Status Engine::UploadBatch(int slot) const {
  if (!on_gpu()) {
    return absl::OkStatus();
  }
  const BatchBuffers from = StagedBatch(slot);
  const BatchBuffers to = model_->batch();
  const auto bytes = static_cast<size_t>(model_->rows()) * 4;
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, to.tokens, from.tokens, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, to.targets, from.targets, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, to.position, from.position, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, to.start, from.start, bytes));
  if (sources() > 0) {
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, to.source, from.source,
                                         static_cast<size_t>(options_.micro_batch) * 4));
  }
  return kernels::Copy(exec_, to.loss_weight, from.loss_weight, bytes);
}

absl::StatusOr<Engine::Scores> Engine::ReadScores() const {
  const spec::TokenBuffers& ids = arena_->ids().batch;
  const kernels::TensorView nll = arena_->Floats(ids.nll);
  const kernels::TensorView top = arena_->Typed(ids.top, DType::kI32);
  if (nll.empty()) {
    return absl::FailedPreconditionError("the plan keeps no scores");
  }
  if (!on_gpu()) {
    return Scores{nll.as<float>(), top.as<int32_t>()};
  }
  uint8_t* const host = arena_->Bytes(ids.scores_on_host);
  auto* const host_nll = reinterpret_cast<float*>(host + ids.scores_layout.nll);
  auto* const host_top = reinterpret_cast<int32_t*>(host + ids.scores_layout.top);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, host_nll, nll.data, nll.bytes()));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, host_top, top.data, top.bytes()));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec_));
  return Scores{host_nll, host_top};
}

}  // namespace hearth::trainer
