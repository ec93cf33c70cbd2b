// Large files written by several threads, a chunk at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/checksum.h"
#include "common/io/env.h"

namespace hearth {

// Fills `out` with the file's bytes from `offset` on. Depends only on the offset; called from
// several threads at a time.
using FillChunk = std::function<absl::Status(int64_t offset, absl::Span<uint8_t> out)>;

// What was written: the file is on the disk.
struct FileFacts {
  int64_t bytes = 0;
  Checksum checksum;  // kXxh3, of the bytes in memory before they were written
};

// Writes a file of `bytes` bytes, which do not depend on `threads` (>= 1), nor does their checksum.
// Takes threads * kFileChunkBytes of memory. Errors: those of `fill` and of Env; the file is then
// left as it is.
absl::StatusOr<FileFacts> WriteChunkedFile(
    Env& env, const std::string& path, int64_t bytes, const FillChunk& fill, int threads);

}  // namespace hearth
