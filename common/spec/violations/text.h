// Texts of violations.
#pragma once

#include <charconv>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace hearth::spec {

// Plans write tens of thousands of names: words, letters and whole numbers go without a stream.
template <typename T>
void AppendText(std::string& out, const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    out.append(std::string_view(value));
  } else if constexpr (std::is_same_v<T, char>) {
    out += value;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) > 1) {  // no other letters, no bool
    char digits[24];
    out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
  } else {
    std::ostringstream stream;
    stream.precision(12);
    stream << value;
    out += stream.str();
  }
}

// The arguments written one after the other; numbers in plain decimal, doubles with up to 12
// digits.
template <typename... Args>
std::string Text(const Args&... args) {
  std::string out;
  (AppendText(out, args), ...);
  return out;
}

}  // namespace hearth::spec
