#include "worker/daemon/supervise/line_splitter.h"

#include <cstdint>
#include <utility>

namespace hearth::worker {
namespace {

// Bytes of the valid UTF-8 sequence at the start of `text` (not empty), 0 = none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  size_t length = 0;
  uint32_t least = 0;
  uint32_t code = 0;
  if ((first & 0xe0) == 0xc0) {
    length = 2, least = 0x80, code = first & 0x1f;
  } else if ((first & 0xf0) == 0xe0) {
    length = 3, least = 0x800, code = first & 0x0f;
  } else if ((first & 0xf8) == 0xf0) {
    length = 4, least = 0x10000, code = first & 0x07;
  }
  if (length == 0 || text.size() < length) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
    code = (code << 6) | (byte(i) & 0x3f);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  // Too long a form, beyond Unicode, half of a UTF-16 pair: protobuf refuses each of them in a
  // string.
  return code < least || code > 0x10ffff || surrogate ? 0 : length;
}

}  // namespace

std::string SanitizeUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      out.push_back('?');
      text.remove_prefix(1);
    } else {
      out.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return out;
}

std::vector<std::string> LineSplitter::Append(std::string_view data) {
  std::vector<std::string> lines;
  partial_.append(data.data(), data.size());
  size_t begin = 0;
  while (begin < partial_.size()) {
    size_t end = partial_.find('\n', begin);
    size_t next = end + 1;
    if (end == std::string::npos || end - begin > kMaxLineBytes) {
      // Not a whole line yet, and it may still become one that is short enough.
      if (partial_.size() - begin <= kMaxLineBytes) {
        break;
      }
      end = begin + kMaxLineBytes;
      next = end;
    }
    std::string_view line = std::string_view(partial_).substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') {
      line.remove_suffix(1);
    }
    if (!line.empty()) {
      lines.push_back(SanitizeUtf8(line));
    }
    begin = next;
  }
  partial_.erase(0, begin);
  return lines;
}

std::string LineSplitter::Finish() {
  return SanitizeUtf8(std::exchange(partial_, std::string()));
}

}  // namespace hearth::worker
