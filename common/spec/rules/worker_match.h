// Which workers a job asks for, apart from what they have free.
#pragma once

#include <string_view>

#include "hearth/v1/worker.pb.h"

namespace hearth::spec {

// Whether the worker has resources.device ("" = cpu) and all labels of resources.selector, a map
// from text to text.
template <typename Selector>
bool HasKindAndLabels(const v1::Worker& worker, std::string_view device, const Selector& selector) {
  if (worker.device().kind() != (device.empty() ? "cpu" : device)) {
    return false;
  }
  for (const auto& [key, value] : selector) {
    const auto label = worker.labels().find(key);
    if (label == worker.labels().end() || label->second != value) {
      return false;
    }
  }
  return true;
}

}  // namespace hearth::spec
