// The files of configs/calibration, as they were when the program was built.
#pragma once

#include <string_view>

#include "absl/types/span.h"

namespace hearth::spec {

struct CalibrationFile {
  std::string_view name;  // "h200.yaml"
  std::string_view text;
};

// Lives for ever.
absl::Span<const CalibrationFile> CalibrationFiles();

}  // namespace hearth::spec
