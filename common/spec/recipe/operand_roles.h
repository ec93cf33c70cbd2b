// The six operands of a linear layer's products by name, as precision.techniques names them.
#pragma once

#include <string_view>
#include <vector>

#include "common/spec/recipe/recipe.h"

namespace hearth::spec {

struct OperandRole {
  std::string_view name;  // "forward.x"
  Gemm Recipe::*product;
  Operand Gemm::*operand;
  Operand Gemm::*partner;  // what it is multiplied with
};

// forward.x, forward.w, dgrad.dy, dgrad.w, wgrad.x, wgrad.dy; lives for ever.
const std::vector<OperandRole>& AllOperandRoles();
// nullptr when there is none of that name.
const OperandRole* FindOperandRole(std::string_view name);
// The names of all, in the order of the table.
std::vector<std::string_view> OperandRoleNames();

// The names of all: forward, dgrad and wgrad.
std::vector<std::string_view> ProductNames();
// The product of the operand: "forward" for "forward.x".
std::string_view ProductOf(const OperandRole& role);

}  // namespace hearth::spec
