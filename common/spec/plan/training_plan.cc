#include "common/spec/plan/training_plan.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/plan/blocks/block.h"
#include "common/spec/plan/blocks/block_plan.h"
#include "common/spec/plan/blocks/block_table.h"
#include "common/spec/plan/gradient_buckets.h"
#include "common/spec/plan/offload.h"
#include "common/spec/plan/op_scratch.h"
#include "common/spec/plan/plan_builder.h"
#include "common/spec/plan/plan_report.h"
#include "common/spec/plan/weight_units.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

constexpr std::string_view kRecomputeNames[kRecomputeCount] = {"none", "norm_act", "ffn",
                                                               "attention", "block"};
constexpr int64_t kAlignment = 256;  // of parts of quant.forms
// Room for kernels::StepInputs and StepState (kernels/step_gate); checked where they are bound.
constexpr int64_t kStepInputsBytes = 256;
constexpr int64_t kStepStateBytes = 512;
// 64 MiB in fp32: larger pieces are decoded no faster.
constexpr int64_t kMostDecoded = int64_t{16} << 20;
static_assert(kMostDecoded % kTensorAlignElements == 0);

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t Tokens(const TrainingPlanOptions& o) {
  return o.micro_batch * o.sequence_length;
}

// Samples of a micro-batch that say where they are from: none unless the losses of several sources
// are told apart.
int64_t SamplesWithSource(const TrainingPlanOptions& o) {
  return o.training && o.sources > 0 ? o.micro_batch : 0;
}

// Names of buffers of one purpose in several formats: the first bears the plain name. In one format
// there may be several, too: of parameters with different shares of a state of whole matrices.
class FormatNames {
 public:
  std::string Of(const std::string& name, DType format) {
    std::string free = name;
    const std::string formatted = Text(name, '.', DTypeName(format));
    for (int n = 1; !used_.insert(free).second; ++n) {
      free = n == 1 ? formatted : Text(formatted, '.', n);
    }
    return free;
  }

 private:
  std::set<std::string> used_;
};

// This rank's weights: those in the recipe's format, those in blocks, and the workspace that an
// update decodes these into. The workspace shares the bytes of activations, except with fused
// updates: these begin in backward.
void AddWeights(const BlockScope& scope, PlanBuilder& out) {
  const TrainingPlanOptions& o = scope.options;
  const std::vector<int64_t> offsets = TensorOffsets(*o.table, o.shards);
  const int64_t plain = PlainElements(*o.table, offsets);
  const int64_t parts = o.divide_weights ? o.shards : 1;
  const int32_t update = scope.time.Update();
  StoreBuffers& ids = out.ids().store;
  ids.parameters = out.Floats("parameters", BufferClass::kParameters, o.recipe->parameters.storage,
                              {plain / parts}, {0, update});
  const int64_t decoded = DecodedElements(*o.table);
  if (decoded == 0) {
    return;
  }
  ids.blocks =
      out.Packed("parameters.blocks", BufferClass::kParameters, DType::kU8,
                 {StoredRow(*o.table).Bytes((offsets.back() - plain) / parts)}, {0, update});
  ids.decoded = out.Floats("parameters.decoded", BufferClass::kWorkspace, DType::kF32, {decoded},
                           {o.fused ? scope.time.Head() : update, update});
}

// Where passes read weights that come in units, and where they arrive.
void AddWeightSlots(const BlockScope& scope, PlanBuilder& out) {
  StoreBuffers& ids = out.ids().store;
  for (const WeightSlot& slot : PlanWeightUnits(scope.options).slots) {
    const std::string name = absl::StrCat("parameters.slot.", ids.weight_slots.size());
    const Lifetime life = {slot.begins, slot.ends};
    ids.weight_slots.push_back(slot.elements == 0
                                   ? BufferId()
                                   : out.Floats(name, BufferClass::kParameters,
                                                scope.options.recipe->parameters.storage,
                                                {slot.elements}, life));
    ids.block_slots.push_back(
        slot.block_bytes == 0 ? BufferId()
                              : out.Packed(absl::StrCat(name, ".blocks"), BufferClass::kParameters,
                                           DType::kU8, {slot.block_bytes}, life));
  }
}

