#include "common/dataset/build/record_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/dataset/build/csv_record.h"
#include "common/dataset/build/json_field.h"
#include "common/tokenizer/checked_json.h"

namespace hearth::dataset {
namespace {

using Kind = InputFormat::Kind;

constexpr size_t kPartBytes = size_t{1} << 20;  // of a large text file
constexpr size_t kAheadBytes = size_t{256} << 10;
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
absl::StatusOr<std::string> FieldOf(std::string_view line,
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

void DropAtEnd(char c, std::string_view bytes, Record& record) {
  if (record.size > 0 && bytes[record.begin + record.size - 1] == c) {
    --record.size;
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

absl::Status RecordReader::Fill(ByteBuffer* buffer) {
  if (at_ > read_from_) {
    // Blank lines were passed over. They go, so that memory stays bounded however many there are.
    const size_t left = buffer->size() - at_;
    std::memmove(buffer->data() + read_from_, buffer->data() + at_, left);
    at_ = read_from_;
    buffer->Shorten(at_ + left);
  }
  if (const size_t ahead = ahead_.size() - ahead_at_; ahead > 0) {
    const size_t bytes = std::min(ahead, kAheadBytes);
    buffer->Append(ahead_.view().substr(ahead_at_, bytes));
    ahead_at_ += bytes;
    return absl::OkStatus();
  }
  const size_t before = buffer->size();
  HEARTH_RETURN_IF_ERROR(bytes_->Append(buffer));
  end_ = buffer->size() == before;
  return absl::OkStatus();
}

void RecordReader::Leave(ByteBuffer* buffer) {
  if (!attached_) {
    return;
  }
  attached_ = false;
  const std::string_view left = buffer->view().substr(at_);
  if (ahead_at_ < ahead_.size()) {
    // All of it came from there, and is there still.
    ahead_at_ -= left.size();
  } else {
    ahead_.Clear();
    ahead_.Append(left);
    ahead_at_ = 0;
  }
  end_ = end_ && left.empty();
  buffer->Shorten(at_);
}

Record RecordReader::Take(size_t bytes, ByteBuffer* buffer) {
  Record record;
  record.line = line_;
  record.begin = at_;
  record.size = bytes;
  const std::string_view taken = buffer->view().substr(at_, bytes);
  at_ += bytes;
  line_ += std::count(taken.begin(), taken.end(), '\n');
  begun_ = true;
  return record;
}

absl::StatusOr<std::optional<Record>> RecordReader::Read(ByteBuffer* buffer) {
  if (!attached_) {
    at_ = buffer->size();
    attached_ = true;
  }
  read_from_ = at_;
  switch (parser_->kind_) {
    case Kind::kText:
      return ReadText(buffer);
    case Kind::kJsonLines:
      return ReadLine(buffer);
    case Kind::kCsv:
      return ReadCsv(buffer);
  }
  return absl::InternalError("unknown format");
}

absl::StatusOr<std::optional<Record>> RecordReader::ReadText(ByteBuffer* buffer) {
  // A file is one document if it fits, which shows only when more than the limit was asked for.
  const size_t wanted = begun_ ? kPartBytes : max_bytes_ + 1;
  while (!end_ && buffer->size() - at_ < wanted) {
    HEARTH_RETURN_IF_ERROR(Fill(buffer));
  }
  const size_t left = buffer->size() - at_;
  if (left == 0 && begun_) {
    return std::nullopt;
  }
  const std::string_view bytes = buffer->view().substr(at_);
  // A large file with NUL is no text: what was read stands for it.
  if (!begun_ && (left <= max_bytes_ || bytes.find('\0') != std::string_view::npos)) {
    Record record = Take(left, buffer);
    record.whole = true;
    end_ = true;
    ahead_at_ = ahead_.size();
    return record;
  }
  const size_t part = std::min({left, kPartBytes, max_bytes_});
  return Take(end_ && part == left ? left : PartEnd(bytes.substr(0, part)), buffer);
}

absl::StatusOr<std::optional<Record>> RecordReader::ReadLine(ByteBuffer* buffer) {
  bool too_long = false;
  size_t searched = 0;  // of the bytes from at_ on: these have no line end
  while (true) {
    const std::string_view bytes = buffer->view();
    const size_t line_end = bytes.find('\n', at_ + searched);
    if (line_end == std::string_view::npos && !end_) {
      if (bytes.size() - at_ > max_bytes_) {
        // What was read of it is dropped, so memory stays bounded however long the line is.
        too_long = true;
        buffer->Shorten(at_);
      }
      searched = buffer->size() - at_;
      HEARTH_RETURN_IF_ERROR(Fill(buffer));
      continue;
    }
    const size_t end = line_end == std::string_view::npos ? bytes.size() : line_end;
    if (line_end == std::string_view::npos && end == at_ && !too_long) {
      return std::nullopt;
    }
    too_long = too_long || end - at_ > max_bytes_;
    Record record;
    record.line = line_++;
    record.too_long = too_long;
    record.begin = at_;
    record.size = too_long ? 0 : end - at_;
    at_ = line_end == std::string_view::npos ? end : end + 1;
    DropAtEnd('\r', bytes, record);
    if (too_long || bytes.substr(record.begin, record.size).find_first_not_of(" \t") !=
                        std::string_view::npos) {
      return record;
    }
    too_long = false;
    searched = 0;
  }
}

absl::StatusOr<std::optional<Record>> RecordReader::ReadCsv(ByteBuffer* buffer) {
  size_t searched = 0;  // of the bytes from at_ on
  bool quoted = false;  // a quote is open behind them
  while (true) {
    const std::string_view bytes = buffer->view();
    const size_t stop = bytes.find_first_of(quoted ? "\"" : "\"\n", at_ + searched);
    if (stop != std::string_view::npos && bytes[stop] == '"') {
      // A doubled quote (RFC 4180) flips this twice, and needs no case of its own.
      quoted = !quoted;
      searched = stop + 1 - at_;
      continue;
    }
    const size_t size = (stop == std::string_view::npos ? bytes.size() : stop) - at_;
    if (size > max_bytes_ || (quoted && end_)) {
      return absl::InvalidArgumentError(
          absl::StrCat(parser_->path_, ":", line_, ": this record ",
                       end_ && size <= max_bytes_ ? "never ends"
                                                  : absl::StrCat("exceeds ", max_bytes_, " bytes"),
                       quoted ? "; a quote is left open" : ""));
    }
    if (stop == std::string_view::npos && !end_) {
      searched = size;
      HEARTH_RETURN_IF_ERROR(Fill(buffer));
      continue;
    }
    if (stop == std::string_view::npos && size == 0) {
      return std::nullopt;
    }
    Record record = Take(stop == std::string_view::npos ? size : size + 1, buffer);
    DropAtEnd('\n', bytes, record);
    DropAtEnd('\r', bytes, record);
    if (record.size > 0) {
      return record;
    }
    searched = 0;
  }
}

absl::Status RecordReader::ReadHeader(RecordParser& parser) {
  ByteBuffer buffer;
  HEARTH_ASSIGN_OR_RETURN(const std::optional<Record> header, Read(&buffer));
  if (!header.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parser.path_, ": has no header that names its fields"));
  }
  std::string_view line = buffer.view().substr(header->begin, header->size);
  if (line.starts_with(kByteOrderMark)) {
    line.remove_prefix(kByteOrderMark.size());
  }
  const std::string where = parser.Where(*header);
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, ParseCsvRecord(line, where));
  const auto it = std::find(names.begin(), names.end(), parser.field_);
  if (it == names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": the header has no field \"", parser.field_, "\""));
  }
  parser.column_ = static_cast<size_t>(it - names.begin());
  parser.columns_ = names.size();
  Leave(&buffer);
  return absl::OkStatus();
}

