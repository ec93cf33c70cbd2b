#include "common/jinja/characters.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace hearth::jinja {
namespace {

// The number of bytes of the character at `text`, which is not empty, and its code point.
size_t Decode(std::string_view text, uint32_t* code) {
  const auto at = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  const size_t size = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  *code = size == 1 ? lead : lead & (0xffu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size() || (at(i) & 0xc0) != 0x80) {
      *code = lead;
      return 1;
    }
    *code = *code << 6 | (at(i) & 0x3fu);
  }
  return size;
}

bool IsSpace(uint32_t code) {
  constexpr uint32_t kOthers[] = {0x20, 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
  return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x1f) ||
         (code >= 0x2000 && code <= 0x200a) ||
         std::find(std::begin(kOthers), std::end(kOthers), code) != std::end(kOthers);
}

}  // namespace

std::vector<size_t> CharacterOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  uint32_t code = 0;
  for (size_t at = 0; at < text.size(); at += Decode(text.substr(at), &code)) {
    offsets.push_back(at);
  }
  offsets.push_back(text.size());
  return offsets;
}

size_t CharacterCount(std::string_view text) {
  return CharacterOffsets(text).size() - 1;
}

std::string_view Strip(std::string_view text,
                       const std::string* characters,
                       bool left,
                       bool right) {
  const auto stripped = [characters](std::string_view character) {
    uint32_t code = 0;
    const size_t size = Decode(character, &code);
    return characters == nullptr ? IsSpace(code)
                                 : characters->find(character.substr(0, size)) != std::string::npos;
  };
  uint32_t code = 0;
  while (left && !text.empty() && stripped(text)) {
    text.remove_prefix(Decode(text, &code));
  }
  while (right && !text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && text.size() - last < 4 &&
           (static_cast<uint8_t>(text[last]) & 0xc0) == 0x80) {
      --last;
    }
    if (last + Decode(text.substr(last), &code) != text.size()) {
      last = text.size() - 1;  // not UTF-8
    }
    if (!stripped(text.substr(last))) {
      break;
    }
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t size = Decode(text.substr(at), &code);
    if (IsSpace(code)) {
      if (at > begin) {
        words.push_back(text.substr(begin, at - begin));
      }
      begin = at + size;
    }
    at += size;
  }
  if (begin < text.size()) {
    words.push_back(text.substr(begin));
  }
  return words;
}

size_t Find(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) {
    return std::string_view::npos;
  }
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace hearth::jinja