void AddPersistent(const BlockScope& scope, PlanBuilder& out) {
  const TrainingPlanOptions& o = scope.options;
  const std::vector<int64_t> offsets = TensorOffsets(*o.table, o.shards);
  const Lifetime life = {0, scope.time.Update()};
  StoreBuffers& ids = out.ids().store;
  AddWeights(scope, out);
  if (!o.training) {
    return;
  }
  AddWeightSlots(scope, out);
  FormatNames names;
  for (const MasterBuffer& buffer : LargestMasters(o)) {
    ids.masters.push_back(out.Floats(names.Of("masters", buffer.format), BufferClass::kMasters,
                                     buffer.format, {buffer.elements}, life,
                                     o.offload.TierOf(BufferClass::kMasters)));
  }
  const int64_t parts = o.divide_gradients ? o.shards : 1;
  for (const GradientGroup& group :
       o.by_bucket() ? std::vector<GradientGroup>() : GradientGroups(*o.table, offsets)) {
    ids.gradients.push_back(out.Floats(
        names.Of(group.stored ? "gradients.stored" : "gradients", group.format),
        BufferClass::kGradients, group.format, {(group.end - group.begin) / parts}, life));
  }
  if (o.coded) {
    const int64_t own = offsets.back() / o.shards;
    const Lifetime waits = {scope.time.Head(), scope.time.Update()};
    ids.gradient_codes =
        out.Packed("gradients.codes", BufferClass::kGradients, DType::kE4M3, {own}, waits);
    ids.gradient_scales = out.Packed("gradients.codes.scales", BufferClass::kGradients,
                                     DType::kE8M0, {own / formats::kReduceBlock}, waits);
  }
  for (const GradientSlot& slot : SlotsOf(PlanBuckets(o))) {
    ids.gradient_slots.push_back(out.Floats(
        absl::StrCat("gradients.slot.", ids.gradient_slots.size()), BufferClass::kGradients,
        slot.format, {slot.elements}, {slot.begins, scope.time.Update()}));
  }
  for (const StateBuffer& buffer : LargestStates(o)) {
    const DType dtype = buffer.state.dtype;
    std::string name = names.Of(Text("optimizer.", buffer.state.TensorName()), dtype);
    const bool wide = dtype == DType::kF32 && !buffer.state.in_blocks();
    const auto add = wide ? &PlanBuilder::Floats : &PlanBuilder::Packed;
    ids.states.push_back((out.*add)(std::move(name), BufferClass::kOptimizer, dtype,
                                    {buffer.elements}, life,
                                    o.offload.TierOf(BufferClass::kOptimizer)));
  }
}

// They live in the update alone, so that activations and gradients of the step share their bytes;
// with fused updates from the first of them on.
void AddOffloadSlots(const BlockScope& scope, PlanBuilder& out) {
  const HostClasses& away = scope.options.offload;
  StoreBuffers& ids = out.ids().store;
  int64_t streamed = 0;
  for (const auto& [buffer_class, buffers] : {std::pair(BufferClass::kMasters, &ids.masters),
                                              std::pair(BufferClass::kOptimizer, &ids.states)}) {
    for (const BufferId id : *buffers) {
      streamed += away.Has(buffer_class) ? out.BytesOf(id) : 0;
    }
  }
  const int32_t update = scope.time.Update();
  const int32_t first = scope.options.fused ? scope.time.Head() : update;
  for (int slot = 0; streamed > 0 && slot < kOffloadSlots; ++slot) {
    ids.offload_slots.push_back(out.Bytes(absl::StrCat("offload.slot.", slot),
                                          BufferClass::kWorkspace, OffloadSlotBytes(streamed),
                                          {first, update}));
  }
}

