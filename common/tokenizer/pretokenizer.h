// Cuts text into the pieces inside which BPE merges.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/scanner.h"

namespace hearth::tokenizer {

// A sequence of cuts, each inside the pieces of the one before. Thread-safe once it is built.
class PreTokenizer {
 public:
  // Cuts by `pattern`: matches and what lies between them are pieces. Known patterns get their
  // compiled scanner unless `use_scanner` is false. Errors as of Regex::Compile.
  absl::Status AddPattern(std::string_view pattern, bool use_scanner = true);
  absl::Status AddLiteral(std::string_view text);
  // Numbers (\p{N}) become pieces: each digit alone, or runs of them.
  absl::Status AddDigits(bool individual);

  // Calls `take(piece)` for the pieces of `text` (valid UTF-8), in order; none is empty. Errors as
  // of Regex::Find.
  template <typename Take>
  absl::Status Cut(std::string_view text, RegexScratch* scratch, Take&& take) const {
    if (steps_.size() == 1 && steps_[0].scanner != nullptr) {
      return ScanAs(steps_[0].scanner->kind, text, take);
    }
    std::vector<std::string_view> pieces;
    if (!text.empty()) {
      pieces.push_back(text);
    }
    for (const Step& step : steps_) {
      std::vector<std::string_view> next;
      for (const std::string_view piece : pieces) {
        if (absl::Status status = CutPiece(step, piece, scratch, &next); !status.ok()) {
          return status;
        }
      }
      pieces = std::move(next);
    }
    for (const std::string_view piece : pieces) {
      take(piece);
    }
    return absl::OkStatus();
  }

 private:
  struct Step {
    const ScannerRow* scanner = nullptr;  // else the expression
    std::shared_ptr<const Regex> regex;
  };

  template <typename Take>
  static absl::Status ScanAs(ScannerKind kind, std::string_view text, Take& take) {
    switch (kind) {
      case ScannerKind::kGpt2:
        return Scan<ScannerKind::kGpt2>(text, take);
      case ScannerKind::kLlama3:
        return Scan<ScannerKind::kLlama3>(text, take);
      case ScannerKind::kQwen2:
        return Scan<ScannerKind::kQwen2>(text, take);
    }
    return absl::InternalError("no such scanner");
  }

  template <ScannerKind kKind, typename Take>
  static absl::Status Scan(std::string_view text, Take& take) {
    Scanner<kKind> scanner(text);
    for (std::string_view piece = scanner.Next(); !piece.empty(); piece = scanner.Next()) {
      take(piece);
    }
    return absl::OkStatus();
  }

  static absl::Status CutPiece(const Step& step,
                               std::string_view text,
                               RegexScratch* scratch,
                               std::vector<std::string_view>* out);

  std::vector<Step> steps_;
};

}  // namespace hearth::tokenizer
