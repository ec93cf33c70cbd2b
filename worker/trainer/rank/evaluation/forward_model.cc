#include "worker/trainer/rank/evaluation/forward_model.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/hf/hf_config.h"
#include "common/spec/fields/choices.h"
#include "common/spec/model/position_limit.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/recipe/forward_recipe.h"
#include "common/spec/resolve/forward_job.h"
#include "worker/trainer/checkpoint/folder_weights.h"
#include "worker/trainer/checkpoint/meta.h"
#include "worker/trainer/device/rank_device.h"
#include "worker/trainer/rank/session.h"

namespace hearth::trainer {
namespace {

// How the checkpoint's job made samples of its data; of another model folder the defaults.
void FillData(const ForwardModelOptions& options, Env& env, spec::ForwardJob& job) {
  int64_t length = options.default_length;
  v1::DataSpec& data = job.data;
  if (const absl::StatusOr<CheckpointMeta> meta = ReadMeta(env, options.path); meta.ok()) {
    data = meta->recorded.data();
    length = data.sequence_length() > 0 ? data.sequence_length() : length;
    if (const spec::ObjectiveRow* const objective = spec::FindObjective(meta->recorded.task())) {
      job.task = objective->name;
    }
  }
  if (!options.attention.empty()) {
    data.set_attention(options.attention);
  }
  length = spec::WithinPositions(job.model, length);
  data.set_sequence_length(
      static_cast<int32_t>(options.sequence_length > 0 ? options.sequence_length : length));
  data.add_train()->set_path(options.path);
}

// Whether the checkpoint's job had only kernels that repeat their bits: its passes are then run
// with the same ones.
bool TrainedDeterministic(const ForwardModelOptions& options, Env& env) {
  const absl::StatusOr<CheckpointMeta> meta = ReadMeta(env, options.path);
  return meta.ok() && spec::WantsDeterministic(meta->recorded.train());
}

}  // namespace

void Blame(const ForwardModelOptions& options, v1::ExitReason reason) {
  if (options.blame != nullptr) {
    *options.blame = reason;
  }
}

absl::StatusOr<v1::JobSpec> ForwardModelSpec(const ForwardModelOptions& options, Env& env) {
  const bool on_gpu = absl::StartsWith(options.device, "cuda");
  spec::ForwardJob job;
  job.device = on_gpu ? "cuda" : "cpu";
  HEARTH_ASSIGN_OR_RETURN(
      const spec::Recipe* const recipe,
      spec::ForwardRecipe(options.recipe, job.device, spec::Emulation::kAllowed));
  job.recipe = recipe->name;
  HEARTH_ASSIGN_OR_RETURN(job.model, hf::ReadHfConfig(options.path, env));
  FillData(options, env, job);
  return spec::ResolveForwardJob(job);
}

absl::StatusOr<ForwardModel> OpenForwardModel(const ForwardModelOptions& options, Env& env) {
  Blame(options, v1::EXIT_REASON_BAD_DATA);
  EngineOptions engine;
  HEARTH_ASSIGN_OR_RETURN(engine.spec, ForwardModelSpec(options, env));
  ForwardModel model;
  if (engine.spec.resources().device() == "cuda") {
    Blame(options, v1::EXIT_REASON_DEVICE);
    HEARTH_ASSIGN_OR_RETURN(model.cuda,
                            OpenGpu(options.device, TrainedDeterministic(options, env)));
  }
  engine.micro_batch = options.micro_batch;
  engine.micro_batch_name = options.micro_batch_name;
  engine.too_large_is_bad_spec = options.too_large_is_bad_spec;
  engine.threads = options.threads;
  engine.cuda = model.cuda.get();
  engine.training = false;
  absl::StatusOr<std::unique_ptr<Engine>> built = Engine::Create(engine);
  Blame(options, BlameForEngine(built.status(), v1::EXIT_REASON_BAD_SPEC));
  HEARTH_RETURN_IF_ERROR(built.status());
  model.engine = *std::move(built);
  Blame(options, v1::EXIT_REASON_BAD_DATA);
  HEARTH_ASSIGN_OR_RETURN(
      const HostWeights weights,
      ReadFolderWeights(env, options.path, model.engine->parameters(), options.weights));
  Blame(options, model.cuda != nullptr ? v1::EXIT_REASON_DEVICE : v1::EXIT_REASON_INTERNAL);
  HEARTH_RETURN_IF_ERROR(WriteWeights(weights, model.engine->exec(), model.engine->parameters()));
  return model;
}

}  // namespace hearth::trainer
