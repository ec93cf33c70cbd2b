#include "tests/bench/made_text.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace hearth {
namespace {

constexpr size_t kWords = 30'000;
constexpr size_t kForeignWords = 3'000;
constexpr int kRepeatEvery = 100;
constexpr int kEscapedEvery = 8;

// Letters of an alphabet, from one code point to another, and how long its words are.
struct Alphabet {
  char32_t first;
  char32_t last;
  size_t longest;
};
constexpr Alphabet kAlphabets[] = {
    {U'α', U'ω', 9}, {U'а', U'я', 9}, {U'क', U'ह', 6}, {U'一', U'龥', 4}, {U'😀', U'😏', 1},
};

std::string Utf8(char32_t c) {
  std::string out;
  if (c < 0x80) {
    out += static_cast<char>(c);
    return out;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(kLead[more] | c >> (6 * more));
  for (int i = more - 1; i >= 0; --i) {
    out += static_cast<char>(0x80 | (c >> (6 * i) & 0x3f));
  }
  return out;
}

}  // namespace

MadeText::MadeText() {
  std::vector<std::string> letters;
  for (const char c : std::string_view("etaoinshrdlucmfwypvbgkjqxz")) {
    letters.emplace_back(1, c);
  }
  for (size_t i = 0; i < kWords; ++i) {
    words_.push_back(MakeWord(letters, 12));
  }
  for (const Alphabet& alphabet : kAlphabets) {
    letters.clear();
    for (char32_t c = alphabet.first; c <= alphabet.last; ++c) {
      letters.push_back(Utf8(c));
    }
    std::vector<std::string>& words = foreign_.emplace_back();
    for (size_t i = 0; i < kForeignWords; ++i) {
      words.push_back(MakeWord(letters, alphabet.longest));
    }
  }
}

// splitmix64
uint64_t MadeText::Random() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

const std::string& MadeText::Word(const std::vector<std::string>& words) {
  // Uniform in the logarithm of the rank: Zipf's law.
  const double u = static_cast<double>(Random() >> 11) * 0x1p-53;
  const double rank = std::exp(u * std::log(static_cast<double>(words.size())));
  return words[std::min(static_cast<size_t>(rank) - 1, words.size() - 1)];
}

std::string MadeText::MakeWord(const std::vector<std::string>& letters, size_t longest) {
  std::string word;
  const size_t length = 1 + (Below(longest) + Below(longest)) / 2;
  for (size_t i = 0; i < length; ++i) {
    word += letters[std::min(Below(letters.size()), Below(letters.size()))];
  }
  return word;
}

void MadeText::AddSentence(const std::vector<std::string>& words, std::string* text) {
  const size_t length = 4 + Below(16);
  for (size_t i = 0; i < length; ++i) {
    std::string word = Word(words);
    if (i == 0 && static_cast<uint8_t>(word[0]) < 0x80) {
      word[0] = static_cast<char>(word[0] - 'a' + 'A');
    }
    absl::StrAppend(text, i == 0 ? "" : " ", word,
                    i + 1 == length ? "."
                    : Below(9) == 0 ? ","
                                    : "");
  }
  const size_t end = Below(12);
  absl::StrAppend(text, end == 0 ? "\n\n" : end < 3 ? "\n" : end == 3 ? " \"It's 1994\" " : " ");
}

void MadeText::AddCode(std::string* text) {
  const size_t indent = 2 * Below(5);
  text->append(indent, ' ');
  switch (Below(4)) {
    case 0:
      absl::StrAppend(text, "if (", Word(words_), "_", Word(words_), " == ", Below(4096), ") {\n");
      break;
    case 1:
      absl::StrAppend(text, "return ", Word(words_), "(\"", Word(words_), "\\n\", ", Word(words_),
                      "[", Below(100), "]);\n");
      break;
    case 2:
      absl::StrAppend(text, "// ", Word(words_), " ", Word(words_), " ", Word(words_), "\n");
      break;
    default:
      absl::StrAppend(text, "\tauto ", Word(words_), " = ", Word(words_), "->", Word(words_),
                      "() + 0x", absl::Hex(Below(65536)), ";\n");
  }
}

std::string MadeText::NextDocument() {
  const double u = static_cast<double>(Below(1000) + Below(1000)) / 2000;
  const auto size = static_cast<size_t>(100 * std::exp2(u * 8.3));
  const size_t kind = Below(8);
  const std::vector<std::string>& words = kind == 1 ? foreign_[Below(foreign_.size())] : words_;
  std::string text;
  while (text.size() < size) {
    if (kind == 0) {
      AddCode(&text);
    } else {
      AddSentence(words, &text);
    }
  }
  return text;
}

absl::Status WriteMadeText(int64_t bytes, const std::string& jsonl, const std::string& text) {
  std::ofstream lines(jsonl, std::ios::binary);
  std::ofstream plain(text, std::ios::binary);
  MadeText made;
  std::string document;
  int64_t done = 0;
  for (int i = 0; done < bytes; ++i) {
    if (i == 0 || i % kRepeatEvery != 0) {
      document = made.NextDocument();
    }
    nlohmann::ordered_json line = {{"id", i},
                                   {"url", absl::StrCat("https://example.org/", i, "?q=\"a\"")},
                                   {"text", document},
                                   {"score", i % 1000 / 1000.0}};
    lines << line.dump(-1, ' ', i % kEscapedEvery == 0) << '\n';
    plain << document;
    done += static_cast<int64_t>(document.size());
  }
  lines.close();
  plain.close();
  return lines.good() && plain.good() ? absl::OkStatus()
                                      : absl::UnavailableError("cannot write " + jsonl);
}

}  // namespace hearth
