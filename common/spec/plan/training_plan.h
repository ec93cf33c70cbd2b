// The memory plan of a run: which buffers one step needs, from the model's shape, the recipe, the
// optimizer and the batch. The engine takes its buffers from this plan by their handles and
// allocates nothing else.
//
// Moments of a step, in order (StepTimeline): embedding; the blocks of each layer; head (final
// norm, loss and their backward); the blocks' backward from the last to the first; embedding
// backward; update.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/formats/reduce_formats.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/model/parameter.h"
#include "common/spec/plan/plan_builder.h"
#include "common/spec/plan/step_buffers.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::spec {

// What backward computes again instead of keeping. Each level includes those before it.
enum class Recompute : uint8_t {
  kNone,
  kNormAct,    // norm outputs and activation functions
  kFfn,        // and the feed-forward projection
  kAttention,  // and q, k, v and attention
  kBlock,      // and everything else: a layer keeps only its input
};
inline constexpr int kRecomputeCount = 5;
std::string_view RecomputeName(Recompute recompute);
// The names, in the order of the levels.
std::vector<std::string_view> RecomputeNames();
// False when `name` is none of the levels.
bool ParseRecompute(std::string_view name, Recompute& recompute);

// Blocks are numbered in the order of forward, as BlocksOf (plan/blocks/block_table.h) lists them:
// 0 the embedding, then the blocks of the layers, last the head.
struct StepTimeline {
  int32_t blocks = 0;

  int32_t Embedding() const { return 0; }
  int32_t Head() const { return blocks - 1; }
  int32_t EmbeddingBackward() const { return Backward(0); }
  int32_t Update() const { return EmbeddingBackward() + 1; }
  // When a block runs. The head's backward belongs to its forward.
  int32_t Forward(int block) const { return block; }
  int32_t Backward(int block) const { return 2 * Head() - block; }
  // When the blocks of the layers begin, and when their backward begins and ends.
  int32_t LayersForward() const { return Forward(1); }
  int32_t LayersBackward() const { return Head() + 1; }
  int32_t LayersBackwardEnd() const { return Backward(1); }
};
StepTimeline TimelineOf(const ModelShape& shape);

// Elements between the starts of consecutive tensors in the parameter, master, gradient and state
// buffers are rounded up to this, so that each starts on a 256-byte boundary in any format, and no
// block of a state (common/formats/state_blocks.h) lies in the parts of two ranks.
inline constexpr int64_t kTensorAlignElements = formats::kStateBlockUnit;

// Element offset of each tensor of the table in those buffers, and behind them the length of the
// buffers. Tensors in blocks (Parameter::store) lie behind all others, and tensors whose gradients
// have one format lie together (GradientGroups), in the order of the table. With `shards` > 1 the
// first tensor of each unit starts at a multiple of `shards` times kTensorAlignElements, and the
// length is one.
std::vector<int64_t> TensorOffsets(const std::vector<Parameter>& table, int shards = 1);

// Weights in blocks have a buffer of their own, all others one in the recipe's format. Elements
// [0, PlainElements) of the parameter-shaped buffers are those of the second; the elements behind
// them have the bytes of StoredRow in the first. `offsets` as TensorOffsets gives them.
int64_t PlainElements(const std::vector<Parameter>& table, const std::vector<int64_t>& offsets);

// The format of all weights in blocks of the table; kNone, whose blocks take no bytes, where there
// are none. Tensors begin at multiples of kTensorAlignElements, which are whole blocks.
formats::WeightCodec StoredCodec(const std::vector<Parameter>& table);
inline const formats::WeightCodecRow& StoredRow(const std::vector<Parameter>& table) {
  return formats::RowOf(StoredCodec(table));
}
static_assert(kTensorAlignElements % formats::kWeightBlockUnit == 0);

// Elements that updates decode at a time of weights in blocks, a multiple of kTensorAlignElements;
// 0: there are none.
int64_t DecodedElements(const std::vector<Parameter>& table);

// Formats that gradients of the table have, in the order in which it begins to use them.
std::vector<DType> GradientFormats(const std::vector<Parameter>& table);

// Elements [begin, end) of the buffers whose gradients have one format, and so a buffer, and whose
// weights are all in blocks, or none of them.
struct GradientGroup {
  DType format = DType::kF32;
  bool stored = false;
  int64_t begin = 0;
  int64_t end = 0;

  bool Has(const Parameter& parameter) const {
    return parameter.gradient == format && parameter.stored() == stored;
  }
};
// In the order in which they lie in the buffers, which they cover together. `offsets` as
// TensorOffsets gives them.
std::vector<GradientGroup> GradientGroups(const std::vector<Parameter>& table,
                                          const std::vector<int64_t>& offsets);

