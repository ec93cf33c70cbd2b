#include "worker/trainer/rank/sampler.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/hf/hf_config.h"
#include "common/spec/forward_job.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kDefaultSequenceLength = 256;

// How the checkpoint's job made samples of its data; of another model folder the defaults.
void FillData(const ModelFolderOptions& options, Env& env, spec::ForwardJob& job) {
  int64_t length = kDefaultSequenceLength;
  v1::DataSpec& data = job.data;
  const absl::StatusOr<std::string> text =
      env.ReadFile(absl::StrCat(options.path, "/state/meta.json"));
  const absl::StatusOr<CheckpointMeta> meta =
      text.ok() ? ParseMeta(*text, options.path) : text.status();
  if (meta.ok()) {
    length = meta->sequence_length > 0 ? meta->sequence_length : length;
    if (!meta->packing.empty()) {
      data.set_packing(meta->packing);
    }
    if (!meta->attention.empty()) {
      data.set_attention(meta->attention);
    }
  }
  if (job.model.position() == "learned") {
    length = std::min<int64_t>(length, job.model.max_position());
  }
  data.set_sequence_length(
      static_cast<int32_t>(options.sequence_length > 0 ? options.sequence_length : length));
  data.add_train()->set_path(options.path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> LoadModelFolder(const ModelFolderOptions& options,
                                                        Env& env) {
  spec::ForwardJob job;
  HEARTH_ASSIGN_OR_RETURN(job.model, hf::ReadHfConfig(options.path, env));
  FillData(options, env, job);
  EngineOptions engine_options;
  HEARTH_ASSIGN_OR_RETURN(engine_options.spec, spec::ResolveForwardJob(job));
  engine_options.micro_batch = options.micro_batch;
  engine_options.threads = options.threads;
  engine_options.training = false;
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(engine_options));
  std::vector<float*> weights;
  for (int i = 0; i < engine->parameters().size(); ++i) {
    weights.push_back(engine->parameters().weight(i).as<float>());
  }
  HEARTH_RETURN_IF_ERROR(LoadHfWeights(env, options.path, engine->table(), weights));
  return engine;
}

}  // namespace hearth::trainer
