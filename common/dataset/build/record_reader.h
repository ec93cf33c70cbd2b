// Documents of a file as they stand in it: a text, a line of JSON, a record of CSV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/build/packed_bytes.h"
#include "common/dataset/byte_buffer.h"

namespace hearth::dataset {

// How a file holds documents. A row of the table that InputFormats returns.
struct InputFormat {
  enum class Kind {
    kText,       // the file is one document, a large one is cut into several
    kJsonLines,  // a line is an object, one of its strings a document
    kCsv,        // RFC 4180 with a header; one of a record's fields is a document
  };
  Kind kind;
  std::string_view name;                            // as --format has it
  absl::Span<const std::string_view> name_endings;  // of files; .gz and .zst may follow
  bool has_fields;                                  // --field says which is the document
};

absl::Span<const InputFormat> InputFormats();

// Finds a format by its name ("csv"); null: none has that name.
const InputFormat* FindInputFormat(std::string_view name);

// What the ending of `path` says, else `otherwise`.
const InputFormat& FormatOfFile(std::string_view path, const InputFormat& otherwise);

// A document as it stands in a file. Its bytes lie in the buffer that it was read into; there are
// none if it is too long.
struct Record {
  int64_t line = 0;    // on which it begins, from 1
  bool whole = false;  // it is the whole file
  bool too_long = false;
  size_t begin = 0;  // in the buffer
  size_t size = 0;
};

struct RecordText {
  std::string_view text;
  bool is_text = false;  // it was found to be UTF-8 without NUL; else nobody has looked
};

// What making records into text needs.
struct TextSpace {
  std::deque<std::string> texts;  // those that do not lie where their records do
  ByteBuffer scratch;             // of one call
};

// Makes the records of a file into text. Thread-safe.
class RecordParser {
 public:
  // The text lies in `buffer`, which has the record and is written over, or in `space`.
  // Errors: kInvalidArgument with file and line: no JSON, no CSV, or without the field.
  absl::StatusOr<RecordText> TextOf(const Record& record,
                                    ByteBuffer* buffer,
                                    TextSpace* space) const;
  std::string Where(const Record& record) const;  // file, and line unless the record is the file

 private:
  friend class RecordReader;
  std::string path_;
  InputFormat::Kind kind_{};
  std::string field_;
  size_t column_ = 0;   // of a CSV: index of field_,
  size_t columns_ = 0;  // of so many
};

// Reads a file from its beginning to its end, once, with memory for one record. Not thread-safe.
class RecordReader {
 public:
  // An empty `field` of JSON lines makes the whole line the document. A record has at most
  // `max_bytes`. A text file that has more is cut behind line ends into records of about 1 MiB.
  // kNotFound, kPermissionDenied: the file cannot be opened; kInvalidArgument: a CSV without
  // header, or one that lacks `field`.
  static absl::StatusOr<std::unique_ptr<RecordReader>> Open(const std::string& path,
                                                            const InputFormat& format,
                                                            std::string_view field,
                                                            int64_t max_bytes);

  // The next record; nullopt at the end. Lines have no line ends, and blank ones are passed over.
  // Its bytes are in `buffer`, with more behind them that was read ahead: unless Leave is called,
  // all calls must have the same buffer, and nobody else adds to it. Errors: those of PackedBytes;
  // kInvalidArgument with file and line: a CSV record without end.
  absl::StatusOr<std::optional<Record>> Read(ByteBuffer* buffer);

  // Takes out of `buffer` what was read ahead, so that the next Read can have another one.
  void Leave(ByteBuffer* buffer);

  const std::shared_ptr<const RecordParser>& parser() const { return parser_; }
  int64_t bytes_read() const { return bytes_->bytes_read(); }

 private:
  RecordReader(std::shared_ptr<const RecordParser> parser,
               int64_t max_bytes,
               std::unique_ptr<PackedBytes> bytes)
      : parser_(std::move(parser)),
        max_bytes_(static_cast<size_t>(max_bytes)),
        bytes_(std::move(bytes)) {}

  absl::Status Fill(ByteBuffer* buffer);
  absl::StatusOr<std::optional<Record>> ReadText(ByteBuffer* buffer);
  absl::StatusOr<std::optional<Record>> ReadLine(ByteBuffer* buffer);
  absl::StatusOr<std::optional<Record>> ReadCsv(ByteBuffer* buffer);
  absl::Status ReadHeader(RecordParser& parser);
  Record Take(size_t bytes, ByteBuffer* buffer);

  const std::shared_ptr<const RecordParser> parser_;
  const size_t max_bytes_;
  std::unique_ptr<PackedBytes> bytes_;
  ByteBuffer ahead_;       // what Leave took out of a buffer, from ahead_at_ on
  size_t ahead_at_ = 0;    // bytes before stand in the buffer again
  bool attached_ = false;  // to a buffer:
  size_t at_ = 0;          // its bytes from here on are not read yet
  size_t read_from_ = 0;   // where at_ was when Read was called
  bool end_ = false;       // of the file: nothing is left but what is in the buffer
  bool begun_ = false;     // a record of the file was read
  int64_t line_ = 1;       // at at_
};

}  // namespace hearth::dataset
