// Documents out of a random number generator: the same ones on each machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hearth {

// Three quarters of the documents are made-up words in lines and paragraphs, an eighth looks like
// source code, an eighth is in other alphabets: Greek, Cyrillic, Devanagari, Chinese, emoji. Words
// have the frequencies of Zipf's law. A document has 0.1 to 32 KB, the median is about 2 KB.
class MadeText {
 public:
  MadeText();
  std::string NextDocument();

 private:
  uint64_t Random();
  size_t Below(size_t n) { return static_cast<size_t>(Random() % n); }
  const std::string& Word(const std::vector<std::string>& words);
  std::string MakeWord(const std::vector<std::string>& letters, size_t longest);
  void AddSentence(const std::vector<std::string>& words, std::string* text);
  void AddCode(std::string* text);

  uint64_t state_ = 1;
  std::vector<std::string> words_;
  std::vector<std::vector<std::string>> foreign_;  // words of each other alphabet
};

// Writes documents of `bytes` bytes in all twice: `jsonl` has one in each line, with an id, an
// address and a score; `text` has them one after the other. An eighth of the lines has what is not
// ASCII as JSON escapes. Every hundredth document repeats an earlier one.
absl::Status WriteMadeText(int64_t bytes, const std::string& jsonl, const std::string& text);

}  // namespace hearth
