#include "common/tokenizer/pretokenizer.h"

#include <array>
#include <utility>

#include "common/base/status_macros.h"

namespace hearth::tokenizer {
namespace {

constexpr std::array<ScannerRow, 3> kScanners = {{
    {ScannerKind::kGpt2, "gpt2",
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {ScannerKind::kLlama3, "llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {ScannerKind::kQwen2, "qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

}  // namespace

absl::Span<const ScannerRow> Scanners() {
  return kScanners;
}

absl::Status PreTokenizer::AddPattern(std::string_view pattern, bool use_scanner) {
  for (const ScannerRow& row : kScanners) {
    if (use_scanner && row.pattern == pattern) {
      steps_.push_back({&row, nullptr});
      return absl::OkStatus();
    }
  }
  HEARTH_ASSIGN_OR_RETURN(std::shared_ptr<const Regex> regex, Regex::Compile(pattern));
  steps_.push_back({nullptr, std::move(regex)});
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddLiteral(std::string_view text) {
  HEARTH_ASSIGN_OR_RETURN(std::shared_ptr<const Regex> regex, Regex::Literal(text));
  steps_.push_back({nullptr, std::move(regex)});
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddDigits(bool individual) {
  return AddPattern(individual ? R"(\p{N})" : R"(\p{N}+)");
}

absl::Status PreTokenizer::CutPiece(const Step& step,
                                    std::string_view text,
                                    RegexScratch* scratch,
                                    std::vector<std::string_view>* out) {
  if (step.scanner != nullptr) {
    const auto take = [out](std::string_view piece) { out->push_back(piece); };
    return ScanAs(step.scanner->kind, text, take);
  }
  size_t done = 0;
  while (done < text.size()) {
    size_t begin = 0;
    size_t end = 0;
    HEARTH_ASSIGN_OR_RETURN(const bool found, step.regex->Find(text, done, scratch, &begin, &end));
    if (!found) {
      break;
    }
    if (begin > done) {
      out->push_back(text.substr(done, begin - done));
    }
    out->push_back(text.substr(begin, end - begin));
    done = end;
  }
  if (done < text.size()) {
    out->push_back(text.substr(done));
  }
  return absl::OkStatus();
}

}  // namespace hearth::tokenizer
