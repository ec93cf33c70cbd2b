// The preset table: model shapes by name.
#pragma once

#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

struct Preset {
  std::string_view name;
  std::string_view comment;
  // The shape, and what differs from the defaults. vocab is unset in the tiny rows: the dataset's
  // vocabulary then counts.
  v1::ModelSpec model;
};

// All rows, in the order of the help text. Lives for ever.
absl::Span<const Preset> Presets();

// nullptr when no row has that name.
const Preset* FindPreset(std::string_view name);

std::vector<std::string_view> PresetNames();

}  // namespace hearth::spec
