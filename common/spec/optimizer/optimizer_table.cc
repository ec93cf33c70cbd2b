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

constexpr std::string_view kBlockRule =
    "matrices of the layers of at least 4096 elements; embedding, output projection, norms, biases "
    "and smaller matrices stay in fp32";

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
     "half a byte a value and a scale for 128",
     DType::kF32,
     {StateCodec::kDynamicSigned4, StateCodec::kLinearUnsigned4, StateCodec::kNone},
     &IsLargeMatrix,
     kBlockRule,
     {{},
      {},
      {"rounding to 4 bits drowns the small directions, which the orthogonal step lifts",
       "docs/low-bit-limits.md"}}},
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

double StateFormatRow::BytesOf(StateKind kind) const {
  const formats::StateCodecRow& codec = formats::RowOf(CodecOf(kind));
  return codec.bits == 0 ? DTypeBits(dtype) / 8.0 : codec.bits / 8.0 + 4.0 / codec.block;
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
                       format->Keeps(state.kind) &&
                       (format->takes == nullptr || format->takes(parameter));
    const StateCodec codec = taken ? format->CodecOf(state.kind) : StateCodec::kNone;
    if (codec == StateCodec::kNone) {
      states.push_back({state.name, taken ? format->dtype : state.dtype});
      continue;
    }
    const formats::StateCodecRow& row = formats::RowOf(codec);
    states.push_back({state.name, DType::kU8, codec, false, 8 / row.bits});
    states.push_back({state.name, DType::kF32, codec, true, row.block});
  }
  return states;
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
    at += states[at].in_blocks() ? 2 : 1;
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
