// Splits the output of a program into lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hearth::worker {

// `text` with every byte that is not part of valid UTF-8 replaced by '?', because protobuf strings
// must be valid UTF-8.
std::string SanitizeUtf8(std::string_view text);

// Not thread-safe.
class LineSplitter {
 public:
  // Longer lines are cut into pieces of this size.
  static constexpr size_t kMaxLineBytes = 16 << 10;

  // The lines that `data` completes, without their ends, sanitized; empty lines are left out.
  std::vector<std::string> Append(std::string_view data);

  // What is left without a line end, or "".
  std::string Finish();

 private:
  std::string partial_;
};

}  // namespace hearth::worker
