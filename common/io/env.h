// Files, behind an interface so that tests can make the disk fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace hearth {

// Writes whose memory, offset and size are multiples of this go past the page cache where the file
// system can.
inline constexpr size_t kDirectWriteBytes = 4096;

// An open file, either to append to or to write at offsets. Not thread-safe except for WriteAt.
class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes, without an error report: call Close() to know
  // kResourceExhausted: disk full (text names the file); kInternal: other I/O errors.
  virtual absl::Status Append(std::string_view data) = 0;
  // Makes a new file `bytes` long and takes the disk space for it where the file system can.
  virtual absl::Status Allocate(int64_t bytes) = 0;
  // From any thread; what parallel calls write must not overlap.
  virtual absl::Status WriteAt(int64_t offset, std::string_view data) = 0;
  // Asks the disk to take what was appended, and does not wait for it: a later Sync waits less, and
  // tells of errors. The file system may ignore it.
  virtual void StartWriteBack() {}
  // Data and metadata are on the disk when it returns OK.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

// A read-only memory map. The bytes live as long as the object.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual absl::Span<const uint8_t> bytes() const = 0;
};

// Thread-safe. Every error text names the path. kNotFound: no such file; kPermissionDenied;
// kResourceExhausted: disk full.
class Env {
 public:
  virtual ~Env() = default;

  virtual absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(
      const std::string& path) = 0;  // truncates
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(
      const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<MappedFile>> Map(const std::string& path) = 0;
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) = 0;
  // Temporary name, fsync, rename, fsync of the folder: after a crash the old or the new content is
  // there, whole.
  virtual absl::Status WriteFileAtomically(const std::string& path, std::string_view data) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status SyncDir(const std::string& dir) = 0;
  virtual absl::Status CreateDirs(const std::string& dir) = 0;  // like mkdir -p
  virtual absl::Status RemoveAll(const std::string& path) = 0;  // absent is OK
  virtual absl::Status Truncate(const std::string& path, int64_t size) = 0;
  virtual absl::StatusOr<int64_t> FileSize(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual bool IsDirectory(const std::string& path) = 0;
  virtual absl::StatusOr<std::vector<std::string>> ListDir(
      const std::string& dir) = 0;  // names, sorted, without . and ..

  // The machine's file system. Lives for ever.
  static Env& Real();
};

// WriteFileAtomically out of an Env's other operations; for implementations of Env.
absl::Status WriteFileAtomicallyWith(Env& env, const std::string& path, std::string_view data);

// The same without an fsync, which on a busy disk takes seconds: whoever reads the file finds the
// old or the new content, whole, but a power cut may leave none. For what is of use only while its
// writer runs.
absl::Status ReplaceFile(Env& env, const std::string& path, std::string_view data);

}  // namespace hearth
