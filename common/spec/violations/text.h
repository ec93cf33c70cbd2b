// Texts of violations.
#pragma once

#include <sstream>
#include <string>

namespace hearth::spec {

// The arguments written one after the other; numbers in plain decimal, doubles with up to 12
// digits.
template <typename... Args>
std::string Text(const Args&... args) {
  std::ostringstream out;
  out.precision(12);
  (out << ... << args);
  return out.str();
}

}  // namespace hearth::spec
