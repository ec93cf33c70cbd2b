// A block of a model describes itself once: its parameters with their names here and in Hugging
// Face checkpoints, the GEMM sites, which tensors it keeps for backward in which shape, format and
// for how long, and the short-lived buffers that it works with. Each block has a file beside this
// one; those of layers are rows of model/layer_blocks.h, and a layer's row (ModelShape::rows) says
// which of them it is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "common/spec/model/model_shape.h"
#include "common/spec/model/parameter.h"
#include "common/spec/plan/blocks/normed_buffers.h"
#include "common/spec/plan/plan_builder.h"
#include "common/spec/plan/step_buffers.h"
#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

// A module's name in a Llama-like checkpoint and in one of GPT-2's class; empty: that class has no
// such module.
struct HfModule {
  std::string_view llama;
  std::string_view gpt2;
  // In classes like Llama that keep q, k and v in one tensor, and gate and up; empty: as llama.
  std::string_view fused = {};
};

// Rows of a weight that are a matrix of their own. Parts of one module are one tensor in Hugging
// Face checkpoints (GPT-2's c_attn).
struct WeightPart {
  std::string_view name;
  HfModule module;
  int64_t rows = 0;  // without padding
};

enum class WeightKind : uint8_t {
  kTable,   // rows are looked up
  kNorm,    // a vector of ones
  kLinear,  // [out, in]
};

// A weight of a block, with the bias behind it if there is one.
struct WeightRow {
  Slot slot = Slot::kTokenEmbedding;
  std::string_view name;  // "qkv"
  WeightKind kind = WeightKind::kLinear;
  ParameterGroup group = ParameterGroup::kMatrix;
  std::vector<WeightPart> parts = {};
  int64_t padded_rows = 0;  // as in memory; 0: as many as the parts have
  int64_t cols = 0;         // 0: a vector
  bool bias = false;
  double init_scale = 1.0;  // of model.init_std; norms begin with ones
  bool conv1d = false;      // GPT-2's class stores it [in, out]
  // Its name in Hugging Face checkpoints stands outside the class's own module.
  bool hf_outside = false;
};

// Rows of the two kinds that several blocks have. LayerNorm has a bias.
WeightRow NormWeight(
    Slot slot, std::string_view name, HfModule module, int64_t width, Norm norm = Norm::kRmsNorm);
WeightRow LinearWeight(
    Slot slot, std::string_view name, std::vector<WeightPart> parts, int64_t in, bool bias);
// Initial values of what is added to the residual stream are smaller the more layers add to it.
double ResidualScale(const ModelShape& shape);

// What descriptions of buffers read.
struct BlockScope {
  explicit BlockScope(const TrainingPlanOptions& plan_options);

  const TrainingPlanOptions& options;
  const ModelShape& shape;
  StepTimeline time;
  int64_t tokens;      // of a micro-batch
  DType activation;    // of the residual stream and what is computed from it
  bool quantised;      // any layer is, in training
  bool columns_again;  // and backward makes the columns that wgrad reads again
  bool narrow;         // and passes keep the input of the activation function in 8 bits
  // The first level at which plain operands are made again: in a job that quantises there is one
  // for all layers at each.
  Recompute plain_operand;

  // Bytes of [tokens, width] as a quantised wgrad reads it; 0: nothing is quantised.
  int64_t ColumnBytes(int64_t width) const;
  // Bytes of a value of the residual stream, and of one that a quantised product reads.
  double ActivationBytes() const;
  double OperandBytes() const;
};

// Work of a block beside the products of its weights, for estimates of time: what its kernels read
// and write, and attention's own products.
struct PassRow {
  std::string_view name;
  double forward_bytes = 0;  // a token
  double backward_bytes = 0;
  double forward_flops = 0;  // a token, of attention's products; under a causal mask half of T
  double backward_flops = 0;
  // From this level of recomputation on backward runs the forward pass again.
  std::optional<Recompute> again_from = std::nullopt;
};

// A norm of [tokens, hidden], with the residual stream that it reads and writes.
PassRow NormPass(const BlockScope& scope);

// The sums over tokens of the gradients [tokens, width] of outputs that have a bias.
PassRow BiasPass(const BlockScope& scope, int64_t width);

// Where a buffer's handle is. `layer` counts only for those of layers.
using Handle = std::function<BufferId&(StepBuffers& ids, int64_t layer)>;

template <typename Ids>
Handle Of(Ids LayerBuffers::*block, BufferId Ids::*id) {
  return [=](StepBuffers& ids, int64_t layer) -> BufferId& {
    return ids.layers[static_cast<size_t>(layer)].*block.*id;
  };
}
template <typename Ids>
Handle Of(Ids GradientBuffers::*block, BufferId Ids::*id) {
  return [=](StepBuffers& ids, int64_t) -> BufferId& { return ids.gradients.*block.*id; };
}
Handle Of(BufferId GradientBuffers::*id);
Handle Of(BufferId HeadBuffers::*id);

