// A disk in memory that loses power. For tests.
//
// What a program wrote is there for it at once, and durable only after Sync; a name that it made,
// changed or removed is durable only after SyncDir of its folder. A power cut leaves what is
// durable and, as the test chooses, all, none or some of the rest: of the writes any subset, each
// whole or torn at a sector, of the names a beginning, as journalling file systems do.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/io/env.h"

namespace hearth {

// What of the unsynced changes survives a power cut.
enum class Unsynced { kLost, kKept, kSome };

class SimDisk : public Env {
 public:
  // A file or a folder, whatever its names are.
  struct Node {
    bool folder = false;
    std::string now = "";
    std::string durable = "";
    struct Write {
      int64_t offset;
      std::string data;
      bool truncate;  // to `offset`
    };
    std::vector<Write> unsynced = {};
  };
  using NodePtr = std::shared_ptr<Node>;

  SimDisk();
  // The same disk as seen by the program now, all of it durable.
  std::unique_ptr<SimDisk> Copy() const;

  // Changing operations so far: creating, writing, sizing, syncing, renaming and removing.
  int64_t operations() const;
  // The power fails at the n-th changing operation from now (1 = the next), which does nothing.
  // From then on everything fails with kInternal, until PowerOn.
  void PowerFailsAt(int64_t n);
  bool off() const;
  // The program ends with everything that it has open; what it wrote is there for the next one, and
  // as durable as before. Also after PowerFailsAt: then the program ended there, not the machine.
  void ProgramEnds();
  // Files that were open stay dead. `random` decides with kSome.
  void PowerOn(Unsynced unsynced, std::mt19937_64& random);
  // From now on Sync and SyncDir say OK and do nothing: a disk that lies.
  void IgnoreSyncs();

  // By handle, for file systems of others on this disk. Each fails with kInternal when the power
  // has failed since Open, and with kNotFound when there is no such file and `create` is false.
  struct Handle {
    NodePtr node;
    int64_t boot = 0;
  };
  absl::StatusOr<Handle> Open(const std::string& path, bool create, bool truncate);
  absl::StatusOr<std::string> ReadAt(const Handle& file, int64_t offset, size_t bytes);
  absl::Status WriteAt(const Handle& file, int64_t offset, std::string_view data);
  absl::Status Resize(const Handle& file, int64_t size);
  absl::Status Sync(const Handle& file);
  absl::StatusOr<int64_t> SizeOf(const Handle& file);

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
  bool Exists(const std::string& path) override;
  bool IsDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDir(const std::string& dir) override;

 private:
  class File;
  using Names = std::map<std::string, NodePtr>;
  // `to` is empty except for a rename; `node` is null when the name goes.
  struct NameChange {
    std::string path;
    std::string to;
    NodePtr node;
  };

  // Counts a changing operation; fails when the power is off, or fails now.
  absl::Status Change() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status On() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Alive(const Handle& file) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<NodePtr> Find(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Note(NameChange change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Apply(const NameChange& change, Names& names);

  mutable absl::Mutex mu_;
  Names now_ ABSL_GUARDED_BY(mu_);
  Names durable_ ABSL_GUARDED_BY(mu_);
  std::vector<NameChange> unsynced_names_ ABSL_GUARDED_BY(mu_);
  int64_t operations_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t fails_at_ ABSL_GUARDED_BY(mu_) = INT64_MAX;
  int64_t boot_ ABSL_GUARDED_BY(mu_) = 0;
  bool off_ ABSL_GUARDED_BY(mu_) = false;
  bool lies_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hearth
