// Lines of text files of any size, plain, .gz or .zst, with memory for one line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hearth::dataset {

// Reads a file from its beginning to its end, once. Not thread-safe.
class PackedLines {
 public:
  enum class Next { kLine, kTooLong, kEnd };

  // By its name, `path` is .gz, .zst or plain. A line has at most `max_line_bytes`. kNotFound,
  // kPermissionDenied: it cannot be opened.
  static absl::StatusOr<std::unique_ptr<PackedLines>> Open(const std::string& path,
                                                           int64_t max_line_bytes);
  ~PackedLines();

  // kLine: the next line is in `line`, without its line end. kTooLong: it was longer and is passed
  // over. Errors name the file: kInvalidArgument: damaged; kResourceExhausted: it unpacks to more
  // than 300 times its size (a bomb).
  absl::StatusOr<Next> Read(std::string* line);

  int64_t line_number() const { return line_number_; }  // of the line read last, from 1

 private:
  class Source;  // the unpacked bytes
  class GzipSource;
  class ZstdSource;

  PackedLines(std::string path, int64_t packed_bytes, int64_t max_line_bytes);
  absl::Status Fill();

  const std::string path_;
  const int64_t max_unpacked_;
  const size_t max_line_;
  int64_t line_number_ = 0;
  int64_t unpacked_ = 0;
  std::unique_ptr<Source> source_;
  std::string buffer_;  // unpacked bytes; those from at_ on are not read yet
  size_t at_ = 0;
  bool end_ = false;
};

}  // namespace hearth::dataset
