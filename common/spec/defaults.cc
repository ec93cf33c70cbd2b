#include "common/spec/defaults.h"

#include <algorithm>
#include <string>

#include "common/spec/precision.h"
#include "common/spec/presets.h"
#include "common/spec/recipe.h"

namespace hearth::spec {
namespace {

// HEARTH_DEFAULT(m, field, value): m.field = value unless it is set.
#define HEARTH_DEFAULT(message, field, value) \
  do {                                        \
    if (!(message).has_##field()) {           \
      (message).set_##field(value);           \
    }                                         \
  } while (false)

void ApplyRopeScalingDefaults(v1::RopeScaling& scaling) {
  HEARTH_DEFAULT(scaling, type, "none");
  if (scaling.type() == "none") {
    return;
  }
  HEARTH_DEFAULT(scaling, factor, 1.0);
  if (scaling.type() == "llama3") {
    HEARTH_DEFAULT(scaling, low_freq_factor, 1.0);
    HEARTH_DEFAULT(scaling, high_freq_factor, 4.0);
    HEARTH_DEFAULT(scaling, original_max_position, 8192);
  }
}

void ApplyDataDefaults(v1::DataSpec& data) {
  for (auto* sources : {data.mutable_train(), data.mutable_validation()}) {
    for (v1::DataSource& source : *sources) {
      HEARTH_DEFAULT(source, weight, 1.0);
    }
  }
  HEARTH_DEFAULT(data, sequence_length, 1024);
  HEARTH_DEFAULT(data, shuffle, true);
  HEARTH_DEFAULT(data, verify, true);
}

void ApplyBatchDefaults(v1::JobSpec& job_spec) {
  v1::BatchSpec& batch = *job_spec.mutable_batch();
  HEARTH_DEFAULT(batch, micro_batch_size, 0);
  if (batch.micro_batch_size() > 0) {
    HEARTH_DEFAULT(batch, global_batch_tokens,
                   int64_t{batch.micro_batch_size()} * job_spec.data().sequence_length() *
                       job_spec.resources().workers());
  }
}

void ApplyPrecisionDefaults(v1::JobSpec& job_spec) {
  v1::PrecisionSpec& precision = *job_spec.mutable_precision();
  v1::GradientSpec& gradients = *job_spec.mutable_gradients();
  HEARTH_DEFAULT(precision, recipe, "bf16");
  HEARTH_DEFAULT(precision, warmup_steps, 0);
  HEARTH_DEFAULT(precision, lm_head, "bf16");
  HEARTH_DEFAULT(precision, narrow_activations, true);
  HEARTH_DEFAULT(precision, bf16_tail, 0.0);
  HEARTH_DEFAULT(precision, emulate, true);
  HEARTH_DEFAULT(precision, fallback_after, 3);
  HEARTH_DEFAULT(precision, fallback_window, 200);
  HEARTH_DEFAULT(precision, fallback_steps, 200);
  HEARTH_DEFAULT(precision, stats_every, 0);
  for (v1::PrecisionRemedy& remedy : *precision.mutable_remedies()) {
    HEARTH_DEFAULT(remedy, steps, 100);
    if (remedy.has_high_precision_layers()) {
      HEARTH_DEFAULT(remedy, layers_recipe, "bf16");
    }
  }
  if (precision.has_trial()) {
    HEARTH_DEFAULT(*precision.mutable_trial(), steps, 1000);
    HEARTH_DEFAULT(*precision.mutable_trial(), max_gap, 0.015);
  }
  const Recipe* recipe = FindRecipe(precision.recipe());
  if (recipe == nullptr) {
    return;
  }
  if (precision.fallback().empty()) {
    for (std::string_view name : recipe->fallback) {
      const Recipe* fallback = FindRecipe(name);
      if (fallback != nullptr && CanFollow(*recipe, *fallback)) {
        precision.add_fallback(std::string(name));
      }
    }
  }
  ApplyLayerDefaults(job_spec);
  HEARTH_DEFAULT(gradients, dtype, std::string(DTypeName(recipe->parameters.gradient)));
  HEARTH_DEFAULT(gradients, reduce_dtype, gradients.dtype());
}

void ApplyOptimizerDefaults(v1::OptimizerSpec& optimizer) {
  HEARTH_DEFAULT(optimizer, name, "adamw");
  HEARTH_DEFAULT(optimizer, lr, 3e-4);
  HEARTH_DEFAULT(optimizer, beta1, 0.9);
  HEARTH_DEFAULT(optimizer, beta2, 0.95);
  HEARTH_DEFAULT(optimizer, eps, 1e-8);
  HEARTH_DEFAULT(optimizer, weight_decay, 0.1);
  HEARTH_DEFAULT(optimizer, grad_clip, 1.0);
}

void ApplyScheduleDefaults(v1::ScheduleSpec& schedule, const v1::TrainSpec& train) {
  HEARTH_DEFAULT(schedule, name, "wsd");
  HEARTH_DEFAULT(schedule, warmup_steps, 0);
  if (train.has_steps()) {
    const int64_t rest = std::max<int64_t>(0, train.steps() - schedule.warmup_steps());
    HEARTH_DEFAULT(schedule, decay_steps,
                   schedule.name() == "wsd" ? std::min(train.steps() / 5, rest) : rest);
  }
  HEARTH_DEFAULT(schedule, min_lr_ratio, schedule.name() == "cosine" ? 0.1 : 0.0);
  HEARTH_DEFAULT(schedule, decay_shape, "linear");
}

void ApplyTrainDefaults(v1::TrainSpec& train) {
  HEARTH_DEFAULT(train, seed, 1234);
  HEARTH_DEFAULT(train, eval_every, 250);
  HEARTH_DEFAULT(train, eval_batches, 20);
  HEARTH_DEFAULT(train, deterministic, "auto");
  HEARTH_DEFAULT(train, spike_sigma, 0.0);
  HEARTH_DEFAULT(train, spike_window, 64);
  HEARTH_DEFAULT(train, spike_grad_sigma, 0.0);
}

void ApplyCheckpointDefaults(v1::CheckpointSpec& checkpoint) {
  HEARTH_DEFAULT(checkpoint, every_steps, 1000);
  HEARTH_DEFAULT(checkpoint, keep_last, 3);
  HEARTH_DEFAULT(checkpoint, grace_seconds, 60);
}

void ApplyResourceDefaults(v1::ResourceSpec& resources) {
  HEARTH_DEFAULT(resources, workers, 1);
  HEARTH_DEFAULT(resources, min_workers, resources.workers());
  HEARTH_DEFAULT(resources, device, "cpu");
  HEARTH_DEFAULT(resources, priority, 0);
  HEARTH_DEFAULT(resources, max_restarts, 3);
  HEARTH_DEFAULT(resources, span_hosts, true);
  HEARTH_DEFAULT(resources, threads, 0);
}

}  // namespace

bool ApplyPreset(v1::ModelSpec& model) {
  if (!model.has_preset()) {
    return true;
  }
  const Preset* preset = FindPreset(model.preset());
  if (preset == nullptr) {
    return false;
  }
  v1::ModelSpec merged = preset->model;
  merged.MergeFrom(model);
  model.Swap(&merged);
  return true;
}

void ApplyModelDefaults(v1::ModelSpec& model, int32_t sequence_length) {
  if (model.has_heads()) {
    HEARTH_DEFAULT(model, kv_heads, model.heads());
  }
  if (model.has_hidden() && model.heads() > 0 && model.hidden() % model.heads() == 0) {
    HEARTH_DEFAULT(model, head_dim, model.hidden() / model.heads());
  }
  HEARTH_DEFAULT(model, norm, "rmsnorm");
  HEARTH_DEFAULT(model, norm_eps, 1e-5);
  HEARTH_DEFAULT(model, qk_norm, false);
  HEARTH_DEFAULT(model, position, "rope");
  if (model.position() == "rope") {
    HEARTH_DEFAULT(model, rope_theta, 10000.0);
    ApplyRopeScalingDefaults(*model.mutable_rope_scaling());
  } else if (sequence_length > 0) {
    HEARTH_DEFAULT(model, max_position, sequence_length);
  }
  HEARTH_DEFAULT(model, activation, "swiglu");
  HEARTH_DEFAULT(model, attention_bias, "none");
  HEARTH_DEFAULT(model, mlp_bias, false);
  HEARTH_DEFAULT(model, tied, true);
  HEARTH_DEFAULT(model, dropout, 0.0);
  HEARTH_DEFAULT(model, init_std, 0.02);
}

void ApplyLayerDefaults(v1::JobSpec& job_spec) {
  v1::PrecisionSpec& precision = *job_spec.mutable_precision();
  const Recipe* recipe = FindRecipe(precision.recipe());
  const int layers = job_spec.model().layers();
  if (recipe == nullptr || layers < 1) {
    return;
  }
  // Who names layers means those. Of a few layers most are to be quantised all the same.
  const int most = precision.has_high_precision_layers() ? 0 : layers / 4;
  v1::LayerSet& range = *precision.mutable_high_precision_layers();
  HEARTH_DEFAULT(range, first, std::min(recipe->high_precision_first, most));
  HEARTH_DEFAULT(range, last, std::min(recipe->high_precision_last, most));
}

void ApplyDefaults(v1::JobSpec& job_spec) {
  HEARTH_DEFAULT(job_spec, task, "pretrain");
  ApplyDataDefaults(*job_spec.mutable_data());
  ApplyResourceDefaults(*job_spec.mutable_resources());
  ApplyBatchDefaults(job_spec);
  ApplyPrecisionDefaults(job_spec);
  ApplyOptimizerDefaults(*job_spec.mutable_optimizer());
  ApplyTrainDefaults(*job_spec.mutable_train());
  ApplyScheduleDefaults(*job_spec.mutable_schedule(), job_spec.train());
  HEARTH_DEFAULT(job_spec, recompute, "none");
  HEARTH_DEFAULT(*job_spec.mutable_parallel(), shard_optimizer, "auto");
  // On the CPU ranks compute and communicate on the same cores: nothing is won by starting early.
  if (job_spec.resources().device() == "cuda") {
    HEARTH_DEFAULT(*job_spec.mutable_parallel(), bucket_mib, 25);
  }
  ApplyCheckpointDefaults(*job_spec.mutable_checkpoint());
}

#undef HEARTH_DEFAULT

}  // namespace hearth::spec
