#include "common/dataset/build/record_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/dataset/build/csv_record.h"
#include "common/tokenizer/checked_json.h"

namespace hearth::dataset {
namespace {

using Kind = InputFormat::Kind;

constexpr size_t kPartBytes = size_t{1} << 20;  // of a large text file
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

constexpr std::string_view kTextEndings[] = {".txt", ".md"};
constexpr std::string_view kJsonLinesEndings[] = {".jsonl", ".ndjson"};
constexpr std::string_view kCsvEndings[] = {".csv"};
constexpr InputFormat kFormats[] = {
    {Kind::kText, "text", kTextEndings, false},
    {Kind::kJsonLines, "jsonl", kJsonLinesEndings, true},
    {Kind::kCsv, "csv", kCsvEndings, true},
};

// The text of `field` (a name, or names with dots between them) in a line of JSON.
absl::StatusOr<std::string> FieldOf(const std::string& line,
                                    const std::string& field,
                                    const std::string& where) {
  HEARTH_ASSIGN_OR_RETURN(nlohmann::json json, tokenizer::ParseCheckedJson(line, where));
  nlohmann::json* value = &json;
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
  return std::move(value->get_ref<std::string&>());
}

// Where to cut `text`: behind the last line end, else before the last character of UTF-8.
size_t PartEnd(std::string_view text) {
  if (const size_t line_end = text.rfind('\n'); line_end != std::string_view::npos) {
    return line_end + 1;
  }
  size_t end = text.size() - 1;
  while (end > 1 && text.size() - end < 4 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  return end;
}

void DropCarriageReturn(std::string& line) {
  if (!line.empty() && line.back() == '\r') {
    line.pop_back();
  }
}

}  // namespace

absl::Span<const InputFormat> InputFormats() {
  return kFormats;
}

const InputFormat* FindInputFormat(std::string_view name) {
  return FindRow(kFormats, &InputFormat::name, name);
}

const InputFormat& FormatOfFile(std::string_view path, const InputFormat& otherwise) {
  absl::string_view name(path.data(), path.size());
  if (!absl::ConsumeSuffix(&name, ".gz")) {
    absl::ConsumeSuffix(&name, ".zst");
  }
  for (const InputFormat& format : kFormats) {
    for (const std::string_view ending : format.name_endings) {
      if (absl::EndsWith(name, absl::string_view(ending.data(), ending.size()))) {
        return format;
      }
    }
  }
  return otherwise;
}

absl::StatusOr<std::unique_ptr<RecordReader>> RecordReader::Open(const std::string& path,
                                                                 const InputFormat& format,
                                                                 std::string_view field,
                                                                 int64_t max_bytes) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<PackedBytes> bytes, PackedBytes::Open(path));
  const auto parser = std::make_shared<RecordParser>();
  parser->path_ = path;
  parser->kind_ = format.kind;
  parser->field_ = field;
  std::unique_ptr<RecordReader> reader(new RecordReader(parser, max_bytes, std::move(bytes)));
  if (format.kind == Kind::kCsv) {
    HEARTH_RETURN_IF_ERROR(reader->ReadHeader(*parser));
  }
  return reader;
}

std::string RecordParser::Where(const Record& record) const {
  return record.whole ? path_ : absl::StrCat(path_, ":", record.line);
}

absl::Status RecordReader::Fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t before = buffer_.size();
  HEARTH_RETURN_IF_ERROR(bytes_->Append(&buffer_));
  end_ = buffer_.size() == before;
  return absl::OkStatus();
}

Record RecordReader::Take(size_t bytes) {
  Record record;
  record.line = line_;
  record.bytes.assign(buffer_, at_, bytes);
  at_ += bytes;
  line_ += std::count(record.bytes.begin(), record.bytes.end(), '\n');
  begun_ = true;
  return record;
}

absl::StatusOr<std::optional<Record>> RecordReader::Read() {
  switch (parser_->kind_) {
    case Kind::kText:
      return ReadText();
    case Kind::kJsonLines:
      return ReadLine();
    case Kind::kCsv:
      return ReadCsv();
  }
  return absl::InternalError("unknown format");
}

absl::StatusOr<std::optional<Record>> RecordReader::ReadText() {
  // A file is one document if it fits, which shows only when more than the limit was asked for.
  const size_t wanted = begun_ ? kPartBytes : max_bytes_ + 1;
  while (!end_ && buffer_.size() - at_ < wanted) {
    HEARTH_RETURN_IF_ERROR(Fill());
  }
  const size_t left = buffer_.size() - at_;
  if (left == 0 && begun_) {
    return std::nullopt;
  }
  // A large file with NUL is no text: what was read stands for it.
  if (!begun_ && (left <= max_bytes_ || buffer_.find('\0') != std::string::npos)) {
    begun_ = end_ = true;
    Record record;
    record.line = line_;
    record.whole = true;
    record.bytes = std::exchange(buffer_, std::string());
    return record;
  }
  const size_t part = std::min({left, kPartBytes, max_bytes_});
  return Take(end_ && part == left ? left : PartEnd(std::string_view(buffer_).substr(at_, part)));
}

