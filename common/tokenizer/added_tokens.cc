#include "common/tokenizer/added_tokens.h"

#include <algorithm>
#include <memory>

#include "common/base/status_macros.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/unicode.h"

namespace hearth::tokenizer {
namespace {

// Where the last code point before `end` begins. `end` > 0.
size_t Before(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80);
  return end;
}

bool IsSpaceAt(std::string_view text, size_t at, size_t* size) {
  const CharClass c =
      CharClasses::Get().Of(DecodeValid(reinterpret_cast<const uint8_t*>(text.data()) + at, size));
  return c == CharClass::kSpace || c == CharClass::kNewline;
}

// Whether the code point at `at` is part of a word, as \w of Rust's regex crate.
bool IsWordAt(std::string_view text, size_t at) {
  static const Regex& word = *[] {
    auto regex = Regex::CompilePcre2(R"(\G[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}])");
    HEARTH_CHECK(regex.ok(), "PCRE2 knows the properties of Unicode");
    return regex->release();
  }();
  RegexScratch scratch;
  size_t begin = 0;
  size_t end = 0;
  return word.Find(text, at, &scratch, &begin, &end).value_or(false);
}

}  // namespace

void AddedTokens::Add(const AddedToken& token, std::string_view content) {
  uint32_t node = 0;
  for (const char c : content) {
    const uint64_t edge = uint64_t{node} << 8 | static_cast<uint8_t>(c);
    const auto [it, is_new] =
        edges_.try_emplace(edge, static_cast<uint32_t>(entry_of_node_.size()));
    if (is_new) {
      entry_of_node_.push_back(-1);
    }
    node = it->second;
  }
  first_.set(static_cast<uint8_t>(content[0]));
  begin_ = content[0];
  if (entry_of_node_[node] < 0) {
    entry_of_node_[node] = static_cast<int32_t>(tokens_.size());
    tokens_.push_back({token, content.size()});
  }
}

const AddedTokens::Entry* AddedTokens::Match(std::string_view text, size_t at) const {
  const Entry* best = nullptr;
  uint32_t node = 0;
  for (; at < text.size(); ++at) {
    const auto it = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[at]));
    if (it == edges_.end()) {
      break;
    }
    node = it->second;
    if (entry_of_node_[node] >= 0) {
      best = &tokens_[static_cast<size_t>(entry_of_node_[node])];
    }
  }
  return best;
}

size_t AddedTokens::NextBegin(std::string_view text, size_t at) const {
  if (first_.none()) {
    return text.size();
  }
  if (first_.count() == 1) {
    return std::min(text.find(begin_, at), text.size());  // mostly <
  }
  while (at < text.size() && !first_[static_cast<uint8_t>(text[at])]) {
    ++at;
  }
  return at;
}

std::vector<AddedTokens::Part> AddedTokens::Split(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t at = NextBegin(text, 0); at < text.size(); at = NextBegin(text, at)) {
    const Entry* entry = Match(text, at);
    if (entry == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + entry->length;
    at = end;
    const AddedToken& token = entry->token;
    if (token.single_word && ((begin > 0 && IsWordAt(text, Before(text, begin))) ||
                              (end < text.size() && IsWordAt(text, end)))) {
      continue;
    }
    size_t size = 0;
    if (token.lstrip) {
      while (begin > done && IsSpaceAt(text, Before(text, begin), &size)) {
        begin = Before(text, begin);
      }
    }
    if (token.rstrip) {
      while (end < text.size() && IsSpaceAt(text, end, &size)) {
        end += size;
      }
    }
    if (begin > done) {
      parts.push_back({-1, text.substr(done, begin - done)});
    }
    // White space that the token before took already stays with that one.
    begin = std::max(begin, std::min(done, end));
    parts.push_back({token.id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) {
    parts.push_back({-1, text.substr(done)});
  }
  return parts;
}

}  // namespace hearth::tokenizer
