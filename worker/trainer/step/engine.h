// A model ready to run: the resolved spec turned into table, plan, arena, parameters, model and
// optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/data/sample_tables.h"
#include "common/spec/plan/gradient_buckets.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/recipe/recipe.h"
#include "hearth/v1/job.pb.h"
#include "kernels/core/exec.h"
#include "kernels/cuda/context.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/model/activation_lane.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/model/model.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/model/whole_weights.h"
#include "worker/trainer/optim/optimizer.h"
#include "worker/trainer/optim/streamed_pieces.h"
#include "worker/trainer/optim/weight_average.h"
#include "worker/trainer/precision/numerics.h"
#include "worker/trainer/precision/quant_state.h"

namespace hearth::trainer {

struct EngineOptions {
  v1::JobSpec spec;         // resolved, vocabulary included
  int64_t micro_batch = 1;  // sequences; resolved
  int threads = 1;
  // The GPU to run on, outlives the engine; null: the CPU. Agrees with spec's resources.device.
  kernels::CudaContext* cuda = nullptr;
  // Ranks of the job, this one, and what they divide (spec::ResolveShardLevel).
  int world_size = 1;
  int rank = 0;
  spec::ShardLevel shard = spec::ShardLevel::kOff;
  bool training = true;  // false: forward only, one buffer set for all layers
  // data.attention: document: Loader::SeenShare of the training data. The comparison of attention's
  // kernels before the first step has documents that see as much.
  double seen = 1;
  // What the user sets micro_batch with, for errors.
  std::string micro_batch_name = "batch.micro_batch_size";
  // Whether a micro-batch that needs more than all of a GPU's memory is an error of the spec.
  // False: of this GPU, as another one may have more.
  bool too_large_is_bad_spec = false;
  // Why no product goes to block-scaled matrix units; empty: those do that the GPU gets right.
  std::string no_native_blocks;
  // Memory of the host that this rank may pin for offload, bytes (HostMemoryBytes); nothing: all
  // that is left when the engine is made.
  std::optional<int64_t> host_bytes;
};

// Where ranks exchange gradients that are not reduced in place (spec::ReductionBuffers); empty
// where the plan has no such buffer.
struct ReductionTensors {
  kernels::TensorView sums;
  kernels::TensorView sent;
  kernels::TensorView sent_scales;
  kernels::TensorView received;
  kernels::TensorView received_scales;
};

// Not movable: its parts point at one another. Used by one thread.
class Engine {
 public:
  // Weights are zero until Initialise() or a checkpoint fills them. kInvalidArgument /
  // kUnimplemented: a spec this engine cannot run, also one that needs more memory than the machine
  // has, or than a GPU has with too_large_is_bad_spec; kResourceExhausted: more memory than is free
  // now, or than the GPU has. Both say what would fit.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  ~Engine();

  // Random weights from train.seed.
  absl::Status Initialise() { return parameters_->Initialise(exec_, seed_); }

  // Where the host puts the micro-batch of `slot` (0 .. spec::kStagingSlots - 1), and the copy to
  // where the ops read it. On the CPU there is one place and nothing is copied.
  BatchBuffers StagedBatch(int slot) const { return staged_[slot].batch; }
  absl::Status UploadBatch(int slot) const;
  // Negative log-likelihood of each target of the last ForwardLoss, and 1 where no token is
  // likelier, else 0; both [rows], 0 where a target does not count. A plan that keeps scores has
  // them. Waits for the pass; holds until the next one.
  struct Scores {
    const float* nll = nullptr;
    const int32_t* top = nullptr;
  };
  absl::StatusOr<Scores> ReadScores() const;
  // On the tensors' device, where the kernels read and write them.
  kernels::StepInputs* step_inputs() const { return step_inputs_; }
  kernels::StepState* step_state() const { return step_state_; }
  // Host memory of a slot that copies to and from those do not wait for. CPU: those themselves.
  kernels::StepInputs* StagedInputs(int slot) const { return staged_[slot].inputs; }
  kernels::StepState* StagedState(int slot) const { return staged_[slot].state; }

  // How this device runs the recipe, and for block scales why: "nvfp4: ..." (empty: nothing to
  // say).
  spec::Execution execution() const;
  const std::string& execution_note() const { return execution_note_; }

