#include "worker/trainer/rank/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/hf/hf_config.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/resolve.h"
#include "kernels/core/rng.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kDefaultSequenceLength = 256;

// How the checkpoint's job made samples of its data; of another model folder the defaults.
void FillData(const ModelFolderOptions& options, Env& env, v1::JobSpec& spec) {
  int64_t length = kDefaultSequenceLength;
  v1::DataSpec& data = *spec.mutable_data();
  const absl::StatusOr<std::string> text =
      env.ReadFile(absl::StrCat(options.path, "/state/meta.json"));
  const absl::StatusOr<CheckpointMeta> meta =
      text.ok() ? ParseMeta(*text, options.path) : text.status();
  if (meta.ok()) {
    length = meta->sequence_length > 0 ? meta->sequence_length : length;
    if (spec::FindObjective(meta->task) != nullptr) {
      spec.set_task(meta->task);
    }
    if (!meta->packing.empty()) {
      data.set_packing(meta->packing);
    }
    if (!meta->attention.empty()) {
      data.set_attention(meta->attention);
    }
  }
  const v1::ModelSpec& model = spec.model();
  if (model.position() == "learned") {
    length = std::min<int64_t>(length, model.max_position());
  }
  data.set_sequence_length(
      static_cast<int32_t>(options.sequence_length > 0 ? options.sequence_length : length));
  data.add_train()->set_path(options.path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> LoadModelFolder(const ModelFolderOptions& options,
                                                        Env& env) {
  v1::JobSpec spec;
  spec.set_name("model");
  HEARTH_ASSIGN_OR_RETURN(*spec.mutable_model(), hf::ReadHfConfig(options.path, env));
  FillData(options, env, spec);
  spec.mutable_train()->set_steps(1);
  spec.mutable_precision()->set_recipe("fp32");
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(spec, violations);
  HEARTH_RETURN_IF_ERROR(spec::ViolationsToStatus(violations));
  EngineOptions engine_options;
  engine_options.spec = std::move(spec);
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

int32_t PickToken(std::vector<float>& logits, const SamplingOptions& options, int64_t index) {
  const auto vocab = static_cast<int64_t>(logits.size());
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature <= 0) {
    return static_cast<int32_t>(best - logits.begin());
  }
  float threshold = -std::numeric_limits<float>::infinity();
  if (options.top_k > 0 && options.top_k < vocab) {
    std::vector<float> sorted = logits;
    std::nth_element(sorted.begin(), sorted.begin() + options.top_k - 1, sorted.end(),
                     std::greater<>());
    threshold = sorted[static_cast<size_t>(options.top_k - 1)];
  }
  const float largest = *best;
  double sum = 0;
  for (float& logit : logits) {
    logit = logit < threshold
                ? 0.0F
                : static_cast<float>(std::exp((logit - largest) / options.temperature));
    sum += logit;
  }
  const kernels::RngKey key{options.seed, kernels::RngPurpose::kSampling, 0, 0, 0};
  double left = kernels::RngUniform(key, static_cast<uint64_t>(index)) * sum;
  int32_t last = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    if (logits[static_cast<size_t>(i)] > 0) {
      last = static_cast<int32_t>(i);
      left -= logits[static_cast<size_t>(i)];
      if (left < 0) {
        break;
      }
    }
  }
  return last;
}

absl::StatusOr<int32_t> SampleNext(Engine& engine,
                                   const std::vector<int32_t>& context,
                                   const SamplingOptions& options,
                                   int64_t index,
                                   std::vector<float>& scratch) {
  if (context.empty()) {
    return absl::InvalidArgumentError("sampling needs at least one token to start from");
  }
  const BatchBuffers batch = engine.model().batch();
  const int64_t window = engine.model().rows();
  const int64_t used = std::min<int64_t>(window, static_cast<int64_t>(context.size()));
  const int64_t skip = static_cast<int64_t>(context.size()) - used;
  for (int64_t i = 0; i < window; ++i) {
    // Attention is causal: what stands behind the context has no influence.
    batch.tokens[i] = i < used ? context[static_cast<size_t>(skip + i)] : 0;
    batch.targets[i] = 0;
    batch.loss_weight[i] = 0;
    batch.position[i] = static_cast<int32_t>(i);
    batch.start[i] = 0;
  }
  const int64_t vocab = engine.shape().vocab;
  scratch.resize(static_cast<size_t>(vocab));
  HEARTH_RETURN_IF_ERROR(engine.model().ForwardLogits(engine.exec(), used - 1,
                                                      kernels::View(scratch.data(), {1, vocab})));
  return PickToken(scratch, options, index);
}

}  // namespace hearth::trainer
