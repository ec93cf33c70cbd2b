#include "common/spec/training_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/dtype.h"
#include "common/spec/gradient_buckets.h"
#include "common/spec/plan_report.h"

namespace hearth::spec {
namespace {

constexpr std::string_view kRecomputeNames[kRecomputeCount] = {"none", "norm_act", "ffn",
                                                               "attention", "block"};
constexpr int64_t kAlignment = 256;
// Room for kernels::StepInputs or StepState (kernels/step_gate); checked where they are bound.
constexpr int64_t kStepScalarBytes = 256;

// Collects buffers; keeps the first error.
class Builder {
 public:
  explicit Builder(const TrainingPlanOptions& options) : options_(options) {}

  void Floats(std::string name,
              BufferClass buffer_class,
              DType dtype,
              int64_t elements,
              int32_t first,
              int32_t last) {
    const int64_t bytes =
        options_.wide_bytes > 0 ? elements * options_.wide_bytes : DTypeBytes(dtype, elements);
    PlannedBuffer buffer = Make(std::move(name), buffer_class, bytes, first, last);
    buffer.format = dtype;
    Add(std::move(buffer));
  }
  void Bytes(
      std::string name, BufferClass buffer_class, int64_t bytes, int32_t first, int32_t last) {
    Add(Make(std::move(name), buffer_class, bytes, first, last));
  }
  void Pinned(std::string name, int64_t bytes, int32_t last) {
    PlannedBuffer buffer = Make(std::move(name), BufferClass::kWorkspace, bytes, 0, last);
    buffer.tier = MemoryTier::kPinnedHost;
    Add(std::move(buffer));
  }
  absl::StatusOr<MemoryPlan> Finish() && {
    HEARTH_RETURN_IF_ERROR(status_);
    plan_.Place();
    return std::move(plan_);
  }

 private:
  static PlannedBuffer Make(
      std::string name, BufferClass buffer_class, int64_t bytes, int32_t first, int32_t last) {
    PlannedBuffer buffer;
    buffer.name = std::move(name);
    buffer.buffer_class = buffer_class;
    buffer.bytes = bytes;
    buffer.alignment = kAlignment;
    buffer.first_use = first;
    buffer.last_use = last;
    return buffer;
  }
  void Add(PlannedBuffer buffer) {
    if (status_.ok()) {
      status_ = plan_.Add(std::move(buffer));
    }
  }