// Buffers for the scales of `sites` tensors; `history` as Recipe::amax_history.
void AddScales(const std::string& prefix,
               int64_t sites,
               int history,
               const Lifetime& life,
               bool columns,
               QuantBuffers& quant,
               ScaleBuffers& ids,
               PlanBuilder& out) {
  const auto words = [&](const char* name, int64_t bytes, std::vector<int64_t> shape) {
    return out.Words(prefix + name, BufferClass::kWorkspace, bytes, std::move(shape), life);
  };
  ids.amax = words(".amax", 4, {sites});
  ids.scale = words(".scale", 4, {sites});
  // cuBLASLt wants each on a 16-byte boundary (kernels/quantize: kScaleInverseStride).
  ids.scale_inverse = words(".scale_inverse", 4, {sites, 4});
  if (columns) {
    quant.column_scale_inverse = words(".column_scale_inverse", 4, {sites, 4});
  }
  ids.ring = words(".ring", 4, {std::max(1, history), sites});
  ids.cursors = words(".cursors", 8, {2});
}

// The widest x of a product with one of these weights, quantised, where nothing goes backward.
void AddForwardForms(const BlockScope& scope, const std::vector<int>& weights, PlanBuilder& out) {
  const TrainingPlanOptions& o = scope.options;
  int64_t widest = 0;
  for (const int i : weights) {
    widest = std::max(widest, (*o.table)[static_cast<size_t>(i)].shape[1]);
  }
  QuantBuffers& ids = out.ids().quant;
  ids.layout.bytes = o.precision.LargestForm(&Recipe::fprop, &Gemm::a, Tokens(o), widest);
  ids.forms =
      out.Bytes("quant.forms", BufferClass::kWorkspace, ids.layout.bytes, {0, scope.time.Head()});
}

// Scales, quantised weights and the quantised operands of the GEMM at hand.
void AddQuantised(const BlockScope& scope, PlanBuilder& out) {
  const TrainingPlanOptions& o = scope.options;
  const std::vector<int> weights = QuantisedParameters(*o.table, o.precision);
  if (weights.empty()) {
    return;
  }
  if (!o.training) {
    AddForwardForms(scope, weights, out);
    return;
  }
  const int32_t end = scope.time.Update();
  const Lifetime life = {0, end};
  // x and dy of every weight, then the weights themselves.
  const auto sites = 3 * static_cast<int64_t>(weights.size());
  QuantBuffers& ids = out.ids().quant;
  const Recipe& recipe = *o.precision.recipe;
  AddScales("quant", sites, recipe.amax_history, life, recipe.column_scales(), ids, ids.own, out);
  if (o.precision.fallback != nullptr) {
    AddScales("fallback", sites, o.precision.fallback->amax_history, life, false, ids, ids.fallback,
              out);
  }
  if (o.precision.stats) {
    ids.counts = out.Words("quant.counts", BufferClass::kWorkspace, 8, {sites, 2}, life);
    ids.counted_amax = out.Words("quant.counted_amax", BufferClass::kWorkspace, 4, {sites}, life);
    if (o.wide_bytes == 0) {
      ids.counts_layout = CountsLayout::Of(sites);
      ids.counted_on_host = out.Pinned("staging.counts", ids.counts_layout.bytes, end);
    }
  }
  const WeightUnits units = PlanWeightUnits(o);
  const auto form = [&](const char* name, bool transposed) {
    return out.Bytes(name, BufferClass::kParameters,
                     QuantisedUnitOffsets(*o.table, weights, o.precision, units, transposed).back(),
                     life);
  };
  ids.weight_rows = form("quant.weight_rows", false);
  ids.weight_columns = form("quant.weight_columns", true);
  ids.layout = LayoutForms(o);
  ids.forms = out.Bytes("quant.forms", BufferClass::kWorkspace, ids.layout.bytes,
                        {0, scope.time.LayersBackwardEnd()});
}

