#include "common/spec/recipe/linear_kinds.h"

#include "common/base/table_rows.h"

namespace hearth::spec {
namespace {

constexpr LinearKind kLinearKinds[] = {
    {"qkv", Slot::kQkv},
    {"o", Slot::kAttnOut},
    {"gate_up", Slot::kFfnIn},
    {"down", Slot::kFfnDown},
};

}  // namespace

const LinearKind* FindLinearKind(std::string_view name) {
  return FindRow(kLinearKinds, &LinearKind::name, name);
}

std::vector<std::string_view> LinearKindNames() {
  return ColumnOf(kLinearKinds, &LinearKind::name);
}

}  // namespace hearth::spec
