// The objective table: what `task` in the job file may say. Loss functions live in the engine,
// keyed by ObjectiveKind.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace hearth::spec {

enum class ObjectiveKind : uint8_t { kPretrain, kSft };

struct ObjectiveRow {
  ObjectiveKind kind;
  std::string_view name;
  std::string_view comment;
  // The loss masks of the datasets say which targets count. Every dataset needs one, and packing
  // must be best_fit: other samples may have no target that counts.
  bool uses_loss_mask;
  std::string_view packing;    // default of data.packing
  std::string_view attention;  // default of data.attention
};

absl::Span<const ObjectiveRow> Objectives();
const ObjectiveRow* FindObjective(std::string_view name);
std::vector<std::string_view> ObjectiveNames();

}  // namespace hearth::spec