absl::StatusOr<std::optional<Record>> RecordReader::ReadLine() {
  bool too_long = false;
  size_t searched = 0;  // of the bytes from at_ on: these have no line end
  while (true) {
    const size_t line_end = buffer_.find('\n', at_ + searched);
    if (line_end == std::string::npos && !end_) {
      if (buffer_.size() - at_ > max_bytes_) {
        // What was read of it is dropped, so memory stays bounded however long the line is.
        too_long = true;
        at_ = buffer_.size();
      }
      searched = buffer_.size() - at_;
      HEARTH_RETURN_IF_ERROR(Fill());
      continue;
    }
    const size_t end = line_end == std::string::npos ? buffer_.size() : line_end;
    if (line_end == std::string::npos && end == at_ && !too_long) {
      return std::nullopt;
    }
    too_long = too_long || end - at_ > max_bytes_;
    Record record;
    record.line = line_++;
    record.too_long = too_long;
    if (!too_long) {
      record.bytes.assign(buffer_, at_, end - at_);
      DropCarriageReturn(record.bytes);
    }
    at_ = line_end == std::string::npos ? end : end + 1;
    if (too_long || record.bytes.find_first_not_of(" \t") != std::string::npos) {
      return record;
    }
    too_long = false;
    searched = 0;
  }
}

absl::StatusOr<std::optional<Record>> RecordReader::ReadCsv() {
  size_t searched = 0;  // of the bytes from at_ on
  bool quoted = false;  // a quote is open behind them
  while (true) {
    const size_t stop = buffer_.find_first_of(quoted ? "\"" : "\"\n", at_ + searched);
    if (stop != std::string::npos && buffer_[stop] == '"') {
      // A doubled quote (RFC 4180) flips this twice, and needs no case of its own.
      quoted = !quoted;
      searched = stop + 1 - at_;
      continue;
    }
    const size_t size = (stop == std::string::npos ? buffer_.size() : stop) - at_;
    if (size > max_bytes_ || (quoted && end_)) {
      return absl::InvalidArgumentError(
          absl::StrCat(parser_->path_, ":", line_, ": this record ",
                       end_ && size <= max_bytes_ ? "never ends"
                                                  : absl::StrCat("exceeds ", max_bytes_, " bytes"),
                       quoted ? "; a quote is left open" : ""));
    }
    if (stop == std::string::npos && !end_) {
      searched = size;
      HEARTH_RETURN_IF_ERROR(Fill());
      continue;
    }
    if (stop == std::string::npos && size == 0) {
      return std::nullopt;
    }
    Record record = Take(stop == std::string::npos ? size : size + 1);
    if (!record.bytes.empty() && record.bytes.back() == '\n') {
      record.bytes.pop_back();
    }
    DropCarriageReturn(record.bytes);
    if (!record.bytes.empty()) {
      return record;
    }
    searched = 0;
  }
}

absl::Status RecordReader::ReadHeader(RecordParser& parser) {
  HEARTH_ASSIGN_OR_RETURN(std::optional<Record> header, ReadCsv());
  if (!header.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parser.path_, ": has no header that names its fields"));
  }
  if (header->bytes.starts_with(kByteOrderMark)) {
    header->bytes.erase(0, kByteOrderMark.size());
  }
  const std::string where = parser.Where(*header);
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ParseCsvRecord(header->bytes, where));
  const auto it = std::find(names.begin(), names.end(), parser.field_);
  if (it == names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": the header has no field \"", parser.field_, "\""));
  }
  parser.column_ = static_cast<size_t>(it - names.begin());
  parser.columns_ = names.size();
  return absl::OkStatus();
}

absl::StatusOr<std::string> RecordParser::TextOf(Record record) const {
  switch (kind_) {
    case Kind::kText:
      return std::move(record.bytes);
    case Kind::kJsonLines:
      return field_.empty() ? std::move(record.bytes)
                            : FieldOf(record.bytes, field_, Where(record));
    case Kind::kCsv: {
      HEARTH_ASSIGN_OR_RETURN(std::vector<std::string> fields,
                              ParseCsvRecord(record.bytes, Where(record)));
      if (fields.size() != columns_) {
        return absl::InvalidArgumentError(absl::StrCat(Where(record), ": has ", fields.size(),
                                                       " fields, the header has ", columns_));
      }
      return std::move(fields[column_]);
    }
  }
  return absl::InternalError("unknown format");
}

}  // namespace hearth::dataset