// What ranks exchange of a bucket, one at a time. Where the transport sums, that is the gradients
// in the format in which they are reduced, on the CPU in place: every format is stored alike there.
// In blocks it is every rank's part as sent and as received, and the sums of all where each rank
// needs them.
void AddReduction(const BlockScope& scope, PlanBuilder& out) {
  const TrainingPlanOptions& o = scope.options;
  if (!o.training || o.world_size <= 1) {
    return;
  }
  const Lifetime life = {scope.time.Head(), scope.time.Update()};
  ReductionBuffers& ids = out.ids().reduction;
  const bool blocks = o.reduce->block > 0;
  int64_t largest = 0;
  for (const GradientBucket& bucket : PlanBuckets(o)) {
    if (blocks) {
      largest =
          std::max(largest, formats::PartElements(bucket.elements(), o.world_size) * o.world_size);
    } else if (bucket.format != o.reduce->sum && o.wide_bytes == 0) {
      largest = std::max(largest, bucket.elements());
    }
  }
  if (largest > 0 && (!blocks || o.shards == 1)) {
    ids.sums = out.Floats("comm.staging", BufferClass::kWorkspace, o.reduce->sum, {largest}, life);
  }
  if (!blocks) {
    return;
  }
  const auto parts = [&](const char* name, DType dtype, int64_t elements) {
    return out.Packed(name, BufferClass::kWorkspace, dtype, {elements}, life);
  };
  ids.sent = parts("comm.sent", o.reduce->part, largest);
  ids.sent_scales = parts("comm.sent.scales", DType::kE8M0, largest / o.reduce->block);
  ids.received = parts("comm.received", o.reduce->part, largest);
  ids.received_scales = parts("comm.received.scales", DType::kE8M0, largest / o.reduce->block);
}

// What the host hands to a GPU and reads from it.
void AddStaging(const BlockScope& scope, PlanBuilder& out) {
  const int32_t end = scope.time.Update();
  StepBuffers& ids = out.ids();
  const auto scalars = [&](const char* name, int64_t bytes) {
    return out.Bytes(name, BufferClass::kWorkspace, bytes, {0, end});
  };
  ids.step_inputs = scalars("step.inputs", kStepInputsBytes);
  ids.step_state = scalars("step.state", kStepStateBytes);
  if (scope.options.wide_bytes > 0) {
    return;
  }
  for (int slot = 0; slot < kStagingSlots; ++slot) {
    StagingBuffers& staging = ids.staging.emplace_back();
    staging.layout = BatchLayout::Of(scope.tokens, SamplesWithSource(scope.options));
    staging.batch = out.Pinned(absl::StrCat("staging.batch.", slot), staging.layout.bytes, end);
    staging.inputs = out.Pinned(absl::StrCat("staging.inputs.", slot), kStepInputsBytes, end);
    staging.state = out.Pinned(absl::StrCat("staging.state.", slot), kStepStateBytes, end);
  }
}

void AddBatch(const BlockScope& scope, PlanBuilder& out) {
  const auto words = [&](const char* name) {
    return out.Words(name, BufferClass::kWorkspace, 4, {scope.tokens}, {0, scope.time.Update()});
  };
  TokenBuffers& ids = out.ids().batch;
  ids.tokens = words("batch.tokens");
  ids.targets = words("batch.targets");
  ids.positions = words("batch.positions");
  ids.starts = words("batch.starts");
  ids.loss_weight = words("batch.loss_weight");
  if (const int64_t samples = SamplesWithSource(scope.options); samples > 0) {
    ids.sources =
        out.Words("batch.sources", BufferClass::kWorkspace, 4, {samples}, {0, scope.time.Update()});
  }
  if (scope.options.keeps_scores()) {
    ids.nll = out.Floats("scores.nll", BufferClass::kWorkspace, DType::kF32, {scope.tokens},
                         {0, scope.time.Update()});
    ids.top = words("scores.top");
    if (scope.options.wide_bytes == 0 && scope.options.store) {
      ids.scores_layout = ScoresLayout::Of(scope.tokens);
      ids.scores_on_host = out.Pinned("scores.host", ids.scores_layout.bytes, scope.time.Update());
    }
  }
}

