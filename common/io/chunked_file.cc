#include "common/io/chunked_file.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/io/chunk_threads.h"

namespace hearth {
namespace {

// Buffers for chunks; a thread borrows one for a chunk. Aligned as writes past the page cache need.
class ChunkBuffers {
 public:
  ChunkBuffers() = default;
  ~ChunkBuffers() {
    for (uint8_t* buffer : free_) {
      std::free(buffer);
    }
  }
  ChunkBuffers(const ChunkBuffers&) = delete;
  ChunkBuffers& operator=(const ChunkBuffers&) = delete;

  // nullptr: no memory.
  uint8_t* Take() {
    {
      absl::MutexLock lock(&mu_);
      if (!free_.empty()) {
        uint8_t* const buffer = free_.back();
        free_.pop_back();
        return buffer;
      }
    }
    return static_cast<uint8_t*>(
        std::aligned_alloc(kDirectWriteBytes, static_cast<size_t>(kFileChunkBytes)));
  }

  void Give(uint8_t* buffer) {
    absl::MutexLock lock(&mu_);
    free_.push_back(buffer);
  }

 private:
  absl::Mutex mu_;
  std::vector<uint8_t*> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<FileFacts> WriteChunkedFile(
    Env& env, const std::string& path, int64_t bytes, const FillChunk& fill, int threads) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, env.NewWritableFile(path));
  HEARTH_RETURN_IF_ERROR(file->Allocate(bytes));
  ChunkedChecksum sum(bytes);
  ChunkBuffers buffers;
  HEARTH_RETURN_IF_ERROR(ForEachChunk(sum.chunks(), threads, [&](int64_t index) -> absl::Status {
    const int64_t offset = index * kFileChunkBytes;
    const auto size = static_cast<size_t>(std::min(kFileChunkBytes, bytes - offset));
    uint8_t* const buffer = buffers.Take();
    if (buffer == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory to write ", path));
    }
    absl::Status status = fill(offset, absl::MakeSpan(buffer, size));
    if (status.ok()) {
      sum.Add(index, absl::MakeConstSpan(buffer, size));
      status = file->WriteAt(offset, {reinterpret_cast<const char*>(buffer), size});
    }
    buffers.Give(buffer);
    return status;
  }));
  HEARTH_RETURN_IF_ERROR(file->Sync());
  HEARTH_RETURN_IF_ERROR(file->Close());
  return FileFacts{bytes, sum.Finish()};
}

}  // namespace hearth