struct TrainingPlanOptions {
  ModelShape shape;
  // The model's, with the recipe's formats and the optimizer's states; not owned.
  const std::vector<Parameter>* table = nullptr;
  const Recipe* recipe = nullptr;
  PrecisionPlan precision;
  Recompute recompute = Recompute::kNone;
  int64_t micro_batch = 1;         // B, sequences
  int64_t sequence_length = 1024;  // T, tokens
  bool documents = false;          // attention within documents
  int threads = 1;
  // Bytes of every floating element where the device stores narrow formats widened (CPU: 4, or 8
  // for gradient checks); 0 = each format takes its own size (CUDA).
  int wide_bytes = 4;
  // Scratch of the largest op call; 0 = an estimate from the shape, for programs that do not link
  // the kernels.
  int64_t op_workspace_bytes = 0;
  // Ranks of the job, and among how many of them masters and optimizer state are divided: 1, or
  // all.
  int world_size = 1;
  int shards = 1;
  // A rank keeps only the sums of its part of the gradients. Only with several shards.
  bool divide_gradients = false;
  // Each bucket's weights are updated as soon as its gradients are complete: gradients are made in
  // slots and nothing keeps them. Only in training, with one micro-batch of each rank in a step.
  bool fused = false;
  // Gradients wait for the update in E4M3 (formats::kReduceBlock): each bucket is made in a slot
  // and coded as soon as it is complete. Under the same conditions as `fused`, and never with it.
  bool coded = false;
  // A rank keeps only its part of the weights (plan/weight_units.h). Only with divided gradients.
  bool divide_weights = false;
  // Size of a gradient bucket in the format of `reduce`'s parts; 0 = all gradients are one, or with
  // divided ones each block's.
  int64_t bucket_bytes = 0;
  // What lies in the host's memory (offload). Only classes of OffloadRows().
  HostClasses offload = {};
  // How gradients travel between ranks.
  const formats::ReduceFormatRow* reduce = &formats::kReduceFormats[0];
  // False: forward only (evaluation, sampling): no gradients, no optimizer, layers share all
  // buffers.
  bool training = true;
  // False: weights, and what the host hands over, lie elsewhere (plan/generation_plan.h). Only
  // without training.
  bool store = true;
  // Keeps what evaluations read for each target: its negative log-likelihood, and whether no token
  // is likelier. Forward-only plans always keep them, unless their weights are in another plan.
  bool scores = false;
  // Sources of the training data whose losses are told apart (ReportedSources); 0: none are.
  int sources = 0;

  // The update goes bucket by bucket, each in its slot.
  bool by_bucket() const { return fused || coded; }
  // No rank has room for all gradients: buckets are made in slots, one after the other.
  bool in_slots() const { return divide_gradients || by_bucket(); }
  bool keeps_scores() const { return scores || (!training && store); }
};

// Where a recipe quantises, what each layer keeps for backward is what its quantised passes read:
// operands of wgrad in their GEMM's format, and, with PrecisionPlan::narrow_activations, the input
// of the activation function in 8 bits (kernels/core/kept_input.h). These say so of the options:
// whether any layer does, whether backward makes operands of wgrad again (columns_made_again), and
// whether that input is kept in 8 bits.
bool QuantisesActivations(const TrainingPlanOptions& options);
bool MakesColumnsAgain(const TrainingPlanOptions& options);
bool KeepsNarrow(const TrainingPlanOptions& options);

// Values under one scale where it is kept so; as kernels/core/kept_input.h has it: tests compare.
inline constexpr int64_t kKeptBlock = 32;

// The level of quantised passes: where backward makes columns again, the norms' outputs are made
// again at each, as only their columns are quantised then.
Recompute QuantisedRecompute(const TrainingPlanOptions& options);

// The level of passes, and layers, in BF16: in a job that quantises there is one buffer for all
// layers of what its quantised passes keep in a narrow form.
Recompute PlainRecompute(const TrainingPlanOptions& options);

// The forms that a plan with a quantised recipe needs.
FormsLayout LayoutForms(const TrainingPlanOptions& options);

// The same for the two operands of a weight's products in PrecisionPlan::fallback, over the same
// bytes: layers that run in it use none of the others.
struct FallbackLayout {
  int64_t a = 0;  // x of fprop, dy of dgrad and wgrad
  int64_t b = 0;  // the weight, x of wgrad
  int64_t bytes = 0;
};
FallbackLayout LayoutFallback(const TrainingPlanOptions& options, const Parameter& weight);

// Micro-batches whose data and scalars may be on their way to a GPU at one time.
inline constexpr int kStagingSlots = 4;

// For a plan whose passes are planned elsewhere, without training: scales of what
// PrecisionPlan quantises, and its weights as fprop reads them. Nothing where it quantises none.
void AddForwardWeights(const TrainingPlanOptions& options, const Lifetime& life, PlanBuilder& out);

// The placed plan. Without training PrecisionPlan may quantise if the plan has no store: then it
// has what the passes quantise. kInvalidArgument on impossible options.
absl::StatusOr<TrainingPlan> PlanTraining(const TrainingPlanOptions& options);

// Longest micro-batch that `auto` considers; more rows than this make no operation faster.
inline constexpr int64_t kAutoMaxMicroBatchTokens = 16384;

// The largest candidate whose plan fits into `memory_bytes`; candidates as MicroBatchCandidates
// gives them (largest first), or for an open global batch the powers of two. kResourceExhausted:
// says asked, had, and what the smallest needs.
absl::StatusOr<int64_t> ChooseMicroBatch(TrainingPlanOptions options,
                                         int64_t memory_bytes,
                                         const std::vector<int64_t>& candidates);

// Powers of two from kAutoMaxMicroBatchTokens / sequence_length (at least 1) down to 1.
std::vector<int64_t> PowerOfTwoCandidates(int64_t sequence_length);

}  // namespace hearth::spec