// The residual stream's parts and gradients, and what all ops share.
void AddWorkspace(const BlockScope& scope, PlanBuilder& out) {
  const TrainingPlanOptions& o = scope.options;
  const StepTimeline& time = scope.time;
  const int32_t head = time.Head();
  StepBuffers& ids = out.ids();
  const auto stream = [&](const char* name, Lifetime life) {
    return out.Floats(name, BufferClass::kWorkspace, scope.activation,
                      {scope.tokens, scope.shape.hidden}, life);
  };
  AddBatch(scope, out);
  const bool again = o.training && o.recompute == Recompute::kBlock;
  // With recompute "block" backward runs forward again, layer by layer, and needs the stream's part
  // then.
  ids.delta = stream("stream.delta", {0, again ? time.LayersBackwardEnd() : head});
  AddWork(scope, out);
  const int64_t scratch = o.op_workspace_bytes > 0 ? o.op_workspace_bytes : EstimateOpScratch(o);
  ids.workspace = out.Bytes("op.workspace", BufferClass::kWorkspace, scratch, {0, time.Update()});
  if (!o.training) {
    return;
  }
  ids.gradients.stream = stream("grad.stream", {head, time.EmbeddingBackward()});
  AddGradient(scope,
              {.id = Of(&GradientBuffers::norm),
               .name = "grad.norm",
               .shape = {scope.tokens, scope.shape.hidden},
               .format = scope.activation,
               .life = {head, time.LayersBackwardEnd()}},
              out);
  if (scope.shape.spec.dropout() > 0) {
    ids.gradients.delta = stream("grad.delta", {head + 1, time.EmbeddingBackward()});
  }
  AddGradients(scope, out);
}

// The largest extent `dimension` of the weights whose sites say `is`; 0: none do.
int64_t WidestSite(const TrainingPlanOptions& o,
                   bool (*GemmSites::*is)(const BlockScope&),
                   size_t dimension) {
  const BlockScope scope(o);
  int64_t widest = 0;
  for (const PlacedBlock& placed : BlocksOf(o.shape)) {
    for (const GemmSites& sites : placed.block->sites(o.shape)) {
      const int weight = FindParameter(*o.table, sites.weight, placed.layer);
      if (weight >= 0 && sites.*is != nullptr && (sites.*is)(scope)) {
        widest = std::max(widest, (*o.table)[static_cast<size_t>(weight)].shape[dimension]);
      }
    }
  }
  return widest;
}

}  // namespace

std::string_view RecomputeName(Recompute recompute) {
  return kRecomputeNames[static_cast<int>(recompute)];
}

std::vector<std::string_view> RecomputeNames() {
  return {std::begin(kRecomputeNames), std::end(kRecomputeNames)};
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

StepTimeline TimelineOf(const ModelShape& shape) {
  StepTimeline time = {2};  // embedding and head
  for (const LayerRow& row : shape.rows) {
    time.blocks += static_cast<int32_t>(row.size());
  }
  return time;
}

std::vector<DType> GradientFormats(const std::vector<Parameter>& table) {
  std::vector<DType> formats;
  for (const Parameter& parameter : table) {
    if (std::find(formats.begin(), formats.end(), parameter.gradient) == formats.end()) {
      formats.push_back(parameter.gradient);
    }
  }
  return formats;
}

namespace {

// Those of the table, without places.
std::vector<GradientGroup> UnplacedGroups(const std::vector<Parameter>& table) {
  std::vector<GradientGroup> groups;
  for (const bool stored : {false, true}) {
    for (const DType format : GradientFormats(table)) {
      const GradientGroup group = {format, stored};
      if (std::any_of(table.begin(), table.end(),
                      [&group](const Parameter& p) { return group.Has(p); })) {
        groups.push_back(group);
      }
    }
  }
  return groups;
}

}  // namespace

std::vector<int64_t> TensorOffsets(const std::vector<Parameter>& table, int shards) {
  const auto align = [](int64_t offset, int64_t unit) { return (offset + unit - 1) / unit * unit; };
  const int64_t unit_align = shards * kTensorAlignElements;
  std::vector<int64_t> offsets(table.size() + 1);
  int64_t offset = 0;
  for (const GradientGroup& group : UnplacedGroups(table)) {
    const Parameter* before = nullptr;  // of the same group
    for (size_t i = 0; i < table.size(); ++i) {
      const Parameter& p = table[i];
      if (!group.Has(p)) {
        continue;
      }
      // A bucket begins with a block, and has to divide evenly among the shards (ShardPieces).
      const bool first = before == nullptr || before->block != p.block;
      offset = align(offset, first ? unit_align : kTensorAlignElements);
      offsets[i] = offset;
      offset += p.elements();
      before = &p;
    }
  }
  offsets.back() = align(offset, unit_align);
  return offsets;
}

int64_t PlainElements(const std::vector<Parameter>& table, const std::vector<int64_t>& offsets) {
  for (const GradientGroup& group : GradientGroups(table, offsets)) {
    if (group.stored) {
      return group.begin;
    }
  }
  return offsets.back();
}

formats::WeightCodec StoredCodec(const std::vector<Parameter>& table) {
  const auto stored = std::find_if(table.begin(), table.end(),
                                   [](const Parameter& parameter) { return parameter.stored(); });
  return stored == table.end() ? formats::WeightCodec::kNone : stored->store;
}

int64_t DecodedElements(const std::vector<Parameter>& table) {
  int64_t largest = 0;
  for (const Parameter& parameter : table) {
    largest = std::max(largest, parameter.stored() ? parameter.elements() : 0);
  }
  largest = (largest + kTensorAlignElements - 1) / kTensorAlignElements * kTensorAlignElements;
  return std::min(largest, kMostDecoded);
}

std::vector<GradientGroup> GradientGroups(const std::vector<Parameter>& table,
                                          const std::vector<int64_t>& offsets) {
  std::vector<GradientGroup> groups = UnplacedGroups(table);
  int64_t end = offsets.back();
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    const auto first = std::find_if(table.begin(), table.end(),
                                    [group](const Parameter& p) { return group->Has(p); });
    group->begin = offsets[static_cast<size_t>(first - table.begin())];
    group->end = std::exchange(end, group->begin);
  }
  return groups;
}

