#include "common/dataset/corpus.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/dataset/packed_lines.h"
#include "common/io/sha256.h"
#include "common/tokenizer/checked_json.h"

namespace hearth::dataset {
namespace {

std::array<uint64_t, 2> Digest(std::string_view text) {
  Sha256 hash;
  hash.Update(text);
  const auto digest = hash.Finish();
  std::array<uint64_t, 2> value;
  std::memcpy(value.data(), digest.data(), sizeof value);
  return value;
}

bool IsJsonLines(const std::string& path) {
  return absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".jsonl.gz") ||
         absl::EndsWith(path, ".jsonl.zst");
}

// The text of `field` (a name, or names with dots between them) in a line of JSON.
absl::StatusOr<std::string> FieldOf(const std::string& line,
                                    const std::string& field,
                                    const std::string& where) {
  HEARTH_ASSIGN_OR_RETURN(const nlohmann::json json, tokenizer::ParseCheckedJson(line, where));
  const nlohmann::json* value = &json;
  if (const auto whole = json.is_object() ? json.find(field) : json.end(); whole != json.end()) {
    value = &*whole;
  } else {
    for (const auto name : absl::StrSplit(field, '.')) {
      const auto it = value->is_object() ? value->find(std::string(name)) : value->end();
      if (it == value->end()) {
        return absl::InvalidArgumentError(absl::StrCat(where, ": no field \"", field, "\""));
      }
      value = &*it;
    }
  }
  if (!value->is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": field \"", field, "\" is not a string"));
  }
  return value->get<std::string>();
}

}  // namespace

absl::Status Corpus::Collect() {
  HEARTH_ASSIGN_OR_RETURN(std::vector<TextFile> files,
                          FindFiles(options_.inputs, &report_.unreadable));
  if (options_.max_bytes > 0) {
    std::stable_sort(files.begin(), files.end(), [](const TextFile& a, const TextFile& b) {
      return Digest(a.path)[0] < Digest(b.path)[0];
    });
  }
  for (const TextFile& file : files) {
    HEARTH_RETURN_IF_ERROR(Add(file));
  }
  std::sort(sources_.begin(), sources_.end(),
            [](const Source& a, const Source& b) { return a.path < b.path; });
  if (sources_.empty()) {
    return absl::InvalidArgumentError(
        report_.oversized > 0
            ? absl::StrCat("--input: all files are larger than ", options_.max_document_bytes,
                           " bytes or over the cap; a file is one document, a .jsonl has many")
            : "--input: no text files found");
  }
  return absl::OkStatus();
}

absl::Status Corpus::Add(const TextFile& file) {
  if (IsJsonLines(file.path)) {
    if (options_.field.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path, ": --field must say which field of each line has the text"));
    }
    Source source{file.path, {}};
    HEARTH_RETURN_IF_ERROR(
        ForEachLine(file.path, [&](int64_t, const std::optional<std::string>& text) {
          if (!text.has_value()) {
            ++report_.oversized;
          } else if (!IsText(*text)) {
            ++report_.binary;
          }
          source.chosen.push_back(text.has_value() && IsText(*text) && Choose(*text));
          return absl::OkStatus();
        }));
    if (std::find(source.chosen.begin(), source.chosen.end(), true) != source.chosen.end()) {
      ++report_.files;
      sources_.push_back(std::move(source));
    }
    return absl::OkStatus();
  }
  // Unpacked text is at least as large as its file, so a file that cannot fit is not read.
  const int64_t left = options_.max_bytes > 0 ? options_.max_bytes - report_.bytes : file.size;
  if (file.size > options_.max_document_bytes || file.size > left) {
    ++report_.oversized;
    return absl::OkStatus();
  }
  if (const std::optional<std::string> text = ReadText(file.path);
      text.has_value() && Choose(*text)) {
    ++report_.files;
    sources_.push_back({file.path, {true}});
  }
  return absl::OkStatus();
}

bool Corpus::Choose(std::string_view text) {
  const int64_t size = static_cast<int64_t>(text.size());
  if (size == 0) {
    ++report_.empty;
    return false;
  }
  if (options_.max_bytes > 0 && report_.bytes + size > options_.max_bytes) {
    ++report_.oversized;
    return false;
  }
  if (!seen_.insert(Digest(text)).second) {
    ++report_.duplicates;
    return false;
  }
  report_.bytes += size;
  return true;
}

// nullopt with one of the report's counters raised when it is not text.
std::optional<std::string> Corpus::ReadText(const std::string& path) {
  absl::StatusOr<std::string> bytes = env_.ReadFile(path);
  if (!bytes.ok()) {
    ++report_.unreadable;
    return std::nullopt;
  }
  if (absl::EndsWith(path, ".gz") || absl::EndsWith(path, ".zst")) {
    bytes = absl::EndsWith(path, ".gz") ? Gunzip(*bytes, options_.max_document_bytes)
                                        : Unzstd(*bytes, options_.max_document_bytes);
    if (!bytes.ok()) {
      ++(absl::IsResourceExhausted(bytes.status()) ? report_.oversized : report_.binary);
      return std::nullopt;
    }
  }
  if (!IsText(*bytes)) {
    ++report_.binary;
    return std::nullopt;
  }
  return *std::move(bytes);
}

absl::Status Corpus::ForEachLine(
    const std::string& path,
    const std::function<absl::Status(int64_t, std::optional<std::string>)>& take) const {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<PackedLines> lines,
                          PackedLines::Open(path, options_.max_document_bytes));
  std::string line;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const PackedLines::Next next, lines->Read(&line));
    if (next == PackedLines::Next::kEnd) {
      return absl::OkStatus();
    }
    if (next == PackedLines::Next::kTooLong) {
      HEARTH_RETURN_IF_ERROR(take(lines->line_number(), std::nullopt));
    } else if (line.find_first_not_of(" \t") != std::string::npos) {
      HEARTH_ASSIGN_OR_RETURN(
          std::string text,
          FieldOf(line, options_.field, absl::StrCat(path, ":", lines->line_number())));
      HEARTH_RETURN_IF_ERROR(take(lines->line_number(), std::move(text)));
    }
  }
}

absl::Status Corpus::ForEach(const std::function<absl::Status(Document)>& take) {
  for (const Source& source : sources_) {
    const auto changed = [&source] {
      return absl::AbortedError(
          absl::StrCat(source.path, ": changed while the dataset was being built"));
    };
    if (!IsJsonLines(source.path)) {
      std::optional<std::string> text = ReadText(source.path);
      if (!text.has_value()) {
        return changed();
      }
      HEARTH_RETURN_IF_ERROR(take({source.path, *std::move(text)}));
      continue;
    }
    size_t at = 0;
    HEARTH_RETURN_IF_ERROR(ForEachLine(
        source.path, [&](int64_t line, std::optional<std::string> text) -> absl::Status {
          if (at >= source.chosen.size() || (source.chosen[at] && !text.has_value())) {
            return changed();
          }
          return source.chosen[at++]
                     ? take({absl::StrCat(source.path, ":", line), *std::move(text)})
                     : absl::OkStatus();
        }));
    if (at != source.chosen.size()) {
      return changed();
    }
  }
  return absl::OkStatus();
}

}  // namespace hearth::dataset
