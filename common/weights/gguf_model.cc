#include "common/weights/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/weights/model_files.h"

namespace hearth::weights {
namespace {

using spec::ModelShape;
using spec::Slot;

constexpr uint32_t kQuantizationVersion = 2;

enum class Rotated : uint8_t { kNo, kQueries, kKeys };

// A tensor's name without "blk.N." and ".weight" or ".bias".
struct TensorRow {
  Slot slot;
  std::string_view part;  // a logical matrix of the slot's weight; "" = all of it
  std::string_view name;
  Rotated rotated = Rotated::kNo;
};

constexpr TensorRow kLlamaRows[] = {
    {Slot::kTokenEmbedding, "", "token_embd"},
    {Slot::kAttnNorm, "", "attn_norm"},
    {Slot::kQkv, "q", "attn_q", Rotated::kQueries},
    {Slot::kQkv, "k", "attn_k", Rotated::kKeys},
    {Slot::kQkv, "v", "attn_v"},
    {Slot::kQNorm, "", "attn_q_norm"},
    {Slot::kKNorm, "", "attn_k_norm"},
    {Slot::kAttnOut, "", "attn_output"},
    {Slot::kFfnNorm, "", "ffn_norm"},
    {Slot::kFfnIn, "gate", "ffn_gate"},
    {Slot::kFfnIn, "up", "ffn_up"},
    {Slot::kFfnDown, "", "ffn_down"},
    {Slot::kFinalNorm, "", "output_norm"},
    {Slot::kLmHead, "", "output"},
};

constexpr TensorRow kGpt2Rows[] = {
    {Slot::kTokenEmbedding, "", "token_embd"},
    {Slot::kPositionEmbedding, "", "position_embd"},
    {Slot::kAttnNorm, "", "attn_norm"},
    {Slot::kQkv, "", "attn_qkv"},
    {Slot::kAttnOut, "", "attn_output"},
    {Slot::kFfnNorm, "", "ffn_norm"},
    {Slot::kFfnIn, "", "ffn_up"},
    {Slot::kFfnDown, "", "ffn_down"},
    {Slot::kFinalNorm, "", "output_norm"},
    {Slot::kLmHead, "", "output"},
};

bool Llama3Rope(const ModelShape& s) {
  return s.rope_scaling.type == spec::RopeScalingType::kLlama3;
}

bool HasTensorScale(const formats::StoredFormat& format) {
  return format.tensor_scale != 1.0F;
}

struct Architecture {
  std::string_view hf_class;
  std::string_view name;
  absl::Span<const TensorRow> rows;
  // llama.cpp rotates neighbours, not halves.
  bool neighbours = false;
  // llama.cpp multiplies the product of each matrix by the scale of its tensor.
  bool scales = false;
  // Why llama.cpp would compute something else; "" = it does not.
  std::string_view (*obstacle)(const ModelShape& shape);
};

std::string_view NoObstacle(const ModelShape& /*shape*/) {
  return "";
}

constexpr std::string_view kNoRopeFactors = "its architecture there has no rope scaling of llama3";

constexpr Architecture kArchitectures[] = {
    {"llama", "llama", kLlamaRows, true, true, NoObstacle},
    {"mistral", "llama", kLlamaRows, true, true, NoObstacle},
    {"phi3", "llama", kLlamaRows, true, true, NoObstacle},
    {"qwen2", "qwen2", kLlamaRows, false, false,
     [](const ModelShape& s) -> std::string_view { return Llama3Rope(s) ? kNoRopeFactors : ""; }},
    {"qwen3", "qwen3", kLlamaRows, false, true,
     [](const ModelShape& s) -> std::string_view {
       return s.attention_bias != spec::AttentionBias::kNone
                  ? "its architecture there has no attention biases"
              : Llama3Rope(s) ? kNoRopeFactors
                              : "";
     }},
    {"gpt2", "gpt2", kGpt2Rows, false, false,
     [](const ModelShape& s) -> std::string_view {
       return s.activation == spec::Activation::kGelu
                  ? "its architecture there has the GELU by tanh, the model the one by erf"
                  : "";
     }},
};

absl::StatusOr<const Architecture*> FindArchitecture(const ModelShape& shape,
                                                     const formats::StoredFormat& format) {
  const std::string_view hf_class = spec::DetectHfClass(shape).model_type;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.hf_class != hf_class) {
      continue;
    }
    const std::string_view obstacle = architecture.obstacle(shape);
    if (!obstacle.empty()) {
      return absl::UnimplementedError(absl::StrCat(
          "llama.cpp cannot run this ", std::string(hf_class), " model: ", std::string(obstacle)));
    }
    if (HasTensorScale(format) && !architecture.scales) {
      return absl::UnimplementedError(
          absl::StrCat("llama.cpp cannot run this ", std::string(hf_class), " model in ",
                       std::string(format.name),
                       ": its architecture there leaves out the scales of feed-forward matrices; "
                       "q8_0 and q4_0 have none"));
    }
    return &architecture;
  }
  return absl::UnimplementedError(absl::StrCat(
      "llama.cpp has no architecture for this model (class ", std::string(hf_class), ")"));
}

