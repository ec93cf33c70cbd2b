// Finding and reading text for `dataset build`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hearth::dataset {

struct TextFile {
  std::string path;
  int64_t size = 0;  // on disk
};

// Regular files under `inputs` in byte order of their paths, each once. An input may be a file, a
// folder, a link to one or a pattern with *, ? or [] (glob(7)); links inside folders are not
// followed. kNotFound names an input that is not there. `unreadable` counts folders without
// permission.
absl::StatusOr<std::vector<TextFile>> FindFiles(const std::vector<std::string>& inputs,
                                                int64_t* unreadable);

// Whether `bytes` is UTF-8 (no surrogates, no overlong forms, at most U+10FFFF) without NUL.
bool IsText(std::string_view bytes);

}  // namespace hearth::dataset
