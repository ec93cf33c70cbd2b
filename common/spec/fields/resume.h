// What a resume may change, by the fields' rows.
#pragma once

#include <string_view>

namespace hearth::spec {

struct ResumeRule {
  bool known = false;  // the path names a field, an entry of a map, or what lies in one
  bool allowed = false;
  std::string_view why;  // it is allowed, or not; may be empty where it is not
};

// The rule for a field, a section or an entry of a map, e.g. "train.steps", "checkpoint",
// "labels.team". The nearest field on the way that states one counts.
ResumeRule FindResumeRule(std::string_view path);

}  // namespace hearth::spec
