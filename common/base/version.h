#pragma once

#include <string>
#include <string_view>

namespace hearth {

// "0.1.0": the version of the CMake project.
std::string_view Version();

// Commit of the source tree when it was built, 12 hex digits, "-dirty" appended when files
// differed; "unknown" outside git.
std::string_view GitCommit();

// "0.1.0 (1a2b3c4d5e6f)".
std::string VersionString();

}  // namespace hearth
