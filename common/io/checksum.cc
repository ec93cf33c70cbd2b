#include "common/io/checksum.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/chunk_threads.h"
#include "common/io/sha256.h"

namespace hearth {
namespace {

absl::Status Cancelled(const std::string& path) {
  return absl::CancelledError(absl::StrCat("the check of ", path, " was given up"));
}

// Reads ahead what a thread is about to sum: page by page the kernel would read too little at once.
void ReadAhead(absl::Span<const uint8_t> chunk) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t past_page = reinterpret_cast<uintptr_t>(chunk.data()) % page;
  auto* const begin = const_cast<uint8_t*>(chunk.data()) - past_page;
  madvise(begin, chunk.size() + past_page, MADV_WILLNEED);
}

absl::StatusOr<Checksum> Sha256OfBytes(absl::Span<const uint8_t> bytes,
                                       const std::string& path,
                                       const std::atomic<bool>* stop) {
  Sha256 hash;
  while (!bytes.empty()) {
    if (stop != nullptr && stop->load()) {
      return Cancelled(path);
    }
    const absl::Span<const uint8_t> chunk = bytes.subspan(0, static_cast<size_t>(kFileChunkBytes));
    hash.Update(chunk);
    bytes.remove_prefix(chunk.size());
  }
  return Checksum{hash.Hex(), ChecksumKind::kSha256};
}

}  // namespace

absl::string_view KeyOf(ChecksumKind kind) {
  return kChecksums[static_cast<size_t>(kind)].key;
}
absl::string_view LabelOf(ChecksumKind kind) {
  return kChecksums[static_cast<size_t>(kind)].label;
}

ChunkedChecksum::ChunkedChecksum(int64_t file_bytes)
    : digests_(static_cast<size_t>((file_bytes + kFileChunkBytes - 1) / kFileChunkBytes)) {}

void ChunkedChecksum::Add(int64_t index, absl::Span<const uint8_t> chunk) {
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits(chunk.data(), chunk.size()));
  static_assert(sizeof digest == sizeof(Digest));
  std::memcpy(&digests_[static_cast<size_t>(index)], &digest, sizeof digest);
}

Checksum ChunkedChecksum::Finish() const {
  // A digest of digests: threads sum chunks in any order, and the result is the same.
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest,
                           XXH3_128bits(digests_.data(), digests_.size() * sizeof(Digest)));
  Checksum sum;
  sum.kind = ChecksumKind::kXxh3;
  for (const uint8_t byte : digest.digest) {
    absl::StrAppend(&sum.hex, absl::Hex(byte, absl::kZeroPad2));
  }
  return sum;
}

absl::StatusOr<Checksum> ChecksumOfFile(Env& env,
                                        const std::string& path,
                                        ChecksumKind kind,
                                        int threads,
                                        const std::atomic<bool>* stop) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, env.Map(path));
  const absl::Span<const uint8_t> bytes = file->bytes();
  if (kind == ChecksumKind::kSha256) {
    return Sha256OfBytes(bytes, path, stop);
  }
  ChunkedChecksum sum(static_cast<int64_t>(bytes.size()));
  HEARTH_RETURN_IF_ERROR(ForEachChunk(sum.chunks(), threads, [&](int64_t index) -> absl::Status {
    if (stop != nullptr && stop->load()) {
      return Cancelled(path);
    }
    const absl::Span<const uint8_t> chunk = bytes.subspan(
        static_cast<size_t>(index * kFileChunkBytes), static_cast<size_t>(kFileChunkBytes));
    ReadAhead(chunk);
    sum.Add(index, chunk);
    return absl::OkStatus();
  }));
  return sum.Finish();
}

int FileThreads() {
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 2;
  return std::clamp(cores / 2, 2, 8);
}

}  // namespace hearth
