#include "common/spec/model/parameter.h"

#include <cstddef>

#include "absl/strings/str_split.h"

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
  return std::string(name) + (scales ? ".scale" : "");
}

int64_t Parameter::elements() const {
  return shape.empty() ? 0 : shape[0] * Cols(*this);
}

int64_t Parameter::logical_elements() const {
  return logical_rows * Cols(*this);
}

std::string LinearName(const Parameter& weight) {
  if (weight.roles.head) {
    return "head";
  }
  const std::vector<std::string> parts = absl::StrSplit(weight.name, '.');
  return parts.size() < 2 ? weight.name : parts[parts.size() - 2];
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