  const TrainingPlanOptions& options_;
  MemoryPlan plan_;
  absl::Status status_;
};

constexpr std::string_view kNormGradient = "grad.norm";
constexpr std::string_view kActivationGradient = "grad.ffn_act";

// As kernels/core/kept_input.h has it; tests compare.
constexpr int64_t kKeptBlock = 32;

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t Tokens(const TrainingPlanOptions& o) {
  return o.micro_batch * o.sequence_length;
}

// Whether any layer is quantised in training.
bool Quantises(const TrainingPlanOptions& o) {
  return o.training && o.precision.quantised() && o.precision.QuantisesAnyLayer();
}

bool InFourBits(const TrainingPlanOptions& o) {
  return Quantises(o) && o.precision.recipe->wgrad.a.dtype == DType::kFp4E2M1;
}

bool KeepsNarrow(const TrainingPlanOptions& o) {
  return Quantises(o) && o.precision.narrow_activations && o.shape.ffn_hidden % kKeptBlock == 0;
}

void AddPersistent(const TrainingPlanOptions& o, const StepTimeline& time, Builder& out) {
  const int64_t elements = TensorOffsets(*o.table, o.shards).back();
  const int64_t owned = elements / o.shards;
  const ParameterFormats& formats = o.recipe->parameters;
  const int32_t end = time.Update();
  out.Floats("parameters", BufferClass::kParameters, formats.storage, elements, 0, end);
  if (!o.training) {
    return;
  }
  if (formats.master != formats.storage) {
    out.Floats("masters", BufferClass::kMasters, formats.master, owned, 0, end);
  }
  // All parameters of a table share one gradient format.
  out.Floats("gradients", BufferClass::kGradients, o.table->front().gradient, elements, 0, end);
  for (const StateSpec& state : o.optimizer->state_specs(o.table->front())) {
    out.Floats(absl::StrCat("optimizer.", state.name), BufferClass::kOptimizer, state.dtype, owned,
               0, end);
  }
}

void AddActivations(const TrainingPlanOptions& o, const StepTimeline& time, Builder& out) {
  for (const ActivationSpec& a : LayerActivations(o)) {
    if (a.elements == 0 || !StandIn(a, o).empty()) {
      continue;
    }
    // The embedding writes the first layer's input.
    const bool is_input = a.name == "mixer.input";
    const int32_t shared_first = a.backward ? time.FfnBackward(o.shape.layers - 1)
                                 : is_input ? time.Embedding()
                                            : time.MixerForward(0);
    const auto add = [&](std::string name, int32_t first, int32_t last) {
      if (a.raw) {
        out.Bytes(std::move(name), BufferClass::kActivations, DTypeBytes(a.dtype, a.elements),
                  first, last);
      } else {
        out.Floats(std::move(name), BufferClass::kActivations, a.dtype, a.elements, first, last);
      }
    };
    if (IsShared(a, o)) {
      add(absl::StrCat("shared.", a.name), shared_first,
          o.training ? time.MixerBackward(0) : time.Head());
      continue;
    }
    for (int64_t layer = 0; layer < o.shape.layers; ++layer) {
      if (a.quantised && !o.precision.QuantisesLayer(layer)) {
        continue;
      }
      const int32_t start = a.ffn ? time.FfnForward(layer) : time.MixerForward(layer);
      const int32_t first = is_input && layer == 0 ? time.Embedding() : start;
      const int32_t last = a.ffn ? time.FfnBackward(layer) : time.MixerBackward(layer);
      add(absl::StrCat("layers.", layer, ".", a.name), first, last);
    }
  }
}

// Scales, quantised weights and the quantised operands of the GEMM at hand.
void AddQuantised(const TrainingPlanOptions& o, const StepTimeline& time, Builder& out) {
  const std::vector<int> weights = QuantisedParameters(*o.table, o.precision);
  if (weights.empty() || !o.training) {
    return;
  }
  const int64_t n = Tokens(o);
  const ModelShape& s = o.shape;
  const int32_t end = time.Update();
  const auto sites = static_cast<int64_t>(weights.size());
  // Of x and dy of every weight, then of the weights themselves.
  for (const char* name : {"quant.amax", "quant.scale"}) {
    out.Bytes(name, BufferClass::kWorkspace, 3 * sites * 4, 0, end);
  }
  // cuBLASLt wants each on a 16-byte boundary (kernels/quantize: kScaleInverseStride).
  out.Bytes("quant.scale_inverse", BufferClass::kWorkspace, 3 * sites * 16, 0, end);
  if (o.precision.block) {
    out.Bytes("quant.column_scale_inverse", BufferClass::kWorkspace, 3 * sites * 16, 0, end);
  }
  out.Bytes("quant.ring", BufferClass::kWorkspace, 3 * sites * 4 * std::max(1, o.precision.history),
            0, end);
  out.Bytes("quant.cursors", BufferClass::kWorkspace, 2 * 8, 0, end);
  if (o.precision.fallback != nullptr) {
    for (const char* name : {"fallback.amax", "fallback.scale"}) {
      out.Bytes(name, BufferClass::kWorkspace, 3 * sites * 4, 0, end);
    }
    out.Bytes("fallback.scale_inverse", BufferClass::kWorkspace, 3 * sites * 16, 0, end);
    out.Bytes("fallback.ring", BufferClass::kWorkspace,
              3 * sites * 4 * std::max(1, o.precision.fallback->amax_history), 0, end);
    out.Bytes("fallback.cursors", BufferClass::kWorkspace, 2 * 8, 0, end);
  }
  if (o.precision.stats) {
    out.Bytes("quant.counts", BufferClass::kWorkspace, 3 * sites * 2 * 8, 0, end);
    out.Bytes("quant.counted_amax", BufferClass::kWorkspace, 3 * sites * 4, 0, end);
    if (o.wide_bytes == 0) {
      out.Pinned("staging.counts", 3 * sites * (2 * 8 + 4), end);
    }
  }
  for (const bool transposed : {false, true}) {
    out.Bytes(transposed ? "quant.weight_columns" : "quant.weight_rows", BufferClass::kParameters,
              QuantisedOffsets(*o.table, weights, o.precision, transposed).back(), 0, end);
  }
  out.Bytes("quant.forms", BufferClass::kWorkspace, LayoutForms(o).bytes, 0, time.MixerBackward(0));
  if (o.precision.head) {
    out.Bytes("head.rows", BufferClass::kWorkspace, n * s.hidden, time.Head(), time.Head());
    out.Bytes("head.columns", BufferClass::kWorkspace, n * s.hidden, time.Head(), time.Head());
  }
}

// Gradients in the format in which they are reduced, a bucket at a time. On the CPU every format is
// stored alike.
void AddReduction(const TrainingPlanOptions& o, const StepTimeline& time, Builder& out) {
  if (!o.training || o.world_size <= 1 || o.wide_bytes > 0 ||
      o.reduce_dtype == o.table->front().gradient) {
    return;
  }
  int64_t largest = 0;
  for (const GradientBucket& bucket : PlanBuckets(o)) {
    largest = std::max(largest, bucket.elements());
  }
  out.Floats("comm.staging", BufferClass::kWorkspace, o.reduce_dtype, largest, time.Head(),
             time.Update());
}

// What the host hands to a GPU and reads from it.
void AddStaging(const TrainingPlanOptions& o, const StepTimeline& time, Builder& out) {
  out.Bytes("step.inputs", BufferClass::kWorkspace, kStepScalarBytes, 0, time.Update());
  out.Bytes("step.state", BufferClass::kWorkspace, kStepScalarBytes, 0, time.Update());
  if (o.wide_bytes > 0) {
    return;
  }
  for (int slot = 0; slot < kStagingSlots; ++slot) {
    out.Pinned(absl::StrCat("staging.batch.", slot), 5 * Tokens(o) * 4, time.Update());
    out.Pinned(absl::StrCat("staging.inputs.", slot), kStepScalarBytes, time.Update());
    out.Pinned(absl::StrCat("staging.state.", slot), kStepScalarBytes, time.Update());
  }
}

// What the op with the most scratch needs, when the kernels cannot be asked: a chunk of logits, or
// per thread a block of attention scores, and the partial sums of norm weight gradients.
int64_t EstimateWorkspace(const TrainingPlanOptions& o) {
  if (o.wide_bytes == 0) {
    // A chunk of BF16 logits, at most a GiB, and cuBLASLt's scratch.
    const int64_t row = o.shape.padded_vocab * 2;
    return std::min(Tokens(o) * row, int64_t{1} << 30) + Tokens(o) * 16 + (int64_t{64} << 20);
  }
  const int64_t element = o.wide_bytes > 0 ? o.wide_bytes : 4;
  const int64_t logits_row = o.shape.padded_vocab * element;
  const int64_t logits =
      std::min(Tokens(o) * logits_row, std::max<int64_t>(int64_t{8} << 20, logits_row));
  const int64_t scores = 4 * o.threads * 64 * (o.sequence_length + o.shape.head_dim) * element;
  const int64_t partial_sums = 64 * 2 * o.shape.hidden * element;
  const int64_t angles = Tokens(o) * o.shape.head_dim * element;
  return std::max({logits + logits / 8, scores, partial_sums + angles});
}

void AddWorkspace(const TrainingPlanOptions& o, const StepTimeline& time, Builder& out) {
  const int64_t n = Tokens(o);
  const ModelShape& s = o.shape;
  const DType act = o.recipe->activation;
  const int32_t end = time.Update();
  const int32_t head = time.Head();
  for (const char* name : {"batch.tokens", "batch.targets", "batch.positions", "batch.segments",
                           "batch.loss_weight"}) {
    out.Bytes(name, BufferClass::kWorkspace, n * 4, 0, end);
  }
  out.Floats("stream.delta", BufferClass::kWorkspace, act, n * s.hidden, 0,
             o.training && o.recompute == Recompute::kBlock ? time.MixerBackward(0) : head);
  out.Floats("head.norm_stats", BufferClass::kWorkspace, DType::kFp32, 2 * n, head, head);
  out.Floats("head.input", BufferClass::kWorkspace, act, n * s.hidden, head, head);
  out.Floats("head.norm", BufferClass::kWorkspace, act, n * s.hidden, head, head);
  const int64_t scratch = o.op_workspace_bytes > 0 ? o.op_workspace_bytes : EstimateWorkspace(o);
  out.Bytes("op.workspace", BufferClass::kWorkspace, scratch, 0, end);
  if (!o.training) {
    return;
  }
  const int32_t first_mixer = time.MixerBackward(0);
  out.Floats("grad.stream", BufferClass::kWorkspace, act, n * s.hidden, head,
             time.EmbeddingBackward());
  // Gradient of a norm's output; the head's comes through it too.
  const auto first = [&](std::string_view name, int32_t moment) {
    bool stands_in = false;
    for (const ActivationSpec& a : LayerActivations(o)) {
      stands_in |= StandIn(a, o) == name;
    }
    return stands_in ? time.FfnForward(0) : moment;
  };
  out.Floats(std::string(kNormGradient), BufferClass::kWorkspace, act, n * s.hidden,
             first(kNormGradient, head), first_mixer);
  if (s.dropout > 0) {
    out.Floats("grad.delta", BufferClass::kWorkspace, act, n * s.hidden, head + 1,
               time.EmbeddingBackward());
  }
  out.Floats(std::string(kActivationGradient), BufferClass::kWorkspace, act, n * s.ffn_hidden,
             first(kActivationGradient, head + 1), time.FfnBackward(0));
  out.Floats("grad.attention", BufferClass::kWorkspace, act, n * s.q_width(), head + 2,
             first_mixer);
  out.Floats("grad.qkv", BufferClass::kWorkspace, act, n * s.qkv_width(), head + 2, first_mixer);
}

}  // namespace

std::string_view RecomputeName(Recompute recompute) {
  return kRecomputeNames[static_cast<int>(recompute)];
}

bool ParseRecompute(std::string_view name, Recompute& recompute) {
  for (int i = 0; i < kRecomputeCount; ++i) {
    if (kRecomputeNames[i] == name) {
      recompute = static_cast<Recompute>(i);
      return true;
    }
  }
  return false;
}

GradientUnit UnitOf(const Parameter& parameter) {
  switch (parameter.slot) {
    case Slot::kTokenEmbedding:
    case Slot::kPositionEmbedding:
      return GradientUnit::kEmbeddings;
    case Slot::kAttnNorm:
    case Slot::kQkv:
    case Slot::kQNorm:
    case Slot::kKNorm:
    case Slot::kAttnOut:
      return GradientUnit::kMixer;
    case Slot::kFfnNorm:
    case Slot::kFfnIn:
    case Slot::kFfnDown:
      return GradientUnit::kFfn;
    case Slot::kFinalNorm:
    case Slot::kLmHead:
      break;
  }
  return GradientUnit::kHead;
}

std::vector<int64_t> TensorOffsets(const std::vector<Parameter>& table, int shards) {
  const auto align = [](int64_t offset, int64_t unit) { return (offset + unit - 1) / unit * unit; };
  const int64_t unit_align = shards * kTensorAlignElements;
  std::vector<int64_t> offsets;
  offsets.reserve(table.size() + 1);
  int64_t offset = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    const bool first =
        i > 0 && (UnitOf(table[i]) != UnitOf(table[i - 1]) || table[i].layer != table[i - 1].layer);
    offset = align(offset, first ? unit_align : kTensorAlignElements);
    offsets.push_back(offset);
    offset += table[i].elements();
  }
  offsets.push_back(align(offset, unit_align));
  return offsets;
}

