#include "worker/trainer/evaluate/prompt_text.h"

#include "common/tokenizer/unicode.h"

namespace hearth::trainer {
namespace {

bool IsSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

// First byte of the character that ends at `end` > 0.
size_t BeginOfLast(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0U) == 0x80) {
    --begin;
  }
  return begin;
}

uint32_t At(std::string_view text, size_t begin, size_t* size) {
  return tokenizer::DecodeValid(reinterpret_cast<const uint8_t*>(text.data()) + begin, size);
}

}  // namespace

std::string_view Strip(std::string_view text) {
  text.remove_suffix(TrailingSpace(text));
  size_t begin = 0;
  size_t size = 0;
  while (begin < text.size() && IsSpace(At(text, begin, &size))) {
    begin += size;
  }
  return text.substr(begin);
}

size_t TrailingSpace(std::string_view text) {
  size_t end = text.size();
  size_t size = 0;
  while (end > 0 && IsSpace(At(text, BeginOfLast(text, end), &size))) {
    end -= size;
  }
  return text.size() - end;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  size_t size = 0;
  for (size_t begin = 0; begin < text.size(); begin += size) {
    const uint32_t c = At(text, begin, &size);
    tokenizer::AppendUtf8(begin == 0 ? tokenizer::ToUpper(c) : tokenizer::ToLower(c), &out);
  }
  return out;
}

int64_t Characters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) {
    count += (static_cast<uint8_t>(c) & 0xc0U) != 0x80 ? 1 : 0;
  }
  return count;
}

}  // namespace hearth::trainer
