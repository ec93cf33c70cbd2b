#include <algorithm>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {

// A job file; and each line of it as an override.
bool JobFile(std::string_view bytes) {
  const auto spec = config::ParseJobSpec(bytes, "job.yaml");
  if (spec.ok()) {
    const std::string yaml = config::ToYaml(*spec);
    const auto again = config::ParseJobSpec(yaml, "again.yaml");
    HEARTH_CHECK(again.ok(), yaml.c_str());
    HEARTH_CHECK(again->SerializeAsString().size() == spec->SerializeAsString().size(),
                 yaml.c_str());
  }
  v1::JobSpec target;
  std::vector<std::string> changes;
  for (size_t begin = 0, lines = 0; begin < bytes.size() && lines < 20; ++lines) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    config::ApplyOverride(target, bytes.substr(begin, end - begin)).IgnoreError();
    config::ApplyResumeOverride(target, bytes.substr(begin, end - begin), changes).IgnoreError();
    begin = end + 1;
  }
  return spec.ok();
}

}  // namespace hearth::fuzz
