#include "common/base/version.h"

#include "common/base/commit.h"

namespace hearth {

std::string_view Version() {
  return HEARTH_VERSION;
}

std::string_view GitCommit() {
  return HEARTH_GIT_COMMIT;
}

std::string VersionString() {
  return std::string(Version()) + " (" + std::string(GitCommit()) + ")";
}

}  // namespace hearth
