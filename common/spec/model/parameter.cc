#include "common/spec/model/parameter.h"

#include <cstddef>

namespace hearth::spec {
namespace {

int64_t Cols(const Parameter& parameter) {
  return parameter.shape.size() > 1 ? parameter.shape[1] : 1;
}

}  // namespace

const std::vector<std::string_view>& ParameterGroupNames() {
  static const auto& names =
      *new std::vector<std::string_view>{"embedding", "matrix", "norm", "bias", "head"};
  return names;
}

bool DecaysByDefault(ParameterGroup group) {
  return group != ParameterGroup::kNorm && group != ParameterGroup::kBias;
}

std::string ParameterState::TensorName() const {
  return std::string(name) + (part.empty() ? "" : "." + std::string(part));
}

int64_t Parameter::elements() const {
  return shape.empty() ? 0 : shape[0] * Cols(*this);
}

int64_t Parameter::logical_elements() const {
  return logical_rows * Cols(*this);
}

int FindParameter(const std::vector<Parameter>& table, Slot slot, int layer, bool is_bias) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].slot == slot && table[i].layer == layer && table[i].is_bias == is_bias) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

int FindHead(const std::vector<Parameter>& table) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].roles.head) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace hearth::spec
