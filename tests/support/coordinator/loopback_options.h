// How a coordinator of a test or benchmark listens.
#pragma once

#include <string>

#include "coordinator/coordinator.h"

namespace hearth::coordinator {

// On loopback, with ports of the system's choice. Anyone may call.
inline CoordinatorOptions LoopbackOptions(const std::string& data_dir) {
  CoordinatorOptions options;
  options.store.data_dir = data_dir;
  options.listen = options.http = "127.0.0.1:0";
  options.no_auth = true;
  return options;
}

}  // namespace hearth::coordinator