std::vector<ActivationSpec> LayerActivations(const TrainingPlanOptions& o) {
  const ModelShape& s = o.shape;
  const int64_t n = Tokens(o);
  const DType act = o.recipe->activation;
  const DType stat = DType::kFp32;
  const int64_t qk = s.qk_norm ? 1 : 0;
  const bool quantised = Quantises(o);
  const bool narrow = KeepsNarrow(o);
  constexpr Recompute kAlways = Recompute::kNone;
  const bool fp4 = InFourBits(o);
  // Plain operands in a job that quantises: one for all layers.
  const Recompute plain = quantised ? kAlways : Recompute::kNormAct;
  // As wgrad reads it; counted in bytes.
  const DType byte = DType::kFp8E4M3;
  const auto form = [&](int64_t width) {
    return quantised ? FormBytes(o.precision.recipe->wgrad.a, width, n) : 0;
  };
  // Columns of these that backward makes of what is kept besides.
  const bool activated_again = narrow || fp4;
  const bool attention_again = fp4;
  const int64_t kept = narrow ? n * s.ffn_in_width() + n * s.ffn_in_width() / kKeptBlock : 0;
  return {
      {"mixer.input", n * s.hidden, act, false, false, Recompute::kBlock},
      {"mixer.norm", n * s.hidden, act, false, false, plain},
      {"mixer.norm_columns", form(s.hidden), byte, true, false, fp4 ? kAlways : Recompute::kNormAct,
       true},
      {"mixer.norm_stats", 2 * n, stat, false, false, Recompute::kNormAct},
      {"mixer.qkv", n * s.qkv_width(), act, false, false, Recompute::kAttention},
      // QK-norm's backward needs its input, so its output has a place of its own.
      {"mixer.rotated", qk * n * s.qkv_width(), act, false, false, Recompute::kAttention},
      {"mixer.qk_stats", qk * n * (s.heads + s.kv_heads), stat, false, false,
       Recompute::kAttention},
      {"mixer.attention", n * s.q_width(), act, false, false, Recompute::kAttention},
      // Attention's backward reads its output in full precision, wgrad these.
      {"mixer.attention_columns", form(s.q_width()), byte, true, false,
       attention_again ? kAlways : Recompute::kAttention, true, attention_again},
      {"mixer.lse", n * s.heads, stat, false, false, Recompute::kAttention},
      {"ffn.input", n * s.hidden, act, false, true, Recompute::kBlock},
      {"ffn.norm", n * s.hidden, act, false, true, plain},
      {"ffn.norm_columns", form(s.hidden), byte, true, true, fp4 ? kAlways : Recompute::kNormAct,
       true},
      {"ffn.norm_stats", 2 * n, stat, false, true, Recompute::kNormAct},
      {"ffn.projected", n * s.ffn_in_width(), act, false, true, narrow ? kAlways : Recompute::kFfn},
      {"ffn.kept", kept, byte, true, true, Recompute::kFfn, true},
      {"ffn.activated", n * s.ffn_hidden, act, false, true, plain},
      {"ffn.activated_columns", form(s.ffn_hidden), byte, true, true,
       activated_again ? kAlways : Recompute::kNormAct, true, activated_again},
  };
}

