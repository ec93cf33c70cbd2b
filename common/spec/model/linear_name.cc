#include "common/spec/model/linear_name.h"

#include <vector>

#include "absl/strings/str_split.h"

namespace hearth::spec {

std::string LinearName(const Parameter& weight) {
  if (weight.roles.head) {
    return "head";
  }
  const std::vector<std::string> parts = absl::StrSplit(weight.name, '.');
  return parts.size() < 2 ? weight.name : parts[parts.size() - 2];
}

}  // namespace hearth::spec
