// Access to files below certain folders and to no others; links are followed first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/io/env.h"

namespace hearth {

// What errors about paths outside say.
struct FileRoots {
  std::vector<std::string> read;   // and those of `write`; empty = everything may be read
  std::vector<std::string> write;  // empty = everything may be written
  std::string owner;               // whose limits they are: "worker w1"
};

// Opens a path without reading or writing it, asks the kernel where it has led, and goes on with
// what was opened: a link that changes meanwhile changes nothing. Outside every call but Exists()
// gives kPermissionDenied, with path, roots and owner, whether there is something or not.
//
// One gap remains: new entries are made by name in a folder that was checked, and a link in the
// place of a file to be written is refused a moment before. Only somebody who may write in that
// folder can use that moment.
class RootedEnv : public Env {
 public:
  // `base` works on the machine's files and outlives the object. Roots need not exist yet.
  RootedEnv(Env& base, FileRoots roots) : base_(base), roots_(std::move(roots)) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<MappedFile>> Map(const std::string& path) override;
  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
  absl::Status WriteFileAtomically(const std::string& path, std::string_view data) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDir(const std::string& dir) override;
  absl::Status CreateDirs(const std::string& dir) override;
  absl::Status RemoveAll(const std::string& path) override;
  absl::Status Truncate(const std::string& path, int64_t size) override;
  absl::StatusOr<int64_t> FileSize(const std::string& path) override;
  // True of a path outside: the call that opens it says why it does not.
  bool Exists(const std::string& path) override;
  bool IsDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDir(const std::string& dir) override;

 private:
  class Pinned;
  class File;
  enum class For { kReading, kWriting };

  bool Allows(const std::string& real, For use) const;
  absl::Status Outside(const std::string& path, For use) const;
  // What lies at `path`, which is allowed.
  absl::StatusOr<Pinned> Pin(const std::string& path, For use) const;
  // An entry, there or not, of a folder that may be written.
  absl::StatusOr<Pinned> PinEntry(const std::string& path) const;
  // The same, but refuses a link.
  absl::StatusOr<Pinned> PinFile(const std::string& path) const;

  Env& base_;
  const FileRoots roots_;
};

}  // namespace hearth