absl::StatusOr<RecordText> RecordParser::TextOf(const Record& record,
                                                ByteBuffer* buffer,
                                                TextSpace* space) const {
  const std::string_view bytes = buffer->view().substr(record.begin, record.size);
  if (kind_ == Kind::kText || (kind_ == Kind::kJsonLines && field_.empty())) {
    return RecordText{bytes, false};
  }
  if (kind_ == Kind::kJsonLines) {
    if (const auto text = FindJsonString(bytes, field_, &space->scratch); text.has_value()) {
      if (bytes.data() <= text->data() && text->data() < bytes.data() + bytes.size()) {
        return RecordText{*text, true};
      }
      // Back to the record, which has more room than its text needs.
      char* const place = buffer->data() + record.begin;
      std::memcpy(place, text->data(), text->size());
      return RecordText{{place, text->size()}, true};
    }
    HEARTH_ASSIGN_OR_RETURN(std::string text, FieldOf(bytes, field_, Where(record)));
    return RecordText{space->texts.emplace_back(std::move(text)), false};
  }
  HEARTH_ASSIGN_OR_RETURN(std::vector<std::string> fields, ParseCsvRecord(bytes, Where(record)));
  if (fields.size() != columns_) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(record), ": has ", fields.size(), " fields, the header has ", columns_));
  }
  return RecordText{space->texts.emplace_back(std::move(fields[column_])), false};
}

}  // namespace hearth::dataset