FallbackLayout LayoutFallback(const TrainingPlanOptions& o, const Parameter& weight) {
  FallbackLayout layout;
  if (weight.roles.head) {
    return layout;  // in BF16 there
  }
  const int64_t n = Tokens(o);
  const int64_t in = weight.shape[1];
  layout.b = Aligned(n * std::max(in, weight.shape[0]));
  layout.bytes = layout.b + std::max(n * in, weight.elements());
  return layout;
}

FormsLayout LayoutForms(const TrainingPlanOptions& o) {
  const Recipe& r = *o.precision.recipe;
  const ModelShape& s = o.shape;
  const int64_t n = Tokens(o);
  const int64_t widest_x = std::max({s.hidden, s.q_width(), s.ffn_hidden});
  const int64_t widest_dy = std::max({s.hidden, s.qkv_width(), s.ffn_in_width()});
  FormsLayout layout;
  int64_t end = 0;
  const auto place = [&end](int64_t bytes) {
    const int64_t offset = Aligned(end);
    end = offset + bytes;
    return offset;
  };
  layout.rows = place(FormBytes(r.fprop.a, n, widest_x));
  layout.dy_rows = place(FormBytes(r.dgrad.a, n, widest_dy));
  // The scales of fewer lines are padded to as many.
  layout.dy_columns = place(FormBytes(r.wgrad.b, (widest_dy + 127) / 128 * 128, n));
  // Where the activation's backward writes quantised columns, it makes those of its output again in
  // the same pass, and so comes between down's dgrad and wgrad.
  const bool waits = KeepsNarrow(o) && o.precision.per_tensor && o.precision.delayed &&
                     s.activation == Activation::kSwiglu;
  layout.down_dy_columns = waits ? place(FormBytes(r.wgrad.b, s.hidden, n)) : layout.dy_columns;
  layout.bytes = end;
  if (o.precision.fallback != nullptr) {
    for (const int i : QuantisedParameters(*o.table, o.precision)) {
      const Parameter& weight = (*o.table)[static_cast<size_t>(i)];
      layout.bytes = std::max(layout.bytes, LayoutFallback(o, weight).bytes);
    }
  }
  return layout;
}

