// The objective table: what `task` in the job file may say. Loss functions live in the engine,
// keyed by ObjectiveKind.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace hearth::spec {

enum class ObjectiveKind : uint8_t { kPretrain };

struct ObjectiveRow {
  ObjectiveKind kind;
  std::string_view name;
  std::string_view comment;
};

absl::Span<const ObjectiveRow> Objectives();
const ObjectiveRow* FindObjective(std::string_view name);
std::vector<std::string_view> ObjectiveNames();

}  // namespace hearth::spec
