// A parameter of a model: what its tensor is, how it lies in memory and in a Hugging Face
// checkpoint. The table of them (common/spec/plan/parameter_table.h) is made of what the model's
// blocks describe.
//
// Layout: linear weights are [out, in], row-major. q, k and v are one tensor [(Hq + 2 Hkv) D, C] in
// the order q|k|v; gate and up are one tensor [2F, C] in the order gate|up. A tied output
// projection has no tensor of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/formats/state_blocks.h"
#include "common/formats/weight_codecs.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/model/layer_blocks.h"

namespace hearth::spec {

// What a tensor is, without its layer: a weight of the embedding, of a row of layer_blocks.h,
// or of the head.
#define HEARTH_SLOTS(Kind, name, ...) , __VA_ARGS__
enum class Slot : uint8_t {
  kTokenEmbedding,
  kPositionEmbedding HEARTH_LAYER_BLOCKS(HEARTH_SLOTS),
  kFinalNorm,
  kLmHead,
};
#undef HEARTH_SLOTS

// optimizer.groups in the job file.
enum class ParameterGroup : uint8_t { kEmbedding, kMatrix, kNorm, kBias, kHead };
const std::vector<std::string_view>& ParameterGroupNames();
// Whether optimizer.weight_decay counts for the group where the group says nothing: weight matrices
// and embeddings.
bool DecaysByDefault(ParameterGroup group);

// What a tensor is used for in the GEMMs of a recipe.
struct OperandRoles {
  bool lookup = false;   // rows are gathered by token or position
  bool fprop_w = false;  // operand w of fprop and of dgrad; its gradient is wgrad's output
  bool head = false;     // that GEMM is the output projection, which precision.lm_head governs
};

enum class Init : uint8_t { kNormal, kOnes, kZeros };

// A tensor of a Hugging Face checkpoint that covers some of our rows.
struct HfTensor {
  std::string name;
  int64_t row_offset = 0;  // first of our rows
  int64_t rows = 0;        // without vocabulary padding
  bool transpose = false;  // stored [in, out] there (GPT-2's Conv1D)
};

// A matrix inside a fused tensor, as Muon and per-matrix scales see it.
struct LogicalMatrix {
  std::string name;  // "q", "k", "v", "gate", "up", or the slot's own name
  int64_t row_offset = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

using formats::StateCodec;

// A tensor of an optimizer's state that is kept with a parameter; starts as zeros. A state in
// blocks (common/formats/state_blocks.h) is several of them: its codes and, right behind, its
// scales, and what else its codec has.
struct ParameterState {
  std::string_view name;  // "exp_avg"; once with a parameter, or for each tensor of its codec
  // Plain states: kF32 or kBF16. Codes: kU8, whole bytes. All others have their type on every
  // device.
  DType dtype = DType::kF32;
  StateCodec codec = StateCodec::kNone;  // of the state; all its tensors have it
  std::string_view part = {};            // "scale": beside the codes; empty: they, or a plain state
  // Elements of the parameter for each of the tensor's own; 1: the tensor has the parameter's
  // shape.
  int per = 1;

  // How many elements it has for `elements` of the parameter.
  int64_t Count(int64_t elements) const { return (elements + per - 1) / per; }
  bool in_blocks() const { return codec != StateCodec::kNone; }
  bool beside_codes() const { return !part.empty(); }
  // It is of the whole parameter: no part of it belongs to a part of that.
  bool needs_whole() const { return formats::RowOf(codec).needs_whole(); }
  // "exp_avg" or "exp_avg.scale": its name in checkpoints, before the parameter's.
  std::string TensorName() const;

  bool operator==(const ParameterState&) const = default;
};

struct Parameter {
  std::string name;  // "layers.3.qkv.weight"
  Slot slot = Slot::kTokenEmbedding;
  int layer = -1;  // -1 outside the layers
  // Number of its block in the order of forward (BlocksOf in plan/blocks/block_table.h). Backward
  // of that block completes the gradient: that of a tied embedding gets its last part there.
  int block = 0;
  bool is_bias = false;  // of a linear layer or of a LayerNorm
  // As in memory: [rows, cols] or [cols]. Rows of wte and lm_head include the vocabulary padding,
  // which stays zero.
  std::vector<int64_t> shape;
  int64_t logical_rows = 0;  // shape[0] without padding; what checkpoints hold
  // In the order of rows, together they cover logical_rows.
  std::vector<HfTensor> hf;
  // For weights of linear layers and lm_head; empty for embeddings (tied too), norms and biases.
  std::vector<LogicalMatrix> matrices;
  ParameterGroup group = ParameterGroup::kMatrix;
  OperandRoles roles;
  DType storage = DType::kBF16;
  DType master = DType::kF32;
  DType gradient = DType::kF32;
  // The blocks that it is kept in (weights.store), alone: passes read it decoded to `storage`.
  // kNone: it is kept in `storage`.
  formats::WeightCodec store = formats::WeightCodec::kNone;
  // In the order of the optimizer's row (common/spec/optimizer); empty without an optimizer.
  std::vector<ParameterState> states = {};
  Init init = Init::kZeros;
  double init_std = 0.0;  // kNormal only

  bool stored() const { return store != formats::WeightCodec::kNone; }
  // Bytes of its blocks.
  int64_t stored_bytes() const { return formats::RowOf(store).Bytes(elements()); }
  // It has a master of its own; else the weight itself is updated.
  bool has_master() const { return !stored() && master != storage; }
  // Elements in memory, padding included.
  int64_t elements() const;
  // Elements without padding.
  int64_t logical_elements() const;
};

// Index of a tensor in the table, -1 when the model has none.
int FindParameter(const std::vector<Parameter>& table, Slot slot, int layer, bool is_bias = false);

// Index of the weight of the output projection: that of the token embedding where they are tied.
int FindHead(const std::vector<Parameter>& table);

}  // namespace hearth::spec