Recompute QuantisedRecompute(const TrainingPlanOptions& o) {
  return InFourBits(o) ? std::max(o.recompute, Recompute::kNormAct) : o.recompute;
}

Recompute PlainRecompute(const TrainingPlanOptions& o) {
  if (!Quantises(o)) {
    return o.recompute;
  }
  return std::max(o.recompute, KeepsNarrow(o) ? Recompute::kFfn : Recompute::kNormAct);
}

bool IsShared(const ActivationSpec& activation, const TrainingPlanOptions& o) {
  if (!o.training) {
    return true;
  }
  // A layer's input is what every level keeps.
  return activation.name != "mixer.input" && o.recompute >= activation.shared_from;
}

bool MadeInBackward(const TrainingPlanOptions& o, std::string_view name) {
  for (const ActivationSpec& activation : LayerActivations(o)) {
    if (activation.name == name) {
      return activation.backward;
    }
  }
  return false;
}

std::string_view StandIn(const ActivationSpec& activation, const TrainingPlanOptions& o) {
  if (!o.training || !IsShared(activation, o)) {
    return "";
  }
  return activation.name == "ffn.norm"        ? kNormGradient
         : activation.name == "ffn.activated" ? kActivationGradient
                                              : "";
}

absl::StatusOr<MemoryPlan> PlanTraining(const TrainingPlanOptions& options) {
  if (options.table == nullptr || options.table->empty() || options.recipe == nullptr ||
      (options.training && options.optimizer == nullptr)) {
    return absl::InvalidArgumentError("a plan needs a parameter table, a recipe and an optimizer");
  }
  if (options.micro_batch < 1 || options.sequence_length < 1 || options.threads < 1) {
    return absl::InvalidArgumentError("micro-batch, sequence length and threads must be >= 1");
  }
  if (options.shards != 1 && options.shards != options.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer state in ", options.shards,
                                                   " shards on ", options.world_size, " ranks"));
  }
  const StepTimeline time{options.shape.layers};
  Builder builder(options);
  AddPersistent(options, time, builder);
  AddActivations(options, time, builder);
  AddQuantised(options, time, builder);
  AddReduction(options, time, builder);
  AddStaging(options, time, builder);
  AddWorkspace(options, time, builder);
  return std::move(builder).Finish();
}

