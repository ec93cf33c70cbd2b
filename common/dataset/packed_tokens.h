// Tokens as shards have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/dataset/format.h"

namespace hearth::dataset {

// uint16 up to 65536.
inline TokenWidth WidthOf(int32_t vocab) {
  return vocab <= 65536 ? TokenWidth::kUint16 : TokenWidth::kUint32;
}

// `token` as a shard has it.
inline void AppendToken(TokenWidth width, int32_t token, std::string* out) {
  const uint32_t value = static_cast<uint32_t>(token);
  const char bytes[] = {static_cast<char>(value), static_cast<char>(value >> 8),
                        static_cast<char>(value >> 16), static_cast<char>(value >> 24)};
  out->append(bytes, static_cast<size_t>(Bytes(width)));
}

// Tokens, or bytes that are tokens, into the memory at `to`.
void PackTokens(TokenWidth width, absl::Span<const int32_t> tokens, char* to);
void PackTokens(TokenWidth width, absl::Span<const uint8_t> tokens, char* to);

}  // namespace hearth::dataset
