#include "common/base/clip_text.h"

namespace hearth {

std::string_view ClipBytes(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) {
    return text;
  }
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  return text.substr(0, end);
}

std::string ClipText(std::string_view text, size_t max_bytes) {
  std::string out(ClipBytes(text, max_bytes));
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 || byte == 0x7f;
    c = control && c != '\n' && c != '\r' && c != '\t' ? '?' : c;
  }
  return out;
}

}  // namespace hearth
