#include "common/dataset/packed_tokens.h"

#include <bit>
#include <cstring>

namespace hearth::dataset {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

template <class To, class From>
void PackAs(absl::Span<const From> tokens, char* to) {
  const From* const from = tokens.data();
  const size_t count = tokens.size();
  for (size_t i = 0; i < count; ++i) {
    const auto token = static_cast<To>(from[i]);
    std::memcpy(to + i * sizeof token, &token, sizeof token);
  }
}

template <class From>
void Pack(TokenWidth width, absl::Span<const From> tokens, char* to) {
  width == TokenWidth::kUint16 ? PackAs<uint16_t>(tokens, to) : PackAs<uint32_t>(tokens, to);
}

}  // namespace

void PackTokens(TokenWidth width, absl::Span<const int32_t> tokens, char* to) {
  Pack(width, tokens, to);
}

void PackTokens(TokenWidth width, absl::Span<const uint8_t> tokens, char* to) {
  Pack(width, tokens, to);
}

}  // namespace hearth::dataset