  const EngineOptions& options() const { return options_; }
  const spec::ModelShape& shape() const { return job_plan_->options.shape; }
  const spec::Recipe& recipe() const { return *job_plan_->options.recipe; }
  const spec::MemoryPlan& plan() const { return arena_->plan(); }
  const std::vector<spec::Parameter>& table() const { return job_plan_->table; }
  const ParameterStore& parameters() const { return *parameters_; }
  // A weight whole, between steps, once the ranks have taken whole weights
  // (Trainer::TakeWholeWeights). Weights that come in units (divided, or in blocks) are then only
  // on rank 0, in host memory.
  const kernels::TensorView& whole_weight(int i) const {
    return whole_ != nullptr ? whole_->weight(i) : parameters_->weight(i);
  }
  // Copies the weights of a unit that is in its place to where whole_weight reads them, if this
  // rank keeps them.
  absl::Status TakeWhole(int unit) const {
    return whole_ != nullptr ? whole_->Take(exec_, unit) : absl::OkStatus();
  }
  const spec::OptimizerRow& optimizer_row() const { return *job_plan_->optimizer; }
  const Numerics& numerics() const { return numerics_; }
  const spec::PrecisionPlan& precision() const { return job_plan_->options.precision; }
  const QuantState& quant() const { return *quant_; }
  // Among how many ranks masters and optimizer state are divided: 1, or all.
  int shards() const { return job_plan_->options.shards; }
  // Tokens see only their own document.
  bool documents() const { return spec::SeesOwnDocument(options_.spec.data()); }
  // How gradients are reduced; in the order in which backward completes them.
  const std::vector<spec::GradientBucket>& gradient_buckets() const { return buckets_; }
  const formats::ReduceFormatRow& reduce_format() const { return *job_plan_->options.reduce; }
  ReductionTensors reduction() const;
  // Sources of the training data whose losses StepState has; 0: it has none.
  int sources() const { return options_.training ? job_plan_->options.sources : 0; }
  bool on_gpu() const { return options_.cuda != nullptr; }
  const kernels::Exec& exec() const { return exec_; }
  Model& model() { return *model_; }
  int64_t model_rows() const { return model_->rows(); }
  // If updates go by bucket, each gradient bucket has an optimizer of its own, by its number, which
  // updates the bucket's parameters. Otherwise there is one for all.
  Optimizer& optimizer(size_t bucket = 0) { return *optimizers_[bucket]; }
  // Updates go bucket by bucket, each in its slot: fused() or coded().
  bool by_bucket() const { return job_plan_->options.by_bucket(); }
  // Each bucket is applied while backward goes on (optimizer.fused).
  bool fused() const { return job_plan_->options.fused; }
  // Gradients wait for the update in E4M3 (gradients.store).
  bool coded() const { return job_plan_->options.coded; }
  // Coded gradients, as this rank's part of each bucket, and their scales; else empty.
  kernels::TensorView gradient_codes() const {
    return arena_->Floats(arena_->ids().store.gradient_codes);
  }
  kernels::TensorView gradient_scales() const {
    return arena_->Floats(arena_->ids().store.gradient_scales);
  }
  WeightAverage* average() { return average_.get(); }  // nullptr: train.ema is 0

 private:
  explicit Engine(const EngineOptions& options) : options_(options) {}
  absl::Status Prepare();
  // Binds everything to an arena; called once without memory, to size op.workspace, and once for
  // good.
  absl::Status Bind(std::unique_ptr<Arena> arena);
  // Opens the streams and slots through which offloaded bytes pass.
  absl::Status OpenLanes();
  // On a GPU: whether block-scaled products run on its own units.
  absl::Status ChooseProducts();
  void BindStaging();
  void MakeOptimizers();
  absl::Status CheckDevice() const;
  // Unless `plan` fits, an error as of Create with the largest micro-batch that would.
  absl::Status CheckFits(const spec::MemoryPlan& plan) const;
  // The same of what it has in the host's memory.
  absl::Status CheckFitsHost(const spec::MemoryPlan& plan) const;
  size_t WorkspaceBytes() const;

  EngineOptions options_;
  uint64_t seed_ = 0;
  std::unique_ptr<spec::PlanInputs> job_plan_;
  Numerics numerics_;
  std::vector<spec::GradientBucket> buckets_;
  std::unique_ptr<Arena> arena_;
  bool native_blocks_ = false;
  std::string execution_note_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<WholeWeights> whole_;  // of weights that come in units, on rank 0
  std::unique_ptr<QuantState> quant_;
  // lanes_ is null if nothing that updates change is in the host's memory, lane_ if nothing that
  // layers keep is.
  std::unique_ptr<OffloadLanes> lanes_;
  std::unique_ptr<ActivationLane> lane_;
  std::unique_ptr<Model> model_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::unique_ptr<WeightAverage> average_;
  struct Staged {
    BatchBuffers batch;
    kernels::StepInputs* inputs = nullptr;
    kernels::StepState* state = nullptr;
  };
  Staged staged_[spec::kStagingSlots];
  kernels::StepInputs* step_inputs_ = nullptr;
  kernels::StepState* step_state_ = nullptr;
  kernels::Exec exec_;
};

}  // namespace hearth::trainer
