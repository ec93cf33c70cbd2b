#include "common/spec/optimizer/optimizer_table.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_split.h"
#include "common/base/table_rows.h"
#include "common/spec/optimizer/average_state.h"

namespace hearth::spec {
namespace {

#define HEARTH_ROW(type, name, comment, options, ...) \
  OptimizerRow{name, comment, options, std::vector<StateSpec>{__VA_ARGS__}},

// Hidden matrices of enough elements. Embedding and output projection stay as they are: their rows
// see few tokens each (bitsandbytes keeps embeddings in 32 bits).
bool IsLargeMatrix(const Parameter& parameter) {
  return parameter.group == ParameterGroup::kMatrix && parameter.elements() >= kLeastBlockElements;
}

// Blocks of a matrix that has its leading directions apart lie within its rows, and there are more
// directions than those.
bool HasRoomForRank(const formats::StateCodecRow& codec, const Parameter& parameter) {
  const auto has_room = [&codec](const LogicalMatrix& matrix) {
    return matrix.cols % codec.block == 0 && std::min(matrix.rows, matrix.cols) >= 2 * codec.rank;
  };
  return !codec.needs_whole() ||
         std::all_of(parameter.matrices.begin(), parameter.matrices.end(), has_room);
}

// The tensors of a state in blocks. Those of a whole parameter get a few elements more than they
// need where the number does not divide the parameter's.
void AddBlocks(const StateSpec& state,
               StateCodec codec,
               const Parameter& parameter,
               std::vector<ParameterState>& states) {
  const formats::StateCodecRow& row = formats::RowOf(codec);
  const DType scale = row.scale_bits == 32 ? DType::kF32 : DType::kU8;
  states.push_back({state.name, DType::kU8, codec, "", 8 / row.bits});
  states.push_back({state.name, scale, codec, "scale", row.block});
  if (!row.needs_whole()) {
    return;
  }
  int64_t left = 0;
  int64_t right = 0;
  for (const LogicalMatrix& matrix : parameter.matrices) {
    left += matrix.rows * row.rank;
    right += matrix.cols * row.rank;
  }
  const auto add = [&](DType dtype, std::string_view part, int64_t elements) {
    const auto per = static_cast<int>(parameter.elements() / elements);
    states.push_back({state.name, dtype, codec, part, per});
  };
  add(DType::kBF16, "left", left);
  add(DType::kBF16, "right", right);
  add(DType::kF32, "unit", static_cast<int64_t>(parameter.matrices.size()));
}

constexpr std::string_view kBlockRule =
    "matrices of the layers of at least 4096 elements; embedding, output projection, norms, biases "
    "and smaller matrices stay in fp32";

constexpr std::string_view kLeadingRule =
    "matrices of the layers of at least 4096 elements, and with muon of sides of at least 16 and "
    "rows of whole blocks of 16; embedding, output projection, norms, biases and other matrices "
    "stay in fp32";

constexpr StateFormatRow kStateFormats[] = {
    {"fp32", "four bytes a value", DType::kF32, {}, nullptr, "all parameters"},
    {"bf16", "two bytes a value", DType::kBF16, {}, nullptr, "all parameters"},
    {"int8",
     "one byte a value and a scale for 256",
     DType::kF32,
     {StateCodec::kDynamicSigned8, StateCodec::kDynamicUnsigned8, StateCodec::kLinearSigned8},
     &IsLargeMatrix,
     kBlockRule},
    {"int4",
     "half a byte a value and a scale for 128; of muon's momentum a scale for 16, and 8 leading "
     "directions of each matrix in bf16",
     DType::kF32,
     {StateCodec::kDynamicSigned4, StateCodec::kLinearUnsigned4, StateCodec::kLeadingSigned4},
     &IsLargeMatrix,
     kLeadingRule},
};

}  // namespace

absl::Span<const StateFormatRow> StateFormatRows() {
  return kStateFormats;
}

const StateFormatRow* FindStateFormat(std::string_view name) {
  return FindRow(StateFormatRows(), &StateFormatRow::name, name);
}

std::vector<std::string_view> StateFormatNames() {
  return ColumnOf(StateFormatRows(), &StateFormatRow::name);
}

bool StateFormatRow::Takes(StateKind kind, const Parameter& parameter) const {
  return (takes == nullptr || takes(parameter)) &&
         HasRoomForRank(formats::RowOf(CodecOf(kind)), parameter);
}

bool IsHiddenMatrix(const Parameter& parameter) {
  return parameter.group == ParameterGroup::kMatrix;
}

bool IsNotHiddenMatrix(const Parameter& parameter) {
  return !IsHiddenMatrix(parameter);
}

bool OptimizerRow::needs_master() const {
  return std::any_of(states.begin(), states.end(), [](const StateSpec& s) { return !s.narrow; });
}

bool OptimizerRow::Reads(std::string_view option) const {
  for (absl::string_view word :
       absl::StrSplit(absl::string_view(options.data(), options.size()), ' ')) {
    if (std::string_view(word.data(), word.size()) == option) {
      return true;
    }
  }
  return false;
}

absl::Span<const OptimizerRow> Optimizers() {
  static const auto& rows = *new std::vector<OptimizerRow>{HEARTH_OPTIMIZERS(HEARTH_ROW)};
  return rows;
}

const OptimizerRow* FindOptimizer(std::string_view name) {
  return FindRow(Optimizers(), &OptimizerRow::name, name);
}

std::vector<std::string_view> OptimizerNames() {
  return ColumnOf(Optimizers(), &OptimizerRow::name);
}

std::vector<std::string_view> OptimizersThatRead(std::string_view option) {
  std::vector<std::string_view> names;
  for (const OptimizerRow& row : Optimizers()) {
    if (row.Reads(option)) {
      names.push_back(row.name);
    }
  }
  return names;
}

std::vector<ParameterState> StatesOf(const OptimizerRow& optimizer,
                                     const Parameter& parameter,
                                     const StateFormatRow* format) {
  std::vector<ParameterState> states;
  for (const StateSpec& state : optimizer.states) {
    if (!state.Has(parameter)) {
      continue;
    }
    const bool taken = format != nullptr && state.narrow && state.dtype == DType::kF32 &&
                       format->Takes(state.kind, parameter);
    const StateCodec codec = taken ? format->CodecOf(state.kind) : StateCodec::kNone;
    if (codec == StateCodec::kNone) {
      states.push_back({state.name, taken ? format->dtype : state.dtype});
      continue;
    }
    AddBlocks(state, codec, parameter, states);
  }
  return states;
}

const StateSpec* FindWholeState(const v1::OptimizerSpec& optimizer) {
  const OptimizerRow* const row = FindOptimizer(optimizer.name());
  const StateFormatRow* const format = FindStateFormat(optimizer.state());
  if (row == nullptr || format == nullptr) {
    return nullptr;
  }
  const auto whole =
      std::find_if(row->states.begin(), row->states.end(), [format](const StateSpec& state) {
        return state.narrow && formats::RowOf(format->CodecOf(state.kind)).needs_whole();
      });
  return whole == row->states.end() ? nullptr : &*whole;
}

bool HasStatesOf(const OptimizerRow& optimizer, const Parameter& parameter) {
  const std::vector<ParameterState> states = OptimizerStates(parameter);
  size_t at = 0;
  for (const StateSpec& state : optimizer.states) {
    if (!state.Has(parameter)) {
      continue;
    }
    if (at == states.size() || states[at].name != state.name) {
      return false;
    }
    while (at < states.size() && states[at].name == state.name) {
      ++at;
    }
  }
  return at == states.size();
}

GroupOptions ResolveGroupOptions(const v1::OptimizerSpec& optimizer, ParameterGroup group) {
  GroupOptions options;
  options.weight_decay = DecaysByDefault(group) ? optimizer.weight_decay() : 0.0;
  const std::string_view name = ParameterGroupNames()[static_cast<size_t>(group)];
  const auto it = optimizer.groups().find(std::string(name));
  if (it != optimizer.groups().end()) {
    if (it->second.has_lr_scale()) {
      options.lr_scale = it->second.lr_scale();
    }
    if (it->second.has_weight_decay()) {
      options.weight_decay = it->second.weight_decay();
    }
  }
  return options;
}

}  // namespace hearth::spec