absl::StatusOr<int64_t> ChooseMicroBatch(TrainingPlanOptions options,
                                         int64_t memory_bytes,
                                         const std::vector<int64_t>& candidates) {
  if (candidates.empty()) {
    return absl::InvalidArgumentError(
        "no micro-batch size divides batch.global_batch_tokens for this sequence length and number "
        "of ranks");
  }
  int64_t smallest_bytes = 0;
  for (const int64_t candidate : candidates) {
    options.micro_batch = candidate;
    HEARTH_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanTraining(options));
    smallest_bytes = plan.arena_bytes();
    if (smallest_bytes <= memory_bytes) {
      return candidate;
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("a micro-batch of ", candidates.back(), " needs ", smallest_bytes, " bytes, ",
                   memory_bytes, " are available; ", LessMemoryAdvice(options.recompute)));
}

std::vector<int64_t> PowerOfTwoCandidates(int64_t sequence_length) {
  const int64_t limit = std::max<int64_t>(1, kAutoMaxMicroBatchTokens / sequence_length);
  int64_t size = 1;
  while (size * 2 <= limit) {
    size *= 2;
  }
  std::vector<int64_t> candidates;
  for (; size >= 1; size /= 2) {
    candidates.push_back(size);
  }
  return candidates;
}

}  // namespace hearth::spec
