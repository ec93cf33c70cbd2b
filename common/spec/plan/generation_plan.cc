#include "common/spec/plan/generation_plan.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/plan/plan_builder.h"

namespace hearth::spec {
namespace {

// The moments of this plan.
constexpr Lifetime kPrefill = {0, 0};
constexpr Lifetime kDecode = {1, 1};
constexpr Lifetime kScoring = {2, 2};
constexpr Lifetime kAlways = {0, 2};

absl::StatusOr<TrainingPlan> PlanPass(const GenerationPlanOptions& o,
                                      int64_t micro_batch,
                                      int64_t sequence_length,
                                      int64_t workspace_bytes) {
  TrainingPlanOptions pass = o.model;
  pass.micro_batch = micro_batch;
  pass.sequence_length = sequence_length;
  pass.op_workspace_bytes = workspace_bytes;
  pass.training = false;
  pass.store = false;
  return PlanTraining(pass);
}

absl::Status AddScoring(const GenerationPlanOptions& o, PlanBuilder& out, GenerationPlan& plan) {
  TrainingPlanOptions pass = *o.scoring;
  pass.training = false;
  pass.store = false;
  pass.scores = true;
  HEARTH_ASSIGN_OR_RETURN(plan.scoring, PlanTraining(pass));
  plan.ids.scoring =
      out.Bytes("scoring", BufferClass::kWorkspace, plan.scoring.arena_bytes(), kScoring);
  plan.ids.losses = out.Bytes("scoring.losses", BufferClass::kWorkspace, 16, kScoring);
  if (pass.wide_bytes == 0) {
    const int64_t tokens = pass.micro_batch * pass.sequence_length;
    plan.ids.scoring_staging =
        out.Pinned("scoring.staging", BatchLayout::Of(tokens, 0).bytes + 4 * tokens, kAlways.last);
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingPlan> PlanWeights(const GenerationPlanOptions& o) {
  PlanBuilder out(o.model.wide_bytes);
  out.ids().store.parameters =
      out.Floats("parameters", BufferClass::kParameters, o.model.recipe->parameters.storage,
                 {TensorOffsets(*o.model.table).back()}, kAlways);
  AddForwardWeights(o.model, kAlways, out);
  return std::move(out).Finish();
}

void AddCache(const GenerationPlanOptions& o, PlanBuilder& out, GenerationBuffers& ids) {
  const ModelShape& s = o.model.shape;
  const std::vector<int64_t> shape = {s.layers * o.batch, s.kv_heads, o.length, s.head_dim};
  const DType format = o.model.recipe->activation;
  ids.keys = out.Floats("cache.keys", BufferClass::kActivations, format, shape, kAlways);
  ids.values = out.Floats("cache.values", BufferClass::kActivations, format, shape, kAlways);
  ids.arrivals =
      out.Words("cache.arrivals", BufferClass::kWorkspace, 4, {o.batch, s.kv_heads}, kAlways);
}

void AddTexts(const GenerationPlanOptions& o, PlanBuilder& out, GenerationBuffers& ids) {
  const ModelShape& s = o.model.shape;
  const DType format = o.model.recipe->activation;
  const auto words = [&](const char* name, std::vector<int64_t> shape) {
    return out.Words(name, BufferClass::kWorkspace, 4, std::move(shape), kAlways);
  };
  ids.last =
      out.Floats("texts.last", BufferClass::kWorkspace, format, {o.batch, s.hidden}, kAlways);
  ids.logits = out.Floats("texts.logits", BufferClass::kWorkspace, format,
                          {o.batch, s.padded_vocab}, kAlways);
  ids.streams = words("texts.streams", {o.batch});
  ids.remaining = words("texts.remaining", {o.batch});
  ids.drawn = words("texts.drawn", {o.batch});
  ids.log_prob = words("texts.log_prob", {o.batch});
  ids.seen = words("texts.seen", {o.batch, (s.vocab + 31) / 32});
  ids.lengths = words("prefill.lengths", {o.prefill_batch});
  ids.rows = words("prefill.rows", {o.prefill_batch});
}

}  // namespace

int64_t GenerationStagingBytes(const GenerationPlanOptions& o) {
  const int64_t words = (o.model.shape.vocab + 31) / 32;
  return 4 * (2 * o.prefill_batch * o.prompt + 2 * o.prefill_batch + o.batch * (3 + words) +
              int64_t{kDrawnSlots} * 2 * o.batch);
}

absl::StatusOr<GenerationPlan> PlanGeneration(const GenerationPlanOptions& o) {
  if (o.batch < 1 || o.prompt < 1 || o.length < o.prompt || o.prefill_batch < 1 ||
      o.prefill_batch > o.batch || o.model.training) {
    return absl::InvalidArgumentError(absl::StrCat("a plan for texts: batch ", o.batch, ", length ",
                                                   o.length, ", prompt ", o.prompt,
                                                   ", prompts of a pass ", o.prefill_batch));
  }
  GenerationPlan plan;
  HEARTH_ASSIGN_OR_RETURN(plan.weights, PlanWeights(o));
  HEARTH_ASSIGN_OR_RETURN(plan.prefill,
                          PlanPass(o, o.prefill_batch, o.prompt, o.prefill_workspace_bytes));
  HEARTH_ASSIGN_OR_RETURN(plan.decode, PlanPass(o, o.batch, 1, o.decode_workspace_bytes));
  PlanBuilder out(o.model.wide_bytes);
  plan.ids.weights =
      out.Bytes("weights", BufferClass::kParameters, plan.weights.arena_bytes(), kAlways);
  AddCache(o, out, plan.ids);
  AddTexts(o, out, plan.ids);
  plan.ids.prefill =
      out.Bytes("prefill", BufferClass::kWorkspace, plan.prefill.arena_bytes(), kPrefill);
  plan.ids.decode =
      out.Bytes("decode", BufferClass::kWorkspace, plan.decode.arena_bytes(), kDecode);
  HEARTH_RETURN_IF_ERROR(o.scoring.has_value() ? AddScoring(o, out, plan) : absl::OkStatus());
  if (o.model.wide_bytes == 0) {
    plan.ids.staging = out.Pinned("staging", GenerationStagingBytes(o), kAlways.last);
  }
  HEARTH_ASSIGN_OR_RETURN(plan.memory, std::move(out).Finish());
  return plan;
}

int64_t DecodeBytes(const GenerationPlanOptions& o, int64_t tokens, int64_t element_bytes) {
  const ModelShape& s = o.model.shape;
  int64_t weights = 0;
  const auto head = static_cast<size_t>(FindHead(*o.model.table));
  for (size_t i = 0; i < o.model.table->size(); ++i) {
    const Parameter& p = (*o.model.table)[i];
    // A pass reads only a few rows of a table that is nothing else.
    if (!p.roles.lookup || i == head) {
      weights += o.model.precision.Quantises(p)
                     ? FormBytes(o.model.precision.RecipeOf(p.slot).fprop.b, p.shape[0], p.shape[1])
                     : DTypeBytes(p.storage, p.elements());
    }
  }
  return weights + o.batch * tokens * s.layers * 2 * s.kv_width() * element_bytes;
}

}  // namespace hearth::spec