bool QuantisesActivations(const TrainingPlanOptions& o) {
  return o.training && o.precision.quantised() && o.precision.QuantisesAnyLayer();
}

bool MakesColumnsAgain(const TrainingPlanOptions& o) {
  return QuantisesActivations(o) && o.precision.recipe->wgrad.a.columns_made_again();
}

bool KeepsNarrow(const TrainingPlanOptions& o) {
  return QuantisesActivations(o) && o.precision.narrow_activations &&
         o.shape.ffn_hidden % kKeptBlock == 0;
}

FallbackLayout LayoutFallback(const TrainingPlanOptions& o, const Parameter& weight) {
  FallbackLayout layout;
  if (weight.roles.head) {
    return layout;  // in BF16 there
  }
  const Recipe& r = *o.precision.fallback;
  const int64_t n = Tokens(o);
  const int64_t out = weight.shape[0];
  const int64_t in = weight.shape[1];
  // The three products run one after the other and share this room: each side takes the largest.
  layout.b = Aligned(std::max(
      {FormBytes(r.fprop.a, n, in), FormBytes(r.dgrad.a, n, out), FormBytes(r.wgrad.b, out, n)}));
  layout.bytes = layout.b + std::max({FormBytes(r.fprop.b, out, in), FormBytes(r.dgrad.b, in, out),
                                      FormBytes(r.wgrad.a, in, n)});
  return layout;
}

