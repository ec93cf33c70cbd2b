#include "common/spec/recipe/operand_roles.h"

#include "common/base/table_rows.h"

namespace hearth::spec {

const std::vector<OperandRole>& AllOperandRoles() {
  static const auto& rows = *new std::vector<OperandRole>{
      {"forward.x", &Recipe::fprop, &Gemm::a, &Gemm::b},
      {"forward.w", &Recipe::fprop, &Gemm::b, &Gemm::a},
      {"dgrad.dy", &Recipe::dgrad, &Gemm::a, &Gemm::b},
      {"dgrad.w", &Recipe::dgrad, &Gemm::b, &Gemm::a},
      {"wgrad.x", &Recipe::wgrad, &Gemm::a, &Gemm::b},
      {"wgrad.dy", &Recipe::wgrad, &Gemm::b, &Gemm::a},
  };
  return rows;
}

const OperandRole* FindOperandRole(std::string_view name) {
  return FindRow(AllOperandRoles(), &OperandRole::name, name);
}

std::vector<std::string_view> OperandRoleNames() {
  return ColumnOf(AllOperandRoles(), &OperandRole::name);
}

std::string_view ProductOf(const OperandRole& role) {
  return role.name.substr(0, role.name.find('.'));
}

std::vector<std::string_view> ProductNames() {
  std::vector<std::string_view> names;
  for (const OperandRole& role : AllOperandRoles()) {
    if (names.empty() || names.back() != ProductOf(role)) {
      names.push_back(ProductOf(role));
    }
  }
  return names;
}

}  // namespace hearth::spec
