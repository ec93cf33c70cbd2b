// The bytes of a file of any size, plain, .gz or .zst, a chunk at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/dataset/byte_buffer.h"

namespace hearth::dataset {

// Reads a file from its beginning to its end, once. Not thread-safe.
class PackedBytes {
 public:
  // A .zst shows by its name, gzip data by their first bytes. kNotFound, kPermissionDenied: it
  // cannot be opened.
  static absl::StatusOr<std::unique_ptr<PackedBytes>> Open(const std::string& path);
  virtual ~PackedBytes() = default;

  // Appends some unpacked bytes to `out`; none at the end. Errors name the file and the position in
  // the unpacked bytes: kInvalidArgument: damaged; kResourceExhausted: it unpacks to more than 300
  // times its size (a bomb).
  absl::Status Append(ByteBuffer* out);

  int64_t bytes_read() const { return consumed_; }  // of the file as it is on disk, about

 protected:
  PackedBytes() = default;
  // One chunk; errors do not name the file.
  virtual absl::Status AppendChunk(ByteBuffer* out) = 0;
  virtual int64_t Position() = 0;  // in the file on disk

 private:
  std::string path_;
  int64_t max_unpacked_ = 0;
  int64_t unpacked_ = 0;
  int64_t consumed_ = 0;
};

}  // namespace hearth::dataset
