// Checksums of large files, computed by several threads.
//
// SHA-256 also tells a file that somebody has changed on purpose. XXH3 runs at the speed of memory
// and tells only accidents: torn writes, bit flips, lost blocks, files mixed up.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/env.h"

namespace hearth {

// Append only: manifests and records name them.
enum class ChecksumKind : uint8_t { kSha256, kXxh3 };

struct ChecksumRow {
  ChecksumKind kind;
  absl::string_view key;    // in manifests
  absl::string_view label;  // in texts
};
inline constexpr ChecksumRow kChecksums[] = {
    {ChecksumKind::kSha256, "sha256", "SHA-256"},
    {ChecksumKind::kXxh3, "xxh3", "XXH3"},
};

absl::string_view KeyOf(ChecksumKind kind);
absl::string_view LabelOf(ChecksumKind kind);

struct Checksum {
  std::string hex;  // lower case
  ChecksumKind kind = ChecksumKind::kSha256;
  bool operator==(const Checksum&) const = default;
};

// Files are read, written and summed in pieces of this many bytes. Part of the format of kXxh3.
inline constexpr int64_t kFileChunkBytes = int64_t{8} << 20;

// kXxh3: XXH3-128 over the XXH3-128 digests (16 bytes each, big-endian) of the file's chunks of
// kFileChunkBytes, the last of which may be shorter. Thread-safe: each chunk is added once, in any
// order.
class ChunkedChecksum {
 public:
  explicit ChunkedChecksum(int64_t file_bytes);
  // The chunk that begins at `index` * kFileChunkBytes.
  void Add(int64_t index, absl::Span<const uint8_t> chunk);
  int64_t chunks() const { return static_cast<int64_t>(digests_.size()); }
  // Call it after all chunks.
  Checksum Finish() const;

 private:
  struct Digest {
    uint8_t bytes[16];
  };
  std::vector<Digest> digests_;
};

// The sum of a whole file, by up to `threads` threads (>= 1; SHA-256 uses one). kCancelled: `stop`
// became true. Errors: those of Env::Map.
absl::StatusOr<Checksum> ChecksumOfFile(Env& env,
                                        const std::string& path,
                                        ChecksumKind kind,
                                        int threads,
                                        const std::atomic<bool>* stop = nullptr);

// Threads that keep a disk or a link busy with such work: half of the cores this process may use,
// at least 2 and at most 8.
int FileThreads();

}  // namespace hearth
