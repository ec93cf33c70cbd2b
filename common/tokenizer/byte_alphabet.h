// GPT-2's names of bytes: each byte is one printable character in the vocabulary and merges of a
// byte-level tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hearth::tokenizer {

// The character of `byte`: itself if it is printable Latin-1, else one from U+0100 on.
uint32_t ByteCharacter(uint8_t byte);

// The bytes that `name` (valid UTF-8) stands for; nullopt: it has a character that stands for none.
std::optional<std::string> BytesOfName(std::string_view name);

std::string NameOfBytes(std::string_view bytes);

}  // namespace hearth::tokenizer
