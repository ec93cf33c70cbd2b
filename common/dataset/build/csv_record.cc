#include "common/dataset/build/csv_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hearth::dataset {
namespace {

absl::Status BadCsv(std::string_view where, size_t at, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(where), ": byte ", at + 1, ": ", std::string(what)));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseCsvRecord(std::string_view record,
                                                        std::string_view where) {
  std::vector<std::string> fields;
  size_t at = 0;
  while (true) {
    std::string& field = fields.emplace_back();
    if (at < record.size() && record[at] == '"') {
      const size_t opened = at++;
      while (true) {
        const size_t quote = record.find('"', at);
        if (quote == std::string_view::npos) {
          return BadCsv(where, opened, "this quote is never closed");
        }
        field.append(record.substr(at, quote - at));
        at = quote + 1;
        if (at == record.size() || record[at] != '"') {
          break;
        }
        // Two quotes inside quotes stand for one.
        field.push_back('"');
        ++at;
      }
      if (at < record.size() && record[at] != ',') {
        return BadCsv(where, at, "a comma must follow the closing quote");
      }
    } else {
      const size_t comma = std::min(record.find(',', at), record.size());
      field = record.substr(at, comma - at);
      if (const size_t quote = field.find('"'); quote != std::string::npos) {
        return BadCsv(where, at + quote, "a quote inside a field that is not in quotes");
      }
      at = comma;
    }
    if (at == record.size()) {
      return fields;
    }
    ++at;  // the comma
  }
}

}  // namespace hearth::dataset