// The three products of a weight (y = x wT, dx = dy w, dw = dyT x), by the operands that they read.
struct GemmSites {
  Slot weight;  // of the same layer; or outside of the layers
  Handle x;     // in the plain format
  Handle x_columns;
  Handle dy = nullptr;
  // At every level of recomputation backward makes x_columns from what else is kept. Null: where x
  // is made, they are.
  bool (*backward_makes_columns)(const BlockScope& scope) = nullptr;
  // Something else is quantised between dgrad and wgrad, maybe by the kernel of dgrad itself, so
  // dy's rows and columns have bytes of their own.
  bool (*dy_waits)(const BlockScope& scope) = nullptr;
  // The kernel of fprop that reads x's rows may write those of the next x at the same time, so they
  // have bytes of their own.
  bool (*x_rows_apart)(const BlockScope& scope) = nullptr;
  // From this level of recomputation on backward runs fprop again.
  std::optional<Recompute> again_from = std::nullopt;
};

// The sites of the weight that reads the norm of NormedBuffers.
GemmSites NormedSites(Slot weight,
                      const std::function<Handle(BufferId NormedBuffers::*)>& of,
                      Handle dy,
                      Recompute again_from);

// A tensor that backward reads. It has one buffer for each layer, or from `shared_from` on, where
// it is computed again, one for all.
struct ActivationRow {
  Handle id;
  std::string_view name;
  std::vector<int64_t> shape = {};  // of a floating tensor; empty with bytes 0: the model has none
  DType format = DType::kBF16;
  int64_t bytes = 0;  // of quantised values, which have no shape
  Recompute shared_from = Recompute::kBlock;
  bool in_quantised_layers = false;  // only in those
  bool backward_alone = false;       // only backward uses it
  // The residual stream before the block. The part before a layer writes the input of its first
  // block; every level keeps it.
  bool input = false;
  // Where it is shared, it lies in this gradient's buffer, which the GEMM after wgrad, its last
  // reader, writes.
  Handle stand_in = nullptr;

  bool exists() const { return !shape.empty() || bytes > 0; }
  // The input of a layer's first block is kept all the same (AddActivations).
  bool Shared(const TrainingPlanOptions& o) const {
    return !o.training || o.recompute >= shared_from;
  }
  bool StandsIn(const TrainingPlanOptions& o) const {
    return stand_in != nullptr && o.training && Shared(o) && exists();
  }
};

// The rows of NormedBuffers. `norm_stand_in`: ActivationRow::stand_in of the norm's plain output.
std::vector<ActivationRow> NormedRows(const BlockScope& scope,
                                      const std::function<Handle(BufferId NormedBuffers::*)>& of,
                                      Handle norm_stand_in = nullptr);

// The columns of [tokens, width] as wgrad reads them. `again`: at every level of recomputation
// backward makes them (GemmSites::backward_makes_columns); else from `again_from` on.
ActivationRow ColumnsRow(const BlockScope& scope,
                         Handle id,
                         std::string_view name,
                         int64_t width,
                         bool again,
                         Recompute again_from);

// A buffer of a few moments, which all layers share.
struct WorkRow {
  Handle id;
  std::string_view name;
  std::vector<int64_t> shape = {};
  DType format = DType::kBF16;
  int64_t bytes = 0;  // of quantised values, which have no shape; with an empty shape 0: none
  Lifetime life = {};
  // Only in training, from the first backward of such a block to the last: `life` follows.
  bool gradient = false;

  bool exists() const { return !shape.empty() || bytes > 0; }
};

// A gradient [tokens, width] in the format of activations.
WorkRow GradientRow(const BlockScope& scope, Handle id, std::string_view name, int64_t width);

template <typename Row>
std::vector<Row> NoRows(const BlockScope& /*scope*/) {
  return {};
}
inline std::vector<GemmSites> NoSites(const ModelShape& /*shape*/) {
  return {};
}

struct Block {
  std::string_view place;  // in buffers' names: "mixer"
  // In the order of the parameter table.
  std::vector<WeightRow> (*weights)(const ModelShape& shape);
  std::vector<GemmSites> (*sites)(const ModelShape& shape) = &NoSites;
  std::vector<ActivationRow> (*activations)(const BlockScope& scope) = &NoRows<ActivationRow>;
  std::vector<WorkRow> (*work)(const BlockScope& scope) = &NoRows<WorkRow>;
  std::vector<PassRow> (*passes)(const BlockScope& scope) = &NoRows<PassRow>;
};

}  // namespace hearth::spec
