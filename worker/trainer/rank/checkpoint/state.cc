#include "worker/trainer/rank/checkpoint/state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/sha256.h"
#include "common/spec/fields/recorded.h"
#include "kernels/cuda/device.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/checkpoint/folder_weights.h"
#include "worker/trainer/checkpoint/shards.h"
#include "worker/trainer/comm/nccl/nccl_version.h"

namespace hearth::trainer {
namespace {

// A tensor of the state of one piece.
struct StateTensor {
  std::string name;
  std::vector<int64_t> shape;  // without padding
  int64_t first_element = 0;
  kernels::TensorView view;  // elements of padding lie behind the last
};

// What a state in blocks has for the elements [first, first + elements) of its parameter.
StateTensor BlockTensor(const spec::ParameterState& state,
                        const std::string& parameter,
                        int64_t first,
                        int64_t elements,
                        const kernels::TensorView& view) {
  return {absl::StrCat(state.TensorName(), ".", parameter),
          {state.Count(elements)},
          state.Count(first),
          view};
}

// What blocks of `elements` from `first` on are in the state/ of a checkpoint.
StateTensor StoredTensor(const spec::Parameter& parameter,
                         int64_t first,
                         int64_t elements,
                         const kernels::TensorView& blocks) {
  const formats::WeightCodecRow& row = formats::RowOf(parameter.store);
  return {
      absl::StrCat(row.name, ".", parameter.name), {row.Bytes(elements)}, row.Bytes(first), blocks};
}

// This rank's tensors, without pieces that are only padding.
std::vector<StateTensor> StateTensors(const ParameterStore& p) {
  std::vector<StateTensor> tensors;
  for (const StorePiece& piece : p.pieces()) {
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(piece.place.parameter)];
    const int64_t first = piece.place.first_element;
    const int64_t elements = std::min(piece.place.elements, parameter.logical_elements() - first);
    if (elements <= 0) {
      continue;
    }
    // A piece is a stretch of a tensor and has no shape of it.
    std::vector<int64_t> shape = {elements};
    if (!p.sharded()) {
      shape = parameter.shape;
      shape[0] = parameter.logical_rows;
    }
    // Those in blocks are kept as they are: model.safetensors has them rounded to what passes read.
    if (parameter.stored()) {
      tensors.push_back(StoredTensor(parameter, first, elements, piece.blocks));
    } else if (!p.weight_is_master(piece.place.parameter)) {
      // Weights that are their own masters are in model.safetensors.
      tensors.push_back({absl::StrCat("master.", parameter.name), shape, first, piece.master});
    }
    for (size_t k = 0; k < piece.states.size(); ++k) {
      StateTensor tensor =
          BlockTensor(parameter.states[k], parameter.name, first, elements, piece.states[k]);
      if (!parameter.states[k].in_blocks()) {
        tensor.shape = shape;
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

// Optimizer state is saved in the format that it is held in.
TensorDType SavedDType(kernels::DType dtype) {
  if (dtype == kernels::DType::kU8) {
    return TensorDType::kU8;
  }
  HEARTH_CHECK(dtype == kernels::DType::kF32 || dtype == kernels::DType::kBF16,
               "checkpoints hold state in fp32, bf16 and codes");
  return dtype == kernels::DType::kBF16 ? TensorDType::kBF16 : TensorDType::kF32;
}

// Which weights the scales belong to, in their order.
std::string QuantisedNames(const Engine& engine) {
  std::string names;
  for (const int i : spec::QuantisedParameters(engine.table(), engine.precision())) {
    absl::StrAppend(&names, engine.table()[static_cast<size_t>(i)].name, " ");
  }
  return names;
}

nlohmann::json LadderJson(const LadderState& state) {
  const v1::GuardCounts& counts = state.counts;
  return {{"trouble", state.trouble},
          {"fallback_rung", state.fallback_rung},
          {"fallback_until", state.fallback_until},
          {"remedy_until", state.remedy_until},
          {"next_remedy", state.next_remedy},
          {"last_end", state.last_end},
          {"counts",
           {counts.non_finite(), counts.spike(), counts.grad_spike(), counts.redone_steps(),
            counts.remedies(), counts.fallbacks()}}};
}

// Numbers of an array; false if it is no array, or holds something else.
template <typename T>
bool ReadNumbers(const nlohmann::json& json, std::vector<T>& out) {
  if (!json.is_array()) {
    return false;
  }
  for (const nlohmann::json& value : json) {
    if (!value.is_number()) {
      return false;
    }
    out.push_back(value.get<T>());
  }
  return true;
}

// False: not what LadderJson writes.
bool ReadLadder(const nlohmann::json& json, LadderState& state) {
  std::vector<int64_t> counts;
  const nlohmann::json none;
  const auto at = [&](const char* key) -> const nlohmann::json& {
    const auto found = json.find(key);
    return found == json.end() ? none : *found;
  };
  for (const char* key : {"fallback_rung", "fallback_until", "next_remedy", "last_end"}) {
    if (!at(key).is_number_integer()) {
      return false;
    }
  }
  state.fallback_rung = at("fallback_rung").get<int>();
  state.fallback_until = at("fallback_until").get<int64_t>();
  state.next_remedy = at("next_remedy").get<int>();
  state.last_end = at("last_end").get<int64_t>();
  if (!ReadNumbers(at("trouble"), state.trouble) ||
      !ReadNumbers(at("remedy_until"), state.remedy_until) || !ReadNumbers(at("counts"), counts) ||
      counts.size() != 6) {
    return false;
  }
  state.counts.set_non_finite(counts[0]);
  state.counts.set_spike(counts[1]);
  state.counts.set_grad_spike(counts[2]);
  state.counts.set_redone_steps(counts[3]);
  state.counts.set_remedies(counts[4]);
  state.counts.set_fallbacks(counts[5]);
  return true;
}

std::string ExtraJson(const Engine& engine, Trainer& trainer, const std::string& trial) {
  nlohmann::json extra;
  if (!engine.quant().empty()) {
    extra["quantised"] = QuantisedNames(engine);
  }
  extra["losses"] = trainer.guard().Losses();
  extra["log_norms"] = trainer.guard().LogNorms();
  extra["last_norm"] = trainer.last_norm();
  extra["ladder"] = LadderJson(trainer.ladder().state());
  if (!trial.empty()) {
    extra["trial"] = nlohmann::json::parse(trial, nullptr, false);
  }
  return extra.dump();
}

// What the bits of a run depend on, apart from its spec.
std::string PlansJson(const Engine& engine, int world_size) {
  nlohmann::json plans;
  if (engine.on_gpu()) {
    const kernels::GpuProperties& gpu = engine.options().cuda->gpu();
    plans["device"] = gpu.name;
    plans["driver"] = gpu.driver_version;
    plans["gemm"] = engine.options().cuda->gemm_version();
    plans["attention"] = engine.options().cuda->attention_version();
    if (world_size > 1) {
      plans["nccl"] = NcclVersion().value_or("none");
    }
  } else {
    plans["device"] = "cpu";
    plans["threads"] = engine.options().threads;
  }
  plans["micro_batch_size"] = engine.options().micro_batch;
  plans["shards"] = engine.shards();  // the gradient norm is summed in another order
  plans["divided_gradients"] = engine.parameters().gradients_divided();  // and so are they
  plans["divided_weights"] = engine.parameters().weights_divided();  // their buckets are smaller
  plans["by_bucket"] = engine.by_bucket();                           // the norm again
  return plans.dump();
}

void FillMeta(const Engine& engine,
              Trainer& trainer,
              const spec::BatchPlan& batch,
              int world_size,
              const RunIdentity& identity,
              CheckpointMeta& meta) {
  const v1::JobSpec& spec = engine.options().spec;
  meta.job_id = identity.job_id;
  meta.epoch = identity.epoch;
  meta.step = trainer.step();
  meta.tokens = trainer.tokens();
  meta.next_sample = trainer.step() * batch.global_sequences();
  meta.seed = static_cast<uint64_t>(spec.train().seed());
  meta.world_size = world_size;
  meta.shards = engine.shards();
  meta.global_batch_tokens = batch.global_tokens();
  meta.micro_batch_size = static_cast<int32_t>(batch.micro_batch);
  meta.recipe = std::string(engine.recipe().name);
  meta.spec_sha256 = Sha256Hex(spec.SerializeAsString());
  meta.model = spec.model();
  meta.recorded = spec::RecordedOf(spec);
  meta.validation_loss = identity.validation_loss;
  meta.plans_json = PlansJson(engine, world_size);
  meta.extra_json = ExtraJson(engine, trainer, identity.trial);
}

// Recipe state and weights: those of rank 0 are the ones that count.
void AddWholeTensors(const Engine& engine, CheckpointContent& content) {
  const ParameterStore& p = engine.parameters();
  for (const QuantStateTensor& tensor : engine.quant().Tensors()) {
    content.state.push_back({tensor.name, TensorDType::kU8, {tensor.bytes}, tensor.data});
  }
  const bool whole = p.sharded() || p.some_weights_are_masters() || p.weights_stored();
  for (int i = 0; i < p.size(); ++i) {
    const kernels::TensorView& weight = engine.whole_weight(i);
    if (whole && weight.dtype == kernels::DType::kBF16) {
      content.bf16_weights.push_back(weight.as<uint16_t>());
    } else {
      // A GPU's weights are its masters rounded to weights_dtype, which is what the writer does
      // too.
      const bool masters = engine.on_gpu() && !p.sharded();
      content.weights.push_back((masters ? p.master(i) : weight).as<float>());
    }
  }
}

}  // namespace

void AddTrainingState(const ParameterStore& parameters, CheckpointContent& content) {
  for (StateTensor& tensor : StateTensors(parameters)) {
    TensorView saved = {std::move(tensor.name), SavedDType(tensor.view.dtype),
                        std::move(tensor.shape), tensor.view.data};
    if (parameters.sharded()) {
      content.pieces.push_back({std::move(saved), tensor.first_element});
    } else {
      content.state.push_back(std::move(saved));
    }
  }
}

CheckpointContent MakeCheckpointContent(const Engine& engine,
                                        Trainer& trainer,
                                        const spec::BatchPlan& batch,
                                        int world_size,
                                        const RunIdentity& identity) {
  CheckpointContent content;
  FillMeta(engine, trainer, batch, world_size, identity, content.meta);
  content.table = &engine.table();
  content.sharded.rank = engine.options().rank;
  content.sharded.shards = engine.shards();
  AddTrainingState(engine.parameters(), content);
  // All ranks have the same weights and scales: of a divided checkpoint rank 0 writes them.
  if (!engine.parameters().sharded() || engine.options().rank == 0) {
    AddWholeTensors(engine, content);
  }
  content.weights_dtype = engine.recipe().parameters.storage == spec::DType::kF32
                              ? TensorDType::kF32
                              : TensorDType::kBF16;
  content.tokenizer_from = identity.tokenizer_from;
  return content;
}

absl::Status RestoreTensors(const kernels::Exec& exec,
                            const ParameterStore& p,
                            const LoadedCheckpoint& checkpoint) {
  const SavedTensors saved(checkpoint);
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Upload> upload, Upload::New(exec));
  // Elements from `first_element` on of a saved tensor; zeros behind its first `count`: padding.
  const auto read = [&saved](const std::string& name, int64_t first_element, int64_t count) {
    return [&saved, name, first_element, count](int64_t first, absl::Span<float> out) {
      const int64_t n = std::clamp<int64_t>(count - first, 0, static_cast<int64_t>(out.size()));
      std::fill(out.begin() + n, out.end(), 0.0F);
      return saved.Read(name, first_element + first, n, out.data());
    };
  };
  if (p.some_weights_are_masters()) {
    const absl::StatusOr<HostWeights> weights = ReadFolderWeights(Env::Real(), checkpoint.path, p);
    if (!weights.ok()) {
      return absl::DataLossError(weights.status().message());
    }
    HEARTH_RETURN_IF_ERROR(WriteWeights(*weights, exec, p));
  }
  // Every rank reads all masters, because the whole weights are theirs, rounded, and all blocks
  // that it keeps.
  std::vector<StateTensor> tensors = StateTensors(p);
  for (int i = 0; p.sharded() && i < p.size(); ++i) {
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
    if (!p.blocks(i).empty()) {
      tensors.push_back(StoredTensor(parameter, 0, parameter.elements(), p.blocks(i)));
    } else if (!parameter.stored() && !p.weight_is_master(i)) {
      HEARTH_RETURN_IF_ERROR(p.WriteParameter(
          exec, *upload, i,
          read(absl::StrCat("master.", parameter.name), 0, parameter.logical_elements())));
    }
  }
  for (const StateTensor& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) {
      elements *= size;
    }
    HEARTH_RETURN_IF_ERROR(
        upload->Write(tensor.view, read(tensor.name, tensor.first_element, elements)));
  }
  // What products read is made of the masters again.
  HEARTH_RETURN_IF_ERROR(p.RefreshWeights(exec));
  return kernels::Synchronize(exec);
}

absl::StatusOr<bool> RestorePrecision(Engine& engine, const LoadedCheckpoint& checkpoint) {
  const nlohmann::json extra = nlohmann::json::parse(checkpoint.meta.extra_json, nullptr, false);
  // Scales belong to weights by their order. If other weights are quantised now, none of them fit,
  // and the trainer measures again.
  if (!extra.is_object() || extra.value("quantised", "") != QuantisedNames(engine)) {
    return false;
  }
  // All of them are looked for before any is copied: half a restored state would be of no step.
  for (const QuantStateTensor& tensor : engine.quant().Tensors()) {
    const TensorView* saved = checkpoint.state->Find(tensor.name);
    if (saved == nullptr || saved->dtype != TensorDType::kU8 || saved->bytes() != tensor.bytes) {
      return false;
    }
  }
  for (const QuantStateTensor& tensor : engine.quant().Tensors()) {
    HEARTH_RETURN_IF_ERROR(kernels::Copy(engine.exec(), tensor.data,
                                         checkpoint.state->Find(tensor.name)->data,
                                         static_cast<size_t>(tensor.bytes)));
  }
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(engine.exec()));
  return true;
}

absl::Status RestoreTrainer(Trainer& trainer, const CheckpointMeta& meta) {
  const nlohmann::json extra = nlohmann::json::parse(meta.extra_json, nullptr, false);
  if (extra.is_discarded() || !extra.is_object()) {
    return meta.extra_json.empty()
               ? absl::OkStatus()
               : absl::DataLossError("the checkpoint's state/meta.json: extra is no JSON object");
  }
  std::vector<double> losses;
  std::vector<double> log_norms;
  if (!ReadNumbers(extra.value("losses", nlohmann::json::array()), losses) ||
      !ReadNumbers(extra.value("log_norms", nlohmann::json::array()), log_norms)) {
    return absl::DataLossError("the checkpoint's state/meta.json: losses are not numbers");
  }
  const nlohmann::json last_norm = extra.value("last_norm", nlohmann::json(0.0));
  if (!last_norm.is_number()) {
    return absl::DataLossError("the checkpoint's state/meta.json: last_norm is no number");
  }
  trainer.RestoreNorm(last_norm.get<double>());
  trainer.guard().Restore(losses, log_norms);
  const auto ladder = extra.find("ladder");
  if (ladder == extra.end()) {
    return absl::OkStatus();  // of a version without one
  }
  LadderState state;
  if (!ladder->is_object() || !ReadLadder(*ladder, state)) {
    return absl::DataLossError("the checkpoint's state/meta.json: ladder is damaged");
  }
  trainer.ladder().Restore(std::move(state));
  return absl::OkStatus();
}

std::vector<std::string> PlanDifferences(const std::string& plans_json,
                                         const Engine& engine,
                                         int world_size) {
  const nlohmann::json before = nlohmann::json::parse(plans_json, nullptr, false);
  const nlohmann::json now = nlohmann::json::parse(PlansJson(engine, world_size));
  std::vector<std::string> differences;
  if (engine.on_gpu() && !engine.options().cuda->options().deterministic) {
    differences.push_back("train.deterministic is not true");
  }
  // What checkpoints of older versions do not record.
  const nlohmann::json unrecorded = {{"shards", 1},
                                     {"divided_gradients", false},
                                     {"divided_weights", false},
                                     {"by_bucket", false}};
  for (const auto& [key, value] : now.items()) {
    if (key == "micro_batch_size" || !before.is_object()) {
      continue;  // compared by its own name
    }
    const auto old = before.find(key);
    if (old == before.end() && unrecorded.value(key, nlohmann::json()) == value) {
      continue;
    }
    if (old == before.end() || *old != value) {
      differences.push_back(absl::StrCat(
          key, " was ", old == before.end() ? "not recorded" : old->dump(), ", is ", value.dump()));
    }
  }
  return differences;
}

}  // namespace hearth::trainer