uint32_t U32(int64_t value) {
  return static_cast<uint32_t>(value);
}

GgufMetadata Sizes(const ModelShape& s,
                   std::string_view name,
                   const formats::StoredFormat& format) {
  const std::string arch(name);
  GgufMetadata out = {{"general.architecture", arch}, {"general.file_type", format.ggml_file_type}};
  if (format.block > 1) {
    out.emplace_back("general.quantization_version", kQuantizationVersion);
  }
  const auto add = [&](const char* key, GgufValue value) {
    out.emplace_back(absl::StrCat(arch, ".", key), std::move(value));
  };
  add("context_length", U32(s.spec.max_position()));
  add("embedding_length", U32(s.hidden));
  add("block_count", U32(s.layers));
  add("feed_forward_length", U32(s.ffn_hidden));
  add("attention.head_count", U32(s.heads));
  add("attention.head_count_kv", U32(s.kv_heads));
  add(s.norm == spec::Norm::kRmsNorm ? "attention.layer_norm_rms_epsilon"
                                     : "attention.layer_norm_epsilon",
      static_cast<float>(s.spec.norm_eps()));
  add("vocab_size", U32(s.vocab));
  if (s.position == spec::Position::kRope) {
    add("attention.key_length", U32(s.head_dim));
    add("attention.value_length", U32(s.head_dim));
    add("rope.dimension_count", U32(s.head_dim));
    add("rope.freq_base", static_cast<float>(s.spec.rope_theta()));
    if (s.rope_scaling.type == spec::RopeScalingType::kLinear) {
      add("rope.scaling.type", std::string("linear"));
      add("rope.scaling.factor", static_cast<float>(s.rope_scaling.factor));
    }
  }
  return out;
}