FormsLayout LayoutForms(const TrainingPlanOptions& o) {
  const PrecisionPlan& p = o.precision;
  const int64_t n = Tokens(o);
  int64_t widest_x = 0;
  int64_t widest_dy = 0;
  for (const Parameter& weight : *o.table) {
    if (weight.roles.fprop_w && !weight.roles.head && !weight.is_bias) {
      widest_dy = std::max(widest_dy, weight.shape[0]);
      widest_x = std::max(widest_x, weight.shape[1]);
    }
  }
  FormsLayout layout;
  int64_t end = 0;
  const auto place = [&end](int64_t bytes) {
    const int64_t offset = Aligned(end);
    end = offset + bytes;
    return offset;
  };
  layout.rows = place(p.LargestForm(&Recipe::fprop, &Gemm::a, n, widest_x));
  const int64_t apart = WidestSite(o, &GemmSites::x_rows_apart, 1);
  layout.rows_apart =
      apart > 0 ? place(p.LargestForm(&Recipe::fprop, &Gemm::a, n, apart)) : layout.rows;
  layout.dy_rows = place(p.LargestForm(&Recipe::dgrad, &Gemm::a, n, widest_dy));
  // The scales of fewer lines are padded to as many.
  layout.dy_columns =
      place(p.LargestForm(&Recipe::wgrad, &Gemm::b, (widest_dy + 127) / 128 * 128, n));
  const int64_t waiting = WidestSite(o, &GemmSites::dy_waits, 0);
  layout.waiting_dy_rows =
      waiting > 0 ? place(p.LargestForm(&Recipe::dgrad, &Gemm::a, n, waiting)) : layout.dy_rows;
  layout.waiting_dy_columns =
      waiting > 0 ? place(p.LargestForm(&Recipe::wgrad, &Gemm::b, waiting, n)) : layout.dy_columns;
  layout.bytes = end;
  // In a step that has fallen back the same bytes hold the other recipe's forms.
  if (o.precision.fallback != nullptr) {
    for (const int i : QuantisedParameters(*o.table, o.precision)) {
      const Parameter& weight = (*o.table)[static_cast<size_t>(i)];
      layout.bytes = std::max(layout.bytes, LayoutFallback(o, weight).bytes);
    }
  }
  return layout;
}

Recompute QuantisedRecompute(const TrainingPlanOptions& o) {
  return MakesColumnsAgain(o) ? std::max(o.recompute, Recompute::kNormAct) : o.recompute;
}

Recompute PlainRecompute(const TrainingPlanOptions& o) {
  if (!QuantisesActivations(o)) {
    return o.recompute;
  }
  return std::max(o.recompute, KeepsNarrow(o) ? Recompute::kFfn : Recompute::kNormAct);
}

void AddForwardWeights(const TrainingPlanOptions& o, const Lifetime& life, PlanBuilder& out) {
  const std::vector<int> weights = QuantisedParameters(*o.table, o.precision);
  if (weights.empty()) {
    return;
  }
  QuantBuffers& ids = out.ids().quant;
  AddScales("quant", 3 * static_cast<int64_t>(weights.size()), o.precision.recipe->amax_history,
            life, false, ids, ids.own, out);
  ids.weight_rows = out.Bytes("quant.weight_rows", BufferClass::kParameters,
                              QuantisedOffsets(*o.table, weights, o.precision, false).back(), life);
}

absl::StatusOr<TrainingPlan> PlanTraining(const TrainingPlanOptions& options) {
  if (options.table == nullptr || options.table->empty() || options.recipe == nullptr) {
    return absl::InvalidArgumentError("a plan needs a parameter table and a recipe");
  }
  if (options.micro_batch < 1 || options.sequence_length < 1 || options.threads < 1) {
    return absl::InvalidArgumentError("micro-batch, sequence length and threads must be >= 1");
  }
  if (options.training && !options.store) {
    return absl::InvalidArgumentError("training needs its weights in the plan");
  }
  if (options.shards != 1 && options.shards != options.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer state in ", options.shards,
                                                   " shards on ", options.world_size, " ranks"));
  }
  if (options.divide_gradients && options.shards == 1) {
    return absl::InvalidArgumentError("divided gradients need a divided optimizer");
  }
  if (options.by_bucket() && !options.training) {
    return absl::InvalidArgumentError("only training updates weights");
  }
  if (options.fused && options.coded) {
    return absl::InvalidArgumentError("with fused updates no gradients wait");
  }
  if (options.divide_weights && !(options.divide_gradients && options.training)) {
    return absl::InvalidArgumentError("divided weights need divided gradients");
  }
  const BlockScope scope(options);
  PlanBuilder builder(options.wide_bytes);
  builder.ids().layers.resize(static_cast<size_t>(options.shape.layers));
  if (options.store) {
    AddPersistent(scope, builder);
    AddOffloadSlots(scope, builder);
    AddStaging(scope, builder);
  }
  AddActivations(scope, builder);
  AddQuantised(scope, builder);
  AddReduction(scope, builder);
  AddWorkspace(scope, builder);
  // Last: it reads handles that the calls above have filled.
  BindSites(scope, builder.ids());
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
                   memory_bytes, " are available; ", LessMemoryAdvice(options)));
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
