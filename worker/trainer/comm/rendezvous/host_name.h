// What errors of a rank call its machine.
#pragma once

#include <unistd.h>

#include <string>

namespace hearth::trainer {

inline std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

}  // namespace hearth::trainer