// By what llama.cpp divides the frequency of each pair of dimensions (transformers'
// _compute_llama3_parameters).
std::vector<float> RopeFactors(const ModelShape& s) {
  const spec::RopeScaling& scaling = s.rope_scaling;
  const auto context = static_cast<double>(scaling.original_max_position);
  std::vector<float> factors;
  for (int64_t i = 0; i < s.head_dim / 2; ++i) {
    const double frequency = std::pow(
        s.spec.rope_theta(), -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim));
    const double wave = 2.0 * std::numbers::pi / frequency;
    double factor = 1.0;
    if (wave > context / scaling.low_freq_factor) {
      factor = scaling.factor;
    } else if (wave >= context / scaling.high_freq_factor) {
      const double smooth = (context / wave - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
      factor = 1.0 / ((1.0 - smooth) / scaling.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

// The rows of a slot's tensors that the row names, and how many of them.
struct RowRange {
  int64_t first = 0;
  int64_t rows = 0;
};
RowRange RangeOf(const std::vector<spec::Parameter>& table,
                 const spec::Parameter& parameter,
                 std::string_view part) {
  if (part.empty()) {
    return {0, parameter.logical_rows};
  }
  const int weight = spec::FindParameter(table, parameter.slot, parameter.layer);
  for (const spec::LogicalMatrix& matrix : table[static_cast<size_t>(weight)].matrices) {
    if (matrix.name == part) {
      return {matrix.row_offset, matrix.rows};
    }
  }
  return {};
}

const formats::StoredFormat& FormatOf(const GgufTensor& tensor,
                                      const spec::Parameter& parameter,
                                      const formats::StoredFormat& wanted) {
  // As llama.cpp's own converter does: vectors and positions stay in f32.
  if (tensor.shape.size() < 2 || parameter.slot == Slot::kPositionEmbedding) {
    return formats::kStoredF32;
  }
  // It looks up rows of an embedding without a scale, and a tied output projection is one.
  if (HasTensorScale(wanted) && parameter.group != spec::ParameterGroup::kMatrix) {
    return formats::kStoredBf16;
  }
  return tensor.columns() % wanted.block == 0 ? wanted : formats::kStoredF16;
}

// Notes the tensors that have another format because the wanted one, with blocks, cannot hold them.
void NoteOthers(const formats::StoredFormat& wanted, GgufModel& model) {
  const auto of = [&model](const formats::StoredFormat& format) {
    std::vector<const GgufTensor*> tensors;
    for (const GgufSource& source : model.tensors) {
      if (source.tensor.format == &format) {
        tensors.push_back(&source.tensor);
      }
    }
    return tensors;
  };
  if (const auto odd = of(formats::kStoredF16); !odd.empty()) {
    model.notes.push_back(
        absl::StrCat(odd.size(), " matrices are f16, because their rows are no multiple of ",
                     wanted.block, " elements (", odd[0]->name, " has ", odd[0]->columns(), ")"));
  }
  if (const auto outside = of(formats::kStoredBf16); !outside.empty()) {
    model.notes.push_back(absl::StrCat(outside.size(), " matrices outside the layers are bf16 (",
                                       outside[0]->name, "), because ", std::string(wanted.name),
                                       " has a scale of the tensor"));
  }
}

// The tensor of a matrix's scale. `stem`: the matrix's name without ".weight".
GgufSource ScaleOf(const std::string& stem, const formats::StoredFormat& format) {
  GgufSource scale;
  scale.tensor.name = absl::StrCat(stem, ".scale");
  scale.tensor.shape = {1};
  scale.values = {format.tensor_scale};
  return scale;
}

void AddTensors(const ModelShape& shape,
                const std::vector<spec::Parameter>& table,
                const Architecture& architecture,
                const formats::StoredFormat& format,
                GgufModel& model) {
  for (size_t k = 0; k < table.size(); ++k) {
    const spec::Parameter& parameter = table[k];
    for (const TensorRow& row : architecture.rows) {
      const RowRange range =
          row.slot == parameter.slot ? RangeOf(table, parameter, row.part) : RowRange{};
      if (range.rows == 0) {
        continue;
      }
      GgufSource source;
      const std::string stem =
          absl::StrCat(parameter.layer < 0 ? "" : absl::StrCat("blk.", parameter.layer, "."),
                       std::string(row.name));
      source.tensor.name = absl::StrCat(stem, parameter.is_bias ? ".bias" : ".weight");
      source.tensor.shape = {range.rows};
      if (parameter.shape.size() > 1) {
        source.tensor.shape.push_back(Columns(parameter));
      }
      source.tensor.format = &FormatOf(source.tensor, parameter, format);
      source.parameter = static_cast<int>(k);
      source.row_offset = range.first;
      source.head_dim = architecture.neighbours && row.rotated != Rotated::kNo ? shape.head_dim : 0;
      const formats::StoredFormat& own = *source.tensor.format;
      model.tensors.push_back(std::move(source));
      if (HasTensorScale(own)) {
        model.tensors.push_back(ScaleOf(stem, own));
      }
    }
  }
}

}  // namespace

int64_t GgufSource::RowOf(int64_t row) const {
  if (head_dim == 0) {
    return row_offset + row;
  }
  const int64_t head = row / head_dim;
  const int64_t within = row % head_dim;
  // A rotation's pair is rows i and i + head_dim / 2 here, and rows 2i and 2i + 1 there.
  return row_offset + head * head_dim + within % 2 * (head_dim / 2) + within / 2;
}

absl::StatusOr<GgufModel> DescribeGguf(const ModelShape& shape,
                                       const std::vector<spec::Parameter>& table,
                                       const formats::StoredFormat& format) {
  HEARTH_ASSIGN_OR_RETURN(const Architecture* const architecture, FindArchitecture(shape, format));
  GgufModel model;
  model.metadata = Sizes(shape, architecture->name, format);
  AddTensors(shape, table, *architecture, format, model);
  if (format.block > 1) {
    NoteOthers(format, model);
  }
  if (shape.position == spec::Position::kRope && Llama3Rope(shape)) {
    GgufSource factors;
    factors.values = RopeFactors(shape);
    factors.tensor.name = "rope_freqs.weight";
    factors.tensor.shape = {static_cast<int64_t>(factors.values.size())};
    model.tensors.push_back(std::move(factors));
  }
  return model;
}

}  // namespace hearth::weights
