#include "common/spec/plan/parameter_table.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "common/spec/plan/blocks/block_table.h"
#include "common/spec/plan/blocks/head_block.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

// How checkpoints of a Hugging Face class name and store their tensors.
struct HfNames {
  std::string_view model_type;  // "" = every class without a row of its own
  std::string_view model;       // before all names but those outside the model
  std::string_view layer;       // before a layer's number
  std::string_view HfModule::*module;
  bool conv1d;  // weights are stored transposed where their row says so
};
constexpr HfNames kNames[] = {
    {"gpt2", "transformer.", "h.", &HfModule::gpt2, true},
    {"phi3", "model.", "layers.", &HfModule::fused, false},
    {"", "model.", "layers.", &HfModule::llama, false},
};

const HfNames& NamesOf(const HfClass& hf_class) {
  return *std::find_if(std::begin(kNames), std::end(kNames), [&](const HfNames& names) {
    return names.model_type.empty() || names.model_type == hf_class.model_type;
  });
}

constexpr size_t kLikelyParameters = 4;  // of a block

class TableBuilder {
 public:
  TableBuilder(const ModelShape& shape, const ParameterFormats& formats)
      : shape_(shape), formats_(formats), names_(NamesOf(DetectHfClass(shape))) {}

  std::vector<Parameter> Build() {
    const std::vector<PlacedBlock> blocks = BlocksOf(shape_);
    table_.reserve(blocks.size() * kLikelyParameters);
    for (const PlacedBlock& placed : blocks) {
      for (const WeightRow& row : placed.block->weights(shape_)) {
        AddWeight(placed, row);
      }
    }
    for (const PlacedBlock& placed : blocks) {
      for (const GemmSites& sites : placed.block->sites(shape_)) {
        const int weight = FindParameter(table_, sites.weight, placed.layer);
        OperandRoles& roles = table_[static_cast<size_t>(weight)].roles;
        roles.fprop_w = true;
        roles.head = placed.block == &kHeadBlock;
      }
    }
    return std::move(table_);
  }

 private:
  Parameter& Add(const PlacedBlock& placed, const WeightRow& row, bool is_bias) {
    Parameter& parameter = table_.emplace_back();
    parameter.name =
        placed.layer < 0 ? Text(row.name) : Text("layers.", placed.layer, '.', row.name);
    parameter.name += is_bias ? ".bias" : ".weight";
    parameter.slot = row.slot;
    parameter.layer = placed.layer;
    parameter.block = placed.number;
    parameter.is_bias = is_bias;
    for (const WeightPart& part : row.parts) {
      parameter.logical_rows += part.rows;
    }
    parameter.shape = {row.padded_rows > 0 ? row.padded_rows : parameter.logical_rows};
    parameter.group = is_bias ? ParameterGroup::kBias : row.group;
    parameter.hf = HfTensors(placed.layer, row, is_bias);
    parameter.storage = formats_.storage;
    parameter.master = formats_.master;
    parameter.gradient = formats_.gradient;
    return parameter;
  }

  void AddWeight(const PlacedBlock& placed, const WeightRow& row) {
    Parameter& weight = Add(placed, row, false);
    if (row.cols > 0) {
      weight.shape.push_back(row.cols);
      weight.init = Init::kNormal;
      weight.init_std = shape_.spec.init_std() * row.init_scale;
    } else {
      weight.init = Init::kOnes;
    }
    weight.roles.lookup = row.kind == WeightKind::kTable;
    if (row.kind == WeightKind::kLinear) {
      int64_t first = 0;
      for (const WeightPart& part : row.parts) {
        weight.matrices.push_back({std::string(part.name), first, part.rows, row.cols});
        first += part.rows;
      }
    }
    if (row.bias) {
      Add(placed, row, true);
    }
  }

  // Parts that name the same module are one tensor there (GPT-2's c_attn).
  std::vector<HfTensor> HfTensors(int layer, const WeightRow& row, bool is_bias) const {
    std::string prefix = row.hf_outside ? std::string() : std::string(names_.model);
    if (layer >= 0) {
      prefix += Text(names_.layer, layer, '.');
    }
    std::vector<HfTensor> tensors;
    int64_t first = 0;
    for (const WeightPart& part : row.parts) {
      const std::string_view module =
          (part.module.*names_.module).empty() ? part.module.llama : part.module.*names_.module;
      std::string name = Text(prefix, module, is_bias ? ".bias" : ".weight");
      if (!tensors.empty() && tensors.back().name == name) {
        tensors.back().rows += part.rows;
      } else {
        tensors.push_back(
            {std::move(name), first, part.rows, names_.conv1d && row.conv1d && !is_bias});
      }
      first += part.rows;
    }
    return tensors;
  }

  const ModelShape& shape_;
  const ParameterFormats formats_;
  const HfNames& names_;
  std::vector<Parameter> table_;
};

}  // namespace

std::vector<Parameter> BuildParameterTable(const ModelShape& shape,
                                           const ParameterFormats& formats,
                                           const OptimizerRow* optimizer,
                                           const StateFormatRow* state_format) {
  std::vector<Parameter> table = TableBuilder(shape, formats).Build();
  for (Parameter& parameter : table) {
    if (optimizer != nullptr) {
      parameter.states = StatesOf(*optimizer, parameter, state_format);
    }
  }
  return table;
}

int64_t CountParameters(const ModelShape& shape) {
  int64_t count = 0;
  for (const Parameter& parameter : BuildParameterTable(shape)) {
    count += parameter.logical_elements();
  }
  return count;
}

double FlopsPerToken(const ModelShape& shape, int64_t sequence_length) {
  // Looking up multiplies nothing. With tied embeddings the head multiplies by that matrix.
  const int64_t looked_up = (shape.spec.tied() ? 0 : shape.vocab) + shape.max_position;
  // 6 FLOPs a parameter: 2 forward, 4 backward. Attention makes 12 S H D a layer; causality leaves
  // half of them.
  return 6.0 * static_cast<double>(CountParameters(shape) - looked_up * shape.hidden) +
         6.0 * static_cast<double>(shape.layers * shape.heads * shape.head_dim) *
             static_cast<double>(sequence_length);
}

}  // namespace hearth::spec
