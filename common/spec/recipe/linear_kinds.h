// The linear layers of a block by name, as precision.high_precision_linears names them.
#pragma once

#include <string_view>
#include <vector>

#include "common/spec/model/parameter.h"

namespace hearth::spec {

struct LinearKind {
  std::string_view name;
  Slot slot;
};

// nullptr when there is none of that name.
const LinearKind* FindLinearKind(std::string_view name);
// The names of all, in the order of forward.
std::vector<std::string_view> LinearKindNames();

}  // namespace hearth::spec
